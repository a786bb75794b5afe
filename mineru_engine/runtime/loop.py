"""One event loop on one thread, callable from any thread and any other loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from mineru_engine.errors import ErrorCode, RuntimeStateError

__all__ = ("LoopThread",)

T = TypeVar("T")


class LoopThread:
    """An event loop on a thread of its own; the thread starts with the object."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    @property
    def running(self) -> bool:
        """Whether work is accepted."""
        return self._thread.is_alive() and not self._loop.is_closed()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and block until it has ended.

        On ``KeyboardInterrupt`` (or any other exception in the waiting thread) the work is cancelled, its
        clean-up awaited, and the exception raised again; a second interrupt does not shorten the clean-up.

        :raises RuntimeStateError: if called from the loop's own thread, where it would wait for ever.
        """
        if self._is_own_thread():
            work.close()
            raise _reentered()
        job = _Job(self._loop, work)
        try:
            return job.done.result()
        except BaseException:
            job.cancel()
            _wait_through_interrupts(job.done)
            raise

    async def acall(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and await it from another loop.

        Cancelling the caller cancels the work and returns after its clean-up; further cancels meanwhile
        do not shorten it.
        """
        if asyncio.get_running_loop() is self._loop:
            return await work
        job = _Job(self._loop, work)
        waiter = asyncio.wrap_future(job.done)
        try:
            return await asyncio.shield(waiter)
        except asyncio.CancelledError:
            job.cancel()
            while not waiter.done():
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await asyncio.shield(waiter)
            if not waiter.cancelled():
                waiter.exception()
            raise

    def _is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Cancel what still runs, stop the loop and join the thread. Safe to call twice."""
        if self._loop.is_closed():
            return
        if self._is_own_thread():
            raise _reentered()
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


class _Job:
    """A task on the loop, and a future that is done only when the task has really ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> None:
        self.done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self.done.set_running_or_notify_cancel()  # from here on nobody can cancel the future itself
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        loop.call_soon_threadsafe(self._start, work)

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._finish)
        if self._cancelled:
            self._task.cancel()

    def _finish(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.done.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(task.result())

    def cancel(self) -> None:
        """Ask the task to stop; :attr:`done` tells when it has."""
        self._cancelled = True
        self._loop.call_soon_threadsafe(lambda: self._task is not None and self._task.cancel())


def _wait_through_interrupts(done: concurrent.futures.Future[Any]) -> None:
    while not done.done():
        with contextlib.suppress(KeyboardInterrupt):
            concurrent.futures.wait([done])


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _reentered() -> RuntimeStateError:
    return RuntimeStateError(
        "a blocking call was made from the runtime's own thread",
        code=ErrorCode.RUNTIME_REENTERED,
        hint="await the asynchronous function instead",
    )
