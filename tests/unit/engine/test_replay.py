"""Real stores put through the engine again, at the same times, from the same hosts: the same bytes come out.

Compared are CommitLog, ConsumeQueue with its extension, BatchConsumeQueue and Index, whole. What may differ: the
names of index files, which are the clock's when a file was made. Left out: stores whose log is no CommitLog (DLedger),
queues in RocksDB, a compacted topic and a tiered copy, which the engine does not write.
"""

import shutil

import pytest

import mqtool
from mqtool.engine import AppendStatus, PutStatus, open_store
from mqtool.engine import dispatcher as dispatch
from mqtool.formats import hosts, properties
from mqtool.store import layout
from mqtool.store.config import broker_config
from mqtool.store.queues.filter_bit_maps import bit_maps_of
from tests.support.engine import HeldClock, open_small, options_of, replay, tree
from tests.support.stores import STORES, acks, copy_store

NOT_OURS = ("dledger", "rocksdb", "tieredstore", "compaction", "equeue", "tfchunk")
HEALTHY = [s for s in STORES if s.clean_stop and s.config.is_file() and not s.name.startswith((*NOT_OURS, "oversize"))]


def parts_of(store, directories):
    """The compared files by part and name; those of the index by their place."""
    found = {}
    for directory in directories:
        found.update({("commitlog", name): data for name, data in tree(directory).items() if name.isdigit()})
    for part in ("consumequeue", "consumequeue_ext", "batchconsumequeue"):
        found.update({(part, name): data for name, data in tree(store / part).items()})
    indexes = tree(store / "index")
    found.update({("index", number): indexes[name] for number, name in enumerate(sorted(indexes))})
    return found


def different(ours, theirs):
    """Which files are missing or differ, and where."""
    found = []
    for name in sorted(ours.keys() | theirs.keys(), key=str):
        left, right = ours.get(name), theirs.get(name)
        if left is None or right is None or len(left) != len(right):
            found.append((name, "length", left and len(left), right and len(right)))
        elif left != right:
            found.append((name, next(i for i, (a, b) in enumerate(zip(left, right, strict=True)) if a != b)))
    return found


@pytest.mark.long
@pytest.mark.parametrize("in_columns", [True, False], ids=["in columns", "one by one"])
@pytest.mark.parametrize("fixture", HEALTHY, ids=str)
def test_a_replayed_store_is_byte_identical(fixture, in_columns, tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "FEWEST_IN_COLUMNS", 1 if in_columns else 1 << 30)
    source = fixture.directory or copy_store(fixture.name, tmp_path / "source")
    directories = layout.detect(source, broker_config.load(fixture.config)).commit_log_dirs
    (tmp_path / "new" / "config").mkdir(parents=True)
    if (source / "config" / "topics.json").is_file():  # tells which queues are BatchCQ
        shutil.copy(source / "config" / "topics.json", tmp_path / "new" / "config")
    clock, options = HeldClock(), options_of(fixture.config, fixture.version)
    with mqtool.open(source, config=fixture.config) as read:
        bit_maps = bit_maps_of(read)
    assert bit_maps.problems == []
    assert bit_maps.filters or not options.consume_queue_ext

    def bit_map_of(request):
        encoded = properties.encode(request.properties.items())
        return bit_maps(request.topic, [encoded], [request.store_timestamp])[0]

    with open_store(tmp_path / "new", options, clock=clock, background=False, bit_map_of=bit_map_of) as store:
        assert replay(store, clock, list(directories)) > 0
    ours, theirs = parts_of(tmp_path / "new", [tmp_path / "new" / "commitlog"]), parts_of(source, directories)
    assert different(ours, theirs) == []


def test_a_record_longer_than_a_file_leaves_two_blank_files_if_asked_to(tmp_path):
    [fixture] = [s for s in STORES if s.name == "oversize-5.5.0"]
    clock = HeldClock()
    with open_small(tmp_path / "store", clock, refuse_oversize=False) as store:
        for line in acks("oversize-5.5.0"):
            clock.time = line["storeTimestamp"]
            body = {"before": b"before", "after": b"after"}.get(line["note"], b"x" * line["length"])
            if line["note"].startswith("more"):
                body = b"y" * line["length"]
            result = store.put(
                "Roll",
                0,
                body,
                f"KEYS\x01{line['note']}\x02".encode(),
                0,
                0,
                1_700_000_000_100,
                hosts.build(hosts.parse_text("127.0.0.1:54321")),
                hosts.build(hosts.parse_text("192.168.1.10:10911")),
            )
            assert (result.status.name, result.append_status.name) == (line["put"], line["append"])
            assert (result.physical_offset, result.size) == (line["physicalOffset"], line["bytes"])
    assert (
        different(
            parts_of(tmp_path / "store", [tmp_path / "store" / "commitlog"]),
            parts_of(fixture.directory, [fixture.directory / "commitlog"]),
        )
        == []
    )


def test_a_record_longer_than_a_file_is_refused_otherwise(tmp_path):
    with open_small(tmp_path / "store") as store:
        result = store.put("Roll", 0, b"x" * 4097)
        assert (result.status, result.append_status, result.ok) == (PutStatus.MESSAGE_ILLEGAL, None, False)
        assert store.put("Roll", 0, b"fits").append_status is AppendStatus.PUT_OK
    assert len(tree(tmp_path / "store" / "commitlog")) == 1
