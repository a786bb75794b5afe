"""The public functions in the places where people really call them: every test is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from make_documents import text_pdf, write

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory that is not the repository, with a document and an empty temporary directory."""
    write(tmp_path / "two.pdf", text_pdf(["Harbour report", "Second page"]))
    (tmp_path / "temp").mkdir()
    return tmp_path


def run(place: Path, arguments: list[str], *, stdin: str = "", **env: str) -> str:
    """Standard output of a Python process that may write nothing else."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(place / "temp")} | env
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=place,
        env=environment,
        input=textwrap.dedent(stdin),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert [path.name for path in (place / "temp").iterdir() if path.name != ".ses"] == []
    return done.stdout


def run_script(place: Path, code: str, **env: str) -> str:
    write(place / "script.py", textwrap.dedent(code).encode())
    return run(place, ["script.py"], **env)


PLAIN = """
import mineru_engine
result = mineru_engine.parse("two.pdf", tier="flash")
print(result.page_count, "Harbour report" in result.markdown())
"""


def test_a_plain_script_without_a_main_guard(place: Path) -> None:
    assert run_script(place, PLAIN) == "2 True\n"


def test_a_script_that_lies_beside_modules_named_like_the_standard_library(place: Path) -> None:
    """Workers must not import what happens to lie in the caller's directory."""
    for name in ("queue.py", "json.py", "numpy.py", "worker.py"):
        write(place / name, b"raise SystemExit('imported by accident')\n")
    code = "import sys; sys.path[:] = [p for p in sys.path if p not in ('', sys.argv[1])]\n" + PLAIN
    write(place / "script.py", code.encode())
    assert run(place, ["-P", "script.py", str(place)]) == "2 True\n"


def test_a_script_from_standard_input(place: Path) -> None:
    assert run(place, ["-"], stdin=PLAIN) == "2 True\n"


def test_a_command_line_one_liner(place: Path) -> None:
    assert run(place, ["-c", PLAIN]) == "2 True\n"


def test_an_interactive_console(place: Path) -> None:
    """Like a notebook: ``__main__`` has no file, statements run one by one."""
    code = """
    import code, sys, __main__
    if hasattr(__main__, "__file__"):
        del __main__.__file__
    lines = iter([
        "import mineru_engine as m",
        "r = m.parse('two.pdf', tier='flash')",
        "print(r.page_count)",
        "print(m.parse('two.pdf', tier='flash', pages='2').page_count)",
    ])
    def read(prompt):
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None
    console = code.InteractiveConsole()
    console.raw_input = read
    console.write = lambda text: None
    console.interact(banner="", exitmsg="")
    """
    assert run_script(place, code) == "2\n1\n"


def test_a_notebook_cell_with_a_running_loop(place: Path) -> None:
    """A notebook runs cells inside its loop: awaiting works, and so does the blocking call."""
    code = """
    import asyncio, mineru_engine
    namespace = {"mineru_engine": mineru_engine}
    cells = [
        "r = await mineru_engine.parse_async('two.pdf', tier='flash')\\nprint(r.page_count)",
        "r = mineru_engine.parse('two.pdf', tier='flash')\\nprint(r.page_count)",
    ]
    import ast
    async def kernel():
        for cell in cells:
            made = eval(compile(cell, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), namespace)
            if made is not None:
                await made
    asyncio.run(kernel())
    """
    assert run_script(place, code) == "2\n2\n"


def test_inside_threads_daemons_too(place: Path) -> None:
    code = """
    import threading, mineru_engine
    def work():
        print(mineru_engine.parse("two.pdf", tier="flash").page_count, flush=True)
    for daemon in (False, True):
        thread = threading.Thread(target=work, daemon=daemon)
        thread.start()
        thread.join()
    """
    assert run_script(place, code) == "2\n2\n"


def test_a_daemon_thread_that_is_still_parsing_does_not_hold_up_the_end(place: Path, demo: Path) -> None:
    code = f"""
    import threading, mineru_engine
    started = threading.Event()
    def work():
        try:
            mineru_engine.parse({str(demo / "report.pdf")!r}, tier="flash", on_progress=lambda p: started.set())
        except mineru_engine.RuntimeStateError:
            pass
    threading.Thread(target=work, daemon=True).start()
    started.wait()
    print("leaving")
    """
    assert run_script(place, code) == "leaving\n"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_inside_a_daemonic_worker_of_multiprocessing(place: Path, method: str) -> None:
    """Such a process may not have children of multiprocessing's own kind."""
    code = f"""
    import multiprocessing, mineru_engine
    def work(queue):
        queue.put(mineru_engine.parse("two.pdf", tier="flash").page_count)
    if __name__ == "__main__":
        context = multiprocessing.get_context({method!r})
        queue = context.SimpleQueue()
        process = context.Process(target=work, args=(queue,), daemon=True)
        process.start()
        print(queue.get())
        process.join()
        print(process.exitcode)
    """
    assert run_script(place, code) == "2\n0\n"


