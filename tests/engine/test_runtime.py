"""One runtime for every thread and loop; whatever ends a call early leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import psutil
import pytest
from make_documents import text_pdf, write

import mineru_engine
from mineru_engine import (
    DeadlineError,
    ErrorCode,
    ParseResult,
    Progress,
    RuntimeStateError,
    Settings,
    WorkerCrashedError,
    aio_doc_analyze,
    doc_analyze,
    parse,
    parse_async,
    shutdown_cached_models,
)
from mineru_engine.resident import runtime_for
from mineru_engine.settings import WorkerSettings
from mineru_engine.workers.pool import WorkerPool

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pdf(tmp_path: Path) -> Path:
    return write(tmp_path / "two.pdf", text_pdf(["Harbour report", "Second page"]))


@pytest.fixture
def temp_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of the test's own, which must be empty at the end."""
    directory = tmp_path / "temp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    yield directory
    gc.collect()
    assert list(directory.iterdir()) == []


@pytest.fixture
def fresh() -> Iterator[None]:
    """Starts without a runtime and ends without one."""
    shutdown_cached_models()
    yield
    shutdown_cached_models()


def is_right(result: ParseResult) -> bool:
    text = result.markdown()
    return result.page_count == 2 and "Harbour report" in text and "Second page" in text


def engine_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("mineru", "asyncio"))]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def live_children() -> list[int]:
    """Workers that run; a just ended one may be a zombie until asyncio's thread has waited for it."""
    found = psutil.Process().children(recursive=True)
    return [child.pid for child in found if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def file_count() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts file handles in /proc")


def wait_until(condition: Callable[[], bool], timeout: float = 20) -> None:
    """Wait for a state that no event tells of."""
    waiter = threading.Event()
    for _ in range(int(timeout / 0.01)):
        if condition():
            return
        waiter.wait(0.01)
    raise AssertionError("the state did not come")


# Calls from everywhere


def test_many_threads_at_once_share_one_runtime(pdf: Path) -> None:
    with ThreadPoolExecutor(12) as pool:
        results = list(pool.map(lambda _: parse(pdf, tier="flash"), range(24)))
    assert all(is_right(result) for result in results)
    assert engine_threads().count("mineru-runtime") == 1
    runtime = runtime_for(Settings.load())
    assert runtime.statistics().pool.busy == 0
    assert len(live_children()) <= runtime.statistics().pool.size


def test_loops_come_and_go(pdf: Path) -> None:
    async def several() -> list[ParseResult]:
        return await asyncio.gather(*(parse_async(pdf, tier="flash") for _ in range(4)))

    first = runtime_for(Settings.load())
    for _ in range(4):
        assert all(is_right(result) for result in asyncio.run(several()))
    with ThreadPoolExecutor(3) as pool:
        for results in pool.map(lambda _: asyncio.run(several()), range(3)):
            assert all(is_right(result) for result in results)
    assert runtime_for(Settings.load()) is first


def test_a_blocking_call_beside_a_running_loop_does_not_stop_it(pdf: Path) -> None:
    async def body() -> None:
        beats = 0

        async def heart() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0)
                beats += 1

        beating = asyncio.create_task(heart())
        assert is_right(await asyncio.to_thread(parse, pdf, tier="flash"))
        beating.cancel()
        assert beats > 10

    asyncio.run(body())


def test_a_blocking_call_inside_a_running_loop_works(pdf: Path) -> None:
    """Not polite to the loop, but what a notebook cell does."""

    async def body() -> ParseResult:
        return parse(pdf, tier="flash")

    assert is_right(asyncio.run(body()))


def test_a_blocking_call_from_the_runtimes_own_thread_is_refused(pdf: Path) -> None:
    refused: list[RuntimeStateError] = []

    def callback(progress: Progress) -> None:
        for call in (lambda: parse(pdf, tier="flash"), lambda: doc_analyze(b"x"), shutdown_cached_models):
            try:
                call()
            except RuntimeStateError as exc:
                refused.append(exc)

    assert is_right(parse(pdf, tier="flash", on_progress=callback))
    assert {exc.code for exc in refused} == {ErrorCode.RUNTIME_REENTERED}
    assert len(refused) % 3 == 0 and all(exc.hint for exc in refused)
    assert is_right(parse(pdf, tier="flash"))
    assert engine_threads().count("mineru-runtime") == 1


