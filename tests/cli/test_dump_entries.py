"""`mqtool dump` of files that hold no messages, judged by the real broker's answers."""

import base64
import os
import shutil
from fnmatch import fnmatchcase

import pytest

from mqtool.formats.timer import SLOT, SLOT_SIZE, TimerSlot
from tests.cli.answers import problems
from tests.support.builder import StoreBuilder
from tests.support.stores import answered, answers, copy_store, fixture, summary
from tests.support.unreadable import unreadable

QUEUES = [store for store in answered("queues") if store.directory]
INDEXED = [store for store in answered("index") if store.directory]
ORDERS = fixture("orders-5.5.0/store")


def lines(mqtool, *arguments):
    result = mqtool("dump", *arguments, "--format", "jsonl")
    assert (result.code, result.stderr) == (0, "")
    return result.lines


def values(rows, names):
    return [[row[name] for name in names] for row in rows]


def kept(name, row):
    """Whether the broker still has the record of a unit after recovery."""
    return row["physical_offset"] + max(row["size"], 0) <= summary(name)["maxPhyOffset"]


@pytest.mark.parametrize("store", QUEUES, ids=str)
def test_units_of_queues_are_the_broker_s(mqtool, store):
    found = {}
    for row in lines(mqtool, store.directory, "--kind", "consume-queue"):
        if row["state"] == "unit" and kept(store.name, row):
            unit = [row["queue_offset"], row["physical_offset"], row["size"], row["tags_code"]]
            found.setdefault((row["topic"], row["queue_id"]), []).append(unit)
    expected = {
        (a["topic"], a["queueId"]): a["units"]
        for a in answers(store.name, "queues")
        if a["type"] == "SimpleCQ" and a["units"]
    }
    if store.clean_stop:
        assert found == expected
    # after a kill the broker appends what had not reached the files; what is there, it keeps
    assert found == {queue: expected[queue][: len(units)] for queue, units in found.items()}
    assert found


@pytest.mark.parametrize("name", ["bcq-5.5.0", "compaction-5.5.0"])
def test_units_of_batch_queues_are_the_broker_s(mqtool, name):
    kind, place = {
        "bcq-5.5.0": ("batchqueue", "batchconsumequeue"),
        "compaction-5.5.0": ("sparsequeue", "compaction/compactionCq"),
    }[name]
    found = [row for row in lines(mqtool, fixture(f"{name}/store/{place}")) if row["size"]]
    names = {
        "queue_id": "queueId",
        "base_queue_offset": "baseOffset",
        "batch_size": "batchSize",
        "size": "size",
        "physical_offset": "phyOffset",
        "tags_code": "tagsCode",
        "compacted_offset": "compactedOffset",
    }
    expected = [answer for answer in answers(name, kind) if answer["kind"] == "unit"]
    assert values(found, names) == values(expected, names.values())


def test_a_compacted_queue_s_files_are_closed_by_a_unit_of_size_0(mqtool):
    found = lines(mqtool, fixture("compaction-5.5.0/store/compaction/compactionCq"))
    assert {(row["physical_offset"], row["size"]) for row in found if not row["size"]} == {(-1, 0)}


@pytest.mark.parametrize("name", ["cqext-4.9.7", "cqext-5.5.0"])
def test_units_of_the_extension_are_the_broker_s(mqtool, name):
    found = lines(mqtool, fixture(f"{name}/store/consumequeue_ext"))
    expected = [a for a in answers(name, "ext") if a["isExtAddr"]]
    assert [
        [
            row["topic"],
            row["queue_id"],
            row["offset"],
            row["address"],
            row["size"],
            row["tags_code"],
            row["store_timestamp"],
            row["bit_map"],
        ]
        for row in found
    ] == [
        [
            a["topic"],
            a["queueId"],
            a["extRealOffset"],
            a["tagsCode"],
            a["extSize"],
            a["extTagsCode"],
            a["extMsgStoreTime"],
            base64.b64decode(a["extFilterBitMap"]).hex(),
        ]
        for a in expected
    ]


@pytest.mark.parametrize("store", INDEXED, ids=str)
def test_entries_of_index_files_are_the_broker_s(mqtool, store):
    expected = [a for a in answers(store.name, "index") if not a["file"].startswith("new-")]
    by_file = {}
    for row in lines(mqtool, store.directory, "--kind", "index-file"):
        entry = [row["number"], row["key_hash"], row["physical_offset"], row["time_diff"], row["previous"]]
        by_file.setdefault(row["file"], []).append(entry)
    for answer in expected:
        assert by_file.get(answer["file"], []) == answer["entries"]
    assert expected


