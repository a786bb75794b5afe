"""What a document of a job is parsed with."""

from __future__ import annotations

from typing import Any

import pytest

from mineru_engine.options import ParseOptions
from mineru_engine.server.work import without_stray_key
from mineru_engine.settings import Settings
from mineru_engine.vlm.config import VlmConfig

THEIRS = {"server_url": "http://theirs.example:8000"}


@pytest.mark.parametrize(
    ("configured", "options", "sent"),
    [
        ({}, THEIRS, False),
        ({"model.vlm.server_url": "http://ours.example"}, THEIRS, False),
        ({"model.vlm.server_url": "http://ours.example"}, {}, True),
        ({"model.vlm.server_url": "http://theirs.example:8000"}, THEIRS, True),
    ],
)
def test_the_key_goes_to_its_own_server_only(configured: dict[str, Any], options: dict[str, Any], sent: bool) -> None:
    settings = Settings.load(environ={}, overrides={"model.vlm.api_key": "canary", **configured})
    vlm = without_stray_key(settings, options).model.vlm
    config = VlmConfig.resolve(vlm, ParseOptions.create(tier="xhigh", **options))
    assert (config.api_key is not None) is sent
