"""The benchmarks of the vision-language runtime run, and their reports add up."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import (
    vlm_cancel,
    vlm_cost,
    vlm_efficiency,
    vlm_fairness,
    vlm_ideal,
    vlm_leftovers,
    vlm_loop_lag,
    vlm_memory,
)
from benchmarks._vlm import ENGINE_BOUND, Goal, Spread, alternate, make_documents, measured_requests, page_count, valid
from benchmarks.engine_http import check_pages
from mineru_engine import PageKind, ParseResult

Report = dict[str, Any]
KEYS = {"benchmark", "engine", "engines", "options", "quick", "machine", "figures", "goals", "runs", "caveats"}
REQUESTS_PER_PAGE = 12
TOKENS_PER_PAGE = 1610


@pytest.fixture
def report_of(tmp_path: Path) -> Callable[..., Report]:
    """Runs a benchmark at its smallest size; gives its report, of which it checks what all have."""

    def run(main: Callable[[Sequence[str]], None], *options: str) -> Report:
        target = tmp_path / "report.json"
        main(["--quick", "--repeats", "1", *options, "--output", str(target)])
        report: Report = json.loads(target.read_text(encoding="utf-8"))
        assert report.keys() == KEYS
        assert report["engine"] == "simulated engine"
        assert report["quick"]
        assert report["machine"]["cpus"] >= 1
        for one in report["runs"]:
            assert one["late_s"] == 0 or "void_tries" not in one  # a cancel is no measure of the engine's speed
            assert one["load_before"] >= 0
        for goal in report["goals"]:
            reached, limit = goal["value"]["median"], goal["limit"]
            assert goal["met"] == (reached <= limit if goal["at_most"] else reached >= limit)
        assert str(tmp_path) not in target.read_text(encoding="utf-8")
        return report

    return run


def test_cost(report_of: Callable[..., Report]) -> None:
    report = report_of(vlm_cost.main, "--sides", "jpeg")
    (run,) = report["runs"]
    assert (run["documents"], run["pages"], run["requests"]) == (4, 4, 4 * REQUESTS_PER_PAGE)
    assert run["cpu_ms_per_page"] == pytest.approx(run["cpu_s"] / run["pages"] * 1000)
    assert run["pages_per_s"] == pytest.approx(run["pages"] / run["seconds"])
    assert report["figures"]["jpeg, 4 at a time"]["pages_per_s"]["median"] == run["pages_per_s"]


def test_efficiency(report_of: Callable[..., Report]) -> None:
    report = report_of(vlm_efficiency.main, "--sides", "png")
    (run,) = report["runs"]
    (limit,) = [engine["limit_tokens_per_s"] for engine in report["engines"]]
    assert run["tokens"] == run["pages"] * TOKENS_PER_PAGE
    assert run["efficiency"] == pytest.approx(run["tokens"] / limit / run["seconds"])
    (row,) = report["figures"].values()
    assert 0 < row["png"]["median"] < row["ideal client"] < 1


def test_ideal_client_is_bounded_by_the_first_layout() -> None:
    """Forty-two steps of layouts alone, then nothing but full steps: no client can do better."""
    for work in (vlm_ideal.Workload(1, 13, 1), vlm_ideal.Workload(1, 58, 1), vlm_ideal.Workload(4, 13, 4)):
        pages = work.documents * work.pages
        layouts_s = 42 * (ENGINE_BOUND.step_base_ms + ENGINE_BOUND.step_per_seq_ms * pages) / 1000
        limit = ENGINE_BOUND.limit_tokens_per_s
        assert limit is not None
        least_s = layouts_s + pages * (TOKENS_PER_PAGE - 330) / limit
        assert least_s < vlm_ideal.ideal_seconds(work, ENGINE_BOUND) < 1.08 * least_s


def test_memory(report_of: Callable[..., Report]) -> None:
    report = report_of(vlm_memory.main)
    peaks = {run["case"]: run["rss_mib"] for run in report["runs"]}
    assert all(run["rss_mib"] > run["pss_mib"] > 50 and run["processes"] >= 2 for run in report["runs"])
    ratio, peak = (goal["value"]["median"] for goal in report["goals"])
    assert ratio == pytest.approx(peaks[vlm_memory.EIGHT] / peaks[vlm_memory.ONE])
    assert peak == peaks[vlm_memory.EIGHT]


def test_fairness(report_of: Callable[..., Report]) -> None:
    report = report_of(vlm_fairness.main, "--sides", "ours")
    (run,) = report["runs"]
    assert run["ratio"] == pytest.approx(median(run["inside_s"]) / median(run["alone_s"]))
    assert 1 < run["peak_running"] <= 8
    assert report["figures"]["ours"]["ratio"]["median"] == run["ratio"]


def test_loop_lag(report_of: Callable[..., Report]) -> None:
    report = report_of(vlm_loop_lag.main)
    assert [run["case"] for run in report["runs"]] == ["idle", "zero latency", "engine-bound"]
    for run in report["runs"]:
        assert run["sleeps"] > 5
        assert run["p50_ms"] <= run["p99_ms"] <= run["max_ms"]


def test_cancel(report_of: Callable[..., Report]) -> None:
    in_flight, at_random = report_of(vlm_cancel.main)["runs"]
    assert at_random["same_markdown"]
    assert len(in_flight["cancel_s"]) == 2
    for run in (in_flight, at_random):
        assert all(run["after"][name] == 0 for name in vlm_leftovers.NONE_LEFT)
        assert min(run["cancel_s"]) > 0


def test_cost_is_compared_round_by_round() -> None:
    sides = {"png": (10.0, 30.0, 6.0), "mineru_345": (40.0, 50.0, 20.0)}
    runs = [
        {"side": side, "case": "4 at a time", "cpu_ms_per_page": cost, "pages_per_s": 1000 / cost}
        for number in range(3)
        for side, cost in ((side, costs[number]) for side, costs in sides.items())
    ]
    cpu, speed = vlm_cost.goals(runs, list(sides), [4])
    assert (cpu.value.least, cpu.value.median, cpu.value.most) == pytest.approx((0.25, 0.3, 0.6))
    assert speed.value.median == pytest.approx(1 / 0.3)
    assert cpu.met
    assert speed.met


def test_memory_of_long_documents_has_a_goal() -> None:
    peaks = {vlm_memory.ONE: 300.0, vlm_memory.EIGHT: 330.0, vlm_memory.SHORT: 250.0, vlm_memory.LONG: 310.0}
    runs = [{"side": "png", "case": case, "rss_mib": peak} for case, peak in peaks.items()]
    eight, long, peak = vlm_memory.goals(runs, ["png"])
    assert [goal.value.median for goal in (eight, long, peak)] == pytest.approx([1.1, 1.24, 330.0])
    assert [goal.met for goal in (eight, long, peak)] == [True, False, True]


def test_late_engine_voids_the_round(capsys: pytest.CaptureFixture[str]) -> None:
    late = iter([0.5, 0.0])
    assert valid(lambda: {"late_s": next(late)})["void_tries"] == 1
    with pytest.raises(SystemExit, match="void"):
        valid(lambda: {"late_s": 0.1})
    assert "void" in capsys.readouterr().err


def test_requests_of_the_warm_up_do_not_count() -> None:
    warm_up = [
        {"arrived_s": 0.0, "kind": "layout", "outcome": "ok"},
        {"arrived_s": 1.0, "kind": "text", "outcome": "ok"},
    ]
    mine = [{"arrived_s": 2.0, "kind": "layout", "outcome": "ok"}, {"arrived_s": 3.0, "kind": "text", "outcome": "ok"}]
    assert measured_requests([*mine, *warm_up], 1) == mine
    with pytest.raises(RuntimeError, match="cancelled"):
        measured_requests([*warm_up, {**mine[0], "outcome": "cancelled"}], 1)


def test_page_that_took_another_way_fails_the_run() -> None:
    kinds = {0: PageKind.VLM, 1: PageKind.OCR}
    page_by_page = [SimpleNamespace(name="a.pdf", diagnostics=[], page_kinds={page: kinds[page]}) for page in kinds]
    check_pages(cast(ParseResult, page_by_page[0]))
    with pytest.raises(RuntimeError, match="ocr"):
        check_pages(cast(ParseResult, page_by_page[1]))


def test_sides_take_turns_at_the_front() -> None:
    assert [order for _, order in alternate("abc", 4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_goals() -> None:
    ratio = Spread.ratio([1.0, 4.0, 3.0], [2.0, 2.0, 2.0])
    assert (ratio.median, ratio.least, ratio.most) == (1.5, 0.5, 2.0)
    assert Goal("at most", ratio, 1.5).met
    assert not Goal("at most", ratio, 1.4).met
    assert not Goal("at least", ratio, 1.6, at_most=False).met


def test_copies_of_a_document_differ(tmp_path: Path) -> None:
    documents = make_documents(tmp_path, 2, 70)
    assert [page_count(path) for path in documents] == [70, 70]
    assert documents[0].read_bytes() != documents[1].read_bytes()
