"""Command lines that mqtool suggests are quoted, and an option without a value is left out with its name."""

import shlex

import pytest

from mqtool.commands import fill

STORE = "a store"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("mqtool verify {store}", ["mqtool", "verify", STORE]),
        ("mqtool verify {store} --topic {none}", ["mqtool", "verify", STORE]),
        ("mqtool get {store} {none}", ["mqtool", "get", STORE]),
        ("mqtool find {store} --key {many} --first", ["mqtool", "find", STORE, "--key", "x", "y z", "--first"]),
    ],
)
def test_values_are_substituted_word_by_word(template, words):
    assert shlex.split(fill(template, {"store": STORE, "none": None, "many": ("x", "y z")})) == words
