"""`mqtool append`: what it stores, what it answers, what it refuses, and that a refusal changes nothing."""

import base64
import errno
import io
import json
import os
import re
import sys
import zlib
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mqtool as library
from mqtool.cli.exits import ExitCode
from mqtool.engine import PutStatus
from mqtool.engine.disk.files import Files
from mqtool.engine.flusher import GroupCommit
from tests.cli.answers import problems
from tests.support.damage import held_lock
from tests.support.stores import copy_store, sizes_of, store_fixture, tree_digest

GOOD = [
    {"topic": "Orders", "queue_id": 1, "body": "héllo", "tags": "A", "keys": ["k1", "k2"], "properties": {"x": "y"}},
    {
        "topic": "Orders",
        "body_base64": "AAEC",
        "flag": 7,
        "born_host": "1.2.3.4:5",
        "born_timestamp": 1_700_000_000_000,
    },
    {"topic": "T2", "body": "later", "delay_level": 3},
]


def write(path, rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8")
    return path


def messages(root):
    with library.open(root) as store:
        return [found for found in store.messages() if not hasattr(found, "kind")]


def clean(mqtool, root):
    return mqtool("verify", root, "-f", "json").document["status"]


def test_a_new_store_holds_what_the_rows_say(mqtool, tmp_path):
    result = mqtool("append", tmp_path / "new", "--from", write(tmp_path / "in", GOOD))
    assert result.code == ExitCode.OK
    first, second, third = messages(tmp_path / "new")
    assert (first.topic, first.queue_id, first.body, first.tags, first.keys) == (
        "Orders",
        1,
        "héllo".encode(),
        "A",
        ("k1", "k2"),
    )
    assert (second.body, second.flag, str(second.born_host), second.born_timestamp) == (
        b"\0\1\2",
        7,
        "1.2.3.4:5",
        1_700_000_000_000,
    )
    assert (third.topic, third.queue_id, third.properties["REAL_TOPIC"]) == ("SCHEDULE_TOPIC_XXXX", 2, "T2")
    assert clean(mqtool, tmp_path / "new") == "clean"


@pytest.mark.parametrize("left", [("lock",), ("lock", "abort.bak"), ("lock", "abort", "abort.bak")], ids=len)
def test_a_new_store_whose_first_run_was_killed_at_once_is_still_new(mqtool, tmp_path, left):
    root = tmp_path / "store"
    root.mkdir()
    for name in left:
        (root / name).touch()
    result = mqtool("append", root, "--from", write(tmp_path / "rows", GOOD))
    assert (result.code, len(messages(root))) == (0, len(GOOD)), result.stderr
    assert clean(mqtool, root) == "clean"


def test_an_answer_has_the_place_and_the_id_of_its_message(mqtool, tmp_path):
    result = mqtool("append", tmp_path / "new", "--from", write(tmp_path / "in", GOOD), "--flush", "sync")
    for answer, message in zip(result.lines, messages(tmp_path / "new"), strict=True):
        assert (answer["status"], answer["stored"], answer["reason"]) == ("PUT_OK", True, None)
        assert (answer["queue_offset"], answer["physical_offset"]) == (message.queue_offset, message.physical_offset)
        assert answer["offset_message_id"] == message.offset_message_id
        assert (answer["topic"], answer["queue_id"]) == (message.topic, message.queue_id)


BAD = [
    "not json",
    '{"body": "x"}',
    '{"topic": "A", "nope": 1}',
    '{"topic": "A", "queue_id": -1}',
    '{"topic": "../A"}',
    '{"topic": "A", "body": "x", "body_base64": "eA=="}',
    '{"topic": "A", "body_base64": "!"}',
    "[1]",
    "[" * 5000,
    '{"topic": "A", "properties": {"a": 1}}',
    '{"topic": "A", "properties": {"a": "\\u0002"}}',
    '{"topic": "A", "tags": "x", "properties": {"TAGS": "y"}}',
    '{"topic": "A", "born_host": "here"}',
    '{"topic": "A", "keys": [1]}',
    '{"topic": "A", "flag": true}',
    '{"topic": "A", "delay_level": "3"}',
    '{"topic": "A", "tags": "\\u0002"}',
    '{"topic": "A", "tags": 1}',
    '{"topic": "A", "born_host": 5}',
    '{"topic": "A", "body": 5}',
    '{"topic": "A", "body": "0g", "body_encoding": "hex"}',
    '{"topic": "A", "body": "x", "body_encoding": "rot13"}',
    '{"topic": "A", "body": null, "body_encoding": "redacted"}',
    '{"topic": "A", "properties": "a"}',
    '{"topic": "A", "properties": [1]}',
    '{"topic": "A", "properties": ["ab"]}',
    '{"topic": "A", "properties": [["a"]]}',
    '{"topic": "A", "properties": [[["a"], "b"]]}',
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_a_bad_row_is_refused_by_its_line_and_the_others_are_stored(mqtool, tmp_path, number):
    result = mqtool("append", tmp_path / "new", "--from", write(tmp_path / "in", [GOOD[0], BAD[number], GOOD[1]]))
    assert result.code == ExitCode.NO
    assert [answer["stored"] for answer in result.lines] == [True, False, True]
    assert (result.lines[1]["row"], bool(result.lines[1]["reason"])) == (2, True)
    assert len(messages(tmp_path / "new")) == 2


@pytest.mark.parametrize(
    ("row", "status"),
    [
        ({"topic": "t" * 128}, "MESSAGE_ILLEGAL"),
        ({"topic": "T", "properties": {"p": "x" * 32766}}, "PROPERTIES_SIZE_EXCEEDED"),
        ({"topic": "T", "body": "x" * ((4 << 20) + 1)}, "MESSAGE_ILLEGAL"),
    ],
    ids=["topic", "properties", "body"],
)
def test_what_the_store_refuses_is_answered_with_its_status(mqtool, tmp_path, row, status):
    source = write(tmp_path / "in", [row, GOOD[0]])
    acks = [mqtool("append", tmp_path / "new", "--from", source, *more).lines for more in (["--dry-run"], [])]
    assert [answer["status"] for answer in acks[0]] == [answer["status"] for answer in acks[1]] == [status, "PUT_OK"]


def test_all_or_nothing_stores_nothing_if_one_row_is_refused(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    before = tree_digest(root)
    result = mqtool("append", root, "--from", write(tmp_path / "in", [GOOD[0], BAD[0]]), "--all-or-nothing")
    assert (result.code, [answer["row"] for answer in result.lines]) == (ExitCode.NO, [2])
    assert tree_digest(root) == before


def test_light_queues_are_checked_alike_before_and_during_the_run(mqtool, tmp_path):
    config = tmp_path / "broker.conf"
    config.write_text("enableLmq=true\nenableMultiDispatch=true\nmaxMessageSize=200\n", "utf-8")
    light = [("ok", "%LMQ%a"), ("x", "plain"), ("x" * 150, "%LMQ%a")]  # the last is too long with its light offsets
    rows = [{"topic": "T", "body": text, "properties": {"INNER_MULTI_DISPATCH": queue}} for text, queue in light] + [
        {"topic": "T", "body": "x" * 150}
    ]
    ask = ("append", tmp_path / "new", "--from", write(tmp_path / "in", rows), "--config", config)
    checked = mqtool(*ask, "--all-or-nothing")
    assert [(row["row"], row["status"]) for row in checked.lines] == [(2, "MESSAGE_ILLEGAL"), (3, "MESSAGE_ILLEGAL")]
    assert not (tmp_path / "new").exists()
    stored = mqtool(*ask)
    assert [(row["row"], row["stored"]) for row in stored.lines] == [(1, True), (2, False), (3, False), (4, True)]


def test_a_dry_run_answers_and_writes_nothing(mqtool, tmp_path):
    result = mqtool("append", tmp_path / "new", "--from", write(tmp_path / "in", GOOD), "--dry-run")
    assert [(answer["status"], answer["stored"]) for answer in result.lines] == [("PUT_OK", False)] * 3
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("again", [[], ["--all-or-nothing"]], ids=["once", "checked"])
def test_stdin_is_read_like_a_file(mqtool, tmp_path, monkeypatch, again):
    data = write(tmp_path / "in", GOOD).read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(data))))
    assert mqtool("append", tmp_path / "new", "--from", "-", *again).code == ExitCode.OK
    assert len(messages(tmp_path / "new")) == 3