@pytest.mark.parametrize("store", INDEXED, ids=str)
def test_headers_of_index_files_are_the_broker_s(mqtool, store):
    names = {
        "begin_timestamp": "beginTimestamp",
        "end_timestamp": "endTimestamp",
        "begin_physical_offset": "beginPhyOffset",
        "end_physical_offset": "endPhyOffset",
        "hash_slot_count": "hashSlotCount",
        "index_count": "indexCount",
    }
    found = {row["file"]: row for row in lines(mqtool, store.directory, "--kind", "index-header")}
    for answer in (a for a in answers(store.name, "index") if not a["file"].startswith("new-")):
        row = found[answer["file"]]
        assert [row[ours] for ours in names] == [answer[theirs] for theirs in names.values()]


def test_the_timer_log_is_the_broker_s(mqtool):
    names = {
        "position": "pos",
        "previous_position": "prevPos",
        "magic": "magic",
        "write_time": "writeTime",
        "delay": "delay",
        "physical_offset": "physicalOffset",
        "record_size": "size",
        "topic_hash": "topicHash",
    }
    found = lines(mqtool, ORDERS / "timerlog")
    expected = [a for a in answers("orders-5.5.0", "timers") if "pos" in a]
    assert values(found, names) == values(expected, names.values())


def test_live_slots_of_the_timer_wheel_are_the_broker_s(mqtool, tmp_path):
    store = copy_store("orders-5.5.0", tmp_path)
    found = {row["slot"]: row for row in lines(mqtool, store / "timerwheel")}
    expected = [a for a in answers("orders-5.5.0", "timers") if "slot" in a]
    assert expected
    for answer in expected:
        row = found[answer["slot"]]
        assert [row["deliver_time"], row["first_position"], row["last_position"], row["count"], row["magic"]] == [
            answer["timeMs"],
            answer["firstPos"],
            answer["lastPos"],
            answer["num"],
            answer["magic"],
        ]


def test_the_timer_checkpoint_is_the_broker_s(mqtool):
    (answer,) = [a for a in answers("timer-5.5.0", "timer") if a["kind"] == "timercheck"]
    (row,) = lines(mqtool, fixture("timer-5.5.0/store/config/timercheck"))
    assert list(row.values()) == [value for name, value in answer.items() if name != "kind"]


@pytest.mark.parametrize("store", QUEUES, ids=str)
def test_the_checkpoint_is_the_broker_s(mqtool, store):
    (row,) = lines(mqtool, store.directory / "checkpoint")
    expected = summary(store.name)["before"]["checkpoint"]
    assert list(row.values())[: len(expected)] == list(expected.values() if isinstance(expected, dict) else expected)


def test_configuration_files_become_strict_json(mqtool):
    found = lines(mqtool, ORDERS / "config" / "topics.json")
    topics = {row["name"]: row["value"] for row in found if row["table"] == "topicConfigTable"}
    assert topics["Orders"]["topicName"] == "Orders"
    assert {row["table"] for row in found} == {"dataVersion", "topicConfigTable"}
    offsets = lines(mqtool, ORDERS / "config" / "lmqConsumerOffset.json")
    assert all(key.isdigit() for row in offsets if row["table"] == "offsetTable" for key in row["value"])


def test_a_directory_of_configuration_files_is_dumped_whole(mqtool):
    found = {row["file"] for row in lines(mqtool, ORDERS / "config")}
    assert {"topics.json", "topics.json.bak", "delayOffset.json", "timermetrics"} <= found


def test_epochs_are_reported_with_their_ends(mqtool):
    path = next(fixture("controller-5.5.0").rglob("epochFileCheckpoint"))
    text = path.read_text().splitlines()[2:]
    found = lines(mqtool, path)
    assert [f"{row['epoch']}-{row['start_offset']}" for row in found] == text
    assert [row["end_offset"] for row in found] == [*(row["start_offset"] for row in found[1:]), None]


