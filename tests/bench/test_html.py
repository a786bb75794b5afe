"""The pages stand alone, tell everything, and take no text for markup."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import plotly.offline
import pytest
from typer.testing import CliRunner

from mineru_cli.app import app
from mineru_cli.bench.comparable import Named
from mineru_cli.bench.compare import compare_reports
from mineru_cli.bench.html import comparison_page, report_page
from mineru_cli.bench.report import Mode, Report, save_report
from mineru_cli.errors import UsageProblem
from tests.bench.synthetic import Effect, cancellation, caveat, make_report

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


class Page(HTMLParser):
    """Tags, the text that is shown, and what would be loaded from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self._hidden = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        self._hidden = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        self.text += "" if self._hidden else data


def drawn(page: str) -> list[dict[str, Any]]:
    """The traces that the page's script draws."""
    found = re.findall(r'Plotly\.newPlot\(\s*"[^"]+",\s*(\[.*?\]),\s*\{"', page, re.DOTALL)
    return [trace for figure in found for trace in json.loads(figure)]


@pytest.fixture
def report() -> Report:
    return make_report(
        1, modes=tuple(Mode), concurrencies=(1, 4, 8), cancellation=[cancellation([0.2])], caveats=[caveat(NASTY)]
    )


def test_the_page_of_a_report_tells_everything(report: Report) -> None:
    page = Page(report_page(report))
    for words in (
        "Throughput and P95 against concurrency",
        "How long documents take",
        "Memory and requests over time",
        "Cancelled documents",
        "Caveats",
        "How to reproduce",
        "command: mineru bench --seed 1",
        "Some CPU, 16 cores",
        "Some GPU (143360 MiB), driver 580.1",
        report.report_sha256,
        report.inputs[0].sha256,
    ):
        assert words in page.text


def test_the_page_of_a_comparison_has_the_gates_and_both_reports(report: Report) -> None:
    named = [Named("base.json", report), Named("new.json", make_report(2, Effect(load=0.6), modes=tuple(Mode)))]
    page = Page(comparison_page(named, [compare_reports(*named)]))
    for words in (
        "verdict: pass; the new one is better",
        "Gates of mode sync-thread, 4 at once: pass",
        "Single documents",
        "How to reproduce base.json",
        "How to reproduce new.json",
    ):
        assert words in page.text


def test_a_page_loads_nothing_and_has_plotly_once(report: Report) -> None:
    text = report_page(report)
    assert Page(text).links == []
    assert text.count(plotly.offline.get_plotlyjs()) == 1
    assert "default-src 'none'" in text


def test_text_from_outside_is_not_markup(report: Report) -> None:
    harmless = Page(report_page(report.model_copy(update={"caveats": [caveat("warm")]})))
    page = Page(report_page(report))
    assert NASTY in page.text
    assert page.tags == harmless.tags


def test_names_of_reports_are_not_markup_in_the_pictures_either(report: Report) -> None:
    def tags(name: str) -> list[str]:
        named = [Named(name, report), Named("new.json", make_report(2))]
        return Page(comparison_page(named, [compare_reports(*named)])).tags

    assert tags(NASTY) == tags("base.json")


def test_the_pictures_show_the_figures(report: Report) -> None:
    traces = drawn(report_page(report))
    against = [trace for trace in traces if trace["x"] == [1, 4, 8]]
    assert [trace["name"] for trace in against] == ["async", "async", "sync-thread", "sync-thread"]
    first = against[0]
    runs = [run.pages_per_s for run in report.runs if run.mode is Mode.ASYNC and run.concurrency == 8]
    assert first["y"][2] == pytest.approx(sum(runs) / len(runs))
    assert first["y"][2] + first["error_y"]["array"][2] == pytest.approx(max(runs))
    assert first["y"][2] - first["error_y"]["arrayminus"][2] == pytest.approx(min(runs))


def test_a_series_that_was_not_measured_is_not_drawn(report: Report) -> None:
    def blind(report: Report) -> Report:
        runs = [
            run.model_copy(update={"series": run.series.model_copy(update={"vram_mib": [None] * 3})})
            for run in report.runs
        ]
        return report.model_copy(update={"runs": runs})

    assert "GPU memory, MiB" in report_page(report)
    assert "GPU memory, MiB" not in report_page(blind(report))


def test_the_command_writes_the_page(report: Report, tmp_path: Path) -> None:
    save_report(report, tmp_path / "a.json")
    save_report(make_report(2, modes=tuple(Mode)), tmp_path / "b.json")
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--html", str(page)])
    assert done.exit_code == 1
    assert "verdict: fail; no difference" in Page(page.read_text(encoding="utf-8")).text


def test_without_plotly_there_is_a_hint(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr("mineru_cli.bench.figures.import_module", missing)
    with pytest.raises(UsageProblem, match="an HTML page needs plotly, which is not installed") as caught:
        report_page(report)
    assert caught.value.hint == "pip install 'mineru[report]'"
