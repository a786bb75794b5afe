"""The layout model: its decoding, and what it sees on a page."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

import mineru_engine
from mineru_engine.pdf.layout import LayoutLabel, _decode_boxes, _suppress, detect_layout
from tests.engine.scan_images import render_page

MODELS = Path(mineru_engine.__file__).parent / "models"


def test_the_bundled_model_is_the_one_its_notice_names() -> None:
    digest = hashlib.sha256((MODELS / "layout_cdla.onnx").read_bytes()).hexdigest()
    assert digest in (MODELS / "NOTICE").read_text(encoding="utf-8")


def test_boxes_reach_as_far_as_the_distributions_say() -> None:
    logits = np.full((130, 32), -30.0, dtype=np.float32)
    logits[:, [1, 8 + 2, 16 + 3, 24 + 4]] = 30.0
    boxes = _decode_boxes(logits, 64)
    # Second row, third column of a 10-column map: centre (2.5, 1.5) cells.
    expected = np.array([(2.5 - 1) / 608, (1.5 - 2) / 800, (2.5 + 3) / 608, (1.5 + 4) / 800]) * 64
    assert boxes[12] == pytest.approx(expected, abs=1e-5)


def test_overlapping_boxes_of_a_class_are_suppressed() -> None:
    boxes = np.array([[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]], dtype=np.float32)
    assert _suppress(boxes, np.array([0.6, 0.9, 0.7], dtype=np.float32)) == [1, 2]


def test_a_page_with_a_table(demo: Path) -> None:
    regions = detect_layout(render_page(demo / "contract_scan.pdf", 0, 1600), threads=2)
    tables = [region for region in regions if region.label is LayoutLabel.TABLE]
    assert len(tables) == 1
    assert tables[0].bbox == pytest.approx((0.12, 0.615, 0.89, 0.78), abs=0.02)
    assert sum(region.label is LayoutLabel.TITLE for region in regions) >= 3
