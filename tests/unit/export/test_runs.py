"""Sorting through runs and a temporary file gives the order of sorting all at once."""

from contextlib import ExitStack

import pytest

from mqtool.export import runs
from mqtool.export.plan import partitions, plan_store
from mqtool.export.runs import SortedRuns
from mqtool.export.schema import ReadRequest
from mqtool.export.sources import Source
from mqtool.export.task import read_partition
from tests.support import lake
from tests.support.stores import store_fixture

NAME = "orders-5.5.0"
READ = ReadRequest(every_class=True, batch_bytes=10_000)


def all_rows():
    source = Source("b", str(store_fixture(NAME).directory))
    with source.open() as store:
        plan = plan_store(store, source, READ.selection)
    return [rows for partition in partitions([plan]) for rows in read_partition(partition, READ)]


def merged(partition_by, *, run_bytes, held_bytes):
    with ExitStack() as closing:
        made = closing.enter_context(SortedRuns(partition_by, run_bytes=run_bytes, held_bytes=held_bytes))
        for rows in all_rows():
            made.add(rows)
        return [(piece.key, piece.steps_back, row) for piece in made.merged() for row in piece.batch.to_pylist()]


@pytest.mark.slow
@pytest.mark.parametrize("held_bytes", [0, 60_000, 1 << 30], ids=["all in the file", "some", "none"])
@pytest.mark.parametrize("partition_by", [(), ("topic",), ("date", "hour")], ids=["flat", "topic", "hour"])
def test_runs_are_merged_into_one_order(monkeypatch, partition_by, held_bytes):
    monkeypatch.setattr(runs, "PART_BYTES", 2_000)
    found = merged(partition_by, run_bytes=30_000, held_bytes=held_bytes)
    assert lake.in_log_order([row for *_, row in found]) == lake.expected_rows(NAME, every_class=True, broker="b")
    order = [(key, row["queue_offset"], row["physical_offset"]) for key, _, row in found]
    assert order == sorted(order)
    assert not any(steps_back for _, steps_back, _ in found)


def test_a_queue_that_begins_anew_is_marked(monkeypatch):
    with SortedRuns((), run_bytes=1, held_bytes=1 << 30) as made:
        for rows in reversed(all_rows()):  # as if offsets fell
            made.add(rows)
        pieces = list(made.merged())
    assert any(piece.steps_back for piece in pieces)
    seen = {}
    for piece in pieces:
        first = piece.batch["queue_offset"][0].as_py()
        assert piece.steps_back == (piece.key in seen and first < seen[piece.key])
        seen[piece.key] = piece.batch["queue_offset"][-1].as_py()


def test_the_temporary_file_has_no_name(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with SortedRuns((), run_bytes=1, held_bytes=0) as made:
        for rows in all_rows():
            made.add(rows)
        assert list(tmp_path.iterdir()) == []
        assert sum(piece.batch.num_rows for piece in made.merged()) == len(lake.answers(NAME, "messages"))
