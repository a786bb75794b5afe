"""What the user sees while a benchmark runs."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from mineru_cli.bench.live import Board, Step
from mineru_cli.bench.report import DocumentSample, Mode
from mineru_cli.bench.sampling import Sample


class Terminal(io.StringIO):
    """Text that claims to be shown."""

    def isatty(self) -> bool:
        return True


def work(pages: int, elapsed_s: float, documents: int = 1) -> Any:
    samples = [
        DocumentSample(input=0, due_s=0, queued_s=0, parse_s=elapsed_s, pages=pages // documents)
        for _ in range(documents)
    ]
    feed = SimpleNamespace(elapsed=lambda: elapsed_s)
    resources = SimpleNamespace(peak_rss_mib=123.4)
    return SimpleNamespace(samples=samples, elapsed_s=elapsed_s, feed=feed, resources=resources)


STEPS = [Step(Mode.ASYNC, concurrency, repeat) for repeat in (0, 1) for concurrency in (1, 4)]
SAMPLE = Sample(1.0, 412.0, 5, 10, 17, None, None)


def test_the_time_left_is_learnt_from_what_has_been(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", out := io.StringIO())
    with Board(label="new: ") as board:
        board.plan(STEPS)
        board.begin(Step(None, 4, 0), work(0, 0.0))
        board.warmed_up(work(20, 10.0), 10.0)
        assert board.left_s() == 40
        board.end(STEPS[0], work(20, 20.0))
        assert board.left_s() == 20 + 2 * (10 + 20) / 2  # 1 at a time takes 20 s; of 4 only the mean of all is known
        board.end(STEPS[1], work(20, 4.0))
        assert board.left_s() == 24
        for step in STEPS[2:]:
            board.end(step, work(20, 4.0))
    lines = out.getvalue().splitlines()
    assert lines[0] == "new: warm-up, 4 at a time: 20 pages, 2.00 pages/s, P95 10.00 s, about 0:40 for 4 runs"
    assert lines[1] == "new: [1/4] async, 1 at a time, repeat 1: 1.00 pages/s, P95 20.00 s, 123 MiB, about 0:50 left"
    assert lines[-1] == "new: [4/4] async, 4 at a time, repeat 2: 5.00 pages/s, P95 4.00 s, 123 MiB"


def test_a_terminal_has_moving_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", out := Terminal())
    with Board() as board:
        board.plan(STEPS)
        board.begin(Step(None, 4, 0), work(0, 0.0))
        board.show(SAMPLE)
        assert "warm-up" in out.getvalue()
        board.warmed_up(work(20, 10.0), 10.0)
        board.begin(STEPS[0], work(6, 3.0, documents=2))
        board.show(SAMPLE)
    text = out.getvalue()
    assert "run 1 of 4, about 0:37 left" in text
    assert "async, 1 at a time, repeat 1; 2 documents, 6 pages; 2.00 pages/s; P95 3.00 s; 412 MiB; 17 requests" in text


@pytest.mark.parametrize("quiet", [False, True])
def test_without_a_terminal_nothing_moves(quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", out := io.StringIO())
    with Board(quiet=quiet) as board:
        board.plan(STEPS)
        board.begin(STEPS[0], work(6, 3.0))
        board.show(SAMPLE)
        board.say("a line")
    assert out.getvalue() == ("" if quiet else "a line\n")
