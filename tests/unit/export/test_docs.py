"""docs/lake.md names every column and option of an export, docs/spark.md every option of the data source."""

from pathlib import Path
from typing import Any

import pytest

from mqtool.export.schema import DAMAGE_SCHEMA, REJECTED_VALUE_SCHEMA, messages_schema

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "lake.md").read_text("utf-8")
TYPES = {
    "timestamp[ms, tz=UTC]": "timestamp(ms, UTC)",
    "list<item: string>": "list of string",
    "map<string, string>": "map of string to string",
}


def table(schema: Any) -> str:
    lines = ["| Column | Type | Meaning |", "|---|---|---|"]
    for field in schema:
        said = TYPES.get(str(field.type), str(field.type))
        lines.append(f"| `{field.name}` | {said} | {field.metadata[b'docs'].decode()} |")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "schema", [messages_schema(), DAMAGE_SCHEMA, REJECTED_VALUE_SCHEMA], ids=["messages", "damage", "rejected_values"]
)
def test_the_page_shows_the_columns_as_they_are(schema: Any) -> None:
    assert table(schema) in PAGE, table(schema)


def test_a_page_names_every_option_of_the_data_source() -> None:
    options = pytest.importorskip("mqtool.spark.options")
    page = (DOCS / "spark.md").read_text("utf-8")
    assert [name for name in options.KNOWN if f"`{name}`" not in page] == []


def test_the_page_names_every_option_that_shapes_an_export() -> None:
    for name in (
        "--topic",
        "--include",
        "--columns",
        "--body-type",
        "--redact-columns",
        "--partition-by",
        "--file-size",
        "--split",
        "--level",
        "--state",
        "--rewind",
        "--table-format",
        "--spark",
        "--master",
        "--on-damage",
    ):
        assert name in PAGE