@pytest.mark.parametrize("when", [0, 1])
def test_an_error_in_a_callback_comes_out_as_it_is(pdf: Path, temp_dir: Path, when: int) -> None:
    class Mine(Exception):
        pass

    def callback(progress: Progress) -> None:
        if progress.done >= when:
            raise Mine(progress.document)

    with pytest.raises(Mine, match=r"two\.pdf"):
        parse(pdf, tier="flash", on_progress=callback)
    assert runtime_for(Settings.load()).statistics().pool.busy == 0
    assert is_right(parse(pdf, tier="flash"))


def test_progress_counts_every_page(pdf: Path) -> None:
    seen: list[Progress] = []
    parse(pdf, tier="flash", on_progress=seen.append, window_size=1)
    assert [(item.done, item.total) for item in seen] == [(0, 2), (1, 2), (2, 2)]


# Same result


def protocol(result: ParseResult) -> tuple[bytes, bytes]:
    return orjson.dumps(result.middle_json.to_dict()), orjson.dumps(result.model_json.to_dict())


def test_synchronous_and_asynchronous_results_are_equal_byte_for_byte(demo: Path) -> None:
    path = demo / "paper.pdf"
    blocking = parse(path, tier="flash", window_size=1)
    awaited = asyncio.run(parse_async(path, tier="flash", window_size=1))
    assert protocol(blocking) == protocol(awaited)
    assert dict(blocking.assets) == dict(awaited.assets)
    assert blocking.markdown() == awaited.markdown()


def test_doc_analyze_and_aio_doc_analyze_are_equal_byte_for_byte() -> None:
    data = text_pdf(["Harbour report", "Second page"])
    one = doc_analyze(data, "two.pdf", tier="flash")
    other = asyncio.run(aio_doc_analyze(data, "two.pdf", tier="flash"))
    assert [orjson.dumps(item.to_dict()) for item in one] == [orjson.dumps(item.to_dict()) for item in other]


# Shutdown


@needs_proc
def test_shutdown_leaves_nothing_and_the_next_call_works(pdf: Path, temp_dir: Path, fresh: None) -> None:
    threads, files = engine_threads(), file_count()
    for _ in range(2):
        assert is_right(parse(pdf, tier="flash"))
        assert live_children()
        shutdown_cached_models()
        assert engine_threads() == threads
        assert live_children() == []
        assert file_count() == files
    shutdown_cached_models()


def test_shutdown_inside_a_running_loop(pdf: Path, fresh: None) -> None:
    async def body() -> None:
        assert is_right(await parse_async(pdf, tier="flash"))
        shutdown_cached_models()
        assert live_children() == []
        assert is_right(await parse_async(pdf, tier="flash"))

    asyncio.run(body())


def test_shutdown_ends_running_calls_with_a_clear_error(demo: Path, temp_dir: Path, fresh: None) -> None:
    started = threading.Event()
    path = demo / "report.pdf"

    async def asynchronous() -> ParseResult:
        return await parse_async(path, tier="flash", on_progress=lambda _: started.set())

    with ThreadPoolExecutor(2) as pool:
        calls: list[Callable[[], ParseResult]] = [
            lambda: parse(path, tier="flash", on_progress=lambda _: started.set()),
            lambda: asyncio.run(asynchronous()),
        ]
        for call in calls:
            started.clear()
            running = pool.submit(call)
            assert started.wait(30)
            shutdown_cached_models()
            with pytest.raises(RuntimeStateError) as caught:
                running.result(timeout=30)
            assert caught.value.code is ErrorCode.RUNTIME_CLOSED
            assert live_children() == []


