"""docs/limits.md: every row names a test that is in the tree; those about files also what decides in the code."""

import re
from importlib import import_module

import pytest

from tests.house.modules import ROOT

LINES = (ROOT / "docs" / "limits.md").read_text("utf-8").partition("## Test runs")[0].splitlines()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in LINES
    if line.startswith("|") and not line.startswith(("| What |", "|--"))
]
UNITS = {"MiB": 1 << 20, "": 1}


def value_of(name):
    """The value or function of a dotted name."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            found = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_names_what_tests_it(row):
    path, _, test = row[-1].strip("`").partition("::")
    assert f"def {test}(" in (ROOT / path).read_text("utf-8")


@pytest.mark.parametrize("row", [row for row in ROWS if len(row) > 4], ids=lambda row: row[0])
def test_a_row_names_what_decides(row):
    value = value_of(row[3].strip("`"))
    if isinstance(value, int):
        stated = re.findall(r"(\d[\d,]*) ?(MiB|)", row[1])
        assert value in [int(number.replace(",", "")) * UNITS[unit] for number, unit in stated]


def test_there_are_rows():
    assert sum(len(row) == 4 for row in ROWS) > 30
    assert sum(len(row) == 5 for row in ROWS) > 20
    assert {len(row) for row in ROWS} == {4, 5}
