"""The report's file, its hash and its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mineru_cli.bench.report import Mode, load_report, save_report
from mineru_cli.bench.schema import report_schema
from mineru_engine.errors import ErrorCode, InputError
from tests.bench.synthetic import cancellation, caveat, make_report

SCHEMA = Path(__file__).parents[2] / "reports" / "schema" / "bench-report-1.json"


def written(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "new folder" / "report.json"
    report = make_report(modes=tuple(Mode), cancellation=[cancellation([0.1])], caveats=[caveat("warm")])
    save_report(report, target)
    return target


def test_the_schema_in_the_repository_is_that_of_the_code() -> None:
    again = "python -m mineru_cli.bench.schema > reports/schema/bench-report-1.json"
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == json.loads(report_schema()), again


def test_a_written_report_fits_the_schema(path: Path) -> None:
    schema = written(SCHEMA)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(written(path), schema)


@pytest.mark.parametrize("damage", [{"complete": "perhaps"}, {"schema_version": 2}, {"unknown": 1}, {"runs": [{}]}])
def test_the_schema_refuses_what_is_no_report(path: Path, damage: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(written(path) | damage, written(SCHEMA))


def test_a_report_comes_back_as_it_was_written(path: Path) -> None:
    report = load_report(path)
    assert report.intact
    before = path.read_bytes()
    save_report(report, path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_any_change_breaks_the_seal(path: Path) -> None:
    content = written(path)
    content["runs"][0]["pages_per_s"] *= 2
    path.write_text(json.dumps(content), encoding="utf-8")
    assert not load_report(path).intact


def test_the_form_of_the_json_does_not_matter_to_the_seal(path: Path) -> None:
    content = written(path)
    path.write_text(json.dumps(dict(reversed(content.items())), indent=7), encoding="utf-8")
    assert load_report(path).intact


@pytest.mark.parametrize("index", [4, -1])
@pytest.mark.parametrize("part", ["sample", "result"])
def test_figures_of_an_input_that_is_not_listed_are_refused(path: Path, part: str, index: int) -> None:
    content = written(path)
    pointer = content["runs"][0]["samples"][0] if part == "sample" else content["results"][0]
    pointer["input"] = index
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_report(path)
    assert caught.value.code is ErrorCode.FILE_DAMAGED
    assert caught.value.message == f"{path} has figures of an input that it does not list"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("{", ErrorCode.FILE_DAMAGED, "is no JSON"),
        ("[]", ErrorCode.FILE_TYPE_UNSUPPORTED, "is no benchmark report"),
        ('{"schema": "other"}', ErrorCode.FILE_TYPE_UNSUPPORTED, "is no benchmark report"),
        (
            '{"schema": "mineru.bench-report", "schema_version": 2}',
            ErrorCode.FILE_TYPE_UNSUPPORTED,
            "has schema version 2, this mineru reads 1",
        ),
        ('{"schema": "mineru.bench-report", "schema_version": 1}', ErrorCode.FILE_DAMAGED, "created_at"),
    ],
)
def test_what_is_no_report_is_refused_with_a_sentence(tmp_path: Path, text: str, code: ErrorCode, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=words) as caught:
        load_report(path)
    assert caught.value.code is code
    assert caught.value.message.startswith(str(path))
