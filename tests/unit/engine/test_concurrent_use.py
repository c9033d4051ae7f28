"""What two threads do at once: each test does the second thing in the middle of the first, at the place that matters."""

import json
import os

import numpy as np
import pytest

from mqtool.engine import Compat, FlushMode, GetStatus, PutStatus, open_store
from mqtool.engine.disk.files import ClosedFileError, File, Files
from mqtool.engine.disk.mapped_files import MappedFileQueue
from mqtool.engine.retention.rules import RetentionPolicy
from mqtool.engine.statuses import RunningFlag
from mqtool.engine.write.columns import MessageColumns
from mqtool.engine.write.messages import BatchMessage
from mqtool.errors import StoreClosedError
from mqtool.formats import commit_log, java
from mqtool.store.queues import by_time
from mqtool.store.queues.by_time import Boundary
from tests.support.native import IS_COMPILED, form

SLOW = b"INNER_x\x01y\x02"
"""Properties that no compiled function takes."""

FORGOTTEN = ("queue-missing", "queue-missing-units")
AT_ANY_HOUR = RetentionPolicy(delete_hours=tuple(range(24)), file_interval_ms=0)


class Before:
    """A lock before which something else happens once."""

    def __init__(self, lock, action):
        self._lock = lock
        self._action = action

    def __enter__(self):
        action, self._action = self._action, None
        if action is not None:
            action()
        self._lock.acquire()

    def __exit__(self, *_error):
        self._lock.release()

    def locked(self):
        return self._lock.locked()


def before_append(store, action):
    """Does something when a put has passed its checks and waits for the append lock."""
    store._log.lock = Before(store._log.lock, action)


def columns(count):
    return MessageColumns(["T"], np.zeros(count, np.int64), 0, [b"late"] * count)


PUTS = {
    "put": lambda store: store.put("T", 0, b"late", SLOW),
    "put_batch": lambda store: store.put_batch("T", 0, [BatchMessage(b"late")] * 2, b"A\x01b\x02"),
    "put_many": lambda store: store.put_many(columns(2)),
}


@pytest.fixture
def compiled():
    if not IS_COMPILED:
        pytest.skip("needs the extension modules")
    with form(compiled=True):
        yield


@pytest.fixture(params=PUTS)
def put(request):
    if request.param == "put_many":
        request.getfixturevalue("compiled")
    return PUTS[request.param]


def bodies(store, topic="T", queue_id=0):
    records = store.get_message(topic, queue_id, store.queue_bounds(topic, queue_id)[0]).records
    return [commit_log.parse_record(one).body for one in records]


def test_a_put_that_waits_while_its_topic_is_deleted_goes_to_the_new_queue(opened, put):
    store = opened(declared=FORGOTTEN)
    for _ in range(5):
        store.put("T", 0, b"old")
    before_append(store, lambda: store.delete_topic("T"))
    assert put(store).status is PutStatus.PUT_OK
    for _ in range(3):
        assert store.put("T", 0, b"new").ok
    store.dispatch()
    assert store.queue_bounds("T", 0)[0] == 0
    assert bodies(store) == [b"late"] * (store.queue_bounds("T", 0)[1] - 3) + [b"new"] * 3


def test_a_put_that_waits_while_the_store_is_closed_is_refused(opened, clock, put):
    store = opened()
    end = store.put("T", 0, b"first").end
    before_append(store, store.close)
    assert put(store).status is PutStatus.SERVICE_NOT_AVAILABLE
    with open_store(store.path, store.options, clock=clock, background=False) as again:
        assert again.recovered.clean_stop
        assert again.max_physical_offset == end


@pytest.mark.parametrize("use", ["delete_topic", "delete_expired_queues", "add_batch_topic"])
def test_a_deletion_that_waits_while_the_store_is_closed_is_refused(opened, use):
    store = opened()
    store.put("T", 0, b"x")
    before_append(store, store.close)
    with pytest.raises(StoreClosedError):
        getattr(store, use)(*["T"] * (use != "delete_expired_queues"))
    assert (store.path / "consumequeue" / "T" / "0").exists()


def test_a_run_of_retention_that_begins_while_the_store_is_closed_deletes_nothing(old):
    store = old()
    cleaner = store._components.cleaner
    cleaner._running = Before(cleaner._running, store.close)
    assert store.clean() == []


