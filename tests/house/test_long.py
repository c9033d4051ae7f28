"""The tests that run only when they are asked for are tests that exist."""

import re

import pytest

from tests.house.modules import ROOT
from tests.support.long import LONG


@pytest.mark.parametrize("name", sorted(LONG), ids=lambda name: name.rpartition("/")[2])
def test_a_long_test_exists(name):
    path, _, function = name.partition("::")
    assert re.search(rf"^def {function.partition('[')[0]}\(", (ROOT / path).read_text("utf-8"), re.MULTILINE)
