"""Exports hold what the real broker said about its stores, row for row."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mqtool.export.parquet import WriteOptions
from mqtool.export.schema import ReadRequest
from tests.support import lake
from tests.support.stores import answers, copy_store, store_fixture, tree_digest
from tests.support.tiers import night

ALL = ReadRequest(every_class=True)


@pytest.mark.parametrize("name", lake.WHOLE)
def test_all_rows_are_the_brokers_records(name: str, tmp_path: Path) -> None:
    found = lake.rows(lake.exported(name, tmp_path, read=ALL))
    assert lake.in_log_order(found) == lake.expected_rows(name, every_class=True, broker="b")


@pytest.mark.parametrize("name", lake.WHOLE)
def test_committed_rows_are_those_that_the_broker_gave_a_unit(name: str, tmp_path: Path) -> None:
    found = lake.rows(lake.exported(name, tmp_path))
    assert lake.in_log_order(found) == lake.expected_rows(name, every_class=False, broker="b")


@pytest.mark.parametrize("name", lake.WHOLE)
def test_totals_by_topic_are_the_counts_of_the_queues(name: str, tmp_path: Path) -> None:
    target = tmp_path / "lake"
    result = lake.run_export(copy_store(name, tmp_path), target)
    counted: Counter[str] = Counter()
    for queue in answers(name, "queues"):
        if not queue["topic"].startswith("%LMQ%"):  # a second way to messages of another topic
            batches = (unit[4] if queue["type"] == "BatchCQ" else 1 for unit in queue["units"])
            counted[queue["topic"]] += sum(batches)
    users = {topic: n for topic, n in counted.items() if n and topic not in lake.SYSTEM | lake.HALF}
    assert result.manifest.totals["topics"] == users


@pytest.mark.parametrize("name", lake.SERVED)
def test_a_consumer_was_served_the_rows(name: str, tmp_path: Path) -> None:
    found = Counter(lake.as_served(row) for row in lake.rows(lake.exported(name, tmp_path)))
    topics = {key[0] for key in lake.served(name)} - lake.SYSTEM - lake.HALF
    expected = Counter({key: n for key, n in lake.served(name).items() if key[0] in topics})
    assert Counter({key: n for key, n in found.items() if key[0] in topics}) == expected
    assert topics


@pytest.mark.long
@pytest.mark.parametrize("name", ["orders-5.5.0", "rollover-4.9.7", night("crash-5.5.0"), "bcq-5.5.0"])
def test_cut_into_many_tasks_and_directories_the_rows_stay_the_same(name: str, tmp_path: Path) -> None:
    options = WriteOptions(("topic", "date"), file_bytes=1, row_group_bytes=1)
    target = lake.exported(name, tmp_path, read=ALL, split_bytes=4_000, write=options)
    found = [row for path in lake.files(target) for row in pq.ParquetFile(path).read().to_pylist()]
    if name in lake.WHOLE:
        assert lake.in_log_order(found) == lake.expected_rows(name, every_class=True, broker="b")
    else:
        assert Counter(map(lake.as_served, found)) >= lake.served(name)
    assert len(lake.files(target)) > 2
    assert all(lake.is_sorted(path) for path in lake.files(target))


def test_nothing_is_written_below_the_store(tmp_path: Path) -> None:
    store = store_fixture("crash-5.5.0").directory
    assert store is not None
    before = tree_digest(store)
    lake.run_export(store, tmp_path / "lake")
    assert tree_digest(store) == before
