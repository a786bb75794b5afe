"""Pictures of reports, with plotly, an optional library.

Everything sits on a transparent ground and takes the colours of text and lines from the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from mineru_cli.bench.comparable import Named
from mineru_cli.bench.conditions import Condition, conditions
from mineru_cli.bench.report import Mode, Run
from mineru_cli.bench.statistics import mean
from mineru_cli.errors import UsageProblem

__all__ = ("figures", "plotly", "require_plotly")

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")  # Tol's bright scheme, for all eyes
_DASHES = {Mode.ASYNC: "solid", Mode.SYNC_THREAD: "dot"}
_HEIGHT = 380
_SECONDS = [digit * 10.0**power for power in range(-3, 5) for digit in (1, 2, 5)]


def plotly() -> Any:
    """The library.

    :raises UsageProblem: if it is not installed.
    """
    try:
        for part in ("graph_objects", "io", "offline", "subplots"):
            import_module(f"plotly.{part}")
        return import_module("plotly")
    except ImportError:
        raise _missing() from None


def require_plotly() -> None:
    """Look for the library without loading it, which would count as memory of what is being measured.

    :raises UsageProblem: if it is not installed.
    """
    if find_spec("plotly") is None:
        raise _missing()


def _missing() -> UsageProblem:
    return UsageProblem("an HTML page needs plotly, which is not installed", "pip install 'mineru[report]'")


def figures(reports: Sequence[Named]) -> list[tuple[str, str, Any]]:
    """Heading, explanation and picture, for one report or several."""
    found = [(named.name, list(conditions(named.report).values())) for named in reports]
    return [
        (
            "Throughput and P95 against concurrency",
            "Mean over the repeats; the bars reach from the worst repeat to the best.",
            _against_concurrency(found),
        ),
        (
            "How long documents take",
            "Share of documents done within so many seconds, over all repeats, at the highest concurrency.",
            _distribution(found),
        ),
        (
            "Memory and requests over time",
            "The last repeat at the highest concurrency: what piles up over a run shows here.",
            _over_time(found),
        ),
    ]


_Found = Sequence[tuple[str, list[Condition]]]


def _against_concurrency(found: _Found) -> Any:
    figure = plotly().subplots.make_subplots(cols=2, subplot_titles=("pages/s", "P95, seconds"))
    for name, style, group in _lines(found):
        rates = [[run.pages_per_s for run in condition.runs] for condition in group]
        tails = [[float(np.percentile(repeat, 95)) for repeat in condition.latencies if repeat] for condition in group]
        for column, points in enumerate((rates, tails), start=1):
            middles = [mean(repeat) for repeat in points]
            figure.add_scatter(
                x=[condition.concurrency for condition in group],
                y=middles,
                error_y=_bars(points, middles),
                name=name,
                legendgroup=name,
                showlegend=column == 1,
                mode="lines+markers",
                **style,
                row=1,
                col=column,
            )
    at_once = sorted({condition.concurrency for _, group in found for condition in group})
    figure.update_xaxes(title_text="documents at once", type="log", tickvals=at_once, ticktext=list(map(str, at_once)))
    figure.update_yaxes(rangemode="tozero")
    return _finished(figure)


def _bars(points: Sequence[Sequence[float]], middles: Sequence[float | None]) -> dict[str, Any]:
    """From the mean down to the least and up to the largest."""
    pairs = list(zip(points, middles, strict=True))
    up = [None if middle is None else max(repeat) - middle for repeat, middle in pairs]
    down = [None if middle is None else middle - min(repeat) for repeat, middle in pairs]
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down}


def _distribution(found: _Found) -> Any:
    figure = plotly().graph_objects.Figure()
    for name, style, group in _lines(found):
        samples = sorted(value for repeat in group[-1].latencies for value in repeat)
        shares = [(rank + 1) / len(samples) * 100 for rank in range(len(samples))]
        label = f"{name}, {group[-1].concurrency} at once"
        figure.add_scatter(x=samples, y=shares, name=label, mode="lines", line_shape="hv", **style)
    figure.add_hline(y=95, line_width=1, line_dash="dash", line_color="#888888", annotation_text="P95")
    figure.update_xaxes(
        title_text="seconds", type="log", tickvals=_SECONDS, ticktext=[f"{value:g}" for value in _SECONDS]
    )
    figure.update_yaxes(title_text="% of documents", range=[0, 101])
    return _finished(figure)


def _over_time(found: _Found) -> Any:
    titles = ["memory of the processes, MiB", "requests in flight", "GPU memory, MiB"]
    runs = [(name, style, group[-1].runs[-1]) for name, style, group in _lines(found)]
    series = [[_series(run)[column] for _, _, run in runs] for column in range(len(titles))]
    shown = [at for at, lists in enumerate(series) if any(value is not None for values in lists for value in values)]
    figure = plotly().subplots.make_subplots(
        cols=max(1, len(shown)), subplot_titles=[titles[at] for at in shown], horizontal_spacing=0.08
    )
    for column, at in enumerate(shown, start=1):
        for (name, style, run), values in zip(runs, series[at], strict=True):
            figure.add_scatter(
                x=run.series.t_s,
                y=values,
                name=name,
                legendgroup=name,
                showlegend=column == 1,
                mode="lines",
                **style,
                row=1,
                col=column,
            )
    figure.update_xaxes(title_text="seconds from the start of the run")
    figure.update_yaxes(rangemode="tozero")
    return _finished(figure)


def _series(run: Run) -> tuple[Sequence[float | None], ...]:
    return run.series.rss_mib, run.series.in_flight, run.series.vram_mib


def _lines(found: _Found) -> Iterator[tuple[str, dict[str, Any], list[Condition]]]:
    """Name, style and conditions of each report and mode: a colour for the report, or for the mode if there is one."""
    for number, (report, group) in enumerate(found):
        for place, mode in enumerate(dict.fromkeys(condition.mode for condition in group)):
            chosen = [condition for condition in group if condition.mode is mode]
            alone = len(found) == 1
            colour = _COLOURS[(place if alone else number) % len(_COLOURS)]
            name = str(mode) if alone else escape(f"{report}, {mode}")  # plotly reads names as HTML
            yield name, {"line": {"color": colour, "dash": "solid" if alone else _DASHES[mode]}}, chosen


def _finished(figure: Any) -> Any:
    return figure.update_layout(
        template="none",
        height=_HEIGHT,
        margin={"l": 60, "r": 20, "t": 50, "b": 50},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": -0.3},
        font={"family": "system-ui, sans-serif", "size": 13},
        hovermode="closest",
    )
