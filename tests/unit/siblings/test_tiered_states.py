"""States of a tiered store: expired, missing and shared parts, metadata that is missing or broken, full index files."""

import json
import shutil
import struct
from types import SimpleNamespace

import pytest

from mqtool.cli.app import run
from mqtool.cli.exits import ExitCode
from mqtool.formats import commit_log, config_json, java, tiered
from mqtool.records.damage import Damage
from mqtool.siblings import arrow
from mqtool.siblings.tiered import verify
from mqtool.siblings.tiered.kind import OpenedTiered
from mqtool.siblings.tiered.store import TieredStore, read_metadata
from tests.support.stores import copy_store
from tests.support.unreadable import unreadable

HOME = "212d6b50_DefaultCluster/broker-a"
LOG_BYTES, MESSAGES = 127_840, 150
OPEN = "../tiered_index_file/1795222629120"


@pytest.fixture
def root(tmp_path):
    return copy_store("tieredstore-5.5.0", tmp_path) / "tiered"


@pytest.fixture
def metadata(root):
    return root.parent / "config/tieredStoreMetadata.json"


def states(root):
    with OpenedTiered(root) as opened:
        return {(one.code, one.severity.value) for one in opened.verify()}


def rows(root):
    with OpenedTiered(root) as opened:
        items = list(opened.rows("tiered-message"))
    return (
        [item["queue_offset"] for item in items if not isinstance(item, Damage)],
        [(item.start, item.end, item.kind) for item in items if isinstance(item, Damage)],
    )


def split_log(root, *numbers):
    """Divides the log into segments at messages, and returns the segments' paths."""
    directory = root / HOME / "Tier/0/COMMIT_LOG"
    (path,) = directory.iterdir()
    data = path.read_bytes()
    path.unlink()
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        at += commit_log.FRAME.unpack_from(data, at)[0]
    bases = [0, *(starts[number] for number in numbers)]
    paths = [directory / tiered.segment_name(base) for base in bases]
    for part, base, end in zip(paths, bases, [*bases[1:], len(data)], strict=True):
        part.write_bytes(data[base:end])
    return paths


def edit(metadata, change):
    document = config_json.parse(metadata.read_bytes())
    change(document)
    metadata.write_text(json.dumps(document))


def list_log(metadata, paths):
    """Lists these segments of the log in the metadata."""

    def change(document):
        segments = {str(int(path.name[8:])): {"size": path.stat().st_size} for path in paths}
        document["commitLogFileSegmentTable"] = {"broker-a/Tier/0": segments}

    edit(metadata, change)


def test_a_log_in_several_segments_is_intact(root, metadata):
    list_log(metadata, split_log(root, 50, 100))
    assert states(root) == set()
    assert rows(root) == (list(range(MESSAGES)), [])


def test_units_and_index_entries_of_an_expired_segment_are_not_wrong(root, metadata):
    first, *others = split_log(root, 50)
    first.unlink()
    list_log(metadata, others)
    assert states(root) == set()
    assert rows(root) == (list(range(50, MESSAGES)), [])


def test_a_first_segment_that_the_metadata_lists_is_missing(root, metadata):
    paths = split_log(root, 50)
    list_log(metadata, paths)
    size = paths[0].stat().st_size
    paths[0].unlink()
    assert ("tiered-metadata", "error") in states(root)
    assert rows(root) == (list(range(50, MESSAGES)), [(0, size, "missing")])


def test_a_segment_that_is_missing_between_others_is_damage(root, metadata):
    first, middle, last = split_log(root, 50, 100)
    list_log(metadata, [first, last])
    middle.unlink()
    assert ("tiered-gap", "error") in states(root)
    kept, damage = rows(root)
    assert kept == [*range(50), *range(100, MESSAGES)]
    assert damage == [(first.stat().st_size, int(last.name[8:]), "missing")]


def test_a_last_segment_that_is_too_short_or_missing_is_damage(root):
    (path,) = split_log(root)
    path.write_bytes(path.read_bytes()[:851])
    assert ("tiered-metadata", "error") in states(root)
    assert rows(root) == ([0], [(851, LOG_BYTES, "missing")])