def test_markers_are_reported_with_what_they_hold(mqtool):
    (row,) = lines(mqtool, ORDERS / "lock")
    assert row == {"file": "lock", "size": 4, "text": "lock"}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--offset", "2:5"], lambda row: 2 <= row["queue_offset"] < 5),
        (["--offset", "-3"], None),
        (["--topic", "Or*"], lambda row: fnmatchcase(row["topic"], "Or*")),
        (["--topic", "Orders", "--queue", "1"], lambda row: (row["topic"], row["queue_id"]) == ("Orders", 1)),
    ],
    ids=["offsets", "the last ones", "topic", "queue"],
)
def test_units_can_be_selected(mqtool, options, wanted):
    every = lines(mqtool, ORDERS / "consumequeue")
    found = lines(mqtool, ORDERS / "consumequeue", *options)
    last = {(row["topic"], row["queue_id"]): row["queue_offset"] for row in every}
    if wanted is None:
        expected = [row for row in every if row["queue_offset"] > last[row["topic"], row["queue_id"]] - 3]
    else:
        expected = [row for row in every if wanted(row)]
    assert found == expected
    assert 0 < len(found) < len(every)


def test_the_files_of_one_queue_go_on_from_each_other(mqtool):
    directory = next((ORDERS / "consumequeue").rglob("00000000000000002000")).parent
    offsets = [row["queue_offset"] for row in lines(mqtool, directory)]
    assert offsets == list(range(len(offsets)))
    assert len(offsets) > 100


KINDS = {
    "consume-queue": "orders-5.5.0/store/consumequeue",
    "batch-consume-queue": "bcq-5.5.0/store/batchconsumequeue",
    "consume-queue-ext": "cqext-5.5.0/store/consumequeue_ext",
    "index-file": "orders-5.5.0/store/index",
    "checkpoint": "orders-5.5.0/store/checkpoint",
    "timer-log": "timer-5.5.0/store/timerlog",
    "timer-checkpoint": "timer-5.5.0/store/config/timercheck",
    "config": "metadata-5.5.0/store/config",
    "marker": "orders-5.5.0/store/lock",
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_of_every_kind_has_the_same_rows(mqtool, kind):
    path = fixture(KINDS[kind])
    rows = lines(mqtool, path, "--limit", 50)
    document = mqtool("dump", path, "--limit", 50, "--format", "json").document
    assert document["rows"] == rows
    assert problems("dump", document) == []
    assert document["schema"] == kind
    for output_format in ("table", "wide"):
        text = mqtool("dump", path, "--limit", 50, "--format", output_format).text
        assert len(text.splitlines()) == len(rows) + 1


@pytest.mark.parametrize(
    "kind", ["consume-queue", "batch-consume-queue", "consume-queue-ext", "index-file", "timer-log"]
)
def test_hex_of_units_prints_their_bytes(mqtool, kind):
    path = next(path for path in sorted(fixture(KINDS[kind]).rglob("*")) if path.is_file())
    data = path.read_bytes()
    base = 0 if kind == "index-file" else int(path.name)
    found = lines(mqtool, path, "--hex")
    rows = lines(mqtool, path)
    assert len({field["record"] for field in found}) == len(rows)
    for field in found:
        at = field["at"] - base
        assert data[at : at + len(field["bytes"]) // 2].hex() == field["bytes"]


def test_hex_of_a_timer_wheel_prints_its_used_slots(mqtool, tmp_path):
    slots = [
        TimerSlot(0, 0, 0, 0, 0),
        TimerSlot(1_790_000_000, 0, 52, 2, 0),
        TimerSlot(0, 0, 0, 0, 0),
        TimerSlot(1_790_000_001, 104, 104, 1, 0),
    ]
    (tmp_path / "timerwheel").write_bytes(b"".join(map(SLOT.build, slots)))
    found = lines(mqtool, tmp_path / "timerwheel", "--hex")
    values = {(field["at"], field["field"]): field["value"] for field in found}
    assert {at // SLOT_SIZE for at, _ in values} == {1, 3}
    assert values[SLOT_SIZE, "time"] == 1_790_000_000
    assert values[3 * SLOT_SIZE + 8, "first_position"] == 104


def test_hex_of_an_index_file_that_was_cut_ends_with_its_last_complete_entry(mqtool, tmp_path):
    builder = StoreBuilder(slots=10, entries=40)
    for number in range(8):
        builder.put(keys=f"k{number}")
    (path,) = (builder.write(tmp_path / "store") / "index").iterdir()
    place = 40 + 10 * 4 + 20  # header, slots and the unused place 0
    os.truncate(path, place + 5 * 20 + 7)
    (tmp_path / "broker.conf").write_text("maxHashSlotNum=10\nmaxIndexNum=40\n")
    found = lines(mqtool, path, "--hex", "--config", tmp_path / "broker.conf")
    assert [field["at"] for field in found if field["field"] == "physical_offset"] == [
        place + number * 20 + 4 for number in range(5)
    ]


def test_configuration_that_is_nested_too_deeply_is_refused(mqtool, tmp_path):
    for depth, code in ((60, 0), (80, 1)):
        path = tmp_path / str(depth) / "config" / "topics.json"
        path.parent.mkdir(parents=True)
        path.write_text('{"table": ' + '{"a": ' * depth + "1" + "}" * depth + "}")
        result = mqtool("dump", path, "--format", "jsonl")
        assert (result.code, "nested more than 64 deep" in result.stderr) == (code, code != 0)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("store/dledger-n0/snapshot/1/data", "belongs to a snapshot of a DLedger log, which is not read"),
        ("rocksdbstore/CURRENT", "belongs to a RocksDB, which is not read"),
        ("short", "is not a known file of a message store; name its kind with --kind"),
    ],
)
def test_files_that_are_not_read_are_named(mqtool, tmp_path, name, words):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"0123456")
    result = mqtool("dump", path)
    assert (result.code, words in result.stderr) == (4, True), result.stderr


