"""Did the new source read something else than the old one?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from mineru_cli.bench.report import DocumentResult, Report

__all__ = ("ResultChange", "new_failures", "result_changes")

_KINDS = {"replace": "changed", "insert": "added", "delete": "missing"}


@dataclass(frozen=True, slots=True)
class ResultChange:
    """One place where the results differ. Page and blocks count from 1, as a reader would.

    :ivar page: unknown where only the document as a whole can be named.
    :ivar base_blocks: first and last block of the base's page; none where the new one has more.
    """

    document: str
    page: int | None
    kind: str
    base_blocks: tuple[int, int] | None = None
    new_blocks: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        """One line."""
        place = self.document if self.page is None else f"{self.document}, page {self.page}"
        blocks = self.base_blocks or self.new_blocks
        if blocks is None:
            return f"{place}: {self.kind}"
        first, last = blocks
        return f"{place}, {f'block {first}' if first == last else f'blocks {first} to {last}'}: {self.kind}"


def result_changes(base: Report, new: Report) -> list[ResultChange]:
    """Differences of the documents that both read; a document that failed is in :func:`new_failures`."""
    before, after = _results(base), _results(new)
    return [
        change
        for name in before
        if name in after and before[name].sha256 and after[name].sha256
        for change in _document(name, before[name], after[name])
    ]


def new_failures(base: Report, new: Report) -> list[str]:
    """One sentence for each document that fails in the new report and never failed in the base."""
    before, after = _failures(base), _failures(new)
    return [
        f"{name} failed {count} times, first with {error}; in the base it never failed"
        for name, (count, error) in after.items()
        if name not in before
    ]


def _results(report: Report) -> dict[str, DocumentResult]:
    return {report.inputs[result.input].name: result for result in report.results}


def _failures(report: Report) -> dict[str, tuple[int, str]]:
    """Document → how often it failed and the first error code."""
    failed = [
        (report.inputs[sample.input].name, sample.error)
        for run in report.runs
        for sample in run.samples
        if sample.error
    ]
    counts = Counter(name for name, _ in failed)
    first = dict(reversed(failed))
    return {name: (count, first[name]) for name, count in counts.items()}


def _document(name: str, before: DocumentResult, after: DocumentResult) -> Iterator[ResultChange]:
    if after.variants > 1:
        yield ResultChange(name, None, f"{after.variants} different results in the new report alone")
    if before.variants > 1:
        yield ResultChange(name, None, f"{before.variants} different results in the base alone")
    if before.sha256 == after.sha256:
        return
    if len(before.blocks) != len(after.blocks):
        yield ResultChange(name, None, f"{len(after.blocks)} pages instead of {len(before.blocks)}")
    places = [
        change
        for page, (old, fresh) in enumerate(zip(before.blocks, after.blocks, strict=False), start=1)
        for change in _page(name, page, old, fresh)
    ]
    yield from places
    if not places and len(before.blocks) == len(after.blocks):
        yield ResultChange(name, None, "differs, but in none of its blocks")


def _page(name: str, page: int, before: list[str], after: list[str]) -> Iterator[ResultChange]:
    for tag, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            yield ResultChange(name, page, _KINDS[tag], _blocks(start, end), _blocks(new_start, new_end))


def _blocks(start: int, end: int) -> tuple[int, int] | None:
    return (start + 1, end) if end > start else None
