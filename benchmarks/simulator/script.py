"""Scripted outputs: which text the model says to which prompt about which image.

A script file is one JSON object::

    {"defaults": {"text": {"text": "Lorem ipsum …", "tokens": 120}},
     "rules": [{"kind": "layout", "fingerprint": "0.7071:…", "text": "<|box_start|>…"},
               {"kind": "text", "size": [640, 120], "text": "Hello", "tokens": 40},
               {"kind": "table", "sha256": "…", "text": "<fcel>a<nl>"}]}

A hash wins over a fingerprint, the nearest fingerprint over a size, a size over the default of the prompt kind.
Without ``tokens`` the length is estimated from the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, Self

from benchmarks.simulator.images import Fingerprint
from benchmarks.simulator.layout import DEFAULT_PAGE, layout_text

TOLERANCE = 4.0  # grey levels; other renderers and codecs stay below 1.5, other pages are mostly above 5
_SPECIAL = re.compile(r"<\|\w+\|>|<(?:[felux]cel|nl)>")


class Kind(StrEnum):
    """What a prompt of mineru-vl-utils asks for."""

    LAYOUT = "layout"
    TEXT = "text"
    TABLE = "table"
    FORMULA = "formula"
    IMAGE = "image"
    MERGE = "merge"  # cells of a table that goes on on the next page
    OTHER = "other"


_PROMPTS = {
    "Layout Detection:": Kind.LAYOUT,
    "Text Recognition:": Kind.TEXT,
    "Table Recognition:": Kind.TABLE,
    "Formula Recognition:": Kind.FORMULA,
    "Image Analysis:": Kind.IMAGE,
    "Please merge the next two tables.": Kind.MERGE,
}
_KIND_OF_BLOCK = {"table": Kind.TABLE, "equation": Kind.FORMULA, "image": Kind.IMAGE, "chart": Kind.IMAGE}


def recognise(prompt: str) -> Kind:
    """The kind of a user prompt."""
    return next((kind for text, kind in _PROMPTS.items() if text in prompt), Kind.OTHER)


def content_kind(block_type: str) -> Kind:
    """The kind of the prompt that reads a block of this type."""
    return _KIND_OF_BLOCK.get(block_type, Kind.TEXT)


def estimate_tokens(text: str) -> int:
    """About how many tokens a Qwen tokenizer makes of a text: specials and digits one each, else four letters."""
    rest, specials = _SPECIAL.subn("", text)
    digits = sum(char.isdigit() for char in rest)
    wide = sum(ord(char) > 0x2E80 for char in rest)
    return max(1, specials + digits + wide + math.ceil((len(rest) - digits - wide) / 4))


@dataclass(frozen=True, slots=True)
class Output:
    """What the model says, and in how many tokens."""

    text: str
    tokens: int

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Self:
        """From a script's JSON."""
        return cls(data["text"], data.get("tokens") or estimate_tokens(data["text"]))


class ImageFacts(Protocol):
    """What rules look at."""

    @property
    def size(self) -> tuple[int, int]: ...
    @property
    def sha256(self) -> str: ...
    @property
    def fingerprint(self) -> Fingerprint: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An output for one image: known by hash, by fingerprint or by size."""

    kind: Kind
    output: Output
    sha256: str | None = None
    fingerprint: Fingerprint | None = None
    size: tuple[int, int] | None = None

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Self:
        """From a script's JSON."""
        unknown = data.keys() - {"kind", "text", "tokens", "sha256", "fingerprint", "size"}
        if unknown:
            raise ValueError(f"unknown key in a rule: {', '.join(sorted(unknown))}")
        mark = data.get("fingerprint")
        size = data.get("size")
        return cls(
            kind=Kind(data["kind"]),
            output=Output.parse(data),
            sha256=data.get("sha256"),
            fingerprint=Fingerprint.parse(mark) if mark else None,
            size=(int(size[0]), int(size[1])) if size else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        data: dict[str, Any] = {"kind": self.kind, "text": self.output.text, "tokens": self.output.tokens}
        if self.sha256:
            data["sha256"] = self.sha256
        if self.fingerprint:
            data["fingerprint"] = str(self.fingerprint)
        if self.size:
            data["size"] = list(self.size)
        return data


DEFAULT_OUTPUTS: Mapping[Kind, Output] = {
    Kind.LAYOUT: Output(layout_text(DEFAULT_PAGE), 330),
    Kind.TEXT: Output("Lorem ipsum dolor sit amet, consectetur adipiscing elit. " * 4, 120),
    Kind.TABLE: Output("<fcel>a<fcel>b<nl><fcel>1<fcel>2<nl>", 220),
    Kind.FORMULA: Output("\\[ E = mc^2 \\]", 40),
    Kind.IMAGE: Output(
        "<|class_start|>natural_image<|class_end|><|sub_class_start|>photo<|sub_class_end|>"
        "<|caption_start|>A picture.<|caption_end|><|content_start|>A picture.<|content_end|>",
        60,
    ),
    Kind.MERGE: Output("[]", 4),
    Kind.OTHER: Output("{}", 4),
}


@dataclass(frozen=True, slots=True)
class Script:
    """Rules and defaults of one server."""

    rules: Sequence[Rule] = ()
    defaults: Mapping[Kind, Output] = field(default_factory=lambda: DEFAULT_OUTPUTS)

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Self:
        """From a script's JSON; what it does not say keeps the default."""
        unknown = data.keys() - {"defaults", "rules"}
        if unknown:
            raise ValueError(f"unknown key in the script: {', '.join(sorted(unknown))}")
        own = {Kind(kind): Output.parse(output) for kind, output in data.get("defaults", {}).items()}
        return cls([Rule.parse(rule) for rule in data.get("rules", ())], {**DEFAULT_OUTPUTS, **own})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """From a script file."""
        return cls.parse(json.loads(Path(path).read_text(encoding="utf-8")))

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        defaults = {kind: {"text": out.text, "tokens": out.tokens} for kind, out in self.defaults.items()}
        return {"defaults": defaults, "rules": [rule.to_dict() for rule in self.rules]}

    def save(self, path: str | Path) -> None:
        """Write the script file."""
        Path(path).write_text(json.dumps(self.to_dict(), ensure_ascii=False, indent=1), encoding="utf-8")

    def find(self, kind: Kind, image: ImageFacts | None) -> Output:
        """The output for a prompt about an image."""
        rules = [rule for rule in self.rules if rule.kind is kind] if image is not None else []
        if not rules or image is None:
            return self.defaults[kind]
        if any(rule.sha256 for rule in rules):
            digest = image.sha256
            for rule in rules:
                if rule.sha256 == digest:
                    return rule.output
        marked = [(rule.fingerprint, rule.output) for rule in rules if rule.fingerprint]
        if marked:
            mine = image.fingerprint
            distance, output = min(((mark.distance(mine), out) for mark, out in marked), key=lambda pair: pair[0])
            if distance <= TOLERANCE:
                return output
        return next((rule.output for rule in rules if rule.size and rule.size == image.size), self.defaults[kind])