def test_a_part_of_a_store_without_files_is_named(mqtool, tmp_path):
    (tmp_path / "empty" / "consumequeue").mkdir(parents=True)
    (tmp_path / "strange" / "consumequeue").mkdir(parents=True)
    (tmp_path / "strange" / "consumequeue" / "readme").write_text("no file of a store")
    for directory, words in (
        (tmp_path / "empty" / "consumequeue", "the directory is empty"),
        (tmp_path / "strange" / "consumequeue", "holds no file of a message store"),
        (tmp_path / "strange", "holds no file of kind index-file"),
    ):
        kind = ["--kind", "index-file"] if directory == tmp_path / "strange" else []
        result = mqtool("dump", directory, *kind)
        assert (result.code, words in result.stderr) == (4, True), result.stderr


def test_files_in_directories_deeper_than_a_store_has_are_left_out(mqtool, tmp_path):
    queues = tmp_path / "consumequeue"
    shutil.copytree(ORDERS / "consumequeue" / "Orders", queues / "Orders")
    expected = lines(mqtool, queues)
    deep = queues / "Orders" / "0" / "a" / "b" / "c"
    shutil.copytree(ORDERS / "consumequeue" / "Payments", deep)
    assert lines(mqtool, queues) == expected


def test_a_file_of_text_has_no_fields_beside_bytes(mqtool):
    result = mqtool("dump", ORDERS / "config" / "topics.json", "--hex")
    assert (result.code, result.stdout) == (4, b"")


def test_a_kind_overrules_what_a_file_looks_like(mqtool, tmp_path):
    path = tmp_path / "unknown"
    path.write_bytes((ORDERS / "checkpoint").read_bytes())
    assert lines(mqtool, path, "--kind", "timer-checkpoint")[0]["last_read_time_ms"] > 0


@pytest.mark.parametrize(
    "option", [["--key", "x"], ["--time", "1..2"], ["--grep", "x"], ["--follow"], ["--explode"]], ids=str
)
def test_options_for_messages_are_refused(mqtool, option):
    result = mqtool("dump", ORDERS / "checkpoint", *option)
    assert (result.code, result.stdout) == (2, b"")
    assert "messages" in result.stderr


# --- damaged and unreadable files among others -----------------------------------------------------------------------


def patch(path, position, data):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def partly(mqtool, *arguments):
    result = mqtool("dump", *arguments, "--format", "jsonl")
    assert result.code == 1, result.stderr
    return result.lines, result.stderr


