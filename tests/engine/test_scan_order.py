"""Reading order of boxes."""

from __future__ import annotations

import random

import pytest

from mineru_engine.pdf.lines import Box
from mineru_engine.pdf.order import reading_order

LEFT, RIGHT = (0.1, 0.48), (0.52, 0.9)


def box(column: tuple[float, float], top: float, bottom: float) -> Box:
    return column[0], top, column[1], bottom


@pytest.mark.parametrize("seed", range(5))
def test_two_columns_under_a_title_although_their_gaps_line_up(seed: int) -> None:
    page = [
        box((0.1, 0.9), 0.05, 0.1),
        *(box(LEFT, top, top + 0.15) for top in (0.15, 0.35, 0.55)),
        *(box(RIGHT, top, top + 0.15) for top in (0.15, 0.35, 0.55)),
        box((0.1, 0.9), 0.8, 0.9),
    ]
    shuffled = list(range(len(page)))
    random.Random(seed).shuffle(shuffled)
    assert [shuffled[i] for i in reading_order([page[i] for i in shuffled])] == list(range(len(page)))


def test_a_heading_goes_with_the_wide_text_under_it_not_with_the_column_over_it() -> None:
    page = [box(LEFT, 0.1, 0.4), box(RIGHT, 0.1, 0.4), box((0.1, 0.25), 0.44, 0.46), box((0.1, 0.9), 0.465, 0.7)]
    assert reading_order(page) == [0, 1, 2, 3]


def test_a_wide_figure_between_columns_is_a_barrier() -> None:
    page = [
        *(box(column, 0.1, 0.3) for column in (LEFT, RIGHT)),
        box((0.1, 0.9), 0.32, 0.5),
        *(box(column, 0.55, 0.8) for column in (LEFT, RIGHT)),
    ]
    assert reading_order(page) == [0, 1, 2, 3, 4]


def test_three_columns_of_uneven_paragraphs() -> None:
    thirds = [(0.05, 0.33), (0.36, 0.64), (0.67, 0.95)]
    page = [
        box(column, top, bottom)
        for column, cuts in zip(thirds, [(0.1, 0.5, 0.9), (0.1, 0.3, 0.9), (0.1, 0.7, 0.9)], strict=True)
        for top, bottom in ((cuts[0], cuts[1] - 0.01), (cuts[1], cuts[2]))
    ]
    assert reading_order(page) == list(range(6))


def test_vertical_text_runs_from_right_to_left() -> None:
    columns = [(0.7, 0.1, 0.9, 0.9), (0.4, 0.1, 0.6, 0.9), (0.1, 0.1, 0.3, 0.9)]
    assert reading_order(columns, vertical=True) == [0, 1, 2]
    assert reading_order(columns) == [2, 1, 0]


def test_tangled_boxes_are_all_kept() -> None:
    generator = random.Random(7)
    page = []
    for _ in range(60):
        x, y = generator.random() * 0.8, generator.random() * 0.8
        page.append((x, y, x + 0.2 * generator.random() + 0.01, y + 0.2 * generator.random() + 0.01))
    assert sorted(reading_order(page)) == list(range(60))
