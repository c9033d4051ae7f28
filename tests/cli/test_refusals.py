"""Options that do not go together, and files that are not what is asked for: one line, and nothing is written."""

import io
from importlib.metadata import PackageNotFoundError

import pytest

from mqtool import native
from tests.support.stores import fixture

STORE, OTHER = fixture("orders-5.5.0/store"), fixture("orders-4.9.7/store")
EQUEUE = fixture("equeue-small/store")
NEW = "NEW"
"""Stands for a path at which nothing is."""
TEXT = "TEXT"
"""Stands for a text file."""

OPEN = "--test: expected addresses of this machine only, found"
CASES = {
    "checks of no code": (
        ["help", "checks", "nope"],
        "no code starts with 'nope'; `mqtool help checks` lists all codes",
    ),
    "a range of a configuration": (
        ["dump", STORE / "config" / "topics.json", "--offset", "0:1"],
        "--offset does not apply to files of kind config",
    ),
    "a range of times of units": (
        ["dump", STORE / "consumequeue", "--offset", "@2026-01-01T00:00:00Z:"],
        "--time selects messages, and these files contain none",
    ),
    "a range of two logs": (
        ["export", STORE, f"b={OTHER}", "--offset", "0:1", "--output", NEW, "--jobs", 1],
        "--offset applies to one store; use --time",
    ),
    "a broker and a store": (
        ["plan", "offsets", STORE, "--broker", "127.0.0.1:1", "--group", "g", "-o", NEW],
        "expected one store, or --broker HOST:PORT in place of it",
    ),
    "a plan for a broker to stdout": (
        ["plan", "offsets", "--broker", "127.0.0.1:1", "--group", "g", "--to", "earliest", "-o", "-"],
        "-: expected a file name for the plan",
    ),
    "online in a store": (
        ["plan", "offsets", STORE, "--group", "g", "--to", "earliest", "--online", "-o", NEW],
        "--online is for a running broker; give --broker HOST:PORT",
    ),
    "purge of nothing": (["plan", "purge", STORE, "-o", NEW], "Missing option '--topic'"),
    "segments that are where they belong": (
        ["plan", "rename-segments", STORE, "-o", NEW],
        "rename-segments: nothing to do; the name of every segment agrees with its records",
    ),
    "findings that are no JSON": (["plan", "repair", STORE, "--findings", TEXT, "-o", NEW], "expected JSON"),
    "half messages of lines": (
        ["replay", TEXT, "--into", NEW, "--half"],
        "--dead-letters and --half need a store as SOURCE",
    ),
    "a topic that cannot be one": (
        ["replay", STORE, "--into", NEW, "--to-topic", "a/b"],
        "--to-topic 'a/b': this is not a valid topic name",
    ),
    "a compact store of another system": (
        ["salvage", EQUEUE, "-o", NEW, "--compact"],
        "leave --with, --compact, --without-topic, --map and --skip-unreadable out: a store of kind equeue has none",
    ),
    "serving nothing": (["serve"], "expected a store, or --temporary in its place"),
    "tests on every address": (["serve", NEW, "--test", "--host", "0.0.0.0"], f"{OPEN} --host 0.0.0.0; add --yes"),
    "tests at a name": (
        ["serve", NEW, "--test", "--advertise", "broker:10911"],
        f"{OPEN} --host 127.0.0.1 --advertise broker:10911; add --yes",
    ),
    "a zone of this machine in SQL": (
        ["sql", STORE, "SELECT 1", "--tz", "local"],
        "--tz local is not supported here; give the name of the zone",
    ),
    "a page in no directory": (["story", STORE, "k", "-o", f"{NEW}/life.html"], "does not exist"),
    "workers of Spark": (
        ["verify", STORE, "--spark", "--jobs", "2"],
        "--jobs, --throttle, --state and --max-time do not apply to --spark",
    ),
    "a rebuild in object storage": (
        ["rebuild", "index", STORE, "-o", "s3://bucket/new", "--spark"],
        "s3:/bucket/new: expected a path, found a URL; only `mqtool export` writes to object storage",
    ),
    "metadata by Spark": (
        ["rebuild", "metadata", STORE, "-o", NEW, "--spark"],
        "--spark rebuilds all queues, the complete index or all; leave it out",
    ),
    "one index file by Spark": (
        ["rebuild", "index", STORE, "-o", NEW, "--spark", "--file", "20260101000000000"],
        "--spark rebuilds all queues, the complete index or all; leave it out",
    ),
    "workers of a rebuild by Spark": (
        ["rebuild", "all", STORE, "-o", NEW, "--spark", "--jobs", "2"],
        "--jobs and --state do not apply to --spark; leave them out",
    ),
    "a store of another system by Spark": (
        ["rebuild", "consumequeue", EQUEUE, "-o", NEW, "--spark"],
        "a store of kind equeue is rebuilt in one process; leave out --spark",
    ),
}


@pytest.mark.parametrize(("words", "said"), CASES.values(), ids=CASES)
def test_what_cannot_be_meant_is_said_in_one_line(mqtool, tmp_path, words, said):
    (tmp_path / "text").write_text("a shopping list\n")
    stands_for = {NEW: str(tmp_path / "new"), TEXT: str(tmp_path / "text")}
    arguments = [str(word) for word in words]
    for name, path in stands_for.items():
        arguments = [word.replace(name, path) if word.startswith(name) else word for word in arguments]
    result = mqtool(*arguments)
    assert (result.code, result.stdout) == (2, b"")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["text"]


def test_parquet_from_a_pipe_is_refused(mqtool, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"PAR1 and more"))))
    result = mqtool("append", tmp_path / "new", "--from", "-")
    assert (result.code, result.stderr.count("\n")) == (2, 1)
    assert "Parquet cannot be read from stdin; give the name of the file" in result.stderr


def test_findings_that_are_too_long_are_refused(mqtool, tmp_path, monkeypatch):
    monkeypatch.setattr("mqtool.cli.commands.plan.LARGEST", 10)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"[" * 11)))
    result = mqtool("plan", "repair", STORE, "--findings", "-", "-o", tmp_path / "plan.json")
    assert (result.code, "-: expected at most 10 bytes" in result.stderr) == (2, True)


def test_the_page_of_a_runbook_can_be_had_as_a_document(mqtool):
    text = mqtool("runbook", "show", "RB-01").text
    document = mqtool("runbook", "show", "RB-01", "--format", "json").document
    assert (document["id"], document["page"]) == ("RB-01", text)


def test_a_time_selects_messages_of_another_system(mqtool):
    every = mqtool("dump", EQUEUE, "--format", "jsonl").lines
    times = sorted(row["stored_time"] for row in every)
    assert times[0] < times[-1]
    found = mqtool("dump", EQUEUE, "--time", f"{times[-1]}..", "--format", "jsonl").lines
    assert found == [row for row in every if row["stored_time"] >= times[-1]]


def test_a_store_that_cannot_be_salvaged_is_said(mqtool, tmp_path):
    result = mqtool("salvage", fixture("tieredstore-5.5.0/store/tiered"), "-o", tmp_path / "new")
    assert (result.code, result.stdout) == (4, b"")
    assert "a store of kind tiered cannot be salvaged; see `mqtool help formats`" in result.stderr


def test_libraries_that_are_not_installed_are_said(mqtool, monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    monkeypatch.setattr(native, "in_use", lambda: False)
    lines = mqtool("--version").text.splitlines()
    assert "numpy not installed" in lines
    assert lines[-1] in ("native not compiled", "native switched off")
