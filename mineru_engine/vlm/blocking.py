"""Engines whose call blocks: transformers, llama.cpp, LMDeploy and MLX, through the clients of mineru-vl-utils.

One model, one thread, one request at a time. The asynchronous methods of those clients are the blocking ones on more
threads, so they would add nothing here; who wants LMDeploy or llama.cpp to batch runs its server and engine ``http``.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from io import BytesIO
from typing import Any, TypeVar

from mineru_engine.errors import EngineDeadError, EngineRequestError
from mineru_engine.runtime.cancel import run_to_end
from mineru_engine.runtime.device import device_lock
from mineru_engine.vlm.config import VlmConfig
from mineru_engine.vlm.local_models import LOCAL_ENGINES, load_error, request_error
from mineru_engine.vlm.transport import EngineInfo, VlmReply, VlmRequest

__all__ = ("BlockingTransport",)

T = TypeVar("T")


class BlockingTransport:
    """A model in this process, on a thread of its own. Implements :class:`mineru_engine.vlm.transport.Transport`.

    A call in flight cannot be stopped: cancelling :meth:`start` or :meth:`generate` waits for its end and drops the
    result. A call that still waits for the thread or the device never starts. Only llama.cpp tells how many tokens
    a reply has and whether it is truncated; the other clients keep that to themselves.
    """

    concurrency: int | None = 1

    def __init__(self, config: VlmConfig) -> None:
        self._config = config
        self._engine = LOCAL_ENGINES[config.engine]
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"mineru-{config.engine}")
        self._closing = False
        # Made, used and dropped on the thread alone: MLX needs that, and no future of the loop keeps a model alive.
        self._device = ""
        self._client: Any = None
        self._resources = ExitStack()

    async def start(self) -> EngineInfo:
        """Load the model.

        :raises EngineUnavailableError: if a package, the model, the device or memory is missing.
        :raises OptionError: if an engine option or the device makes no sense.
        """
        try:
            return await self._call(self._load)
        except BaseException:
            await self.aclose()
            raise

    async def generate(self, request: VlmRequest) -> VlmReply:
        """Run one request.

        :raises EngineRequestError: if it failed, for want of memory too. So does an error of the engine itself: the
            next picture may go well, and there is no server that could have gone away.
        :raises EngineDeadError: after an error of the GPU, which spoils it for the whole process, and when closed.
        """
        return await self._call(lambda dropped: self._ask(request, dropped))

    async def aclose(self) -> None:
        """Wait for the call in flight, drop the model, end the thread. Safe to call twice."""
        if not self._closing:
            self._closing = True
            self._thread.submit(self._release)
        await run_to_end(asyncio.to_thread(self._thread.shutdown))

    async def _call(self, work: Callable[[threading.Event], T]) -> T:
        """Run ``work`` on the thread; it gets the flag that says that nobody waits for it any more."""
        self._check_open()
        dropped = threading.Event()
        job = self._thread.submit(work, dropped)
        ended = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            dropped.set()
            if not job.cancel():
                await run_to_end(asyncio.wait({ended}))
            raise

    def _check_open(self) -> None:
        if self._closing:
            raise EngineDeadError(f"engine {self._config.engine} was closed")

    @contextmanager
    def _turn(self, dropped: threading.Event) -> Iterator[None]:
        with device_lock(self._device):
            self._check_open()
            if dropped.is_set():
                raise EngineRequestError("the request was cancelled")
            yield

    def _load(self, dropped: threading.Event) -> EngineInfo:
        config, engine = self._config, self._engine
        try:
            self._device = engine.device(config)
            with self._turn(dropped):
                self._client = engine.load(config, self._device, self._resources)
            return EngineInfo(str(config.engine), config.local_model, engine.version(), self._device)
        except Exception as exc:  # noqa: BLE001 - four libraries, any of which may raise anything
            error = load_error(config, exc)
        raise error  # from out here: the frames of the exception hold what was loaded

    def _ask(self, request: VlmRequest, dropped: threading.Event) -> VlmReply:
        with self._turn(dropped):
            try:
                return _predict(self._client, request)
            except Exception as exc:  # noqa: BLE001 - as above
                error = request_error(self._config, exc)
        raise error  # from out here: the frames of the exception hold tensors

    def _release(self) -> None:
        self._client = None
        try:
            self._resources.close()
        finally:
            gc.collect()
            _empty_caches()


def _predict(client: Any, request: VlmRequest) -> VlmReply:
    from mineru_vl_utils.vlm_client import SamplingParams
    from PIL import Image

    client.system_prompt = request.system_prompt
    with Image.open(BytesIO(request.image.decode())) as image:
        reply = client.predict(image, request.prompt, SamplingParams(**asdict(request.sampling)))
    return reply if isinstance(reply, VlmReply) else VlmReply(reply)


def _empty_caches() -> None:
    """Give back the memory that the libraries keep for the next model."""
    torch, mlx = sys.modules.get("torch"), sys.modules.get("mlx.core")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if torch is not None and torch.backends.mps.is_available():
        torch.mps.empty_cache()
    if mlx is not None:
        mlx.clear_cache()
