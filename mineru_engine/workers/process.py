"""The parent's end of one worker process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import deque
from typing import Any

import psutil

from mineru_engine.errors import ErrorCode, WorkerCrashedError, WorkerDeadlineError, error_from_dict
from mineru_engine.workers.protocol import decode, encode, read_frame

__all__ = ("WorkerProcess",)

_POLL_S = 0.2
_EXIT_GRACE_S = 2.0
_STDERR_LINES = 20


class WorkerProcess:
    """One child; runs one task at a time. Not for use from several tasks at once.

    :ivar documents: keys of the documents the child may hold open, oldest first.
    :ivar tasks_done: tasks finished since the start.
    """

    def __init__(self, process: asyncio.subprocess.Process, memory_mb: int) -> None:
        self._process = process
        self._memory_bytes = memory_mb << 20
        self._ps = psutil.Process(process.pid)
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._stderr_task = asyncio.create_task(self._drain_stderr(), name="mineru-worker-stderr")
        self.documents: list[str] = []
        self.tasks_done = 0

    @classmethod
    async def start(cls, memory_mb: int) -> WorkerProcess:
        """Start a child. It keeps importing while the first task is on its way."""
        env = dict(os.environ)
        env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        env["PYTHONSAFEPATH"] = "1"
        env["LOGURU_LEVEL"] = "ERROR"
        # One task per core already: libraries that start a thread per core would only get in each other's way.
        env.setdefault("OMP_NUM_THREADS", "1")
        env.setdefault("OPENBLAS_NUM_THREADS", "1")
        # Page bitmaps come and go: memory that glibc gives back at once costs a page fault for each 4 KiB next time.
        env.setdefault("MALLOC_MMAP_THRESHOLD_", str(32 << 20))
        env.setdefault("MALLOC_TRIM_THRESHOLD_", str(64 << 20))
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "mineru_engine.workers",
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=env,
            start_new_session=True,
        )
        return cls(process, memory_mb)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the child is running."""
        return self._process.returncode is None

    def rss_mb(self) -> int:
        """Resident memory of the child, MiB; 0 when it is gone."""
        try:
            return int(self._ps.memory_info().rss >> 20)
        except psutil.Error:
            return 0

    async def run(self, task: str, args: dict[str, Any], *, deadline_s: float, drop: list[str]) -> Any:
        """Run one task in the child; after an exception the child may be dead.

        :raises WorkerDeadlineError: if it took longer than ``deadline_s``; the child is killed.
        :raises WorkerCrashedError: if the child died or passed its memory limit.
        :raises MineruError: what the task itself raised.
        """
        exchange = asyncio.create_task(self._exchange(task, args, drop))
        try:
            await self._watch(exchange, deadline_s)
        finally:
            exchange.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await exchange
        reply = exchange.result()
        self.tasks_done += 1
        if "error" in reply:
            raise error_from_dict(reply["error"])
        return reply["value"]

    async def _exchange(self, task: str, args: dict[str, Any], drop: list[str]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        number = self.tasks_done
        try:
            self._process.stdin.write(encode({"id": number, "task": task, "args": args, "drop": drop}))
            await self._process.stdin.drain()
            reply = decode(await read_frame(self._process.stdout))
        except (asyncio.IncompleteReadError, ConnectionError, ValueError) as exc:
            raise await self._crash() from exc
        if reply.get("id") != number:
            raise await self._crash()
        return reply

    async def _watch(self, exchange: asyncio.Task[dict[str, Any]], deadline_s: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline_s
        while True:
            left = end - loop.time()
            done, _ = await asyncio.wait({exchange}, timeout=max(0.0, min(_POLL_S, left)))
            if done:
                return
            if left <= 0:
                await self.kill()
                raise WorkerDeadlineError(f"no result within {deadline_s:g} s")
            if self.rss_mb() << 20 > self._memory_bytes:
                await self.kill()
                raise WorkerCrashedError(f"more than {self._memory_bytes >> 20} MiB of memory used")

    async def _crash(self) -> WorkerCrashedError:
        await self.kill()
        code = self._process.returncode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        last = self._stderr[-1] if self._stderr else ""
        return WorkerCrashedError(f"worker process ended ({how}) {last}".strip()[:300], code=ErrorCode.WORKER_CRASHED)

    async def _drain_stderr(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(8192):
            self._stderr.extend(chunk.decode("utf-8", "replace").splitlines())

    def forget(self, keys: list[str]) -> None:
        """Tell an idle child to close documents."""
        assert self._process.stdin is not None
        if self.alive:
            self._process.stdin.write(encode({"drop": keys}))

    async def kill(self) -> None:
        """End the child now and wait until it is gone."""
        if self.alive:
            # Not asyncio's kill(): it polls the process, and may then take the exit status from asyncio's own wait.
            with contextlib.suppress(psutil.Error):
                self._ps.kill()
            self._close_output()
        await self._process.wait()
        self._stderr_task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._stderr_task
        self._transport.close()
        await asyncio.sleep(0)  # the pipes close in the loop's next round; there may be none after this

    @property
    def _transport(self) -> asyncio.SubprocessTransport:
        transport: asyncio.SubprocessTransport = self._process._transport  # type: ignore[attr-defined]
        return transport

    def _close_output(self) -> None:
        """Nobody reads the rest of a reply, and asyncio's wait() would wait for its end for ever."""
        pipe = self._transport.get_pipe_transport(1)
        if pipe is not None:
            pipe.close()

    async def aclose(self) -> None:
        """Close the pipe, give an idle child a moment to leave, then kill it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _EXIT_GRACE_S)
        await self.kill()
