"""Command lines that mqtool suggests are quoted, and an option without a value is left out with its name."""

import json
import shlex
import sys
from importlib import metadata

import pytest

from mqtool.commands import fill, with_extra

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


@pytest.mark.parametrize(
    ("prefix", "origin", "words"),
    [
        ("/usr", {"dir_info": {"editable": True}}, [sys.executable, "-m", "pip", "install", "--editable"]),
        ("/usr", {"archive_info": {}}, [sys.executable, "-m", "pip", "install"]),
        ("/opt/uv/tools/mqtool", {}, ["uv", "tool", "install", "--force"]),
        ("/opt/pipx/venvs/mqtool", {}, ["pipx", "install", "--force"]),
    ],
)
def test_an_extra_is_installed_from_the_clone_or_wheel_that_is_installed(tmp_path, monkeypatch, prefix, origin, words):
    source = tmp_path / "a clone"
    source.mkdir()
    monkeypatch.setattr(sys, "prefix", prefix)
    assert shlex.split(hint(monkeypatch, {**origin, "url": source.as_uri()}).removeprefix("run `").rstrip("`")) == [
        *words,
        f"{source}[sql]",
    ]


@pytest.mark.parametrize("origin", [{}, {"url": "https://example.org/mqtool.whl"}, {"url": "file:///no/such/clone"}])
def test_an_extra_of_an_installation_of_unknown_origin_names_the_page(monkeypatch, origin):
    assert hint(monkeypatch, origin) == "see `mqtool help install`, extra sql"


def hint(monkeypatch, origin):
    """What is suggested if pip noted this origin (direct_url.json, PEP 610)."""
    monkeypatch.setattr(metadata.Distribution, "read_text", lambda _self, _name: json.dumps(origin))
    monkeypatch.setattr(metadata.PathDistribution, "read_text", lambda _self, _name: json.dumps(origin))
    return with_extra.__wrapped__("sql")
