"""The page "A broker in your test suite" shows the files that are run (tests/interop/test_examples_in_tests.py)."""

import re
from pathlib import Path

TUTORIALS = Path(__file__).resolve().parents[4] / "docs" / "tutorials"


def test_the_page_shows_the_files_that_are_run():
    page = (TUTORIALS / "broker-in-tests.md").read_text("utf-8")
    shown = dict(re.findall(r"<!-- (\S+) -->\n```\w+\n(.*?)\n```", page, re.DOTALL))
    assert len(shown) == 9
    for name, text in shown.items():
        assert (TUTORIALS / "in-tests" / name).read_text("utf-8").rstrip() == text, name