@pytest.mark.parametrize("options", [[], ["--offset", "0:end"], ["--hex"]], ids=str)
@pytest.mark.parametrize("bad", [range(1, 2), range(3), range(18, 19)], ids=str)
def test_reading_a_timer_log_continues_after_a_damaged_unit(mqtool, tmp_path, bad, options):
    log = copy_store("timer-5.5.0", tmp_path) / "timerlog"
    rows = lines(mqtool, log, *options)
    place, units = ("record", len({row["record"] for row in rows})) if options == ["--hex"] else ("position", len(rows))
    assert units == 25
    for unit in bad:
        patch(min(log.iterdir()), unit * 52, bytes(8))
    found, notes = partly(mqtool, log, *options)
    assert found == [row for row in rows if row[place] // 52 not in bad]
    assert notes.count("\n") == 1
    assert f"position {bad[0] * 52}: expected size 52, found 0" in notes


@pytest.mark.parametrize("options", [[], ["--offset", "0:end"], ["--hex"]], ids=str)
def test_reading_continues_after_an_index_file_without_slots(mqtool, tmp_path, options):
    index = copy_store("orders-5.5.0", tmp_path) / "index"
    path = sorted(index.iterdir())[2]
    one, rows = lines(mqtool, path, *options), lines(mqtool, index, *options)
    patch(path, 40, bytes(400))
    found, notes = partly(mqtool, index, *options)
    assert len(found) == len(rows) - len(one)
    assert f"{path.name}: does not state its number of slots" in notes
    assert mqtool("dump", path, *options).code == 4


def test_entries_that_the_header_does_not_count_are_printed_and_reported(mqtool, tmp_path):
    index = copy_store("orders-5.5.0", tmp_path) / "index"
    path, config = min(index.iterdir()), tmp_path / "broker.conf"
    rows, shape = lines(mqtool, path), lines(mqtool, path, "--kind", "index-header")[0]
    config.write_text(f"maxHashSlotNum={shape['slots']}\nmaxIndexNum={shape['max_entries']}\n")
    for count in (0, 1, 7):
        patch(path, 36, count.to_bytes(4, "big"))
        found, notes = partly(mqtool, path, "--config", config)
        assert found == rows
        words = f"states {max(0, count - 1)} entries, but {len(rows)} are written"
        assert words in notes
        fields, notes = partly(mqtool, path, "--config", config, "--hex")
        assert (len({row["record"] for row in fields}), words in notes) == (len(rows), True)
    patch(path, 36, bytes(4))
    found, notes = partly(mqtool, index)
    assert (len(found), "states 0 entries, but the bytes up to" in notes) == (
        len(lines(mqtool, ORDERS / "index")) - len(rows),
        True,
    )


def test_reading_continues_after_a_damaged_or_unreadable_file_of_configuration(mqtool, tmp_path, monkeypatch):
    config = copy_store("orders-5.5.0", tmp_path) / "config"
    rows = lines(mqtool, config)
    others = [row for row in rows if row["file"] not in ("topics.json", "consumerFilter.json")]
    (config / "consumerFilter.json").write_text('{"a":')
    with unreadable(monkeypatch, config / "topics.json"):
        found, notes = partly(mqtool, config)
    assert (found, len(found) < len(rows)) == (others, True)
    assert "consumerFilter.json" in notes
    assert f"unknown: {config / 'topics.json'}: cannot be opened: Permission denied" in notes


def test_units_of_an_unreadable_queue_file_are_unknown_and_others_are_printed(mqtool, tmp_path, monkeypatch):
    queues = copy_store("orders-5.5.0", tmp_path) / "consumequeue"
    rows, path = lines(mqtool, queues), queues / "Orders" / "0" / f"{0:020}"
    for options in ([], ["--offset", "0:end"]):
        with unreadable(monkeypatch, path):
            found, notes = partly(mqtool, queues, *options)
        assert found == [row for row in rows if (row["topic"], row["queue_id"]) != ("Orders", 0)]
        assert notes == f"mqtool: unknown: {path}: cannot be opened: Permission denied\n"


# --- selections that match nothing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "options", "code", "words"),
    [
        ("consumequeue", ["-t", "nope"], 1, "no topic matches 'nope'; there are "),
        ("consumequeue", ["-t", "Orders", "-q", "99"], 1, "no queue 99 in the selected topics"),
        ("", ["--kind", "consume-queue", "-t", "nope"], 1, "no topic matches 'nope'"),
        ("commitlog", ["-t", "nope"], 1, "no topic matches 'nope'"),
        ("commitlog", ["-q", "99"], 1, "no queue 99"),
        ("commitlog/00000000000000000000", ["-t", "nope"], 1, "no topic matches 'nope'"),
        ("index", ["-t", "Orders"], 2, "files of kind index-file belong to none"),
        ("config", ["-q", "0"], 2, "files of kind config belong to none"),
    ],
)
def test_a_selection_that_can_match_nothing_is_refused(mqtool, place, options, code, words):
    result = mqtool("dump", ORDERS / place, *options, "-f", "json")
    assert (result.code, words in result.stderr) == (code, True), result.stderr
    assert "mqtool info" not in result.stderr
