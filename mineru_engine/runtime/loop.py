"""One event loop on one thread, callable from any thread and any other loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from mineru_engine.errors import ErrorCode, RuntimeStateError

__all__ = ("JOB_NAME", "LoopThread", "reentered")

JOB_NAME = "mineru-job"

T = TypeVar("T")


class LoopThread:
    """An event loop on a thread of its own; the thread starts with the object."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    @property
    def running(self) -> bool:
        """Whether work is accepted."""
        return self._thread.is_alive() and not self._closing

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and block until it has ended.

        On ``KeyboardInterrupt`` (or any other exception in the waiting thread) the work is cancelled, its
        clean-up awaited, and the exception raised again; a second interrupt does not shorten the clean-up.

        :raises RuntimeStateError: if called from the loop's own thread, where it would wait for ever, or if the
            loop is closed before the work has ended.
        """
        if self.is_own_thread():
            work.close()
            raise reentered()
        job = _Job(self._loop, work)
        try:
            self._submit(job)
            result: T = job.done.result()
            return result
        except BaseException:
            _end_through_interrupts(job)
            raise

    async def acall(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and await it from another loop.

        Cancelling the caller cancels the work and returns after its clean-up; further cancels meanwhile
        do not shorten it.
        """
        if asyncio.get_running_loop() is self._loop:
            return await work
        job = _Job(self._loop, work)
        self._submit(job)
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

    def _submit(self, job: _Job) -> None:
        with self._lock:  # a job that is queued after the last stop would never end
            if self._closing:
                job.refuse(_closed())
            else:
                job.submit()

    def is_own_thread(self) -> bool:
        """Whether the caller runs on the loop's thread."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Cancel what still runs, stop the loop and join the thread. Safe to call twice, also beside a running loop."""
        if self.is_own_thread():
            raise reentered()
        with self._lock:
            if self._closing:
                return
            self._closing = True
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        asyncio.run_coroutine_threadsafe(self._loop.shutdown_default_executor(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Job:
    """A task on the loop, and a future that is done only when the task has really ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> None:
        self.done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self.done.set_running_or_notify_cancel()  # from here on nobody can cancel the future itself
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._asked = False
        self._cancelled = False

    def submit(self) -> None:
        """Let the loop start the task."""
        self._loop.call_soon_threadsafe(self._start)

    def refuse(self, error: BaseException) -> None:
        """The task will never start."""
        self._work.close()
        self.done.set_exception(error)

    def cancel(self) -> None:
        """Ask the task to stop; :attr:`done` tells when it has."""
        if self._asked or self.done.done():
            return
        try:
            self._loop.call_soon_threadsafe(self._stop)
            self._asked = True
        except RuntimeError:  # the loop is closed
            self.refuse(asyncio.CancelledError())

    def _start(self) -> None:
        self._task = self._loop.create_task(self._work, name=JOB_NAME)
        self._task.add_done_callback(self._finish)

    def _stop(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()
        elif not self.done.done():  # the caller was interrupted before it could submit
            self.refuse(asyncio.CancelledError())

    def _finish(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.done.set_exception(asyncio.CancelledError() if self._cancelled else _closed())
        elif (error := task.exception()) is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(task.result())


def _end_through_interrupts(job: _Job) -> None:
    while not job.done.done():
        with contextlib.suppress(KeyboardInterrupt):
            job.cancel()
            concurrent.futures.wait([job.done])


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _closed() -> RuntimeStateError:
    return RuntimeStateError("the runtime was closed", code=ErrorCode.RUNTIME_CLOSED)


def reentered() -> RuntimeStateError:
    """What a blocking call from the loop's own thread is answered with."""
    return RuntimeStateError(
        "a blocking call was made from the runtime's own thread",
        code=ErrorCode.RUNTIME_REENTERED,
        hint="await the asynchronous function instead",
    )