@pytest.mark.parametrize("name", ["orders-4.9.7", "orders-5.5.0"])
def test_a_store_of_either_release_goes_on_in_its_own_layout(mqtool, tmp_path, name):
    root = copy_store(name, tmp_path)
    with library.open(root) as store:
        version, before, next_offset = (
            store.version.line,
            len(list(store.messages())),
            store.queue("Orders", 1).max_offset,
        )
    rows = [{"topic": "Orders", "queue_id": 1, "body": "x" * 5000, "keys": f"k{n}"} for n in range(60)]
    result = mqtool("append", root, "--from", write(tmp_path / "in", rows))
    assert [answer["queue_offset"] for answer in result.lines] == list(range(next_offset, next_offset + 60))
    with library.open(root) as store:
        assert (store.version.line, len(list(store.messages()))) == (version, before + 60)
    assert clean(mqtool, root) == "clean"


@pytest.mark.parametrize("name", ["orders-4.9.7", "orders-5.5.0"])
def test_what_dump_and_export_wrote_is_stored_again_with_equal_fields(mqtool, tmp_path, name):
    root = copy_store(name, tmp_path)
    dump = tmp_path / "dump"
    dump.write_bytes(mqtool("dump", root, "-f", "jsonl", "--body", "base64").stdout)
    mqtool("export", root, "--output", tmp_path / "lake", "--include", "all")
    source = messages(root)
    for number, origin in enumerate((dump, tmp_path / "lake")):
        made = tmp_path / f"made-{number}"
        result = mqtool("append", made, "--from", origin, "--release", name[7:10])
        assert [answer for answer in result.lines if not answer["stored"]] == []

        def what(found):
            return sorted(
                (
                    m.topic,
                    m.queue_id,
                    m.body,
                    sorted(m.properties.items()),
                    m.flag,
                    m.born_timestamp,
                    str(m.born_host),
                    m.reconsume_times,
                )
                for m in found
            )

        assert [one[:4] for one in what(messages(made))] == [one[:4] for one in what(source)]
        assert what(messages(made)) == what(source)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mappedFileSizeCommitLog", 65536),
        ("mappedFileSizeConsumeQueue", 4000),
        ("maxHashSlotNum", 101),
        ("maxIndexNum", 500),
    ],
    ids=str,
)
def test_a_configuration_that_contradicts_the_files_is_refused_by_name(mqtool, tmp_path, key, value):
    root = copy_store("orders-5.5.0", tmp_path)
    before = tree_digest(root)
    config = tmp_path / "broker.conf"
    config.write_text(re.sub(f"{key}=.*", f"{key}={value}", sizes_of("orders-5.5.0")), "utf-8")
    result = mqtool("append", root, "--from", write(tmp_path / "in", GOOD), "--config", config)
    assert (result.code, key in result.stderr) == (ExitCode.REFUSED, True)
    assert tree_digest(root) == before


