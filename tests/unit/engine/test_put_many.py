"""Columns of messages make the same records, units and index entries as so many puts."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqtool import native
from mqtool.engine import FlushMode, PutStatus
from mqtool.engine.options import StoreOptions
from mqtool.engine.write import columns
from mqtool.engine.write.columns import MessageColumns
from mqtool.engine.write.messages import delay_message
from mqtool.formats import properties
from tests.support.engine import HeldClock, open_small, tree
from tests.support.engine_faults import NO_SPACE, FailingFiles, fast_directory, remove

pytestmark = pytest.mark.usefixtures("either_way")

TOPICS = ["A", "Orders", "%RETRY%" + "g" * 121]


def messages():
    one = st.tuples(
        st.integers(0, 2),
        st.integers(0, 2),
        st.binary(max_size=300),
        st.sampled_from([None, "k1", "k2 k3"]),
        st.sampled_from([None, "TagA"]),
        st.integers(-5, 5),
        st.sampled_from([0, 1, 2, 0x301]),
    )
    return st.lists(one, min_size=1, max_size=60)


def encode(key, tag):
    return properties.encode([pair for pair in (("KEYS", key), ("TAGS", tag)) if pair[1]])


def arrow_of(values):
    """An array with an offset into its buffers, as slices of a table have."""
    return pa.array([b"before", *values], pa.binary())[1:]


def columns_of(found, *, arrow=False):
    values = arrow_of if arrow else list
    topic, queue_id, bodies, keys, tags, flag, sys_flag = zip(*found, strict=True)
    return MessageColumns(
        TOPICS,
        np.array(topic),
        np.array(queue_id),
        values(bodies),
        values([encode(*pair) for pair in zip(keys, tags, strict=True)]),
        np.array(flag),
        np.array(sys_flag),
        np.arange(len(found)),
        reconsume_times=3,
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(messages(), messages(), st.sampled_from([0, 2]), st.booleans())
def test_columns_leave_the_same_bytes_as_puts(first, second, pool, arrow):
    root = fast_directory()
    clock = HeldClock()
    with (
        open_small(root / "many", clock, pool_buffers=pool) as many,
        open_small(root / "each", clock, pool_buffers=pool) as each,
    ):
        for found in (first, second):
            columns = columns_of(found, arrow=arrow)
            clock.time += 1500
            result = many.put_many(columns)
            single = [each.put(*columns.message(row)) for row in range(len(columns))]
            assert result.status is PutStatus.PUT_OK
            assert result.physical_offsets.tolist() == [one.physical_offset for one in single]
            assert result.queue_offsets.tolist() == [one.queue_offset for one in single]
            assert result.end == single[-1].end
    for part in ("commitlog", "consumequeue", "index"):
        assert tree(root / "many" / part) == tree(root / "each" / part)
    remove(root)


def of_bodies(bodies, **more):
    return MessageColumns(["T"], np.zeros(len(bodies), int), 0, bodies, **more)


@pytest.mark.parametrize(
    "more",
    [
        {"sys_flag": 4},
        {"properties": [b"INNER_X\x01y\x02"] * 3},
        {"properties": arrow_of([b"INNER_X\x01y\x02"] * 3)},
        {"born_host": bytes(20)},
    ],
    ids=["prepared", "inner property", "inner property in Arrow", "IPv6"],
)
def test_what_is_not_plain_is_stored_all_the_same(opened, more):
    store = opened()
    result = store.put_many(of_bodies([b"a", b"b", b"c"], **more))
    assert result.ok
    assert len(result.physical_offsets) == 3
    assert result.queue_offsets.tolist() == ([0, 0, 0] if "sys_flag" in more else [0, 1, 2])


@pytest.mark.parametrize("column", [pa.array([b"a", None, b"c"], pa.binary()), pa.array(["a", "b", "c"])])
def test_an_array_of_anything_but_bytes_is_refused_and_stores_nothing(opened, column):
    store = opened()
    with pytest.raises(TypeError, match="expected an Arrow array of binary without nulls, found"):
        store.put_many(of_bodies(column))
    assert store.max_physical_offset == 0


def test_messages_before_one_that_is_refused_are_stored(opened):
    store = opened()
    result = store.put_many(of_bodies([b"a", b"b" * 5000, b"c"]))
    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert result.queue_offsets.tolist() == [0]
    assert store.put("T", 0, b"next").queue_offset == 1


def test_a_disk_that_fills_up_ends_the_column_where_it_does(opened):
    files = FailingFiles("commitlog")
    store = opened(files=files)
    store.put("T", 0, b"x")
    files.errors["create"] = NO_SPACE
    result = store.put_many(of_bodies([b"y" * 900] * 10))
    assert (result.status, len(result.physical_offsets)) == (PutStatus.CREATE_MAPPED_FILE_FAILED, 4)
    files.errors.clear()
    assert store.put("T", 0, b"z").queue_offset == 5


def test_hooks_see_every_message_of_a_column(opened):
    store = opened(hooks=[delay_message(StoreOptions())])
    result = store.put_many(of_bodies([b"a", b"b"], properties=[b"DELAY\x011\x02", b""]))
    store.dispatch()
    assert result.ok
    assert (store.queue_bounds("SCHEDULE_TOPIC_XXXX", 0)[1], store.queue_bounds("T", 0)[1]) == (1, 1)


def test_no_messages_are_no_trouble(opened):
    assert opened().put_many(of_bodies([])).end == -1


def test_a_write_that_fails_ends_the_column_where_it_does(opened):
    files = FailingFiles("commitlog")
    store = opened(files=files, commit_log_file_size=1 << 16, reserve_bytes=4096)
    assert store.put_many(of_bodies([b"a"] * 30)).ok
    files.errors["reserve"] = files.errors["write"] = NO_SPACE
    result = store.put_many(of_bodies([b"b" * 900] * 40))
    files.errors.clear()
    next_offset = 30 + len(result.physical_offsets)
    assert result.status is PutStatus.UNKNOWN_ERROR
    # put one by one, some lie in what is reserved; together, all or none are written
    assert next_offset == 30 if native.in_use() else 30 < next_offset < 70
    assert result.queue_offsets.tolist() == list(range(30, next_offset))
    assert store.put_many(of_bodies([b"c"] * 30)).queue_offsets.tolist() == list(range(next_offset, next_offset + 30))


@pytest.mark.parametrize("hooks", [[], [lambda message: message]], ids=["no hooks", "a hook"])
def test_a_column_shares_one_flush(opened, monkeypatch, hooks):
    store = opened(flush_mode=FlushMode.SYNC_FLUSH, hooks=hooks)
    group, waited = store._components.flusher.group, []
    wait = group.wait
    monkeypatch.setattr(group, "wait", lambda end: waited.append(end) or wait(end))
    result = store.put_many(of_bodies([b"a", b"b", b"c"]))
    assert result.ok
    assert waited == [result.end]


def test_short_writes_go_on_until_all_is_written(opened):
    files = FailingFiles("commitlog")
    store = opened(files=files, commit_log_file_size=1 << 16)
    files.short_writes = True
    assert store.put_many(of_bodies([b"%d" % number * 50 for number in range(40)])).ok
    store.dispatch()
    assert bytes(store.get_message("T", 0, 39).records[0]).count(b"39" * 50) == 1


def test_a_record_that_is_longer_than_a_piece_is_written(opened, monkeypatch):
    monkeypatch.setattr(columns, "PIECE", 300)
    store = opened(commit_log_file_size=1 << 16)
    bodies = [b"s", b"l" * 2000, b"s", b"l" * 1000]
    assert store.put_many(of_bodies(bodies)).ok
    store.dispatch()
    found = [bytes(store.get_message("T", 0, number).records[0]) for number in range(4)]
    assert [body in record for body, record in zip(bodies, found, strict=True)] == [True] * 4


def test_bodies_may_be_any_bytes(opened):
    store = opened()
    assert store.put_many(of_bodies([bytearray(b"one"), memoryview(b"two"), b"three"])).ok
    store.dispatch()
    assert [bytes(store.get_message("T", 0, at).records[0])[88:91] for at in range(3)] == [b"one", b"two", b"thr"]