def test_a_queue_of_which_only_the_metadata_is_left_is_lost(root):
    shutil.rmtree(root / HOME / "Tier")
    shutil.rmtree(root / HOME / "rmq_sys_INDEX")
    shutil.rmtree(root.parent / "tiered_index_file")
    with OpenedTiered(root) as opened:
        found = [(one.code, one.severity.value, one.evidence) for one in opened.verify()]
    assert found == [
        ("tiered-metadata", "error", f"the metadata states {size} bytes, but the file is missing")
        for size in (LOG_BYTES, 3000, 9228)
    ]
    assert rows(root) == ([], [(0, LOG_BYTES, "missing")])


def test_without_metadata_the_check_of_segments_is_unknown(root, metadata):
    shutil.rmtree(root / HOME / "rmq_sys_INDEX")
    shutil.rmtree(root.parent / "tiered_index_file")
    metadata.with_name(metadata.name + ".bak").unlink()
    metadata.write_text("{ broken")
    assert states(root) == {("tiered-metadata", "unknown")}


@pytest.mark.parametrize("data", [None, b"", b"{ broken"], ids=["missing", "empty", "broken"])
def test_the_backup_of_the_metadata_is_read_as_the_broker_does(data, root, metadata):
    metadata.with_name(metadata.name + ".bak").write_bytes(metadata.read_bytes())
    metadata.unlink() if data is None else metadata.write_bytes(data)
    assert states(root) == {("tiered-metadata", "warning")}
    assert read_metadata(root.parent).topics == {0: "Tier"}


def test_a_queue_of_another_broker_is_not_taken_for_this_brokers(root):
    (root / "212d6b50_DefaultCluster/broker-0/Tier/0/COMMIT_LOG").mkdir(parents=True)
    assert states(root) == {("tiered-metadata", "unknown")}


def test_the_index_of_another_broker_is_unknown_without_its_metadata(root):
    shutil.copytree(root / HOME, root / "212d6b50_DefaultCluster/broker-b")
    assert states(root) == {("tiered-metadata", "unknown"), ("tiered-index", "unknown")}


def test_a_broker_name_in_two_clusters_is_ambiguous(root):
    other = f"{tiered.hash_of('Other')}_Other"
    shutil.copytree(root / "212d6b50_DefaultCluster", root / other)
    assert TieredStore(root).owners == frozenset()
    assert states(root) == {("tiered-metadata", "unknown"), ("tiered-index", "unknown")}


def test_a_full_open_index_file_has_the_magic_of_a_compacted_one_and_chains(root):
    path = root / OPEN
    path.write_bytes(struct.pack(">i", tiered.MAGIC_FULL) + path.read_bytes()[4:])
    assert states(root) == set()


def test_an_index_file_in_the_tier_is_compacted(root):
    path = root / HOME / "rmq_sys_INDEX/0/INDEX" / tiered.segment_name(0)
    path.write_bytes(struct.pack(">i", tiered.MAGIC_OPEN) + path.read_bytes()[4:])
    assert states(root) == {("tiered-index", "error")}


@pytest.mark.parametrize("topic_id", [[0], {"a": 1}, None, True, 1.5, "0", "1e999"], ids=repr)
def test_a_topic_id_that_is_not_a_number_is_no_topic(topic_id, root, metadata):
    edit(metadata, lambda document: document["topicMetadataTable"]["Tier"].update(topicId=topic_id))
    assert states(root) == {("tiered-index", "error")}


@pytest.mark.parametrize(
    ("key", "segments"),
    [
        ("broker-a/Tier/x", {"0": {"size": 1}}),
        ("../Tier/0/..", {"0": {"size": 1}}),
        ("broker-a/../0", {"0": {"size": 1}}),
        ("broker-a/Tier/0", [1]),
        ("broker-a/Tier/0", {"x": {"size": 1}, "-1": {"size": 1}, "5": {"size": "1"}, "6": {"size": -1}, "7": 1}),
        ("broker-a/Tier/0", {"9223372036854775807": {"size": 1 << 63}}),
    ],
)
def test_metadata_without_sense_states_nothing(key, segments, root, metadata):
    edit(metadata, lambda document: document.update(commitLogFileSegmentTable={key: segments}))
    assert states(root) == set()


