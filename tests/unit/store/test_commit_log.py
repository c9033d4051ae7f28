"""The CommitLog of a store: segments as one address space, bounds, what lies in no file, records inside bodies."""

import os
import threading
import tracemalloc
from pathlib import Path

import pytest

import mqtool
from mqtool.errors import CorruptionError, StoreClosedError, UnreadableError
from mqtool.formats import commit_log
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT, ConsumeQueueUnit
from mqtool.records.damage import Damage
from mqtool.store import Message
from mqtool.verify import State, verify
from tests.support.builder import StoreBuilder, encode
from tests.support.unreadable import unlistable, unreadable

SIZE = 1 << 14


def built(root, count=500, **changes):
    """A store of some segments."""
    builder = StoreBuilder(segment_size=SIZE, **changes)
    for number in range(count):
        builder.put(b"message %d" % number, topic=f"T{number % 3}", queue_id=number % 2, keys=f"k{number}")
    builder.write(root)
    return builder


def read(store, **wanted):
    items = list(store.messages(**wanted))
    messages = [item.physical_offset for item in items if isinstance(item, Message)]
    return messages, [(item.start, item.end, str(item.kind)) for item in items if isinstance(item, Damage)]


@pytest.mark.parametrize("base", [0, SIZE * 1000])
def test_bounds_and_messages_of_a_log_over_several_segments(base, tmp_path):
    builder = built(tmp_path / "store", base=base)
    with mqtool.open(tmp_path / "store") as store:
        log = store.commit_log
        assert len(log.segments) > 3
        assert (log.min_offset, log.max_offset, log.tail.kind) == (base, builder.end, "clean")
        assert read(store) == ([put.physical_offset for put in builder.puts], [])


def test_segments_over_several_directories_are_one_log(tmp_path):
    root = tmp_path / "store"
    builder = built(root)
    for number, segment in enumerate(sorted((root / "commitlog").iterdir())):
        home = root / f"disk{number % 3}"
        home.mkdir(exist_ok=True)
        segment.rename(home / segment.name)
    (root / "commitlog").rmdir()
    with mqtool.open(root) as store:
        assert [path.name for path in store.layout.commit_log_dirs] == ["disk0", "disk1", "disk2"]
        assert read(store) == ([put.physical_offset for put in builder.puts], [])
    config = {"storePathCommitLog": f"{root}/disk0,{root}/disk2"}
    with mqtool.open(root, config) as store:
        assert [start for start, _, kind in read(store)[1] if kind == "missing"] == [SIZE]


@pytest.mark.parametrize("named", ["absolute", "relative", "link"])
@pytest.mark.parametrize("root", ["absolute", "relative", "link"])
def test_a_configured_directory_of_the_log_is_below_the_root_however_both_are_named(root, named, tmp_path, monkeypatch):
    """`cd /data; mqtool verify store --config broker.conf`: findings name files relative to the root."""
    builder = built(tmp_path / "store")
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    roots = {"absolute": tmp_path / "store", "relative": Path("store"), "link": tmp_path / "link" / "store"}
    sizes = f"mappedFileSizeCommitLog={SIZE}\nmappedFileSizeConsumeQueue={builder.queue_file_units * 20}\n"
    sizes += f"maxHashSlotNum={builder.slots}\nmaxIndexNum={builder.entries}\n"
    Path("broker.conf").write_text(f"{sizes}storePathCommitLog={roots[named] / 'commitlog'}\n")
    with mqtool.open(roots[root], Path("broker.conf")) as store:
        assert store.layout.commit_log_dirs == (roots[root] / "commitlog",)
        assert read(store) == ([put.physical_offset for put in builder.puts], [])
        assert verify(store).state is not State.CORRUPT


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_segment_that_is_gone_is_missing_with_its_exact_range(number, tmp_path):
    builder = built(tmp_path / "store")
    (tmp_path / f"store/commitlog/{number * SIZE:020}").unlink()
    gone = range(number * SIZE, number * SIZE + SIZE)
    with mqtool.open(tmp_path / "store") as store:
        messages, damage = read(store)
        assert messages == [put.physical_offset for put in builder.puts if put.physical_offset not in gone]
        assert damage == ([(gone.start, gone.stop, "missing")] if number else [])
        assert store.commit_log.min_offset == (0 if number else SIZE)
        with pytest.raises(CorruptionError, match=f"physical offset {gone.start}: no record"):
            store.message_at(gone.start)


