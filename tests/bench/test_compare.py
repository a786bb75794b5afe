"""``mineru compare``: reports with known effects in, sentences and exit codes out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mineru_cli.app import app
from mineru_cli.bench.comparable import Named
from mineru_cli.bench.compare import Comparison, Difference, compare_reports
from mineru_cli.bench.gates import Targets, Verdict
from mineru_cli.bench.report import Input, Mode, Report, save_report
from tests.bench.synthetic import ENGINE, MACHINE, SOURCE, Effect, cancellation, caveat, make_report

Run = Callable[..., Result]


@pytest.fixture
def compare(tmp_path: Path) -> Run:
    """Runs ``mineru compare base.json new.json`` on these two."""

    def run(base: Report, new: Report, *options: str) -> Result:
        save_report(base, tmp_path / "base.json")
        save_report(new, tmp_path / "new.json")
        paths = [str(tmp_path / name) for name in ("base.json", "new.json")]
        return CliRunner().invoke(app, ["compare", *paths, *options])

    return run


def compared(base: Report, new: Report, targets: Targets | None = None) -> Comparison:
    return compare_reports(Named("base", base), Named("new", new), targets)


def changed(report: Report, part: str, **values: Any) -> Report:
    """The report with some fields of one part replaced, and sealed again."""
    return report.model_copy(update={part: getattr(report, part).model_copy(update=values)}).sealed()


# what the figures say


@pytest.mark.parametrize(("repeats", "deviation"), [(4, 0.01), (6, 0.03)])
def test_the_same_source_twice_makes_no_difference(repeats: int, deviation: float) -> None:
    def pair(seed: int) -> Comparison:
        base, new = (make_report(2 * seed + side, noise=deviation, repeats=repeats) for side in (0, 1))
        return compared(base, new)

    found = [pair(seed) for seed in range(20)]
    assert sum(comparison.difference is Difference.NONE for comparison in found) >= 19
    assert {comparison.verdict for comparison in found} == {Verdict.FAIL}


def test_no_difference_is_a_fail_and_says_so(compare: Run) -> None:
    done = compare(make_report(1), make_report(2))
    assert done.exit_code == 1
    assert done.stdout.startswith("verdict: fail; no difference\n")


def test_thirty_percent_more_throughput_passes(compare: Run) -> None:
    done = compare(make_report(1), make_report(2, Effect(load=1 / 1.3)))
    assert done.exit_code == 0
    assert done.stdout.startswith("verdict: pass; the new one is better\n")
    assert "Gates of mode async, 4 at once: pass" in done.stdout


def test_a_loss_of_ten_percent_is_found() -> None:
    for seed in range(10):
        found = compared(make_report(2 * seed), make_report(2 * seed + 1, Effect(load=1.1)))
        assert found.difference is Difference.WORSE
        assert found.verdict is Verdict.FAIL


def test_the_p95_alone_passes_at_equal_throughput(compare: Run) -> None:
    done = compare(make_report(1), make_report(2, Effect(tail=0.7)))
    assert done.exit_code == 0
    assert done.stdout.startswith("verdict: pass; the new one is better\n")
    gate = {line.split()[0]: line for line in done.stdout.partition("Gates of")[2].splitlines() if line.strip()}
    assert "missed" in gate["throughput"]
    assert "met" in gate["or"] and "met" in gate["at"]


def test_a_lower_p95_at_less_throughput_does_not_pass(compare: Run) -> None:
    done = compare(make_report(1), make_report(2, Effect(load=1.1, tail=0.6)))
    assert done.exit_code == 1
    assert done.stdout.startswith("verdict: fail")


def test_a_slower_single_document_fails_whatever_the_throughput(compare: Run) -> None:
    done = compare(make_report(1), make_report(2, Effect(load=0.6, single=1.1)))
    assert done.exit_code == 1
    assert done.stdout.startswith("verdict: fail; better in one figure, worse in another\n")


def test_the_single_document_of_the_workload_counts_alone() -> None:
    def slow_letters(report: Report) -> Report:
        runs = [
            run.model_copy(
                update={
                    "samples": [
                        sample.model_copy(update={"parse_s": sample.parse_s * (2 if sample.input == 0 else 1)})
                        for sample in run.samples
                    ]
                }
            )
            for run in report.runs
        ]
        return report.model_copy(update={"runs": runs}).sealed()

    def single(name: str) -> Verdict:
        base = changed(make_report(1), "workload", single_document=name)
        new = slow_letters(changed(make_report(2, Effect(load=0.6)), "workload", single_document=name))
        (gates,) = compared(base, new).gates
        return gates.single.verdict

    assert single("paper.pdf") is Verdict.PASS
    assert single("letter.pdf") is Verdict.FAIL


@pytest.mark.parametrize("repeats", [1, 3])
def test_too_few_repeats_are_inconclusive(compare: Run, repeats: int) -> None:
    done = compare(make_report(1, repeats=repeats), make_report(2, Effect(load=0.4), repeats=repeats))
    assert done.exit_code == 1
    settled = "; the difference is not settled" if repeats > 1 else ""
    assert done.stdout.splitlines()[0] == f"verdict: inconclusive{settled}"
    assert f"{repeats} repeats cannot show anything with 95 % confidence" in done.stdout


def test_an_interval_across_the_target_is_inconclusive_and_says_what_would_settle_it(compare: Run) -> None:
    base = make_report(1, noise=0.08, repeats=5)
    done = compare(base, make_report(2, Effect(load=1 / 1.4), noise=0.08, repeats=5))
    assert done.exit_code == 1
    assert done.stdout.startswith("verdict: inconclusive")
    assert "across the target; about " in done.stdout
    assert "repeats would settle it" in done.stdout
    assert "base.json: pages/s differed by up to" in done.stdout


def test_as_many_repeats_as_were_said_do_settle_it() -> None:
    def pair(repeats: int) -> Comparison:
        base = make_report(1, noise=0.05, repeats=repeats)
        return compared(base, make_report(2, Effect(load=1 / 1.35), noise=0.05, repeats=repeats))

    (first,) = pair(5).gates
    assert first.throughput.verdict is Verdict.INCONCLUSIVE
    assert first.throughput.repeats_needed is not None
    (second,) = pair(2 * first.throughput.repeats_needed).gates
    assert second.throughput.verdict is Verdict.PASS


def test_a_p95_of_few_documents_is_no_p95() -> None:
    def letters(report: Report) -> Report:
        runs = [run.model_copy(update={"samples": run.samples[:1]}) for run in report.runs]
        return report.model_copy(update={"runs": runs}).sealed()

    (gates,) = compared(letters(make_report(1)), letters(make_report(2))).gates
    assert gates.p95.verdict is Verdict.INCONCLUSIVE
    assert gates.p95.reason == "a P95 needs 20 documents over all repeats"


def test_without_a_load_or_a_single_document_there_is_nothing_to_decide(compare: Run) -> None:
    done = compare(make_report(1, concurrencies=(1,)), make_report(2, concurrencies=(1,)))
    assert (done.exit_code, "the reports have no common concurrency above 1" in done.stdout) == (1, True)
    done = compare(make_report(1, concurrencies=(4,)), make_report(2, Effect(load=0.6), concurrencies=(4,)))
    assert (done.exit_code, "the reports have no document in common at concurrency 1" in done.stdout) == (1, True)


def test_the_highest_common_concurrency_is_the_load() -> None:
    found = compared(make_report(1, concurrencies=(1, 2, 4)), make_report(2, concurrencies=(1, 4, 8)))
    assert [row.concurrency for row in found.conditions] == [1, 4]
    assert [gates.concurrency for gates in found.gates] == [4]


def test_every_mode_must_pass() -> None:
    def new(slow: set[Mode]) -> Report:
        fast, same = (make_report(2, effect, modes=tuple(Mode)) for effect in (Effect(load=0.6), Effect()))
        runs = [
            *(run for run in fast.runs if run.mode not in slow),
            *(run for run in same.runs if run.mode in slow),
        ]
        return fast.model_copy(update={"runs": runs}).sealed()

    base = make_report(1, modes=tuple(Mode))
    assert compared(base, new(set())).verdict is Verdict.PASS
    found = compared(base, new({Mode.SYNC_THREAD}))
    assert found.verdict is Verdict.FAIL
    assert {gates.mode: gates.verdict for gates in found.gates} == {
        Mode.ASYNC: Verdict.PASS,
        Mode.SYNC_THREAD: Verdict.FAIL,
    }


def test_targets_can_be_set(compare: Run) -> None:
    base, new = make_report(1), make_report(2, Effect(load=1 / 1.1, single=1.1))
    assert compare(base, new).exit_code == 1
    assert compare(base, new, "--throughput", "5", "--single", "15").exit_code == 0
    assert compare(base, make_report(3), "--throughput", "-5").exit_code == 0  # not slower is enough
    assert compare(base, make_report(4, Effect(tail=0.9)), "--p95", "5").exit_code == 0


def test_arrivals_of_their_own_count_the_queue() -> None:
    def tail(arrival: str) -> float | None:
        report = changed(make_report(1), "workload", arrival=arrival)
        (row,) = [row for row in compared(report, report).conditions if row.concurrency == 1]
        return row.effect("p95").base

    closed, open_ = tail("closed"), tail("poisson:2")
    assert closed is not None and open_ is not None
    assert open_ == pytest.approx(closed + 0.1, abs=0.05)  # the longest document waits 0.1 s


def test_equal_files_give_the_same_answer_again(compare: Run) -> None:
    base, new = make_report(1), make_report(2, noise=0.05)
    assert compare(base, new, "--json").stdout == compare(base, new, "--json").stdout


def test_memory_and_cancels_are_compared_too(compare: Run) -> None:
    def hungry(report: Report) -> Report:
        runs = [
            run.model_copy(update={"resources": run.resources.model_copy(update={"peak_rss_mib": 2000.0})})
            for run in report.runs
        ]
        return report.model_copy(update={"runs": runs, "cancellation": [cancellation([0.5], tasks=2)]})

    done = compare(make_report(1, cancellation=[cancellation([0.1])]), hungry(make_report(2)))
    assert "peak rss of mode async, 4 at once:" in done.stdout
    assert "worse" in done.stdout.partition("peak rss of mode async, 4 at once:")[2].splitlines()[0]
    assert "nothing → 2 tasks" in done.stdout


# what the verdict is worth


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"simulated": True, "device": "remote"}, "not a GPU acceptance: the engine is simulated"),
        ({"device": "cpu"}, "not a GPU acceptance: the engine ran on the CPU"),
        ({"device": "unknown"}, "not a GPU acceptance: it is not known what the engine ran on"),
    ],
)
def test_a_pass_without_a_gpu_is_no_acceptance(compare: Run, engine: dict[str, Any], words: str) -> None:
    identity = ENGINE.model_copy(update=engine)
    done = compare(make_report(1, engine=identity), make_report(2, Effect(load=0.6), engine=identity))
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == f"verdict: pass; the new one is better; {words}"


def test_a_remote_engine_is_a_caveat(compare: Run) -> None:
    identity = ENGINE.model_copy(update={"device": "remote"})
    done = compare(make_report(1, engine=identity), make_report(2, Effect(load=0.6), engine=identity))
    assert "acceptance" not in done.stdout
    assert "the engine is remote: what it ran on is not seen from here" in done.stdout


def test_caveats_of_the_reports_are_passed_on_once(compare: Run) -> None:
    both, one = caveat("the machine was warm"), caveat("the window was open")
    done = compare(make_report(1, caveats=[both]), make_report(2, caveats=[both, one]))
    told = done.stdout.partition("Caveats:\n")[2].splitlines()
    assert told == ["  the machine was warm", "  new.json: the window was open"]


# what may be compared

EXTRA = Input(name="extra.pdf", sha256="e" * 64, pages=1, bytes=10)


def _tampered(report: Report) -> Report:
    return report.model_copy(update={"duration_s": 1.0})


def _without_a_repeat(report: Report) -> Report:
    return report.model_copy(update={"runs": report.runs[:-1]}).sealed()


def _other_input(report: Report) -> Report:
    return report.model_copy(
        update={"inputs": [report.inputs[0].model_copy(update={"sha256": "f" * 64}), *report.inputs[1:]]}
    ).sealed()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            _without_a_repeat,
            "new.json has 5 of 6 repeats of mode async at concurrency 4",
        ),
        (
            lambda report: report.model_copy(update={"runs": [*report.runs, report.runs[0]]}).sealed(),
            "new.json has a repeat of mode async at concurrency 1 more than once",
        ),
        (
            lambda report: report.model_copy(update={"complete": False}),
            "new.json is incomplete: its run was interrupted",
        ),
        (
            _other_input,
            "the input letter.pdf is another document: sha256 000000000000 in base.json, ffffffffffff in new.json",
        ),
        (
            lambda report: report.model_copy(update={"inputs": [*report.inputs, EXTRA]}),
            "only new.json has the inputs extra.pdf",
        ),
        (
            lambda report: changed(report, "engine", model="MinerU3"),
            "the models differ: MinerU2.5 in base.json, MinerU3 in new.json",
        ),
        (lambda report: changed(report, "engine", engine="http"), "engine: vllm in base.json, http in new.json"),
        (
            lambda report: changed(report, "engine", simulated=True),
            "simulated engine: no in base.json, yes in new.json",
        ),
        (lambda report: changed(report, "machine", cores_allowed=8), "cores: 16 in base.json, 8 in new.json"),
        (
            lambda report: changed(report, "machine", gpus=[]),
            "GPUs: Some GPU, 143360 MiB in base.json, none in new.json",
        ),
        (lambda report: changed(report, "workload", tier="xhigh"), "tier: high in base.json, xhigh in new.json"),
        (
            lambda report: changed(report, "workload", arrival="poisson:2"),
            "arrival of documents: closed in base.json, poisson:2 in new.json",
        ),
        (
            lambda report: report.model_copy(update={"settings": {"processing.window_size": 4}}),
            "setting processing.window_size: 8 in base.json, 4 in new.json",
        ),
        (
            lambda report: report.model_copy(update={"options": {"image_analysis": False}}),
            "option image_analysis: yes in base.json, no in new.json",
        ),
        (
            lambda report: make_report(2, concurrencies=(3,)),
            "base.json and new.json have no mode and concurrency in common",
        ),
    ],
)
def test_what_differs_is_named_and_ends_with_3(compare: Run, change: Callable[[Report], Report], sentence: str) -> None:
    base, new = make_report(1), change(make_report(2))
    done = compare(base, new)
    assert done.exit_code == 3
    assert done.stdout == ""
    told, hint = done.stderr.splitlines()[:-1], done.stderr.splitlines()[-1]
    assert told == [f"mineru: not comparable: {sentence}"]
    assert hint == "  hint: --force prints the figures without a verdict"


def test_a_tampered_report_is_found_out(compare: Run, tmp_path: Path) -> None:
    compare(make_report(1), make_report(2))
    path = tmp_path / "new.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"pages_per_s": 5', '"pages_per_s": 9', 1))
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "base.json"), str(path)])
    assert done.exit_code == 3
    assert (
        "not comparable: new.json was changed after it was written: its hash is not that of its content" in done.stderr
    )


def test_a_report_that_points_nowhere_is_refused(compare: Run) -> None:
    base = make_report(1)
    done = compare(base, base.model_copy(update={"inputs": base.inputs[:3]}), "--force")
    assert done.exit_code == 3
    assert "new.json has figures of an input that it does not list" in done.stderr


def test_another_schema_version_is_not_comparable_even_by_force(compare: Run, tmp_path: Path) -> None:
    compare(make_report(1), make_report(2))
    path = tmp_path / "new.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"schema_version": 1', '"schema_version": 2'))
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "base.json"), str(path), "--force"])
    assert done.exit_code == 3
    assert f"not comparable: {path} has schema version 2, this mineru reads 1" in done.stderr
    assert "hint: compare reports that the same version of mineru wrote" in done.stderr


def test_force_prints_the_figures_without_a_verdict(compare: Run) -> None:
    done = compare(make_report(1), changed(make_report(2, Effect(load=0.6)), "engine", model="MinerU3"), "--force")
    assert done.exit_code == 0
    assert done.stdout.startswith("no verdict: the reports are not comparable\n")
    assert "the models differ: MinerU2.5 in base.json, MinerU3 in new.json" in done.stdout
    assert "Gates" not in done.stdout
    assert "Change, with 95 % interval (6 and 6 repeats)" in done.stdout


def test_force_does_not_soften_a_verdict(compare: Run) -> None:
    done = compare(make_report(1), make_report(2, Effect(load=1.2)), "--force")
    assert done.exit_code == 1
    assert done.stdout.startswith("verdict: fail; the new one is worse")


def test_what_is_under_test_may_differ_and_is_told(compare: Run) -> None:
    source = SOURCE.model_copy(
        update={"revision": "f" * 40, "dirty": True, "files": {"mineru_engine/api.py": "2" * 64}, "distributions": {}}
    )
    machine = MACHINE.model_copy(update={"driver": "590.2"})
    engine = ENGINE.model_copy(update={"version": "0.33.0", "location": "cuda:1"})
    settings = {"processing.window_size": 8, "model.vlm.server_url": "http://localhost:9000/v1"}
    new = make_report(2, source=source, machine=machine, engine=engine, settings=settings)
    done = compare(make_report(1), new)
    assert done.exit_code == 1
    told = done.stdout.partition("What changed from base.json to new.json:\n")[2].partition("\n\n")[0].splitlines()
    assert told == [
        "  revision 0123456789ab → ffffffffffff with local changes",
        "  1 source files, as mineru_engine/api.py",
        "  numpy 2.4.6 → none",
        "  engine version 0.32.0 → 0.33.0",
        "  engine location cuda:0 → cuda:1",
        "  GPU driver 580.1 → 590.2",
    ]


@pytest.mark.parametrize(("value", "exit_code"), [(128, 1), (64, 3)])
def test_a_setting_that_the_older_version_did_not_have(compare: Run, value: int, exit_code: int) -> None:
    new = make_report(2, settings={"processing.window_size": 8, "processing.image_budget_mb": value})
    done = compare(make_report(1), new)
    assert done.exit_code == exit_code
    told = "setting processing.image_budget_mb: 128 in base.json, 64 in new.json" in done.stderr
    assert told is (exit_code == 3)


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ({"model": "/a", "weights_sha256": "1" * 64}, {"model": "/b", "weights_sha256": "1" * 64}, True),
        ({"weights_sha256": "1" * 64}, {"weights_sha256": "2" * 64}, False),
        ({"revision": "1"}, {"revision": "2"}, False),
        ({"revision": "1"}, {"revision": None}, True),
    ],
)
def test_weights_decide_which_model_it_is(before: dict[str, Any], after: dict[str, Any], same: bool) -> None:
    base = make_report(1, engine=ENGINE.model_copy(update=before))
    new = make_report(2, engine=ENGINE.model_copy(update=after))
    assert [problem for problem in compared(base, new).problems if "models differ" in problem] == [] or not same
    assert bool(compared(base, new).problems) is not same


# what was read


def _with_result(report: Report, index: int, **values: Any) -> Report:
    results = list(report.results)
    results[index] = results[index].model_copy(update=values)
    return report.model_copy(update={"results": results}).sealed()


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"blocks": [["a1", "xx", "a3"], ["b1", "b2"]]}, ["paper.pdf, page 1, block 2: changed"]),
        ({"blocks": [["a1", "a2", "a3"], ["b2"]]}, ["paper.pdf, page 2, block 1: missing"]),
        (
            {"blocks": [["a1", "a2", "a3"], ["b1", "x1", "x2", "b2"]]},
            ["paper.pdf, page 2, blocks 2 to 3: added"],
        ),
        ({"blocks": [["a1", "a2", "a3"]]}, ["paper.pdf: 1 pages instead of 2"]),
        ({}, ["paper.pdf: differs, but in none of its blocks"]),
        (
            {"variants": 3, "sha256": f"{1:064x}"},
            ["paper.pdf: 3 different results in the new report alone"],
        ),
    ],
)
def test_results_that_differ_are_listed_and_fail(compare: Run, values: dict[str, Any], lines: list[str]) -> None:
    base = make_report(1)
    new = _with_result(make_report(2, Effect(load=0.6)), 1, **({"sha256": "f" * 64} | values))
    done = compare(base, new)
    assert done.exit_code == 1
    assert done.stdout.startswith("verdict: fail; the new one is better; results differ\n")
    told = done.stdout.partition("Results that differ:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.strip() for line in told] == lines


def test_results_may_differ_if_that_is_wanted(compare: Run) -> None:
    new = _with_result(make_report(2, Effect(load=0.6)), 1, sha256="f" * 64)
    done = compare(make_report(1), new, "--allow-result-changes")
    assert done.exit_code == 0
    assert "Results that differ (allowed):" in done.stdout


def test_a_long_list_of_changes_is_cut_in_the_text_and_whole_in_json(compare: Run) -> None:
    blocks = [["x"], *([["y"]] * 29)]
    base = _with_result(make_report(1), 0, blocks=[["a"]] * 30)
    new = _with_result(make_report(2), 0, blocks=blocks, sha256="f" * 64)
    assert "and 10 more: --json lists all" in compare(base, new).stdout
    assert len(json.loads(compare(base, new, "--json").stdout)["result_changes"]) == 30


def test_a_document_that_fails_now_fails_the_comparison_always(compare: Run) -> None:
    def failing(report: Report) -> Report:
        runs = [
            run.model_copy(
                update={
                    "samples": [
                        sample.model_copy(update={"error": "engine_dead", "pages": 0}) if sample.input == 3 else sample
                        for sample in run.samples
                    ]
                }
            )
            for run in report.runs
        ]
        return _with_result(report.model_copy(update={"runs": runs}), 3, sha256=None, blocks=[], variants=0)

    good, bad = make_report(1), failing(make_report(2, Effect(load=0.6)))
    done = compare(good, bad, "--allow-result-changes")
    assert done.exit_code == 1
    assert done.stdout.startswith("verdict: fail; the new one is better; documents fail\n")
    assert "table.pdf failed 24 times, first with engine_dead; in the base it never failed" in done.stdout
    assert compare(failing(make_report(1)), bad).exit_code == 0


# forms and usage


def test_json_has_all_of_it(compare: Run) -> None:
    done = compare(make_report(1), make_report(2, Effect(load=0.6)), "--json")
    found = json.loads(done.stdout)
    assert (found["schema"], found["schema_version"], found["verdict"]) == ("mineru.bench-comparison", 1, "pass")
    assert found["gates"][0]["throughput"]["ratio"]["value"] == pytest.approx(1 / 0.6, rel=0.05)
    assert found["conditions"][1]["effects"][0]["difference"] == "better"


def test_json_tells_why_there_is_no_comparison(compare: Run) -> None:
    done = compare(make_report(1), changed(make_report(2), "engine", model="MinerU3"), "--json")
    assert done.exit_code == 3
    found = json.loads(done.stdout)
    assert found["problems"] == ["the models differ: MinerU2.5 in base.json, MinerU3 in new.json"]
    assert found["verdict"] is None


def test_markdown_takes_nothing_for_markup(compare: Run) -> None:
    new = make_report(2, caveats=[caveat("a | b <img src=x> `c` *d*")])
    done = compare(make_report(1), new, "--markdown")
    assert done.stdout.startswith("### verdict: fail; no difference\n")
    assert r"- new.json: a \| b \<img src=x\> \`c\` \*d\*" in done.stdout
    assert "<details><summary>All figures</summary>" in done.stdout


def test_several_reports_make_a_table_against_the_first(tmp_path: Path) -> None:
    reports = {"base": Effect(), "fast": Effect(load=0.6), "slow": Effect(load=1.5)}
    for number, (name, effect) in enumerate(reports.items()):
        save_report(make_report(number, effect), tmp_path / f"{name}.json")
    done = CliRunner().invoke(app, ["compare", *(str(tmp_path / f"{name}.json") for name in reports)])
    assert done.exit_code == 0
    assert done.stdout.startswith("2 reports against base.json; a verdict needs two reports\n")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("  async")]
    assert [row[:3] for row in rows[3:]] == [["async", "4", f"{name}.json"] for name in reports]
    assert rows[4][4].startswith("+6") and rows[5][4].startswith("-3")


def test_one_of_several_that_is_not_comparable_is_named(tmp_path: Path) -> None:
    for name, report in (("a", make_report(1)), ("b", make_report(2)), ("c", _other_input(make_report(3)))):
        save_report(report, tmp_path / f"{name}.json")
    paths = [str(tmp_path / f"{name}.json") for name in "abc"]
    done = CliRunner().invoke(app, ["compare", *paths])
    assert done.exit_code == 3
    assert "the input letter.pdf is another document" in done.stderr
    forced = CliRunner().invoke(app, ["compare", *paths, "--force"])
    assert forced.exit_code == 0
    assert "a.json and c.json cannot be compared" in forced.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["one.json"],
        ["one.json", "missing.json"],
        ["a", "b", "--json", "--markdown"],
        ["a", "b", "--p95", "100"],
        ["a", "b", "--single", "nan"],
        ["one.json", "one.json", "--html", "missing/page.html"],
    ],
)
def test_usage_errors_end_with_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    save_report(make_report(1), tmp_path / "one.json")
    done = CliRunner().invoke(app, ["compare", *arguments])
    assert done.exit_code == 2
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_works_as_a_process_of_its_own(tmp_path: Path) -> None:
    save_report(make_report(1), tmp_path / "base.json")
    save_report(make_report(2, Effect(load=0.6)), tmp_path / "new.json")
    command = [sys.executable, "-m", "mineru_cli", "compare", "base.json", "new.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("verdict: pass")


def test_help_lists_the_exit_codes() -> None:
    text = " ".join(CliRunner().invoke(app, ["compare", "-h"]).stdout.split())
    assert "Exit codes: 0 pass, 1 fail or inconclusive, 2 usage, 3 not comparable" in text