def test_the_store_of_a_slave_takes_no_messages(mqtool, tmp_path):
    root, config = copy_store("orders-5.5.0", tmp_path), tmp_path / "broker.conf"
    before = tree_digest(root)
    for role, code in (("SLAVE", ExitCode.REFUSED), ("SYNC_MASTER", ExitCode.OK)):
        config.write_text(f"brokerRole={role}\n{sizes_of('orders-5.5.0')}", "utf-8")
        result = mqtool("append", root, "--from", write(tmp_path / "in", GOOD), "--config", config)
        assert (result.code, "brokerRole is SLAVE" in result.stderr) == (code, code is ExitCode.REFUSED)
        assert (tree_digest(root) == before) is (code is ExitCode.REFUSED)


def test_a_new_store_has_the_sizes_of_the_configuration(mqtool, tmp_path):
    config = tmp_path / "broker.conf"
    config.write_text(
        "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=200\nmaxHashSlotNum=10\nmaxIndexNum=20\n"
    )
    rows = [{"topic": "T", "body": "x" * 100, "keys": f"k{n}"} for n in range(60)]
    assert mqtool("append", tmp_path / "new", "--from", write(tmp_path / "in", rows), "--config", config).code == 0
    sizes = {path.stat().st_size for path in (tmp_path / "new" / "commitlog").iterdir()}
    assert sizes == {4096}
    assert clean(mqtool, tmp_path / "new") == "clean"