def test_shutdown_while_calls_start_never_hangs(pdf: Path, fresh: None) -> None:
    def call(_: int) -> str:
        try:
            return "right" if is_right(parse(pdf, tier="flash")) else "wrong"
        except RuntimeStateError:
            return "closed"

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(call, number) for number in range(8)]
        while not all(item.done() for item in running):
            wait_until(lambda: bool(live_children()) or all(item.done() for item in running))
            shutdown_cached_models()
        assert {item.result() for item in running} <= {"right", "closed"}
    shutdown_cached_models()
    assert live_children() == []
    assert engine_threads() == []


# Cancel


@needs_proc
def test_cancelling_at_any_moment_leaves_nothing(demo: Path, pdf: Path, temp_dir: Path, fresh: None) -> None:
    runtime = runtime_for(Settings.load())
    assert is_right(parse(pdf, tier="flash"))
    rng = random.Random(11)

    async def body() -> None:
        for number in range(8):
            path = demo / ("report.pdf" if number % 2 else "paper.pdf")
            task = asyncio.create_task(parse_async(path, tier="flash", window_size=2))
            await asyncio.wait({task}, timeout=rng.random() * 0.7)
            task.cancel()
            if number % 3 == 0:  # a second cancel must not cut the clean-up short
                await asyncio.sleep(0)
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            state = runtime.statistics()
            assert (state.pool.busy, state.pool.waiting) == (0, 0)
            assert names(temp_dir) == []
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(body())
    assert is_right(parse(pdf, tier="flash"))
    shutdown_cached_models()
    files = file_count()
    assert is_right(parse(pdf, tier="flash"))
    shutdown_cached_models()
    assert file_count() <= files
    assert live_children() == []


