"""Files that a user names beside a store: a device, a FIFO, a circle of links, a line without an end, a topic that is none."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqtool.ingest import row_source
from tests.support.stores import copy_store, fixture, tree_digest

ORDERS = fixture("orders-5.5.0/store")
MESSAGE = b'{"topic": "T", "body": "b"}\n'
NAMED = {
    "verify --state": lambda path, new: ["verify", ORDERS, "--state", path],
    "verify --output": lambda path, new: ["verify", ORDERS, "--output", path],
    "report": lambda path, new: ["report", ORDERS, "-o", path],
    "rebuild --state": lambda path, new: ["rebuild", "consumequeue", ORDERS, "--output", new, "--state", path],
    "export --state": lambda path, new: ["export", ORDERS, "--output", new, "--state", path],
    "append": lambda path, new: ["append", new, "--from", path],
    "append --dry-run": lambda path, new: ["append", new, "--from", path, "--dry-run"],
    "replay": lambda path, new: ["replay", path, "--into", new],
    "replay --dry-run": lambda path, new: ["replay", path, "--into", new, "--dry-run"],
    "replay --state": lambda path, new: ["replay", ORDERS, "--into", new, "--state", path],
    "replay --ids": lambda path, new: ["replay", ORDERS, "--into", new, "--ids", path],
    "serve --acl": lambda path, new: ["serve", new, "--acl", path, "--port", "0"],
    "info --config": lambda path, new: ["info", ORDERS, "--config", path],
}


def run(arguments, **more):
    """Runs the program as a process of its own, which a hang cannot keep: it fails."""
    command = [sys.executable, "-m", "mqtool", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **more)


def device(path: Path) -> Path:
    path.symlink_to("/dev/zero")
    return path


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


@pytest.mark.long
@pytest.mark.parametrize(("make", "word"), [(device, "device"), (fifo, "FIFO")])
@pytest.mark.parametrize("command", NAMED)
def test_what_is_no_regular_file_is_wrong_usage(tmp_path, command, make, word):
    path = make(tmp_path / "named")
    result = run(NAMED[command](path, tmp_path / "new"))
    last = result.stderr.splitlines()[-1]
    assert (result.returncode, f"expected a regular file, found a {word}" in last) == (2, True), result.stderr
    assert last.count(str(path)) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["named"]
    assert path.is_symlink() == (make is device)


@pytest.mark.parametrize("make", [lambda path: path.mkdir() or path], ids=["directory"])
@pytest.mark.parametrize("command", [name for name in NAMED if "append" not in name and name[:6] != "replay"])
def test_a_directory_for_a_file_is_wrong_usage(mqtool, tmp_path, command, make):
    result = mqtool(*NAMED[command](make(tmp_path / "named"), tmp_path / "new"))
    assert (result.code, "found a directory" in result.stderr) == (2, True), result.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["named"]


CIRCLES = {
    "export to": lambda path, new: ["export", ORDERS, "--output", path],
    "export to a table": lambda path, new: ["export", ORDERS, "--output", path, "--table-format", "delta"],
    "export from": lambda path, new: ["export", path, "--output", new],
    "export --state": lambda path, new: ["export", ORDERS, "--output", new, "--state", path],
    "verify --state": lambda path, new: ["verify", ORDERS, "--state", path],
    "verify --output": lambda path, new: ["verify", ORDERS, "--output", path / "below"],
    "report": lambda path, new: ["report", ORDERS, "-o", path / "below"],
    "convert": lambda path, new: ["convert", "file-queues", ORDERS, "-o", path],
    "rebuild": lambda path, new: ["rebuild", "consumequeue", ORDERS, "--output", path],
    "salvage": lambda path, new: ["salvage", ORDERS, "-o", path],
    "backup": lambda path, new: ["backup", ORDERS, "-o", path],
    "append --from": lambda path, new: ["append", new, "--from", path],
    "append": lambda path, new: ["append", path, "--from", Path(__file__)],
    "replay": lambda path, new: ["replay", ORDERS, "--into", path],
}


@pytest.mark.parametrize("command", CIRCLES)
def test_links_that_lead_in_a_circle_are_an_error_and_stay(mqtool, tmp_path, command):
    circle = tmp_path / "a"
    circle.symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(circle)
    result = mqtool(*CIRCLES[command](circle, tmp_path / "new"))
    assert result.code in {2, 4, 74}, result.stderr
    assert str(circle) in result.stderr
    assert circle.is_symlink()


def test_a_configuration_that_names_a_circle_is_reported(mqtool, tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "a")
    (tmp_path / "broker.conf").write_text(f"storePathRootDir={tmp_path / 'a'}\n")
    assert mqtool("verify", ORDERS, "--config", tmp_path / "broker.conf").code in {0, 1}


@pytest.mark.parametrize("whole", [[], ["--all-or-nothing"], ["--dry-run"]], ids=str)
def test_a_line_without_an_end_is_given_up(tmp_path, whole):
    with Path("/dev/zero").open("rb") as zeros:
        result = run(["append", tmp_path / "new", "--from", "-", *whole], stdin=zeros)
    assert result.returncode == 1
    assert f"line 1 is longer than {row_source.LONGEST_LINE} bytes" in result.stderr


@pytest.mark.parametrize("whole", [[], ["--all-or-nothing"], ["--dry-run"]], ids=str)
def test_the_line_without_an_end_is_named_by_number_and_position(mqtool, tmp_path, monkeypatch, whole):
    monkeypatch.setattr(row_source, "LONGEST_LINE", 1 << 26)
    (tmp_path / "lines").write_bytes(MESSAGE + b"\n" + b"x" * (35 << 20) + b"\n" + MESSAGE + bytes(1 << 27))
    at = 2 * len(MESSAGE) + 2 + (35 << 20)
    result = mqtool("append", tmp_path / "new", "--from", tmp_path / "lines", *whole)
    assert (result.code, f"position {at}: line 5 is longer than" in result.stderr) == (1, True), result.stderr


def test_rows_come_through_a_pipe(tmp_path):
    for number, more in enumerate([[], ["--all-or-nothing"], ["--dry-run"]]):
        result = run(["append", tmp_path / "new", "--from", "-", *more], input=2 * MESSAGE.decode())
        assert result.returncode == 0, result.stderr
        assert f"2 rows {'would be stored' if number == 2 else 'stored'}" in result.stderr


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 4000, "\xff", '{"mqtool": "0"}', "x" * (1 << 20)], ids=lambda text: text[:9]
)
def test_any_file_is_a_state_of_verify_or_refused(mqtool, tmp_path, text):
    (tmp_path / "state").write_text(text, "latin-1")
    result = mqtool("verify", ORDERS, "--state", tmp_path / "state")
    is_one = not text or "mqtool" in text
    assert result.code == (0 if is_one else 2), result.stderr
    assert is_one or (tmp_path / "state").read_text("latin-1") == text


@pytest.mark.parametrize(
    "line", ["{}", "[1]", '["a", {"$class": "os"}]', '["a", {"$class": "Jump", "b": 1}]', "\0", "[" * 5000]
)
def test_a_state_with_a_strange_line_is_refused_and_left(mqtool, tmp_path, line):
    state = tmp_path / "state"
    mqtool("verify", ORDERS, "--state", state)
    with state.open("a") as file:
        file.write(line + "\n")
    before = state.read_bytes()
    result = mqtool("verify", ORDERS, "--state", state)
    assert (result.code, "remove it" in result.stderr, state.read_bytes()) == (2, True, before), result.stderr


@pytest.mark.parametrize("command", [["verify"], ["verify", "--format", "nagios"], ["report", "-o", "page"]], ids=str)
@pytest.mark.parametrize("topics", [["nosuch"], ["nosuch*"], ["Orders", "nosuch"]], ids=str)
def test_a_topic_that_is_none_is_not_clean(mqtool, tmp_path, monkeypatch, command, topics):
    monkeypatch.chdir(tmp_path)
    result = mqtool(command[0], ORDERS, *command[1:], *[word for topic in topics for word in ("--topic", topic)])
    assert (result.code, result.stdout) == (1, b"")
    assert f"no topic matches '{topics[-1]}'" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_topic_that_only_the_log_knows_is_checked(mqtool, tmp_path):
    store = copy_store("orders-5.5.0", tmp_path)
    for part in ("consumequeue", "config"):
        (store / part).rename(tmp_path / part)
    topic = json.loads(mqtool("dump", store, "--limit", "1", "--format", "jsonl").stdout)["topic"]
    before = tree_digest(store)
    found = mqtool("verify", store, "--topic", topic, "--format", "json").document
    assert found["findings"]
    assert mqtool("verify", store, "--topic", "nosuch").code == 1
    assert tree_digest(store) == before


def test_what_is_wrong_is_said_in_text_and_once(mqtool, tmp_path):
    result = mqtool("dump", ORDERS, "--grep", "[")
    assert (result.code, "'[' is not a regular expression" in result.stderr, "b'" in result.stderr) == (2, True, False)
    for name in ("absent.conf", "."):
        result = mqtool("info", ORDERS, "--config", tmp_path / name)
        assert (result.code, result.stderr.count(str(tmp_path))) == (2, 1)


@pytest.mark.parametrize("command", ["salvage", "salvage --compact", "restore", "convert file-queues"])
@pytest.mark.parametrize("target", ["/", ".", ""])
def test_a_target_without_a_name_is_refused(mqtool, tmp_path, monkeypatch, command, target):
    (tmp_path / "empty").mkdir()
    source = ORDERS
    if command == "restore":
        source = tmp_path / "backup"
        mqtool("backup", ORDERS, "-o", source)
    monkeypatch.chdir(tmp_path / "empty")
    name, *more = command.split()
    result = mqtool(
        name, *[word for word in more if word[0] != "-"], source, target, *[word for word in more if word[0] == "-"]
    )
    assert (result.code in {2, 4}, "this is a bug" in result.stderr) == (True, False), result.stderr
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("command", ["replay --state", "export --state", "rebuild --state", "verify --state", "append"])
def test_json_that_is_nested_too_deeply_is_not_understood(mqtool, tmp_path, command):
    (tmp_path / "deep").write_text("[" * 100_000)
    more = ["--resume"] if "rebuild" in command else []
    result = mqtool(*NAMED[command](tmp_path / "deep", tmp_path / "new"), *more)
    assert (result.code in {1, 2}, "this is a bug" in result.stderr) == (True, False), result.stderr


@pytest.mark.parametrize("command", [["verify", ORDERS], ["report", ORDERS, "-o", "page"]], ids=lambda words: words[0])
def test_nothing_is_read_at_no_bytes_a_second(mqtool, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    for rate in ("0", "0K"):
        result = mqtool(*command, "--throttle", rate)
        assert (result.code, "above 0" in result.stderr) == (2, True)


@pytest.mark.parametrize("call", ["isfile", "ls", "cat_file", "exists", "pipe_file", "_open"])
def test_what_a_driver_of_object_storage_raises_is_an_error_of_reading_or_writing(mqtool, monkeypatch, call):
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem

    def refusing(*_arguments, **_options):
        raise RuntimeError("no credentials")

    monkeypatch.setattr(memory, call, refusing)
    result = mqtool(
        "export", ORDERS, "--output", f"memory://refusing-{call}", "--state", "memory://refusing/state", "--jobs", 1
    )
    assert (result.code, "no credentials" in result.stderr) == (74, True), result.stderr


INSIDE = {
    "rebuild --state": lambda store, new, name: [
        "rebuild",
        "consumequeue",
        store,
        "--output",
        new,
        "--state",
        store / name,
    ],
    "runbook --protocol": lambda store, new, name: [
        "runbook",
        "run",
        "RB-03",
        store,
        "--protocol",
        store / f"{name}.md",
    ],
}


@pytest.mark.parametrize("name", ["new", "config/topics.json"])
@pytest.mark.parametrize("command", INSIDE)
def test_nothing_is_written_into_the_store_that_is_looked_at(mqtool, tmp_path, command, name):
    store = copy_store("orders-5.5.0", tmp_path)
    before = tree_digest(store)
    result = mqtool(*INSIDE[command](store, tmp_path / "out", name))
    assert (result.code, tree_digest(store)) == (2, before), result.stderr


def test_a_file_that_holds_no_notes_is_not_replaced_by_those_of_a_rebuild(mqtool, tmp_path):
    (tmp_path / "mine").write_text("mine")
    result = mqtool("rebuild", "consumequeue", ORDERS, "--output", tmp_path / "new", "--state", tmp_path / "mine")
    assert (result.code, (tmp_path / "mine").read_text()) == (2, "mine")
    assert not (tmp_path / "new").exists()


def test_a_limit_that_no_count_reaches_is_wrong_usage(mqtool):
    assert mqtool("replay", ORDERS, "--into", "new", "--dry-run", "--limit", "9" * 26).code == 2


def test_a_path_that_is_no_utf8_is_refused_where_rocksdb_would_have_to_take_it(mqtool, tmp_path):
    pytest.importorskip("rocksdict")
    (tmp_path / "\udcff").mkdir()
    result = mqtool("convert", "file-queues", fixture("txbits-4.9.7/store"), "-o", tmp_path / "\udcff" / "new")
    assert (result.code, "UTF-8" in result.stderr) == (2, True), result.stderr
    assert list((tmp_path / "\udcff").iterdir()) == []


@pytest.mark.parametrize("more", [[], ["--used", "80"]], ids=str)
def test_files_that_are_kept_longer_than_any_calendar_go_never(mqtool, more):
    result = mqtool("clean", ORDERS, "--dry-run", "--reserved-hours", "9" * 20, "--format", "json", *more)
    assert result.code == 0, result.stderr
    assert {one["deleted_at"] for one in result.document["files"]} == {None}
