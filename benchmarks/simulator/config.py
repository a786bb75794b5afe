"""What a simulated server is told: the engine's speed and the faults it shows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorConfig:
    """Settings of one simulated server; a step takes ``step_base_ms + step_per_seq_ms * running``.

    :param prefill_ms_per_mpixel: engine time for each million pixels of a request's images, before its first token.
    :param prefill_ms_per_step: the most prefill time that one step takes on (chunked prefill); 0 is no limit.
    :param script: file with the scripted outputs; None gives every page the default layout of 11 blocks.
    :param abort_on_disconnect: as vLLM does; False keeps working for clients that are gone.
    :param api_key: when set, requests without this bearer token get 401.
    """

    host: str = "127.0.0.1"
    port: int = 0
    model: str = "mineru-simulator"
    check_model: bool = True
    api_key: str | None = None
    step_base_ms: float = 0.0
    step_per_seq_ms: float = 0.0
    tokens_per_step: int = 8
    max_seqs: int = 100
    prefill_ms_per_mpixel: float = 0.0
    prefill_ms_per_step: float = 0.0
    script: str | None = None
    abort_on_disconnect: bool = True

    def __post_init__(self) -> None:
        if self.tokens_per_step < 1 or self.max_seqs < 1:
            raise ValueError("tokens_per_step and max_seqs must be at least 1")
        for name in ("step_base_ms", "step_per_seq_ms", "prefill_ms_per_mpixel", "prefill_ms_per_step"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")

    @property
    def limit_tokens_per_s(self) -> float | None:
        """What a full engine generates, prefill left aside; None when a step costs nothing."""
        step_ms = self.step_base_ms + self.step_per_seq_ms * self.max_seqs
        return self.max_seqs * self.tokens_per_step / step_ms * 1000 if step_ms else None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The settings in a JSON object; unknown keys are an error."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """All settings as a JSON object."""
        return json.dumps(dataclasses.asdict(self))


class Fault(StrEnum):
    """What can go wrong with a request."""

    DELAY = "delay"  # starts ``delay_s`` late, then goes well
    TOO_MANY_REQUESTS = "429"  # with Retry-After
    SERVER_ERROR = "500"
    UNAVAILABLE = "503"
    MALFORMED_JSON = "malformed_json"  # 200, complete, but no JSON
    TRUNCATED_BODY = "truncated_body"  # closes after half of the announced body
    CUT_CONNECTION = "cut_connection"  # resets the connection when half of the tokens are made
    TRICKLE = "trickle"  # ``chunk_bytes`` of the answer every ``interval_s``
    WRONG_MODEL = "wrong_model"  # 404: no such model
    REDIRECT = "redirect"  # 307 to ``location``
    HANG = "hang"  # never answers


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRule:
    """One fault switched on: for the next ``count`` requests, or a seeded ``share``, or all until cleared.

    :param skip: leave that many matching requests alone first.
    :param kinds: only requests with these prompt kinds (``layout``, ``text`` …); empty means all.
    """

    fault: Fault
    count: int | None = None
    share: float | None = None
    seed: int = 0
    skip: int = 0
    kinds: tuple[str, ...] = ()
    delay_s: float = 1.0
    retry_after_s: float | None = 1.0
    location: str = "http://elsewhere.invalid/v1/chat/completions"
    chunk_bytes: int = 1
    interval_s: float = 0.05

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """A rule from parsed JSON; unknown keys are an error."""
        return cls(**{**data, "fault": Fault(data["fault"]), "kinds": tuple(data.get("kinds", ()))})

    def to_dict(self) -> dict[str, Any]:
        """The rule as JSON can hold it."""
        return dataclasses.asdict(self)