def test_units_that_no_segment_holds_are_damage_of_their_table(root):
    (path,) = (root / HOME / "Tier/0/CONSUME_QUEUE").iterdir()

    def damage():
        with OpenedTiered(root) as opened:
            return [(one.start, one.end) for one in opened.rows("tiered-unit") if isinstance(one, Damage)]

    assert damage() == []
    with path.open("r+b") as file:
        file.truncate(MESSAGES * 20 - 7)
    assert damage() == [(MESSAGES * 20 - 7, MESSAGES * 20), (MESSAGES * 20 - 20, MESSAGES * 20 - 7)]
    path.unlink()
    assert damage() == [(0, MESSAGES * 20)]


def test_metadata_that_the_system_does_not_let_be_read_is_unknown_whatever_its_backup_says(root, metadata, monkeypatch):
    """The broker, which may run as another user, may be able to read it."""
    metadata.with_name(metadata.name + ".bak").write_bytes(metadata.read_bytes())
    with unreadable(monkeypatch, metadata):
        found = read_metadata(root.parent)
    assert (found.is_read, found.topics) == (False, {})
    assert "Permission denied" in found.problem


def test_of_many_wrong_units_some_are_reported(root, monkeypatch):
    (path,) = (root / HOME / "Tier/0/CONSUME_QUEUE").iterdir()
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 20):
        data[at + 19] ^= 1
    path.write_bytes(data)
    with OpenedTiered(root) as opened:
        assert sum(one.code == "tiered-unit" for one in opened.verify()) == MESSAGES
        monkeypatch.setattr("mqtool.siblings.tiered.verify.MAX", 7)
        assert sum(one.code == "tiered-unit" for one in opened.verify()) == 7


def test_an_export_of_a_tier_tells_of_damage_and_goes_on(root, metadata, tmp_path):
    first, middle, last = split_log(root, 50, 100)
    list_log(metadata, [first, last])
    middle.unlink()
    damage = []
    with OpenedTiered(root) as opened:
        count = arrow.export(opened, tmp_path / "rows.parquet", "tiered-message", damage.append)
    assert (count, [one.kind for one in damage]) == (MESSAGES - 50, ["missing"])


@pytest.mark.parametrize(
    ("keys", "indexed"), [("k  9", ("k", "", "9")), (" k", ("", "k")), ("k ", ("k",)), ("  ", ()), ("", ())]
)
def test_empty_keys_between_blanks_have_entries_of_their_own(keys, indexed):
    message = SimpleNamespace(properties={"KEYS": keys, "UNIQ_KEY": "u"})
    queue = SimpleNamespace(min_log_offset=0, record=lambda offset, size: message)

    def wrong(key):
        item = SimpleNamespace(offset=0, size=100, key_hash=java.index_hash(f"Tier#{key}"))
        return verify._lookup(item, "Tier", queue)

    for key in ("u", "k", "9", "", "other"):
        assert (wrong(key) == "") == (key in (*indexed, "u")), key


@pytest.fixture
def shared(root):
    """A tier of two brokers; the second one's messages have another store time, and no message 149."""
    other = root / "212d6b50_DefaultCluster/broker-b"
    shutil.copytree(root / HOME, other)
    (units,) = (other / "Tier/0/CONSUME_QUEUE").iterdir()
    units.write_bytes(units.read_bytes()[: 149 * 20])
    return root


def log_of(root, broker):
    (path,) = (root / f"212d6b50_DefaultCluster/{broker}/Tier/0/COMMIT_LOG").iterdir()
    return path


def garble(path, position):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes(851))


def got(root, capsys, *addresses):
    code = run(["get", str(root), *addresses, "--format", "jsonl"])
    printed = capsys.readouterr()
    rows = [json.loads(line) for line in printed.out.splitlines()]
    return code, [(row["broker"], row["queue_offset"]) for row in rows if "broker" in row], printed.err


def test_get_prints_the_message_of_each_broker(shared, capsys):
    code, rows, notes = got(shared, capsys, "Tier/0@3", "Tier/0@149")
    assert (code, rows) == (ExitCode.OK, [("broker-a", 3), ("broker-b", 3), ("broker-a", 149)])
    assert notes == "mqtool: Tier/0@3: 2 messages have this address\n"


@pytest.mark.parametrize("broker", ["broker-a", "broker-b"])
def test_get_reports_a_damaged_message_of_one_broker_and_prints_that_of_another(broker, shared, capsys):
    garble(log_of(shared, broker), 3 * 851)
    code, rows, notes = got(shared, capsys, "Tier/0@3")
    (good,) = {"broker-a", "broker-b"} - {broker}
    assert (code, rows) == (ExitCode.NO, [(good, 3)])
    assert notes.startswith(
        f"mqtool: damage: {log_of(shared, broker)} position 2553: no-record at physical offset 2553"
    )
    assert "nothing found" not in notes