@pytest.mark.usefixtures("compiled")
def test_columns_that_take_several_writes_are_refused_from_the_next_write_on(opened):
    store, flag = opened(), RunningFlag.DISK_FULL
    store.put("T", 0, b"x")
    store._log.before_roll = lambda: store._flags.set(flag)
    found = store.put_many(columns(100))
    assert found.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert 0 < len(found.physical_offsets) < 100
    assert found.end == store._log.queue.wrote_offset
    store._flags.clear(flag)


# -- retention


@pytest.fixture
def old(opened, clock, in_memory):
    """A store of which all segments but the last have expired: queue 0 of a topic in several files, another after it."""
    config = in_memory / "store" / "config"
    config.mkdir(parents=True)
    topics = {"T": {"topicName": "T"}, "After": {"topicName": "After"}}
    topics["B"] = {"topicName": "B", "attributes": {"queue.type": "BatchCQ"}}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))

    def fill(*, topic="T", **more):
        store = opened(policy=AT_ANY_HOUR, declared=FORGOTTEN, **more)
        for number in range(60):
            clock.time += 1
            store.put(topic, 0, b"old", b"KEYS\x01k%d\x02" % number)
        for _ in range(10):
            store.put("After", 0, b"x" * 2000)
        store.dispatch()
        store.flush()
        for path in sorted((store.path / "commitlog").iterdir())[:-1]:
            os.utime(path, (1, 1))
        return store

    return fill


@pytest.mark.parametrize("topic", ["T", "B"])
def test_a_run_of_retention_spares_the_queue_that_follows_a_deleted_one(old, clock, monkeypatch, topic):
    store = old(topic=topic)
    queue, plain = store._components.queues.get(topic, 0), MappedFileQueue.delete

    def delete(files, file, *rest):
        if files is queue.files and file is files.files[0]:
            monkeypatch.setattr(MappedFileQueue, "delete", plain)
            store.delete_topic(topic)
            for _ in range(5):
                assert store.put(topic, 0, b"new").ok
            store.dispatch()
        return plain(files, file, *rest)

    monkeypatch.setattr(MappedFileQueue, "delete", delete)
    assert store.clean()
    assert (store.queue_bounds(topic, 0), bodies(store, topic)) == ((0, 5), [b"new"] * 5)
    store.close()
    again = open_store(store.path, store.options, clock=clock, background=False)
    assert (again.queue_bounds(topic, 0), bodies(again, topic)) == ((0, 5), [b"new"] * 5)
    again.close()


@pytest.mark.parametrize("topic", ["T", "B"])
def test_a_reader_that_meets_a_deleted_file_of_a_queue_finds_no_message(old, monkeypatch, topic):
    store = old(topic=topic)
    queue = store._components.queues.get(topic, 0)
    files = queue.files.files
    monkeypatch.setattr(queue.files, "find", lambda _offset: files[0])
    assert store.clean()
    queue.files.files, queue.min_offset = files, 0
    assert store.get_message(topic, 0, 0).status is GetStatus.OFFSET_FOUND_NULL
    queue.files.files = files[-1:]


def test_a_reader_that_meets_a_deleted_segment_finds_no_message(old, monkeypatch):
    store = old()
    log = store._components.log.queue
    first = log.files[0]
    assert store.clean()
    monkeypatch.setattr(log, "find", lambda _offset: first)
    first.available = True  # the reader looked at it before
    assert store.message_at(0) is None
    assert store._components.log.read(0, 100) is None
    first.available = False


@pytest.mark.parametrize("compat", [Compat.V4_9, Compat.V5_5])
@pytest.mark.parametrize("boundary", [Boundary.LOWER, Boundary.UPPER])
def test_a_search_by_time_during_a_run_of_retention_finds_what_is_left(old, clock, monkeypatch, compat, boundary):
    store, plain = old(compat=compat), by_time.offset_in_queue_by_time

    def search(*arguments, **named):
        store.clean()
        return plain(*arguments, **named)

    monkeypatch.setattr(by_time, "offset_in_queue_by_time", search)
    found = store.offset_in_queue_by_time("T", 0, clock.time, boundary)
    low, high = store.queue_bounds("T", 0)
    assert 0 < low == high
    assert 0 <= found <= high


def test_a_query_that_meets_a_deleted_index_file_reads_it_to_the_end(old):
    store = old()
    oldest = store._components.index.files[0]
    header, found = oldest.header, store.query_message("T", "k3").physical_offsets
    assert store.clean()
    assert oldest not in store._components.index.files
    assert not oldest.file.path.exists()
    times = header.begin_timestamp, header.end_timestamp
    assert oldest.lookup(java.index_hash("T#k3"), *times, 32) == found


