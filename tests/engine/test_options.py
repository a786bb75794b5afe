"""Options of one parse."""

from __future__ import annotations

import pytest

from mineru_engine import OptionError, ParseOptions, Settings, Tier
from mineru_engine.manifest import fingerprint
from mineru_engine.result import OutputFormat


@pytest.mark.parametrize(
    ("given", "tier"),
    [("medium", Tier.BASIC), ("Standard", Tier.HIGH), ("advanced", Tier.XHIGH), ("FLASH", Tier.FLASH)],
)
def test_tier_aliases(given: str, tier: Tier) -> None:
    assert ParseOptions.create(tier=given).tier is tier


@pytest.mark.parametrize("values", [{"tier": "best"}, {"timeout_s": 0}, {"window_size": 0}, {"ocr_mode": 3}])
def test_impossible_values_are_option_errors(values: dict[str, object]) -> None:
    with pytest.raises(OptionError) as caught:
        ParseOptions.create(**values)
    assert next(iter(values)) in caught.value.message
    assert isinstance(caught.value, ValueError)


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(OptionError, match="unknown option 'page'") as caught:
        ParseOptions.create(page="1")
    assert caught.value.hint == "did you mean 'pages'?"


def test_a_password_never_shows() -> None:
    options = ParseOptions.create(password="canary")
    assert "canary" not in f"{options!r} {options} {options.model_dump_json()} {options.fingerprint()}"


def test_limits_and_secrets_do_not_change_the_fingerprint() -> None:
    def digest(settings: Settings | None = None, **options: object) -> str:
        return fingerprint(ParseOptions.create(**options), settings or Settings(), [OutputFormat.MD], layout=False)

    assert digest() == digest(timeout_s=3, page_timeout_s=1, window_size=2, password="canary")
    assert digest() != digest(pages="1")
    assert digest() != digest(tier="flash")
    server = Settings.load(environ={"MINERU_MODEL_VLM_SERVER_URL": "http://x"})
    assert digest() != digest(server)