def test_a_gap_is_reported_only_on_request(tmp_path):
    built(tmp_path / "store")
    (tmp_path / f"store/commitlog/{SIZE:020}").unlink()
    with mqtool.open(tmp_path / "store") as store:
        assert read(store, end=SIZE)[1] == []
        assert read(store, start=2 * SIZE)[1] == []
        assert read(store, start=SIZE + 5, end=SIZE + 6)[1] == []  # no segment of this range is there to be walked
        assert read(store, start=SIZE - 200, end=2 * SIZE + 1)[1] == [(SIZE, 2 * SIZE, "missing")]


def test_a_short_segment_in_the_middle_lacks_its_rest(tmp_path):
    builder = built(tmp_path / "store")
    first = [put for put in builder.puts if put.physical_offset < SIZE]
    cut = first[-1].physical_offset + 50
    os.truncate(tmp_path / f"store/commitlog/{0:020}", cut)
    with mqtool.open(tmp_path / "store") as store:
        messages, damage = read(store)
    assert messages == [put.physical_offset for put in builder.puts if put is not first[-1]]
    assert damage == [(first[-1].physical_offset, cut, "missing"), (cut, SIZE, "missing")]


def test_a_segment_that_is_too_long_ends_where_the_next_begins(tmp_path):
    builder = built(tmp_path / "store")
    with (tmp_path / f"store/commitlog/{0:020}").open("ab") as file:
        file.write(bytes(4096))
    with mqtool.open(tmp_path / "store") as store:
        assert read(store) == ([put.physical_offset for put in builder.puts], [])


def test_of_two_files_for_one_segment_the_first_counts(tmp_path):
    root = tmp_path / "store"
    builder = built(root)
    (root / "other").mkdir()
    (root / f"other/{0:020}").write_bytes((root / f"commitlog/{0:020}").read_bytes())
    with mqtool.open(root) as store:
        assert len(store.layout.commit_log_dirs) == 2
        assert read(store) == ([put.physical_offset for put in builder.puts], [])


def test_a_next_segment_that_is_empty_still_is_not_the_end(tmp_path):
    builder = built(tmp_path / "store")
    (tmp_path / f"store/commitlog/{max(builder.segments) + SIZE:020}").write_bytes(bytes(SIZE))
    with mqtool.open(tmp_path / "store") as store:
        assert store.commit_log.max_offset == builder.end
        assert read(store) == ([put.physical_offset for put in builder.puts], [])


def test_a_sparse_segment_is_read_like_a_full_one(tmp_path):
    builder = StoreBuilder(segment_size=SIZE)
    for number in range(20):
        builder.put(b"message %d" % number)
    builder.write(tmp_path / "store")
    os.truncate(tmp_path / f"store/commitlog/{0:020}", 1 << 40)
    with mqtool.open(tmp_path / "store") as store:
        assert store.commit_log.max_offset == builder.end
        assert read(store) == ([put.physical_offset for put in builder.puts], [])


@pytest.mark.parametrize("step", [1, 7, 50])
def test_a_range_gives_the_messages_that_begin_in_it(step, tmp_path):
    builder = built(tmp_path / "store", count=200)
    offsets = [put.physical_offset for put in builder.puts]
    with mqtool.open(tmp_path / "store") as store:
        for start in range(0, builder.end + 10, 997):
            end = start + step * 131
            assert read(store, start=start, end=end) == ([at for at in offsets if start <= at < end], [])


def test_only_so_many_files_are_open_and_a_walk_outlives_it(tmp_path, monkeypatch):
    monkeypatch.setattr("mqtool.store.log.commit_log.OPEN_FILES", 1)
    builder = built(tmp_path / "store", count=800)
    with mqtool.open(tmp_path / "store") as store:
        found = []
        for message in store.messages():
            found.append(message.physical_offset)
            other = builder.puts[len(builder.puts) - len(found)]
            assert store.message_at(other.physical_offset).physical_offset == other.physical_offset
        assert found == [put.physical_offset for put in builder.puts]