@needs_proc
def test_a_reply_that_is_too_large_neither_hangs_nor_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads the rest of it, so its pipe is full when the worker is killed."""

    async def body() -> None:
        pool = WorkerPool(WorkerSettings(processes=1))
        assert await pool.run("worker_tasks:echo", {"value": 1}, deadline_s=20) == 1
        files = file_count()
        with monkeypatch.context() as patch, pytest.raises(WorkerCrashedError):
            patch.setattr("mineru_engine.workers.protocol.MAX_FRAME_BYTES", 1000)
            async with asyncio.timeout(20):
                await pool.run("worker_tasks:big", {"mib": 16}, deadline_s=20)
        assert await pool.run("worker_tasks:echo", {"value": 1}, deadline_s=20) == 1
        await asyncio.to_thread(wait_until, lambda: file_count() <= files + 1)  # a thread may wait for the old process
        await pool.aclose()

    asyncio.run(body())


def test_a_deadline_ends_the_document_and_leaves_nothing(demo: Path, pdf: Path, temp_dir: Path) -> None:
    with pytest.raises(DeadlineError) as caught:
        parse(demo / "report.pdf", tier="flash", timeout_s=0.4)
    assert (caught.value.code, caught.value.document) == (ErrorCode.DEADLINE_EXCEEDED, "report.pdf")
    assert caught.value.retryable
    assert runtime_for(Settings.load()).statistics().pool.busy == 0
    assert is_right(parse(pdf, tier="flash"))


def test_cancelling_one_document_does_not_touch_another(demo: Path, pdf: Path) -> None:
    async def body() -> None:
        started = asyncio.Event()
        loop = asyncio.get_running_loop()

        def tell(progress: Progress) -> None:
            loop.call_soon_threadsafe(started.set)

        doomed = asyncio.create_task(parse_async(demo / "report.pdf", tier="flash", on_progress=tell))
        await started.wait()
        others = [asyncio.create_task(parse_async(pdf, tier="flash")) for _ in range(4)]
        doomed.cancel()
        assert all(is_right(result) for result in await asyncio.gather(*others))
        with pytest.raises(asyncio.CancelledError):
            await doomed

    asyncio.run(body())


def test_keyboard_interrupt_in_a_blocking_call(demo: Path, pdf: Path, temp_dir: Path) -> None:
    raised = threading.Event()

    def interrupt(progress: Progress) -> None:
        if not raised.is_set():
            raised.set()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        parse(demo / "report.pdf", tier="flash", on_progress=interrupt)
    state = runtime_for(Settings.load()).statistics()
    assert (state.pool.busy, state.pool.waiting) == (0, 0)
    assert is_right(parse(pdf, tier="flash"))


# Processes


def script(tmp_path: Path, code: str) -> subprocess.Popen[bytes]:
    directory = tmp_path / "temp"
    directory.mkdir(exist_ok=True)
    env = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(directory)}
    path = write(tmp_path / "script.py", textwrap.dedent(code).encode())
    return subprocess.Popen(
        [sys.executable, str(path)], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def output(process: subprocess.Popen[bytes]) -> str:
    out, err = process.communicate(timeout=60)
    assert err == b"", err.decode()
    return out.decode()


def test_control_c_ends_a_script_after_clean_up(tmp_path: Path, demo: Path) -> None:
    process = script(
        tmp_path,
        f"""
        import psutil, mineru_engine
        def tell(progress):
            print("pid", *[child.pid for child in psutil.Process().children()], flush=True)
        try:
            mineru_engine.parse({str(demo / "report.pdf")!r}, tier="flash", on_progress=tell)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """,
    )
    assert process.stdout is not None
    workers = [int(word) for word in process.stdout.readline().split()[1:]]
    assert workers
    process.send_signal(signal.SIGINT)
    assert output(process).splitlines()[-1] == "interrupted"
    assert process.returncode == 0
    assert list((tmp_path / "temp").iterdir()) == []
    assert not [pid for pid in workers if psutil.pid_exists(pid)]


def test_workers_leave_when_their_parent_is_killed(tmp_path: Path, demo: Path) -> None:
    process = script(
        tmp_path,
        f"""
        import psutil, mineru_engine
        def tell(progress):
            print("pid", *[child.pid for child in psutil.Process().children()], flush=True)
        mineru_engine.parse({str(demo / "report.pdf")!r}, tier="flash", on_progress=tell)
        """,
    )
    assert process.stdout is not None
    workers = [int(word) for word in process.stdout.readline().split()[1:]]
    process.kill()
    process.communicate(timeout=20)

    def gone(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    assert workers
    wait_until(lambda: all(gone(pid) for pid in workers))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is needed")
def test_a_forked_child_gets_its_own_runtime(tmp_path: Path, pdf: Path) -> None:
    process = script(
        tmp_path,
        f"""
        import gc, os, sys
        import mineru_engine
        from mineru_engine.resident import runtime_for
        parse = lambda: "Harbour report" in mineru_engine.parse({str(pdf)!r}, tier="flash").markdown()
        settings = mineru_engine.Settings.load()
        assert parse()
        workers = set(runtime_for(settings).worker_pids())
        child = os.fork()
        gc.collect()
        if child == 0:
            good = parse()
            own = runtime_for(settings)
            good = good and own.pid == os.getpid() and not workers & set(own.worker_pids())
            mineru_engine.shutdown_cached_models()
            gc.collect()
            sys.exit(0 if good else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert parse()
        assert workers & set(runtime_for(settings).worker_pids())
        print("fine")
        """,
    )
    assert output(process) == "fine\n"
    assert list((tmp_path / "temp").iterdir()) == []


def test_fork_from_a_pool_while_the_parent_parses(tmp_path: Path, pdf: Path) -> None:
    process = script(
        tmp_path,
        f"""
        import multiprocessing, threading
        import mineru_engine
        def job(_):
            return "Harbour report" in mineru_engine.parse({str(pdf)!r}, tier="flash").markdown()
        stop = threading.Event()
        def busy():
            while not stop.is_set():
                assert job(0)
        assert job(0)
        thread = threading.Thread(target=busy)
        thread.start()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(job, range(2)))
        stop.set()
        thread.join()
        """,
    )
    assert output(process) == "[True, True]\n"


def test_the_version_is_in_the_result(pdf: Path) -> None:
    result = parse(pdf, tier="flash")
    assert result.versions["mineru"] == mineru_engine.__version__
    extension = result.middle_json.to_dict()["extensions"]["mineru"]
    assert extension["tier"] == "flash" and extension["engine"] == "native"
