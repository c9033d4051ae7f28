"""Names chosen by globs: as fnmatch does it, and names without a wildcard by a set."""

from fnmatch import fnmatchcase
from glob import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.store.log.selection import Globs

NAMES = st.text("ab*?[]!-", max_size=5)


@given(st.lists(NAMES, min_size=1, max_size=3), NAMES)
def test_a_name_is_chosen_as_fnmatch_chooses_it(globs, name):
    assert Globs(globs).matches(name) == any(fnmatchcase(name, glob) for glob in globs)


@given(NAMES, NAMES)
def test_an_escaped_name_chooses_itself_only(name, other):
    assert Globs([escape(name)]).matches(other) == (name == other)


@pytest.mark.parametrize("globs", [None, (), []])
def test_without_a_glob_every_name_is_chosen(globs):
    assert Globs(globs).is_everything
    assert Globs(globs).matches("any")


def test_thousands_of_names_are_one_set():
    globs = Globs(escape(f"T[{number}]") for number in range(20_000))
    assert globs._pattern is None
    assert globs.matches("T[19999]")
    assert not globs.matches("T[20000]")
