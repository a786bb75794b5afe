"""What came out of the documents, reduced to hashes: equal content has equal hashes, however it was read."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import orjson

from mineru_cli.bench.report import DocumentResult

if TYPE_CHECKING:
    from mineru_engine.result import ParseResult

__all__ = ("Results", "content_of")

_SHORT = 12


class Results:
    """Contents of all inputs over all runs."""

    def __init__(self, inputs: int) -> None:
        self._first: list[tuple[str, list[list[str]]] | None] = [None] * inputs
        self._seen: list[set[str]] = [set() for _ in range(inputs)]
        self.pages: list[int] = [0] * inputs

    def add(self, index: int, result: ParseResult) -> None:
        """Another result of an input."""
        content = content_of(result)
        digest = _digest(content)
        self._seen[index].add(digest)
        if self._first[index] is None:
            self._first[index] = digest, _blocks(content)
            self.pages[index] = result.page_count

    def table(self) -> list[DocumentResult]:
        """One row for each input."""
        return [
            DocumentResult(
                input=index,
                sha256=first[0] if first else None,
                blocks=first[1] if first else [],
                variants=len(self._seen[index]),
            )
            for index, first in enumerate(self._first)
        ]


def content_of(result: ParseResult) -> dict[str, Any]:
    """The semantic document without what may differ between two parses that read the same: versions, and our notes of
    how a page was read.
    """
    content: dict[str, Any] = result.middle_json.to_dict()
    content["metadata"].pop("producer", None)
    content["extensions"].pop("mineru", None)
    return content


def _blocks(content: dict[str, Any]) -> list[list[str]]:
    """For each page a short hash of each block. Its number is left out: a block more would change all that follow."""
    return [[_digest(_unnumbered(block))[:_SHORT] for block in page["blocks"]] for page in content["pages"]]


def _unnumbered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unnumbered(child) for name, child in value.items() if name != "index"}
    return [_unnumbered(child) for child in value] if isinstance(value, list) else value


def _digest(value: object) -> str:
    return sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
