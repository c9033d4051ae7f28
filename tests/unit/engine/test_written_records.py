"""Dispatch uses records that the writer has noted only where they begin at its own position."""

import numpy as np
import pytest
from msgspec import structs

from mqtool.engine import FlushMode, MessageStore, dispatcher
from mqtool.engine.write import commit_log
from mqtool.engine.write.columns import MessageColumns
from mqtool.formats.commit_log import SysFlag
from tests.support.engine import open_small, tree
from tests.support.native import IS_COMPILED, form

SIZES = {"commit_log_file_size": 1 << 16, "consume_queue_file_size": 2000, "index_slots": 50, "index_entries": 4000}


@pytest.fixture(autouse=True)
def in_use():
    if not IS_COMPILED:
        pytest.skip("needs the extension modules")
    with form(compiled=True):
        yield


@pytest.fixture
def columns_read(monkeypatch):
    """How many records dispatch has found in the log by itself, at each look."""
    read = []
    scan = dispatcher.frames_at

    def scanned(*where):
        chain, frames = scan(*where)
        read.append(len(frames))
        return chain, frames

    monkeypatch.setattr(dispatcher, "frames_at", scanned)
    return read


def columns(count: int, tag: str = "t") -> MessageColumns:
    held = [f"KEYS\1k{number}\2TAGS\1{tag}{number % 3}\2".encode() for number in range(count)]
    return MessageColumns(["T", "U"], np.arange(count) % 2, np.arange(count) % 3, [b"b" * 50] * count, held)


def reference(root, steps) -> dict[str, bytes]:
    """What a store holds whose dispatch knows of nothing."""
    with open_small(root, **SIZES) as store:
        store._components.log.written = None
        steps(store)
        store.dispatch()
    return tree(root / "consumequeue") | tree(root / "index")


def check(in_memory, steps) -> None:
    with open_small(in_memory / "handed", **SIZES) as store:
        steps(store)
        store.dispatch()
        assert store._components.log.written.upcoming(0) is None
    found = tree(in_memory / "handed" / "consumequeue") | tree(in_memory / "handed" / "index")
    assert found == reference(in_memory / "reference", steps)


def test_dispatch_reads_nothing_that_was_handed_over(in_memory, columns_read):
    with open_small(in_memory / "handed", **SIZES) as store:
        for _ in range(3):
            store.put_many(columns(60))
        assert store.dispatch() == 180
        assert store.queue_bounds("T", 2)[1] == 30
    assert columns_read == []


def test_single_puts_between_are_read_and_the_rest_is_taken(in_memory, columns_read):
    def steps(store: MessageStore) -> None:
        for count in (1, 30):
            store.put_many(columns(60))
            for _ in range(count):
                store.put("T", 0, b"x", b"KEYS\1k\2")
        store.put_many(columns(60))

    check(in_memory, steps)
    # the first store reads thirty puts in columns and one by itself; the second one everything
    assert columns_read == [30, 211]


def test_what_is_no_longer_needed_is_forgotten(in_memory):
    def steps(store: MessageStore) -> None:
        store.put_many(columns(60))
        handed, store._components.log.written = store._components.log.written, None
        store.put_many(columns(60))
        store._components.log.written = handed
        store.put_many(columns(60, "ü"))
        store.put_many(columns(10))

    check(in_memory, steps)


def test_the_caller_may_change_its_arrays_after_the_call(in_memory):
    def steps(store: MessageStore) -> None:
        made = structs.replace(columns(60), sys_flag=np.zeros(60, int), flag=np.zeros(60, int))
        store.put_many(made)
        for array in (made.topic, made.queue_id, made.sys_flag, made.flag):
            array[:] = int(SysFlag.TRANSACTION_PREPARED)

    check(in_memory, steps)


def test_no_more_is_kept_than_was_set(in_memory, monkeypatch):
    monkeypatch.setattr(commit_log, "MAX_WRITTEN", 100)
    check(in_memory, lambda store: [store.put_many(columns(60)) for _ in range(5)])


def test_what_is_not_on_disk_is_not_taken_with_sync_flush(in_memory, monkeypatch):
    with open_small(in_memory / "store", **SIZES, flush_mode=FlushMode.SYNC_FLUSH) as store:
        assert store.put_many(columns(60)).ok
        monkeypatch.setattr(type(store._components.loop), "end", property(lambda _loop: 0))
        assert store.dispatch() == 0
        monkeypatch.undo()
        assert store.dispatch() == 60
