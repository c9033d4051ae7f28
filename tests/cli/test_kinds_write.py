"""`export`, `rebuild` and `salvage` on stores of other systems: new files, judged by the real systems' answers."""

import json

import pyarrow.parquet as pq
import pytest

from mqtool.cli.app import run
from mqtool.cli.exits import ExitCode
from tests.support.stores import copy_tree, fixture, read_lines, tree_digest

EQUEUE = ("equeue-small", "equeue-unicode", "equeue-mixed-batch", "equeue-2.2.0")


@pytest.mark.parametrize("name", EQUEUE)
def test_export_writes_every_message_as_parquet(mqtool, tmp_path, name):
    store = fixture(f"{name}/store")
    before = tree_digest(store)
    result = mqtool("export", store, "--output", tmp_path / "lake", "--format", "json")
    expected = read_lines(fixture(f"{name}/answers/messages.jsonl"))
    assert result.code == 0
    rows = {row["table"]: row["rows"] for row in result.document["rows"]}
    made = pq.read_table(tmp_path / "lake/equeue-message.parquet").to_pylist()
    assert rows["equeue-message"] == len(made) == len(expected)
    places = [(row["topic"], row["queue_id"], row["queue_offset"]) for row in made]
    assert places == [(line["topic"], line["queueId"], line["queueOffset"]) for line in expected]
    assert tree_digest(store) == before


def test_export_of_a_damaged_store_says_so(mqtool, tmp_path):
    store = copy_tree(fixture("equeue-small/store"), tmp_path / "store")
    chunk = min((store / "message-chunks").iterdir())
    with chunk.open("r+b") as file:
        file.seek(300)
        file.write(b"\xff" * 40)
    result = mqtool("export", store, "--output", tmp_path / "lake", "--format", "json")
    assert result.code == 1
    assert sum(row["damage"] for row in result.document["rows"]) >= 1


def test_export_of_tfchunk_has_the_records_of_its_reader(mqtool, tmp_path):
    result = mqtool("export", fixture("tfchunk/plain/store"), "--output", tmp_path / "lake")
    made = pq.read_table(tmp_path / "lake/tfchunk-record.parquet").to_pylist()
    assert result.code == 0
    assert len(made) == len(read_lines(fixture("tfchunk/plain/answers/records.jsonl")))


def test_rebuild_makes_the_queue_chunks_that_were_there(mqtool, tmp_path):
    store = fixture("equeue-small/store")
    result = mqtool("rebuild", "consumequeue", store, "--output", tmp_path / "made", "--format", "json")
    assert result.code == 0
    assert {row["filled"] for row in result.document["rows"]} == {0}
    made = {path.relative_to(tmp_path / "made"): path.stat().st_size for path in (tmp_path / "made").rglob("*chunk-0*")}
    assert made == {path: (store / path).stat().st_size for path in made}
    assert len(made) == len(list((store / "queue-chunks").rglob("*chunk-0*")))


@pytest.mark.parametrize("what", ["index", "metadata", "timer"])
def test_only_queues_can_be_rebuilt_of_equeue(mqtool, tmp_path, what):
    assert mqtool("rebuild", what, fixture("equeue-small/store"), "--output", tmp_path / "made").code == 2
    assert list(tmp_path.iterdir()) == []


def test_nothing_can_be_rebuilt_of_tfchunk(mqtool, tmp_path):
    result = mqtool("rebuild", "all", fixture("tfchunk/plain/store"), "--output", tmp_path / "made")
    assert (result.code, "tfchunk" in result.stderr) == (4, True)


def test_salvage_saves_what_lies_behind_the_damage(mqtool, tmp_path):
    store = copy_tree(fixture("equeue-small/store"), tmp_path / "store")
    chunk = min((store / "message-chunks").iterdir())
    with chunk.open("r+b") as file:
        file.seek(300)
        file.write(b"\xff" * 40)
    result = mqtool("salvage", store, "-o", tmp_path / "saved", "--format", "json")
    assert result.code == 1
    saved = sum(row["forwards"] + row["backwards"] + row["between"] for row in result.document["rows"])
    total = len(read_lines(fixture("equeue-small/answers/messages.jsonl")))
    assert total - 2 <= saved < total
    again = mqtool("dump", tmp_path / "saved", "--format", "jsonl")
    assert len(again.lines) == saved
    assert mqtool("verify", tmp_path / "saved").code == 0


def test_salvage_of_tfchunk_writes_its_records(mqtool, tmp_path):
    result = mqtool("salvage", fixture("tfchunk/plain/store"), "-o", tmp_path / "saved", "--format", "json")
    assert result.code == 0
    made = pq.read_table(tmp_path / "saved/tfchunk-record.parquet").num_rows
    assert made == len(read_lines(fixture("tfchunk/plain/answers/records.jsonl")))


@pytest.mark.parametrize(
    "command", [("export", "--output"), ("rebuild", "--output"), ("salvage", "")], ids=["e", "r", "s"]
)
def test_a_target_inside_the_store_or_in_use_is_refused(mqtool, tmp_path, command):
    store = copy_tree(fixture("equeue-small/store"), tmp_path / "store")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").touch()
    before = tree_digest(store)
    name, flag = command
    for target in (store / "inside", tmp_path / "taken"):
        what = ["consumequeue"] if name == "rebuild" else []
        result = mqtool(name, *what, store, *([flag] if flag else []), target)
        assert (result.code, result.stderr.count("\n")) == (2, 1)
    assert tree_digest(store) == before


def test_formats_lists_these_commands(mqtool):
    rows = {row["name"]: row for row in json.loads(mqtool("help", "formats", "--format", "json").stdout)["rows"]}
    assert {"export", "rebuild", "salvage"} <= set(rows["equeue"]["commands"])
    assert {"export", "salvage"} <= set(rows["tfchunk"]["commands"])
    assert "rebuild" not in rows["tfchunk"]["commands"]


@pytest.mark.parametrize("exists", [False, True], ids=["absent", "empty"])
@pytest.mark.parametrize(
    ("command", "function"),
    [
        (["salvage", fixture("equeue-small/store"), "-o", "NEW"], "mqtool.siblings.equeue.salvage.write_queue"),
        (["salvage", fixture("tfchunk/plain/store"), "-o", "NEW"], "mqtool.siblings.arrow.write"),
        (
            ["rebuild", "consumequeue", fixture("equeue-small/store"), "-o", "NEW"],
            "mqtool.siblings.equeue.rebuild.write_queue",
        ),
    ],
    ids=["salvage equeue", "salvage tfchunk", "rebuild"],
)
def test_an_interrupted_command_leaves_nothing_that_looks_complete(command, function, exists, tmp_path, monkeypatch):
    new = tmp_path / "new"
    if exists:
        new.mkdir()

    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    arguments = [str(new) if word == "NEW" else str(word) for word in command]
    with monkeypatch.context() as patch:
        patch.setattr(function, interrupted)
        assert run(arguments) == ExitCode.INTERRUPTED
    assert list(tmp_path.iterdir()) == ([new] if exists else [])
    assert not exists or list(new.iterdir()) == []
    assert run(arguments) == ExitCode.OK
    assert any(new.iterdir())