def test_nothing_is_read_after_close(tmp_path):
    built(tmp_path / "store")
    store = mqtool.open(tmp_path / "store")
    walk = store.messages()
    next(walk)
    store.close()
    for use in (lambda: list(store.messages()), lambda: store.message_at(0), store.to_arrow):
        with pytest.raises(StoreClosedError):
            use()


# --- records inside bodies -------------------------------------------------------------------------------------------


def with_forged_record(root, *, queues=True):
    """A store in which one body holds a whole record of a topic and queue that are there."""
    builder = StoreBuilder(segment_size=SIZE)
    for number in range(5):
        builder.put(b"message %d" % number)
    at = builder.end + 88 + 10
    outer = builder.put(b"x" * 10 + encode(at, b"forged", queue_offset=3) + b"y" * 10)
    for number in range(5):
        builder.put(b"more %d" % number)
    builder.write(root, queues=queues)
    return builder, outer, at


@pytest.mark.parametrize("queues", [True, False])
def test_a_record_in_a_body_is_no_message(queues, tmp_path):
    builder, outer, at = with_forged_record(tmp_path / "store", queues=queues)
    with mqtool.open(tmp_path / "store") as store:
        with pytest.raises(CorruptionError, match=f"inside the record at physical offset {outer.physical_offset}"):
            store.message_at(at)
        for put in builder.puts:
            assert store.message_at(put.physical_offset).store_size == put.size


@pytest.mark.parametrize("queues", [True, False])
def test_a_range_that_begins_at_a_record_in_a_body_begins_behind_it(queues, tmp_path):
    builder, _, at = with_forged_record(tmp_path / "store", queues=queues)
    with mqtool.open(tmp_path / "store") as store:
        assert read(store, start=at)[0] == [put.physical_offset for put in builder.puts if put.physical_offset > at]


def test_a_unit_that_leads_into_a_body_makes_no_message(tmp_path):
    builder, _, at = with_forged_record(tmp_path / "store")
    path = tmp_path / f"store/consumequeue/Topic/0/{0:020}"
    unit = CONSUME_QUEUE_UNIT.build(ConsumeQueueUnit(at, 1 << 29, 0))
    path.write_bytes(path.read_bytes()[: 20 * 11] + unit + path.read_bytes()[20 * 12 :])
    with mqtool.open(tmp_path / "store") as store:
        assert read(store)[0] == [put.physical_offset for put in builder.puts]


def test_a_hostile_size_in_a_unit_allocates_nothing(tmp_path):
    root = tmp_path / "store"
    builder = built(root, count=5)
    os.truncate(root / f"commitlog/{0:020}", 1 << 31)
    path = root / f"consumequeue/T0/0/{0:020}"
    path.write_bytes(CONSUME_QUEUE_UNIT.build(ConsumeQueueUnit(0, (1 << 31) - 2, 0)) + path.read_bytes()[20:])
    with mqtool.open(root) as store:
        tracemalloc.start()
        record = store.commit_log.record(0, (1 << 31) - 2)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert record.total_size == builder.puts[0].size
    assert peak < 1 << 20


