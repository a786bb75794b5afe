"""The long report: an invented water network, written out district by district with a fixed seed.

The figures of a district are drawn once and used in text, tables and charts alike, so the report agrees
with itself.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from _content import Align, Block, Bullets, Contents, Figure, Heading, PageBreak, Para, Rules, Table
from _report_text import ASSET_KINDS, CLOSING, DISTRICTS, FRONT, MATERIALS, SECTIONS

RUNNING_HEADER = "Example Water Network – Condition and Investment Report 2026"
FOOTER = "Page {page} of {pages}"
PAGES = 60
_QUARTERS = ("Q1", "Q2", "Q3", "Q4")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_ASSET_ROWS = 88


@dataclass(frozen=True)
class District:
    """The figures of one supply district."""

    name: str
    km: int
    customers: int
    lengths: tuple[int, ...]
    ages: tuple[int, ...]
    bursts: tuple[int, ...]
    supply: tuple[float, ...]
    losses: tuple[float, ...]
    energy: tuple[float, ...]
    budget: tuple[int, ...]
    service: tuple[tuple[int, int, int], ...]
    staff: int
    nights: int

    def fields(self) -> dict[str, str | int]:
        """The values that the sentences of the report may use."""
        worst = max(range(len(MATERIALS)), key=lambda i: self.bursts[i] / self.lengths[i])
        calls, planned, meters = (sum(column) for column in zip(*self.service, strict=True))
        peak = max(range(4), key=lambda i: self.supply[i])
        return {
            "name": self.name,
            "km": self.km,
            "customers": f"{self.customers:,}",
            "bursts": sum(self.bursts),
            "rate": f"{100 * sum(self.bursts) / self.km:.1f}",
            "worst": MATERIALS[worst].lower(),
            "worst_bursts": self.bursts[worst],
            "worst_km": self.lengths[worst],
            "oldest": max(self.ages),
            "total": f"{sum(self.supply):.2f}",
            "peak": _QUARTERS[peak],
            "peak_supply": f"{self.supply[peak]:.2f}",
            "loss": f"{sum(self.losses) / 4:.1f}",
            "loss_first": f"{self.losses[0]:.1f}",
            "loss_last": f"{self.losses[3]:.1f}",
            "energy": f"{sum(self.energy) / 4:.2f}",
            "budget": f"{sum(self.budget):,}",
            "calls": f"{calls:,}",
            "calls_rate": round(1000 * calls / self.customers),
            "planned": planned,
            "meters": f"{meters:,}",
            "staff": self.staff,
            "nights": self.nights,
            "mains": f"{self.budget[0]:,}",
            "litres": round(1e9 * sum(self.supply) / 365 / self.customers),
        }


def _district(name: str, rng: random.Random) -> District:
    """Draw plausible figures for one district."""
    lengths = tuple(rng.randint(18, 95) for _ in MATERIALS)
    start = rng.uniform(11, 19)
    km = sum(lengths)
    return District(
        name=name,
        km=km,
        customers=km * rng.randint(95, 140),
        lengths=lengths,
        ages=tuple(base + rng.randint(-6, 6) for base in (68, 41, 33, 19)),
        bursts=tuple(
            max(1, round(n * rng.uniform(low, 3 * low)))
            for n, low in zip(lengths, (0.1, 0.05, 0.04, 0.02), strict=True)
        ),
        supply=tuple(round(km * base * rng.uniform(0.92, 1.08), 2) for base in (0.0049, 0.0054, 0.0062, 0.0051)),
        losses=tuple(round(start - 0.6 * step + rng.uniform(-0.4, 0.4), 1) for step in range(4)),
        energy=tuple(round(rng.uniform(0.38, 0.61), 2) for _ in range(4)),
        budget=(rng.randint(40, 90) * 10, rng.randint(12, 40) * 10, rng.randint(8, 25) * 10, rng.randint(5, 15) * 10),
        service=tuple((rng.randint(70, 220), rng.randint(0, 4), rng.randint(120, 640)) for _ in _MONTHS),
        staff=rng.randint(11, 19),
        nights=rng.randint(31, 74),
    )


def _table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]], rules: Rules = "grid") -> Table:
    """A table whose first column is wide and left-aligned, the others numeric."""
    count = len(header) - 1
    numeric: list[Align] = ["r"] * count
    align: tuple[Align, ...] = ("l", *numeric)
    widths = (0.32, *[0.68 / count] * count)
    return Table(caption, (tuple(header),), tuple(tuple(row) for row in rows), widths, align, rules)


def _district_extra(section: int, chapter: int, district: District) -> list[Block]:
    """The table, list or figure that closes a section of a district chapter."""
    rows: list[tuple[str, ...]]
    header: tuple[str, ...]
    if section == 0:
        rows = [
            (material, str(n), str(age), str(bursts), f"{100 * bursts / n:.1f}")
            for material, n, age, bursts in zip(
                MATERIALS, district.lengths, district.ages, district.bursts, strict=True
            )
        ]
        header = ("Material", "Length (km)", "Mean age", "Bursts", "Per 100 km")
        return [_table(f"Table {chapter}.1: Mains in {district.name} by material.", header, rows)]
    if section == 1:
        rows = [
            (quarter, f"{supply:.2f}", f"{loss:.1f}", f"{energy:.2f}")
            for quarter, supply, loss, energy in zip(
                _QUARTERS, district.supply, district.losses, district.energy, strict=True
            )
        ]
        header = ("Quarter", "Supply (million m³)", "Losses (%)", "Energy (kWh/m³)")
        return [_table(f"Table {chapter}.2: Supply, losses and energy in {district.name}.", header, rows, rules="none")]
    if section == 2:
        return [
            Figure(
                name=f"report_figure_{chapter}_1",
                caption=f"Figure {chapter}.1: Water losses in {district.name} by quarter.",
                kind="bar",
                labels=_QUARTERS,
                series=(("Losses", district.losses),),
                unit="percent of supply",
            )
        ]
    if section == 4:
        rows = [
            (month, *(f"{value:,}" for value in values))
            for month, values in zip(_MONTHS, district.service, strict=True)
        ]
        header = ("Month", "Calls", "Interruptions", "Meters replaced")
        return [_table(f"Table {chapter}.3: Customer service in {district.name} by month.", header, rows)]
    if section == len(SECTIONS) - 1:
        names = ("renewal of mains", "valves and hydrants", "pumping stations", "meters and data")
        return [
            Bullets(
                tuple(
                    f"{amount:,} thousand euros for {name}{'.' if name == names[-1] else ';'}"
                    for amount, name in zip(district.budget, names, strict=True)
                )
            )
        ]
    return []


def _district_chapter(chapter: int, district: District, rng: random.Random) -> list[Block]:
    """One chapter: an opening paragraph and all sections with their subsections."""
    fields = district.fields()
    blocks: list[Block] = [PageBreak(), Heading(2, f"{chapter} District {district.name}")]
    for number, (title, opening, subsections) in enumerate(SECTIONS):
        blocks.append(Heading(3, f"{chapter}.{number + 1} {title}"))
        blocks.append(Para(_compose(opening, 5 if subsections else len(opening), fields, rng)))
        for sub, (sub_title, sentences) in enumerate(subsections, start=1):
            blocks.append(Heading(4, f"{chapter}.{number + 1}.{sub} {sub_title}"))
            half = (len(sentences) + 1) // 2
            blocks.append(Para(_compose(sentences[:half], half - rng.randint(0, 1), fields, rng)))
            blocks.append(Para(_compose(sentences[half:], half, fields, rng)))
        blocks.extend(_district_extra(number, chapter, district))
    return blocks


def _compose(sentences: Sequence[str], count: int, fields: dict[str, str | int], rng: random.Random) -> str:
    """A paragraph from the first sentence and a fixed number of the others, in their order."""
    chosen = sorted(rng.sample(range(1, len(sentences)), min(count - 1, len(sentences) - 1)))
    return " ".join(sentences[i].format(**fields) for i in (0, *chosen))


def _asset_table(chapter: int, rng: random.Random) -> Table:
    """The register of large assets, long enough to run over page breaks."""
    rows = []
    for number in range(1, _ASSET_ROWS + 1):
        kind = rng.choice(ASSET_KINDS)
        year = rng.randint(1962, 2021)
        rows.append(
            (
                f"A-{number:03d}",
                kind,
                rng.choice(DISTRICTS),
                str(year),
                rng.choice("ABCD" if year < 1995 else "AAB"),
                f"{rng.randint(3, 240) * 5:,}",
            )
        )
    return Table(
        caption=f"Table {chapter}.1: Register of assets, condition from A (good) to D (poor), value in thousand euros.",
        header=(("Asset", "Kind", "District", "Year", "Condition", "Value"),),
        rows=tuple(rows),
        widths=(0.12, 0.30, 0.22, 0.10, 0.13, 0.13),
        align=("l", "l", "l", "r", "c", "r"),
    )


def blocks() -> tuple[Block, ...]:
    """The whole report, the same on every call."""
    rng = random.Random(2026)
    districts = [_district(name, rng) for name in DISTRICTS]
    out: list[Block] = [
        Heading(1, "Condition and Investment Report 2026"),
        Para("Example Water Network", "author"),
        Para("A sample document with invented places and figures", "author"),
        PageBreak(),
        Para("Contents", "contents_title"),
        Contents(),
        PageBreak(),
    ]
    out.extend(FRONT)
    rows = [
        (d.name, str(d.km), f"{d.customers:,}", str(sum(d.bursts)), f"{sum(d.losses) / 4:.1f}", f"{sum(d.budget):,}")
        for d in districts
    ]
    header = ("District", "Mains (km)", "Customers", "Bursts", "Losses (%)", "Budget")
    out.append(_table("Table 2.1: The districts at a glance, budget in thousand euros.", header, rows))
    for chapter, district in enumerate(districts, start=3):
        out.extend(_district_chapter(chapter, district, rng))
    chapter = 3 + len(districts)
    out += [PageBreak(), Heading(2, f"{chapter} Asset Register"), *CLOSING[0], _asset_table(chapter, rng)]
    out += [PageBreak(), Heading(2, f"{chapter + 1} Outlook"), *CLOSING[1]]
    return tuple(out)
