"""A transport that answers from a script, for tests of what lies above it. It runs no model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable

from mineru_engine.options import Engine
from mineru_engine.vlm.config import VlmConfig
from mineru_engine.vlm.engine import VlmEngine
from mineru_engine.vlm.transport import EngineInfo, VlmReply, VlmRequest

LAYOUT = (
    ("title", (100, 60, 900, 110)),
    ("text", (100, 120, 480, 400)),
    ("equation", (100, 420, 480, 500)),
    ("table", (100, 520, 900, 700)),
    ("image", (100, 720, 480, 900)),
    ("image_caption", (100, 905, 480, 930)),
    ("page_number", (480, 950, 520, 970)),
)
ANSWERS = {
    "Text": "Some words with \\(x^2\\) in them.",
    "Formula": "\\[ E = mc^2 \\]",
    "Table": "<fcel>a<fcel>b<nl><fcel>1<fcel>2<nl>",
    "Image": "<|class_start|>natural_image<|class_end|><|sub_class_start|>None<|sub_class_end|>"
    "<|caption_start|>A hill.<|caption_end|><|content_start|>A hill.<|content_end|>",
}


def layout(blocks: Iterable[tuple[str, tuple[int, int, int, int]]] = LAYOUT) -> str:
    """A layout answer; boxes in thousandths of the page."""
    return "\n".join(
        f"<|box_start|>{' '.join(map(str, box))}<|box_end|><|ref_start|>{kind}<|ref_end|><|rotate_up|>"
        for kind, box in blocks
    )


def kind_of(request: VlmRequest) -> str:
    """``Layout``, ``Text``, ``Table``, ``Formula`` or ``Image``."""
    return request.prompt.split()[0]


def answer(request: VlmRequest) -> VlmReply:
    """The default script."""
    kind = kind_of(request)
    text = layout() if kind == "Layout" else ANSWERS[kind]
    return VlmReply(text, prompt_tokens=10, completion_tokens=len(text))


async def _wait(event: threading.Event) -> None:
    """Tests set these from other threads and loops, which an event of asyncio does not notice."""
    while not event.is_set():
        await asyncio.sleep(0.002)


class ScriptedTransport:
    """Answers as ``script`` says; what it raises is raised.

    :ivar hold: while cleared, requests wait.
    """

    concurrency: int | None = None

    def __init__(self, script: Callable[[VlmRequest], VlmReply] = answer) -> None:
        self.script = script
        self.hold = threading.Event()
        self.hold.set()
        self.start_hold = threading.Event()
        self.start_hold.set()
        self.start_error: Exception | None = None
        self.starts = 0
        self.closes = 0
        self.in_flight = 0
        self.seen: list[VlmRequest] = []

    async def start(self) -> EngineInfo:
        self.starts += 1
        await _wait(self.start_hold)
        if self.start_error is not None:
            raise self.start_error
        return EngineInfo("http", "scripted", version="1", location="test")

    async def generate(self, request: VlmRequest) -> VlmReply:
        self.in_flight += 1
        self.seen.append(request)
        try:
            await _wait(self.hold)
            await asyncio.sleep(0)
            return self.script(request)
        finally:
            self.in_flight -= 1

    async def aclose(self) -> None:
        self.closes += 1


def config(**values: object) -> VlmConfig:
    """A configuration that no real engine stands behind."""
    return VlmConfig(Engine.HTTP, server_url="http://127.0.0.1:9", **values)  # type: ignore[arg-type]


def engine(transport: ScriptedTransport, **values: object) -> VlmEngine:
    """An engine over that transport."""
    return VlmEngine(config(**values), transport)