def test_a_process_pool(place: Path) -> None:
    code = """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    import mineru_engine
    def work(page):
        return mineru_engine.parse("two.pdf", tier="flash", pages=str(page)).page_count
    if __name__ == "__main__":
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            print(*pool.map(work, (1, 2)))
    """
    assert run_script(place, code) == "1 1\n"


def test_after_the_working_directory_changed(place: Path) -> None:
    code = """
    import os, mineru_engine
    os.mkdir("deeper")
    os.chdir("deeper")
    print(mineru_engine.parse("../two.pdf", tier="flash").page_count)
    """
    assert run_script(place, code) == "2\n"


def test_with_standard_streams_closed(place: Path) -> None:
    code = """
    import os, mineru_engine
    out = os.dup(1)
    for number in (0, 1, 2):
        os.close(number)
    count = mineru_engine.parse("two.pdf", tier="flash").page_count
    mineru_engine.shutdown_cached_models()
    os.write(out, f"{count}\\n".encode())
    os._exit(0)
    """
    assert run_script(place, code) == "2\n"


def test_in_a_poor_locale_with_a_name_that_is_not_ascii(place: Path) -> None:
    (place / "two.pdf").rename(place / "zwölf 文.pdf")
    code = """
    import glob, mineru_engine
    result = mineru_engine.parse(glob.glob("*.pdf")[0], tier="flash")
    print(result.page_count, ascii(result.name))
    """
    assert run_script(place, code, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0").startswith("2 'zw")


def test_everything_is_quiet_even_when_ocr_runs(place: Path) -> None:
    """Standard error is checked by :func:`run`: no library prints, logs or warns."""
    code = """
    import logging, mineru_engine
    logging.basicConfig(level=logging.INFO)
    result = mineru_engine.parse("two.pdf", tier="basic", ocr_mode="ocr", pages="1")
    print(result.engine, "harbour" in result.markdown().lower())
    """
    assert run_script(place, code) == "onnx True\n"


def test_nothing_is_printed_for_a_damaged_document(place: Path) -> None:
    write(place / "bad.pdf", b"%PDF-1.7\n1 0 obj\n<<")
    code = """
    import mineru_engine
    try:
        mineru_engine.parse("bad.pdf")
    except mineru_engine.MineruError as exc:
        print(exc.code)
    """
    assert run_script(place, code) == "file_damaged\n"


def test_importing_loads_no_heavy_library(place: Path) -> None:
    heavy = {
        "numpy",
        "onnxruntime",
        "cv2",
        "torch",
        "docvortex",
        "PIL",
        "pypdfium2",
        "pypdf",
        "rapidocr",
        "transformers",
    }
    code = "import sys, mineru_engine; print(*{name.partition('.')[0] for name in sys.modules})"
    assert not heavy & set(run(place, ["-c", code]).split())


def test_importing_changes_nothing(place: Path) -> None:
    code = """
    import logging, os, signal, sys, threading, warnings, asyncio
    def state():
        root = logging.getLogger()
        return (dict(os.environ), threading.active_count(), signal.getsignal(signal.SIGINT), root.level,
                list(root.handlers), list(sys.path), sys.excepthook, type(asyncio.get_event_loop_policy()))
    before = state()
    import mineru_engine
    assert state() == before
    print("same")
    """
    assert run_script(place, code) == "same\n"


def test_a_parse_keeps_the_parent_light(place: Path) -> None:
    """Native libraries run in the workers, not in the caller's process."""
    code = """
    import sys, mineru_engine
    mineru_engine.parse("two.pdf", tier="flash")
    print(*sorted({"numpy", "onnxruntime", "cv2", "pypdfium2", "rapidocr"} & set(sys.modules)))
    """
    loaded = run_script(place, code).split()
    assert not {"onnxruntime", "cv2", "rapidocr"} & set(loaded)