@pytest.mark.long
@pytest.mark.parametrize("total", [-(1 << 31), -1, 0, 1, 90, 1 << 30, (1 << 31) - 1])
def test_a_hostile_total_size_is_no_record_and_allocates_nothing(total, tmp_path):
    root = tmp_path / "store"
    built(root, count=5)
    path = root / f"commitlog/{0:020}"
    data = path.read_bytes()
    path.write_bytes(total.to_bytes(4, signed=True) + data[4:])
    os.truncate(path, 1 << 31)
    with mqtool.open(root) as store:
        tracemalloc.start()
        with pytest.raises(CorruptionError, match="physical offset 0: no record"):
            store.message_at(0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1 << 20


# --- beside a writer -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_messages_are_read_while_others_are_appended(tmp_path):
    builder = StoreBuilder(segment_size=1 << 20)
    for number in range(4000):
        builder.put(b"message %d" % number)
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    offsets = [put.physical_offset for put in builder.puts]
    path = root / f"commitlog/{0:020}"
    path.write_bytes(bytes(1 << 20))
    done = threading.Event()

    def append():
        with path.open("r+b", buffering=0) as file:
            for put in builder.puts:
                file.write(put.data[:60])
                file.write(put.data[60:])
        done.set()

    writer = threading.Thread(target=append)
    writer.start()
    counts = [0]
    while not done.is_set():
        with mqtool.open(root) as store:
            messages, damage = read(store)
        assert damage == []
        assert messages == offsets[: len(messages)]
        assert len(messages) >= counts[-1]
        counts.append(len(messages))
    writer.join()
    with mqtool.open(root) as store:
        assert read(store) == (offsets, [])


@pytest.mark.parametrize("changes", [{}, {"body_crc": 1}], ids=["proves itself", "is damage too"])
def test_a_record_in_the_body_of_a_damaged_one_can_be_read_by_its_offset(changes, tmp_path):
    builder = StoreBuilder()
    builder.put(b"first")
    start = builder.end + commit_log.BODY_POSITIONS[0] + 1
    put = builder.put(b"<" + encode(start, b"inner", **changes) + b">" * 50)
    builder.put(b"last")
    path = builder.write(tmp_path / "store", queues=False, index=False)
    with (
        mqtool.open(path) as store,
        pytest.raises(CorruptionError, match=f"inside the record at physical offset {put.physical_offset}"),
    ):
        store.commit_log.record_at(start)
    with (path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(put.physical_offset + 4)
        file.write(bytes(4))
    with mqtool.open(path) as store:
        assert store.commit_log.record_at(start).body == b"inner"
        assert [message.body for message in store.messages() if not isinstance(message, Damage)] == [b"first", b"last"]


@pytest.mark.parametrize("ask", ["accept_unreadable_end", "skip_unreadable"])
def test_a_closed_store_is_not_taken_for_an_unreadable_one(ask, tmp_path):
    built(tmp_path / "store", count=5)
    (tmp_path / "store" / "abort").touch()
    store = mqtool.open(tmp_path / "store")
    assert store.commit_log.max_offset
    store.close()
    if ask == "accept_unreadable_end":
        del store.commit_log._end
    with pytest.raises(StoreClosedError):
        getattr(store.commit_log if ask == "accept_unreadable_end" else store, ask)()


def test_the_end_of_the_log_is_found_without_queues_that_cannot_be_listed(tmp_path, monkeypatch):
    builder = built(tmp_path / "store")
    with mqtool.open(tmp_path / "store") as store:
        assert max(store.newest_records()) == builder.puts[-1].physical_offset
    with mqtool.open(tmp_path / "store") as store, unlistable(monkeypatch, tmp_path / "store/consumequeue"):
        assert store.newest_records() == []
        assert store.commit_log.max_offset == builder.end


@pytest.fixture(params=["body", "property"])
def partly_read(request, tmp_path, monkeypatch):
    """A store whose second message has a body, or a property, with a bad sector in it: nothing else of it is lost."""
    builder, long = StoreBuilder(segment_size=SIZE), "y" * 12_000
    builder.put(b"first")
    bad = (
        builder.put(long.encode())
        if request.param == "body"
        else builder.put(b"second", properties=f"long\1{long}\2".encode())
    )
    for number in range(100):
        builder.put(b"%d" % number)
    root = builder.write(tmp_path / "store")
    with unreadable(monkeypatch, root / "commitlog" / f"{0:020}", from_position=5000, until=5512):
        yield root, bad.physical_offset, builder


def test_a_record_with_unread_bytes_is_damage_and_never_a_message_with_zeros(partly_read):
    root, bad, builder = partly_read
    others = [put.physical_offset for put in builder.puts if put.physical_offset != bad]
    for crc in (True, False):
        with mqtool.open(root) as store:
            store.skip_unreadable()
            items = list(store.commit_log.walk(crc=crc))
            found = [at for one in items if not isinstance(one, Damage) for at in (one.positions + one.base).tolist()]
            damage = [(one.start, one.kind) for one in items if isinstance(one, Damage)]
            assert (found, damage) == (others, [(bad, "unreadable")])


def test_a_record_with_unread_bytes_is_unreadable_where_it_is_asked_for(partly_read):
    root, bad, _ = partly_read
    with mqtool.open(root) as store:
        store.skip_unreadable()
        with pytest.raises(UnreadableError, match="Input/output error"):
            store.commit_log.record(bad)
        found = store.get_message("Topic", 0, 0)
        assert [(one.start, one.kind) for one in found.damage] == [(bad, "unreadable")]
        assert [one.body for one in found.messages[:2]] == [b"first", b"0"]
