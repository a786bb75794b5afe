"""From a configuration to its engine; each transport is imported only when it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mineru_engine.options import Engine
from mineru_engine.vlm.engine import VlmEngine

if TYPE_CHECKING:
    from mineru_engine.vlm.config import VlmConfig
    from mineru_engine.vlm.transport import Transport
    from mineru_engine.workers.pool import WorkerPool

__all__ = ("engine_maker",)


def engine_maker(config: VlmConfig) -> Callable[[WorkerPool], VlmEngine]:
    """What a runtime calls, on its loop, to get the engine of a configuration; nothing is started yet."""
    return lambda pool: VlmEngine(config, _transport(config, pool))


def _transport(config: VlmConfig, pool: WorkerPool) -> Transport:
    if config.engine is Engine.HTTP:
        from mineru_engine.vlm.http import HttpTransport

        return HttpTransport(config)
    if config.engine is Engine.VLLM:
        from mineru_engine.vlm.vllm import VllmTransport

        return VllmTransport(config)
    if config.engine is Engine.ONNX:
        from mineru_engine.vlm.onnx import OnnxTransport

        return OnnxTransport(pool)
    from mineru_engine.vlm.blocking import BlockingTransport

    return BlockingTransport(config)
