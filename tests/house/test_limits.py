"""docs/limits.md: every row names a function or value that is in the code, and a test that is in the tree."""

import re
from importlib import import_module

import pytest

from tests.house.modules import ROOT

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "limits.md").read_text("utf-8").splitlines()
    if line.startswith("|") and "`tests/" in line
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
def test_a_row_names_what_decides_and_what_tests_it(row):
    assert len(row) == 5
    value = value_of(row[3].strip("`"))
    if isinstance(value, int):
        stated = re.findall(r"(\d[\d,]*) ?(MiB|)", row[1])
        assert value in [int(number.replace(",", "")) * UNITS[unit] for number, unit in stated]
    path, _, test = row[4].strip("`").partition("::")
    assert f"def {test}(" in (ROOT / path).read_text("utf-8")


def test_there_are_rows():
    assert len(ROWS) > 20