@pytest.mark.parametrize("flush", ["sync", "async", "pool"])
@pytest.mark.parametrize("compat", ["4.9", "5.5"])
def test_every_flush_mode_leaves_the_same_log(mqtool, tmp_path, flush, compat):
    rows = [{"topic": "T", "body": f"b{n}" * n, "keys": f"k{n}", "born_timestamp": 5} for n in range(50)]
    source = write(tmp_path / "in", rows)
    config = tmp_path / "broker.conf"
    config.write_text("mappedFileSizeCommitLog=16384\n", "utf-8")
    result = mqtool(
        "append", tmp_path / "new", "--from", source, "--flush", flush, "--release", compat, "--config", config
    )
    assert result.code == ExitCode.OK
    found = messages(tmp_path / "new")
    assert [(m.body, m.queue_offset) for m in found] == [(row["body"].encode(), n) for n, row in enumerate(rows)]
    with library.open(tmp_path / "new") as store:
        assert store.version.line == compat
    assert clean(mqtool, tmp_path / "new") == "clean"


def test_new_topics_get_a_configuration_and_known_ones_are_widened(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with library.open(root) as store:
        known = store.metadata.topics
    rows = [{"topic": "Orders", "queue_id": 20, "body": "x"}, {"topic": "Fresh", "queue_id": 2, "body": "x"}]
    assert mqtool("append", root, "--from", write(tmp_path / "in", rows)).code == ExitCode.OK
    with library.open(root) as store:
        found = store.metadata.topics
    assert (found["Orders"].read_queue_nums, found["Fresh"].read_queue_nums) == (21, 3)
    assert {name: one for name, one in found.items() if name not in ("Orders", "Fresh")} == {
        name: one for name, one in known.items() if name != "Orders"
    }


def test_a_store_in_use_is_refused_and_left_alone(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    before = tree_digest(root)
    with held_lock(root / "lock"):
        result = mqtool("append", root, "--from", write(tmp_path / "in", GOOD))
    assert (result.code, "has the store open" in result.stderr) == (ExitCode.REFUSED, True)
    assert tree_digest(root) == before


@pytest.mark.parametrize("name", ["dledger-5.5.0", "rocksdb-cq-5.5.0"])
def test_another_kind_of_store_is_refused(mqtool, tmp_path, name):
    root = copy_store(name, tmp_path)
    before = tree_digest(root)
    result = mqtool("append", root, "--from", write(tmp_path / "in", GOOD), "--config", store_fixture(name).config)
    assert result.code == ExitCode.REFUSED
    assert tree_digest(root) == before


def test_a_disk_that_is_full_halfway_names_the_row_to_continue_from(mqtool, tmp_path, monkeypatch):
    """Segments of 64 KiB, of which the second cannot be created."""
    root, config = tmp_path / "new", tmp_path / "broker.conf"
    config.write_text("mappedFileSizeCommitLog=65536\n")
    rows = [{"topic": "Orders", "queue_id": 0, "body": "x" * 1000, "keys": f"k{number}"} for number in range(200)]
    create = Files.create

    def full(self, path, size):
        if path.parent.name == "commitlog" and int(path.name):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return create(self, path, size)

    monkeypatch.setattr(Files, "create", full)
    words = ("append", root, "--config", config, "--from")
    found = mqtool(*words, write(tmp_path / "in", rows))
    assert found.code == ExitCode.IO_ERROR
    row = int(
        re.search(
            r"row (\d+) was rejected with CREATE_MAPPED_FILE_FAILED: check the disk, then continue", found.stderr
        )[1]
    )
    stored = [message for message in messages(root) if message.topic == "Orders"]
    assert [line["row"] for line in found.lines if line.get("stored")] == list(range(1, row))
    assert len(stored) == row - 1 > 50
    monkeypatch.undo()
    assert mqtool(*words, write(tmp_path / "rest", rows[row - 1 :])).code == ExitCode.OK
    keys = [list(message.keys) for message in messages(root) if message.topic == "Orders"]
    assert keys == [[f"k{number}"] for number in range(200)]
    assert clean(mqtool, root) == "clean"


BROKEN = [
    ({"topic": "T", "body": "x", "queue_id": (1 << 31) - 1}, "queue_id: expected at most 2147483646, found 2147483647"),
    ({"topic": "T", "body": "x", "born_host": "1.2.3.4:65536"}, "born_host: expected a port from 0 to 65535"),
    ({"topic": "T", "body": "x", "store_host": "[::1]:-1"}, "store_host: expected a port from 0 to 65535"),
]


@pytest.mark.parametrize(("row", "words"), BROKEN, ids=["queue", "port", "negative port"])
def test_a_row_that_a_start_of_the_broker_could_not_read_is_refused(mqtool, tmp_path, row, words):
    root, source = tmp_path / "new", write(tmp_path / "in", [row])
    result = mqtool("append", root, "--from", source)
    assert (result.code, words in result.lines[0]["reason"]) == (ExitCode.NO, True)
    assert messages(root) == []
    if "store_host" not in row:  # which a replay sets anew
        again = mqtool("replay", source, "--into", tmp_path / "to", "-f", "json")
        assert (again.code, words in again.document["reasons"][0]["reason"]) == (ExitCode.NO, True)


def test_the_highest_queue_id_and_port_leave_a_clean_store(mqtool, tmp_path):
    rows = [{"topic": "T", "body": "x", "queue_id": (1 << 31) - 2, "born_host": "1.2.3.4:65535"}]
    assert mqtool("append", tmp_path / "new", "--from", write(tmp_path / "in", rows)).code == ExitCode.OK
    assert clean(mqtool, tmp_path / "new") == "clean"


def table(path, **columns):
    pq.write_table(pa.table({"topic": ["A"], **columns}), path, compression="none")
    return path


def test_properties_of_a_table_may_be_a_column_of_maps(mqtool, tmp_path):
    texts, numbers = (pa.map_(kind, pa.string()) for kind in (pa.string(), pa.int32()))
    source = table(tmp_path / "in.parquet", properties=pa.array([[("a", "b"), ("c", "d")]], texts))
    assert mqtool("append", tmp_path / "new", "--from", source).code == ExitCode.OK
    assert messages(tmp_path / "new")[0].properties.items() >= {"a": "b", "c": "d"}.items()
    source = table(tmp_path / "numbers.parquet", properties=pa.array([[(1, "b")]], numbers))
    result = mqtool("append", tmp_path / "new", "--from", source)
    assert (result.code, "properties.1: expected text" in result.lines[0]["reason"]) == (ExitCode.NO, True)


def test_a_row_without_its_body_is_refused(mqtool, tmp_path):
    """`export --body-type text` writes null for a body that is not text; without a column body no row has one."""
    bodies = [{"topic": "A", "body_base64": "//4A"}, {"topic": "A", "body": ""}]
    assert mqtool("append", tmp_path / "old", "--from", write(tmp_path / "in", bodies)).code == ExitCode.OK
    for name, options, stored in (("text", ("--body-type", "text"), 1), ("none", ("--columns", "topic,store_size"), 0)):
        assert mqtool("export", tmp_path / "old", "--output", tmp_path / name, *options).code == ExitCode.OK
        result = mqtool("append", tmp_path / f"{name}-new", "--from", tmp_path / name)
        assert (result.code, [line["stored"] for line in result.lines].count(True)) == (ExitCode.NO, stored)
        assert "body: missing; write the row with its body" in result.lines[0]["reason"]
        again = mqtool("replay", tmp_path / name, "--into", tmp_path / f"{name}-to", "-f", "json")
        assert (again.code, again.document["refused"], again.document["replayed"]) == (1, 2 - stored, stored)
    assert [message.body for message in messages(tmp_path / "text-new")] == [b""]


def test_a_table_of_ones_own_may_be_without_bodies_but_not_have_null_ones(mqtool, tmp_path):
    source = table(tmp_path / "in.parquet", keys=["k"])
    assert mqtool("append", tmp_path / "new", "--from", source).code == ExitCode.OK
    assert [message.body for message in messages(tmp_path / "new")] == [b""]
    source = table(tmp_path / "null.parquet", body=pa.array([None], pa.binary()), body_base64=["YQ=="])
    assert mqtool("append", tmp_path / "other", "--from", source).code == ExitCode.OK
    source = table(tmp_path / "null.parquet", body_base64=pa.array([None], pa.string()))
    assert mqtool("append", tmp_path / "other", "--from", source).code == ExitCode.NO


def test_a_born_time_that_an_export_cannot_hold_is_not_replaced(mqtool, tmp_path):
    late = [{"topic": "A", "body": "x", "born_timestamp": 1 << 62}]
    assert mqtool("append", tmp_path / "old", "--from", write(tmp_path / "in", late)).code == ExitCode.OK
    assert mqtool("export", tmp_path / "old", "--output", tmp_path / "lake").code == ExitCode.OK
    result = mqtool("append", tmp_path / "new", "--from", tmp_path / "lake")
    assert (result.code, "born_timestamp: missing" in result.lines[0]["reason"]) == (ExitCode.NO, True)
    assert mqtool("replay", tmp_path / "lake", "--into", tmp_path / "to", "--keep-times").code == ExitCode.NO
    assert mqtool("replay", tmp_path / "lake", "--into", tmp_path / "to").code == ExitCode.OK


@pytest.mark.parametrize("command", ["append", "replay"])
def test_an_export_with_other_files_than_it_published_is_refused(mqtool, tmp_path, command):
    assert mqtool("append", tmp_path / "old", "--from", write(tmp_path / "in", GOOD)).code == ExitCode.OK
    assert mqtool("export", tmp_path / "old", "--output", tmp_path / "lake").code == ExitCode.OK
    table(tmp_path / "lake/messages/merged.parquet", body=["again"])
    words = (
        (tmp_path / "new", "--from", tmp_path / "lake")
        if command == "append"
        else (tmp_path / "lake", "--into", tmp_path / "new")
    )
    result = mqtool(command, *words)
    assert (result.code, len(result.stderr.splitlines())) == (ExitCode.REFUSED, 1)
    assert "merged.parquet: was not written by the export" in result.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("source", ["missing", "torn.parquet", "empty", "letters.parquet", "times.parquet"])
def test_input_that_cannot_be_read_is_one_line(mqtool, tmp_path, source):
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "empty").mkdir()
    letters = table(tmp_path / "letters.parquet", body=["not UTF-8"])
    letters.write_bytes(letters.read_bytes().replace(b"not UTF-8", b"not UTF-\xff"))
    table(tmp_path / "times.parquet", store_timestamp=pa.array([1500], pa.timestamp("us")))
    result = mqtool("append", tmp_path / "new", "--from", tmp_path / source)
    assert result.code != ExitCode.OK
    assert (len(result.stderr.splitlines()), source in result.stderr) == (1, True)


def test_answers_have_the_documented_fields_and_no_others(mqtool, tmp_path):
    result = mqtool("append", tmp_path / "new", "--from", write(tmp_path / "in", [*GOOD, BAD[0]]), "-f", "json")
    assert problems("append", result.document) == []


def unique(count):
    return [{"topic": "Twice", "body": f"b{n}", "unique_key": f"7F000001{n:024X}"} for n in range(count)]


def test_input_that_the_store_already_holds_is_refused_and_nothing_is_written(mqtool, tmp_path):
    root, source = tmp_path / "new", write(tmp_path / "in", unique(3))
    assert mqtool("append", root, "--from", source).code == ExitCode.OK
    before = tree_digest(root)
    again = mqtool("append", root, "--from", source)
    assert again.code == ExitCode.REFUSED
    assert "already stored at physical offset 0" in again.stderr
    assert "--duplicates append" in again.stderr
    assert tree_digest(root) == before


def test_duplicates_are_appended_where_that_is_asked_for(mqtool, tmp_path):
    root, source = tmp_path / "new", write(tmp_path / "in", unique(3))
    assert mqtool("append", root, "--from", source).code == ExitCode.OK
    assert mqtool("append", root, "--from", source, "--duplicates", "append").code == ExitCode.OK
    assert len(messages(root)) == 6


def test_a_delayed_message_is_found_in_its_delay_queue(mqtool, tmp_path):
    root, source = tmp_path / "new", write(tmp_path / "in", [{**unique(1)[0], "delay_level": 3}])
    assert mqtool("append", root, "--from", source).code == ExitCode.OK
    assert mqtool("append", root, "--from", source).code == ExitCode.REFUSED


def test_messages_without_a_unique_key_are_appended_and_the_log_before_them_is_reported(mqtool, tmp_path):
    root, source = tmp_path / "new", write(tmp_path / "in", GOOD)
    assert "already had" not in mqtool("append", root, "--from", source).stderr
    assert "bytes that the log already had" in mqtool("append", root, "--from", source).stderr
    assert len(messages(root)) == 6


def test_a_body_is_marked_as_compressed_only_if_it_is(mqtool, tmp_path):
    """A table without the column body_crc does not state which bytes were stored."""
    packed = base64.b64encode(zlib.compress(b"packed")).decode()
    rows = [
        {"topic": "T", "body": "plain", "sys_flag": 1},
        {"topic": "T", "body_base64": packed, "sys_flag": 1},
        {"topic": "T", "body": "plain", "sys_flag": 1, "body_crc": zlib.crc32(zlib.compress(b"plain"))},
    ]
    mqtool("append", tmp_path / "new", "--from", write(tmp_path / "in", rows))
    found = messages(tmp_path / "new")
    assert [(one.sys_flag & 1, one.body) for one in found] == [(0, b"plain"), (1, b"packed"), (0, b"plain")]


def test_a_message_of_an_inner_batch_is_stored_without_the_properties_of_its_batch(mqtool, tmp_path):
    values = {"INNER_NUM": "3", "INNER_BASE": "7", "a": "b"}
    rows = [{"topic": "T", "body": "x", "batch_index": index, "properties": values} for index in (0, None)]
    mqtool("append", tmp_path / "new", "--from", write(tmp_path / "in", rows[:1]))
    (found,) = messages(tmp_path / "new")
    assert {name: value for name, value in found.properties.items() if name in values} == {"a": "b"}


def test_input_that_the_log_outside_the_root_already_has_is_refused(mqtool, tmp_path):
    (tmp_path / "log").mkdir()
    config = write_config(tmp_path)
    rows = write(tmp_path / "in", [{"topic": "T", "body": "x", "properties": {"UNIQ_KEY": "A1"}}])
    assert mqtool("append", tmp_path / "new", "--from", rows, "--config", config).code == ExitCode.OK
    result = mqtool("append", tmp_path / "new", "--from", rows, "--config", config)
    assert (result.code, "is already stored at physical offset 0" in result.stderr) == (ExitCode.REFUSED, True)
    with library.open(tmp_path / "new", config) as store:
        assert len(list(store.messages())) == 1


def write_config(directory):
    path = directory / "broker.conf"
    path.write_text(f"storePathRootDir={directory / 'new'}\nstorePathCommitLog={directory / 'log'}\n")
    return path


def test_rows_that_are_not_on_disk_in_time_are_reported_and_not_ok(mqtool, tmp_path, monkeypatch):
    monkeypatch.setattr(GroupCommit, "wait", lambda _self, _end: PutStatus.FLUSH_DISK_TIMEOUT)
    result = mqtool(
        *("append", tmp_path / "store", "--from", write(tmp_path / "rows.jsonl", GOOD[:2])),
        *("--flush", "sync", "-f", "json"),
    )
    assert result.code == ExitCode.NO
    assert "2 rows stored, 0 rejected" in result.stderr
    assert "2 of them were not on disk in time" in result.stderr
    assert [(row["stored"], row["status"]) for row in result.document["rows"]] == [(True, "FLUSH_DISK_TIMEOUT")] * 2


def test_a_file_that_cannot_be_opened_any_more_is_an_io_error(mqtool, tmp_path, monkeypatch):
    source = write(tmp_path / "rows.jsonl", GOOD)
    monkeypatch.setattr("mqtool.ingest.row_source.is_parquet", lambda path: path.unlink())
    result = mqtool("append", tmp_path / "store", "--from", source)
    assert (result.code, f"{source}: cannot be read: No such file" in result.stderr) == (ExitCode.IO_ERROR, True)
    assert not (tmp_path / "store").exists()