def test_an_index_file_that_is_deleted_during_a_flush_is_no_error(old, monkeypatch):
    store = old()
    store.put("T", 0, b"x", b"KEYS\x01last\x02")
    store.dispatch()
    oldest, plain = store._components.index.files[0], File.sync

    def sync(file):
        if file is oldest.file:
            store.clean()
        plain(file)

    monkeypatch.setattr(File, "sync", sync)
    store.flush()
    assert not oldest.file.path.exists()


def test_dispatch_that_meets_a_deleted_segment_goes_on_behind_it(opened, monkeypatch):
    store = opened(policy=AT_ANY_HOUR, index=False)
    for _ in range(8):
        store.put("T", 0, b"x" * 1000)
    log = store._components.log.queue
    first, plain = log.files[0], MappedFileQueue.find
    os.utime(first.file.path, (1, 1))

    def find(queue, offset):
        file = plain(queue, offset)
        if queue is log and file is first:
            store.clean()
        return file

    monkeypatch.setattr(MappedFileQueue, "find", find)
    assert store.dispatch() == 5
    assert store.dispatch_behind == 0


def test_a_flush_that_meets_a_deleted_segment_does_not_stop_the_store(opened, monkeypatch):
    """DefaultMappedFile.flush (5.5.0) takes it for flushed."""

    class Full(Files):
        def used_ratio(self, path):
            return 0.87

    store = opened(policy=AT_ANY_HOUR, files=Full(), flush_mode=FlushMode.ASYNC_FLUSH)
    for _ in range(8):
        store.put("T", 0, b"x" * 1000)
    store.dispatch()
    first, plain = store._components.log.queue.files[0], File.sync

    def sync(file):
        if file is first.file and first.available:
            assert first.file.path in store.clean()
        plain(file)

    monkeypatch.setattr(File, "sync", sync)
    assert store.flush() == store.max_physical_offset
    assert store.put("T", 0, b"x").ok


# -- flush


def test_a_unit_that_is_dispatched_during_a_flush_is_flushed_by_the_next(opened, monkeypatch):
    store, plain = opened(), MappedFileQueue.wrote_offset
    store.put("T", 0, b"one")
    store.dispatch()
    store.put("T", 0, b"two")
    queue = store._components.queues.get("T", 0)

    def wrote_offset(files):
        found = plain.fget(files)
        if files is queue.files and found == 20 and store.dispatch_behind:
            store.dispatch()
        return found

    monkeypatch.setattr(MappedFileQueue, "wrote_offset", property(wrote_offset))
    queue.flush()
    monkeypatch.setattr(MappedFileQueue, "wrote_offset", plain)
    assert queue.max_offset == 2
    queue.flush()
    assert queue.files.flushed_offset == 40


@pytest.mark.parametrize("part", ["consumequeue", "consumequeue_ext", "batchconsumequeue"])
def test_a_unit_that_is_dispatched_while_its_file_is_synced_is_flushed_by_the_next(opened, monkeypatch, part):
    store = opened(consume_queue_ext=part == "consumequeue_ext", bit_map_of=lambda _request: b"\1")
    if part == "batchconsumequeue":
        store.add_batch_topic("T")
    store.put("T", 0, b"one")
    store.dispatch()
    store.put("T", 0, b"two")
    plain = File.sync

    def sync(file):
        plain(file)
        if part in file.path.parts and store.dispatch_behind:
            store.dispatch()

    monkeypatch.setattr(File, "sync", sync)
    queue = store._components.queues.get("T", 0)
    files = queue.ext.files if part == "consumequeue_ext" else queue.files
    before = files.wrote_offset
    queue.flush()
    assert (files.flushed_offset, files.wrote_offset > before) == (before, True)
    queue.flush()
    assert files.flushed_offset == files.wrote_offset


def test_a_store_that_is_closed_answers_no_use_of_its_files(opened):
    store = opened()
    store.put("T", 0, b"x")
    store.dispatch()
    queue = store._components.queues.get("T", 0)
    store.close()
    assert queue.read(0, 1) == b""
    with pytest.raises(ClosedFileError):
        queue.put(1, 200, 100, 0)
    assert store._components.log.read(0, 20) is None
