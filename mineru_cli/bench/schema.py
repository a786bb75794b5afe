"""The JSON Schema of a report: ``python -m mineru_cli.bench.schema > reports/schema/bench-report-1.json``."""

from __future__ import annotations

import json

from mineru_cli.bench.report import Report

__all__ = ("report_schema",)


def report_schema() -> str:
    """The schema as the file holds it."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Report.model_json_schema(by_alias=True, mode="serialization"),
    }
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    print(report_schema(), end="")  # noqa: T201
