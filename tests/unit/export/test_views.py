"""Bodies as views: the same values as bodies of their own, wherever they are moved and however they are written."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqtool.export import rows
from mqtool.export.plan import partitions, plan_store
from mqtool.export.rows import Rows
from mqtool.export.schema import Body, ReadRequest
from mqtool.export.sources import Source
from mqtool.export.task import read_partition
from mqtool.records.columns import binary_view
from mqtool.store.log.selection import Selection
from tests.support import lake
from tests.support.stores import store_fixture

NAME = "orders-5.5.0"
BODIES = [b"", b"short", b"exactly twelv", b"a body that is longer than what a view holds itself", b"\x00\xff" * 40]


def viewed(values):
    """A batch of views into one buffer, and a number for each."""
    lengths = np.array([len(value) for value in values])
    data = np.frombuffer(b"".join(values).ljust(16, b"."), np.uint8)
    bodies = binary_view(data, np.cumsum(lengths) - lengths, lengths)
    return pa.RecordBatch.from_arrays([bodies, pa.array(range(len(values)))], names=["body", "number"])


@pytest.mark.parametrize("order", [[4, 3, 2, 1, 0], [0, 0, 3], []], ids=["backwards", "repeated", "none"])
def test_rows_are_taken_with_their_bodies(order):
    taken = rows.take(viewed(BODIES), pa.array(order, pa.int64()))
    taken.validate(full=True)
    assert taken.to_pylist() == [{"body": BODIES[at], "number": at} for at in order]


def test_rows_of_a_slice_are_counted_from_its_first():
    assert rows.take(viewed(BODIES).slice(2), pa.array([1, 0]))["body"].to_pylist() == [BODIES[3], BODIES[2]]


def test_compact_bodies_keep_nothing_else_in_memory():
    found = rows.compact(viewed(BODIES).slice(1, 3))
    assert found["body"].type == pa.binary()
    assert found["body"].to_pylist() == BODIES[1:4]


def test_the_size_is_that_of_what_is_shown():
    whole, part = viewed(BODIES), viewed(BODIES).slice(3, 1)
    assert rows.size_of(part) == len(BODIES[3]) + 16 + 8
    assert rows.size_of(whole) == sum(map(len, BODIES)) + len(BODIES) * (16 + 8)


def test_views_and_bodies_of_their_own_are_joined():
    joined = rows.concatenate([viewed(BODIES), rows.compact(viewed(BODIES))])
    assert joined["body"].to_pylist() == BODIES * 2


def batches(read):
    source = Source("b", str(store_fixture(NAME).directory))
    with source.open() as store:
        plan = plan_store(store, source, read.selection)
    return [one.batch for part in partitions([plan]) for one in read_partition(part, read) if isinstance(one, Rows)]


def body_types(read):
    return {batch.schema.field("body").type for batch in batches(read)}


def test_bodies_are_views_where_most_of_the_bytes_are_wanted():
    whole = ReadRequest(every_class=True)
    assert pa.binary_view() in body_types(whole)
    few = ReadRequest(Selection(topics=("Orders",), queue_id=0), every_class=True)
    assert sum(batch.num_rows for batch in batches(few)) * 2 < sum(batch.num_rows for batch in batches(whole))
    assert body_types(few) == {pa.binary()}


def test_bodies_that_are_changed_are_no_views():
    assert body_types(ReadRequest(every_class=True, body=Body.TEXT)) == {pa.string()}
    hidden = ReadRequest(every_class=True, redact=frozenset(("body", "body_crc")), salt=b"salt")
    assert body_types(hidden) == {pa.binary()}


def test_an_arrow_that_cannot_write_views_writes_the_same_rows(tmp_path, monkeypatch):
    for name, writable in (("views", True), ("compact", False)):
        monkeypatch.setattr(rows, "WRITABLE", writable)
        lake.run_export(f"b={store_fixture(NAME).directory}", tmp_path / name)
    first, second = ([pq.read_table(path) for path in lake.files(tmp_path / name)] for name in ("views", "compact"))
    assert first == second
    assert all(
        table.schema.equals(other.schema, check_metadata=True) for table, other in zip(first, second, strict=True)
    )
