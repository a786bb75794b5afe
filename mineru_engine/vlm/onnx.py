"""The built-in stand-in for a vision-language model: bundled layout and OCR models, run by the worker processes.

It lets every tier work on a machine without GPU, server or model hub. A real model reads better: this one knows
no formulas and says nothing about pictures.
"""

from __future__ import annotations

from typing import Final

from mineru_engine.errors import EngineDeadError, EngineRequestError, MineruError, RuntimeStateError
from mineru_engine.versions import installed_versions
from mineru_engine.vlm.transport import EngineInfo, VlmReply, VlmRequest
from mineru_engine.workers.pool import WorkerPool, usable_cores

__all__ = ("OnnxTransport",)

_TASK: Final = "mineru_engine.vlm.onnx_tasks:answer"
_DEADLINE_S: Final = 60.0


class OnnxTransport:
    """Answers requests with tasks of a worker pool, which stays its owner's to close.

    :ivar concurrency: two requests a worker, so that none waits for the next one to arrive.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._threads = max(1, usable_cores() // pool.size)
        self.concurrency: int | None = 2 * pool.size

    async def start(self) -> EngineInfo:
        """Say what is here; workers load the models when they first need them."""
        return EngineInfo(
            engine="onnx",
            model="bundled layout and OCR models",
            version=installed_versions().get("onnxruntime"),
            location="cpu",
        )

    async def generate(self, request: VlmRequest) -> VlmReply:
        """Run one request in a worker. Sampling and system prompt mean nothing here; tokens are not counted.

        :raises EngineRequestError: the image or the prompt cannot be understood, or the worker crashed or took more
            than a minute.
        :raises EngineDeadError: the pool is closed.
        """
        args = {"image": request.image.data, "prompt": request.prompt, "threads": self._threads}
        try:
            text = await self._pool.run(_TASK, args, deadline_s=_DEADLINE_S)
        except RuntimeStateError as exc:
            raise EngineDeadError(exc.message) from exc
        except MineruError as exc:
            raise EngineRequestError(exc.message, hint=exc.hint) from exc
        return VlmReply(text)

    async def aclose(self) -> None:
        """Nothing to release: requests in flight belong to the pool."""
