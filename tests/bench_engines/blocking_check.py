"""Runs one blocking engine with a real model and prints what was seen as JSON: ``blocking_check.py ENGINE MODEL``.

A script because the engines live in virtual environments of their own; ``test_blocking_engines.py`` starts it.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import sys
import threading
import weakref
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from mineru_engine.errors import MineruError
from mineru_engine.options import Engine
from mineru_engine.vlm.blocking import BlockingTransport
from mineru_engine.vlm.config import VlmConfig
from mineru_engine.vlm.transport import EncodedImage, Sampling, VlmRequest

PATIENCE = 60.0


class Watch:
    """Sees the calls of a client begin, and lets them end when :attr:`open` is set; the model still does the work."""

    def __init__(self, client: Any) -> None:
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Semaphore(0)
        self.begun: list[str] = []
        self.ended: list[str] = []
        self._predict = client.predict
        client.predict = self.predict

    def predict(self, image: Any, prompt: str, sampling: Any) -> Any:
        self.begun.append(prompt)
        self.entered.release()
        reply = self._predict(image, prompt, sampling)
        assert self.open.wait(PATIENCE)
        self.ended.append(prompt)
        return reply

    async def until_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=PATIENCE)


def ask(prompt: str, tokens: int = 24, colour: str = "white", kind: str = "PNG") -> VlmRequest:
    file = BytesIO()
    Image.new("RGB", (200, 100), colour).save(file, kind)
    image = EncodedImage(base64.b64encode(file.getvalue()).decode(), f"image/{kind.lower()}")
    return VlmRequest(image, prompt, Sampling(temperature=0.0, max_new_tokens=tokens))


def config(engine: str, model: str, device: str | None = "cpu", **options: Any) -> VlmConfig:
    return VlmConfig(Engine(engine), model=model, device=device, options=json.dumps(options))


async def answers(transport: BlockingTransport) -> dict[str, Any]:
    """The same question twice, shorter, about another picture, and several at a time."""
    first = await transport.generate(ask("a"))
    again = await transport.generate(ask("a"))
    short = await transport.generate(ask("a", tokens=6))
    webp = await transport.generate(ask("a", kind="WEBP"))
    colours = ("red", "blue", "white", "black")
    alone = [(await transport.generate(ask("a", colour=colour))).text for colour in colours]
    together = await asyncio.gather(*(transport.generate(ask("a", colour=colour)) for colour in colours))
    return {
        "first": first.text,
        "again": again.text,
        "short": short.text,
        "webp": webp.text,
        "alone": alone,
        "together": [reply.text for reply in together],
        "counts": [[reply.prompt_tokens, reply.completion_tokens, reply.truncated] for reply in (first, short)],
    }


async def cancels(transport: BlockingTransport, watch: Watch) -> dict[str, Any]:
    """One call is cancelled in flight, twice, and one in the queue behind it."""
    watch.open.clear()
    flying = asyncio.create_task(transport.generate(ask("flying")))
    await watch.until_entered()
    queued = asyncio.create_task(transport.generate(ask("queued")))
    await asyncio.sleep(0)
    queued.cancel()
    await asyncio.wait({queued})
    for _ in range(2):
        flying.cancel()
        await asyncio.sleep(0.05)
    left_early = flying.done()
    watch.open.set()
    await asyncio.wait({flying})
    ended_first = watch.ended == ["flying"]
    after = await transport.generate(ask("after"))
    return {
        "cancelled": [queued.cancelled(), flying.cancelled()],
        "left_early": left_early,
        "ended_first": ended_first,
        "begun": watch.begun,
        "after": bool(after.text),
    }


async def life(engine: str, model: str) -> dict[str, Any]:
    transport = BlockingTransport(config(engine, model))
    info = await transport.start()
    held = [weakref.ref(value) for value in heavy(transport._client)]
    seen = await answers(transport)
    seen["cancel"] = await cancels(transport, Watch(transport._client))
    await transport.aclose()
    await transport.aclose()
    seen["info"] = [info.engine, info.model, bool(info.version), info.location]
    seen["held"] = [ref() is not None for ref in held]
    seen["threads"] = threads()
    return seen


def heavy(client: Any) -> list[Any]:
    """What the memory is spent on."""
    return [getattr(client, name) for name in ("model", "llama_cpp_engine") if hasattr(client, name)]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("mineru-")]


async def refusal(engine: str, model: str, **values: Any) -> dict[str, Any]:
    """The error of a start; it must leave no thread and no model."""
    try:
        await BlockingTransport(config(engine, model, **values)).start()
    except MineruError as error:
        return error.to_dict() | {"threads": threads(), "models": models()}
    raise AssertionError("the start should have failed")


def models() -> int:
    """Models of transformers that are alive."""
    return sum(type(value).__name__ == "Qwen2VLForConditionalGeneration" for value in gc.get_objects())


def without_output_layer(model: Path, directory: Path) -> Path:
    """A copy of the model that lacks a weight."""
    from safetensors.torch import load_file, save_file

    weights = load_file(model / "model.safetensors")
    del weights["lm_head.weight"]
    directory.mkdir()
    for file in model.glob("*.json"):
        (directory / file.name).write_bytes(file.read_bytes())
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


async def transformers_loading(model: str, scratch: Path) -> dict[str, Any]:
    """What is special about loading with transformers: options, devices, broken models."""
    float32 = BlockingTransport(config("transformers", model, torch_dtype="float32", attn_implementation="eager"))
    await float32.start()
    loaded = float32._client.model
    kind = [str(loaded.dtype), loaded.config._attn_implementation]
    del loaded
    await float32.aclose()
    broken = without_output_layer(Path(model), scratch / "broken")
    empty = scratch / "empty"
    empty.mkdir()
    return {
        "options": kind,
        "unknown_option": await refusal("transformers", model, attn_implementaton="eager"),
        "no_device": await refusal("transformers", model, device="cuda:5"),
        "unknown_model": await refusal("transformers", "nobody/nothing"),
        "no_directory": await refusal("transformers", str(scratch / "gone")),
        "empty": await refusal("transformers", str(empty)),
        "broken": await refusal("transformers", str(broken)),
    }


def main() -> None:
    engine, model, scratch = sys.argv[1:]
    seen = asyncio.run(life(engine, model))
    if engine == "transformers":
        seen["loading"] = asyncio.run(transformers_loading(model, Path(scratch)))
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