def test_get_names_each_damaged_message_if_no_broker_has_a_valid_one(shared, capsys):
    for broker in ("broker-a", "broker-b"):
        garble(log_of(shared, broker), 3 * 851)
    code, rows, notes = got(shared, capsys, "Tier/0@3")
    assert (code, rows, notes.count("\n")) == (ExitCode.NO, [], 1)
    assert notes.startswith("mqtool: Tier/0@3: nothing found: ")
    assert all(str(log_of(shared, broker)) in notes for broker in ("broker-a", "broker-b"))


@pytest.mark.parametrize("part", ["COMMIT_LOG", "CONSUME_QUEUE"])
def test_get_does_not_say_that_a_broker_has_nothing_where_it_cannot_be_read(part, shared, monkeypatch, capsys):
    (path,) = (shared / HOME / "Tier/0" / part).iterdir()
    with unreadable(monkeypatch, path):
        code, rows, notes = got(shared, capsys, "Tier/0@3")
        assert (code, rows) == (ExitCode.NO, [("broker-b", 3)])
        assert f"damage: {path} position " in notes
        assert "unreadable at physical offset" in notes
        code, rows, notes = got(shared, capsys, "Tier/0@149")
        assert (code, rows) == (ExitCode.IO_ERROR, [])
        assert "Permission denied" in notes


def test_get_reports_a_unit_that_a_missing_segment_held(shared, capsys):
    (path,) = (shared / HOME / "Tier/0/CONSUME_QUEUE").iterdir()
    path.unlink()
    code, rows, notes = got(shared, capsys, "Tier/0@3")
    assert (code, rows) == (ExitCode.NO, [("broker-b", 3)])
    assert f"damage: {path} position 0: missing" in notes
    code, rows, notes = got(shared, capsys, "Tier/0@149")
    assert (code, rows) == (ExitCode.NO, [])
    assert "no file covers the range" in notes


@pytest.mark.parametrize(("position", "lost"), [(0, range(5)), (5000, range(4, 10)), (LOG_BYTES - 1, range(149, 150))])
def test_records_around_a_bad_sector_are_read_and_what_it_held_is_unknown(position, lost, root, monkeypatch, tmp_path):
    (path,) = (root / HOME / "Tier/0/COMMIT_LOG").iterdir()
    assert states(root) == set()
    with OpenedTiered(root) as opened:
        every = list(opened.rows("tiered-message"))
    monkeypatch.setattr("mqtool.store.log.readable_parts.PAGE", 512 if position == LOG_BYTES - 1 else 4096)
    with unreadable(monkeypatch, path, from_position=position, until=position + 1):
        with OpenedTiered(root) as opened:
            found = list(opened.rows("tiered-message"))
            codes = [(one.code, one.severity.value) for one in opened.verify()]
        assert run(["export", str(root), "-o", str(tmp_path / "lake")]) == ExitCode.NO
    assert [row for row in found if not isinstance(row, Damage)] == [
        row for row in every if row["queue_offset"] not in lost
    ]
    (damage,) = (row for row in found if isinstance(row, Damage))
    assert (damage.kind, damage.path) == ("unreadable", path)
    assert codes == [("tiered-unreadable", "unknown")]


def test_units_around_a_bad_sector_are_read_and_their_messages_are_not_called_lost(root, monkeypatch):
    (path,) = (root / HOME / "Tier/0/CONSUME_QUEUE").iterdir()
    monkeypatch.setattr("mqtool.store.log.readable_parts.PAGE", 512)
    with unreadable(monkeypatch, path, from_position=600, until=601), OpenedTiered(root) as opened:
        found = list(opened.rows("tiered-unit"))
        codes = [(one.code, one.severity.value) for one in opened.verify()]
    (damage,) = (row for row in found if isinstance(row, Damage))
    assert (damage.kind, damage.start, damage.end, damage.path) == ("unreadable", 500, 1040, path)
    offsets = [row["queue_offset"] for row in found if not isinstance(row, Damage)]
    assert offsets == [*range(25), *range(52, MESSAGES)]
    assert codes == [("tiered-unreadable", "unknown")]
