"""The seam between the engine and whatever runs a vision-language model: image + prompt + sampling → text.

A transport lives on one event loop. :class:`mineru_engine.vlm.engine.VlmEngine` puts the gate and the counters around
it; nothing else calls :meth:`Transport.generate`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ("EncodedImage", "EngineInfo", "Sampling", "Transport", "VlmReply", "VlmRequest")

SYSTEM_PROMPT = "You are a helpful assistant."


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """An image as it travels: base64 of a PNG, JPEG or WebP file.

    :ivar data: base64 without line breaks.
    :ivar media_type: ``image/png``, ``image/jpeg`` or ``image/webp``.
    """

    data: str = field(repr=False)
    media_type: str

    def data_uri(self) -> str:
        """``data:image/png;base64,…``"""
        return f"data:{self.media_type};base64,{self.data}"

    def decode(self) -> bytes:
        """The file's bytes."""
        return base64.b64decode(self.data)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters; ``None`` leaves one to the engine."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    max_new_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class VlmRequest:
    """One question about one image; the image comes before the prompt.

    :ivar prompt: of the MinerU protocol, leading line break included.
    """

    image: EncodedImage
    prompt: str
    sampling: Sampling = Sampling()
    system_prompt: str = SYSTEM_PROMPT


@dataclass(frozen=True, slots=True)
class VlmReply:
    """What the model said.

    :ivar text: without the end-of-turn token; special tokens of the protocol are kept.
    :ivar prompt_tokens: ``None`` where the engine does not tell.
    :ivar truncated: the output ended at its length limit.
    """

    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is behind a transport, for results, reports and ``repr``; holds no secret.

    :ivar engine: ``http``, ``vllm``, ``transformers``, ``llama-cpp``, ``lmdeploy``, ``mlx`` or ``onnx``.
    :ivar model: name at the server, or the path or hub name of a local model.
    :ivar version: of the serving software, where it tells.
    :ivar location: base URL without credentials, or the device.
    :ivar models: all models that the server offers.
    :ivar limits: what it does not do here and a reader of its results should know, a sentence each.
    """

    engine: str
    model: str
    version: str | None = None
    location: str = ""
    models: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


class Transport(Protocol):
    """Runs requests on one kind of engine.

    :ivar concurrency: the most requests it takes at a time; ``None`` for as many as the gate lets through.
    """

    concurrency: int | None

    async def start(self) -> EngineInfo:
        """Connect or load, once, before the first request. What was half started is undone on failure or cancel.

        :raises EngineUnavailableError: if the engine is not installed, not configured or refuses us.
        :raises EngineDeadError: if it cannot be reached now.
        """
        ...

    async def generate(self, request: VlmRequest) -> VlmReply:
        """Run one request.

        Cancelling closes the request at the engine (or, for engines that cannot, waits for the call in flight)
        before ``CancelledError`` leaves.

        :raises EngineRequestError: if this request failed; others may succeed.
        :raises EngineDeadError: if the engine is gone; nothing will succeed until it is built anew.
        :raises EngineUnavailableError: if it refuses us: wrong key, unknown model.
        """
        ...

    async def aclose(self) -> None:
        """Release everything: connections, model, child processes, threads. Safe to call twice."""
        ...
