"""One chat request, and the answer the script has for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import orjson

from benchmarks.simulator.images import RequestImage
from benchmarks.simulator.script import Script, recognise


class BadChatError(ValueError):
    """The body is no chat request that a VLM server would take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """The parts of a request body that matter here."""

    model: str
    prompt: str
    images: list[RequestImage]
    stream: bool
    max_tokens: int | None

    @classmethod
    def parse(cls, body: bytes | bytearray) -> Self:
        """Read a body; raises ``BadChatError``."""
        try:
            data = orjson.loads(body)
            texts: list[str] = []
            images: list[RequestImage] = []
            for message in data["messages"]:
                if message["role"] == "user":
                    _read_content(message["content"], texts, images)
            return cls(
                model=str(data.get("model", "")),
                prompt="".join(texts),
                images=images,
                stream=bool(data.get("stream", False)),
                max_tokens=data.get("max_completion_tokens") or data.get("max_tokens"),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadChatError(f"not a chat request: {type(error).__name__}: {error}") from error


def _read_content(content: Any, texts: list[str], images: list[RequestImage]) -> None:
    if isinstance(content, str):
        texts.append(content)
        return
    for part in content:
        if part["type"] == "text":
            texts.append(part["text"])
        elif part["type"] == "image_url":
            images.append(RequestImage(part["image_url"]["url"]))
        else:
            raise ValueError(f"unknown content type {part['type']!r}")


class Chat:
    """A request with its scripted answer."""

    def __init__(self, request: ChatRequest, script: Script) -> None:
        self.request = request
        self.kind = recognise(request.prompt)
        try:
            self.mpixels = sum(image.mpixels for image in request.images)
            self.image_bytes = sum(image.encoded_bytes for image in request.images)
            output = script.find(self.kind, request.images[0] if request.images else None)
        except (ValueError, OSError) as error:
            raise BadChatError(f"not an image: {error}") from error
        self._text = output.text
        self._whole = output.tokens
        self.tokens = min(output.tokens, request.max_tokens or output.tokens)

    def text(self, first: int, last: int) -> str:
        """What the tokens from ``first`` up to ``last`` say."""
        size = len(self._text)
        return self._text[size * first // self._whole : size * last // self._whole]

    @property
    def finish_reason(self) -> str:
        """``length`` when the request's limit cut the answer."""
        return "stop" if self.tokens == self._whole else "length"

    def completion(self, model: str) -> dict[str, Any]:
        """The body of a complete answer."""
        message = {"role": "assistant", "content": self.text(0, self.tokens)}
        prompt_tokens = 32 + round(self.mpixels * 1e6 / 784)
        return {
            "id": "chatcmpl-simulated",
            "object": "chat.completion",
            "created": 0,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish_reason}],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": self.tokens,
                "total_tokens": prompt_tokens + self.tokens,
            },
        }

    def events(self, model: str, first: int, last: int) -> Iterator[bytes]:
        """The events of a streamed answer for the tokens from ``first`` up to ``last``."""
        head = {"id": "chatcmpl-simulated", "object": "chat.completion.chunk", "created": 0, "model": model}
        delta = {"role": "assistant", "content": self.text(first, last)}
        reason = self.finish_reason if last == self.tokens else None
        yield orjson.dumps({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
