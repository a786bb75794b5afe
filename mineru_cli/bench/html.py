"""One report, or a comparison, as one page that needs nothing else: no network, no other file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from mineru_cli.bench.blocks import Block, Headline, Table
from mineru_cli.bench.comparable import Named
from mineru_cli.bench.compare import Comparison
from mineru_cli.bench.figures import figures, plotly
from mineru_cli.bench.report import Report
from mineru_cli.bench.text import comparison_blocks, report_blocks, reproduction

__all__ = ("comparison_page", "report_page")

# Nothing may be loaded; plotly.js and its styles are in the page.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --quiet: #5c6370; --ground: #ffffff; --raised: #f4f5f7;
  --line: #d5d8dd; --good: #1a7f37; --bad: #c62828; --open: #2f5fb3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --quiet: #9aa2ad; --ground: #15181c; --raised: #1e2228;
  --line: #363c45; --good: #57c878; --bad: #ff7b72; --open: #7fb0ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 74rem; background: var(--ground); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.05rem; font-weight: 600; color: var(--quiet); margin: 0 0 1rem; }
h2 { font-size: 1.05rem; margin: 2.25rem 0 .6rem; }
p.note { color: var(--quiet); margin: 0 0 .5rem; }
.headline { font-size: 1.3rem; font-weight: 600; padding: .8rem 1rem; margin: 0 0 1rem; background: var(--raised);
  border-left: .3rem solid var(--tone); border-radius: .3rem; overflow-wrap: anywhere; }
.good { --tone: var(--good); } .bad { --tone: var(--bad); } .open { --tone: var(--open); }
.scroll { overflow-x: auto; }
.plotly-graph-div { min-width: 44rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .3rem .75rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { color: var(--quiet); font-weight: 600; }
.word { text-align: left; }
ul { margin: 0; padding-left: 1.2rem; } li { overflow-wrap: anywhere; }
.js-plotly-plot svg text { fill: var(--ink) !important; }
.js-plotly-plot .hoverlayer text { fill: #ffffff !important; }
.js-plotly-plot .gridlayer path, .js-plotly-plot .zerolinelayer path { stroke: var(--line) !important; }
"""


def report_page(report: Report) -> str:
    """One report: its table, its pictures, its caveats, how to reproduce it.

    :raises UsageProblem: if plotly is not installed.
    """
    title = f"mineru bench: {report.workload.name}"
    return _page(title, report_blocks(report), [Named(report.workload.name, report)])


def comparison_page(reports: Sequence[Named], comparisons: Sequence[Comparison]) -> str:
    """A comparison, or several with the same base.

    :param reports: the base, and what it was compared with.
    :raises UsageProblem: if plotly is not installed.
    """
    title = f"mineru compare: {' and '.join(named.name for named in reports)}"
    blocks = [*comparison_blocks(comparisons), *(reproduction(named.report, named.name) for named in reports)]
    return _page(title, blocks, reports)


def _page(title: str, blocks: Iterable[Block], reports: Sequence[Named]) -> str:
    first, *others = map(_block, blocks)
    pictures = [_picture(*figure) for figure in figures(reports)]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            f"<script>{plotly().offline.get_plotlyjs()}</script>",
            f"</head><body><h1>{escape(title)}</h1>",
            first,
            *pictures,
            *others,
            "</body></html>\n",
        ]
    )


def _picture(heading: str, note: str, figure: Any) -> str:
    config = {"displaylogo": False, "responsive": True, "displayModeBar": False}
    drawing = plotly().io.to_html(figure, full_html=False, include_plotlyjs=False, config=config)
    return f'<h2>{escape(heading)}</h2><p class="note">{escape(note)}</p><div class="scroll">{drawing}</div>'


def _block(block: Block) -> str:
    if isinstance(block, Headline):
        return f'<p class="headline {block.tone}">{escape(block.text)}</p>'
    body = _table(block) if isinstance(block, Table) else _list(block.lines)
    return f"<h2>{escape(block.heading)}</h2>{body}" if body else ""


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def _table(table: Table) -> str:
    if not table.rows:
        return ""
    kinds = [' class="word"' if name in table.words else "" for name in table.header]
    header = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, table.header, strict=True))
    rows = "".join(
        f"<tr>{''.join(f'<td{kind}>{escape(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>"
        for row in table.rows
    )
    return f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table></div>'
