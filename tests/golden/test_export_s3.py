"""Stores in object storage are read by ranges and exported like local ones; exports go there too."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import mqtool
from mqtool.errors import ExportError, NotAStoreError, StoreError
from mqtool.export.parquet import WriteOptions
from mqtool.export.schema import ReadRequest
from mqtool.export.target import RemoteTarget
from mqtool.store import Message
from mqtool.store.log.selection import Selection
from tests.support import lake
from tests.support.object_storage import ObjectStorage, object_storage
from tests.support.stores import copy_store

pytest.importorskip("s3fs")
pytest.importorskip("moto")

ALL = ReadRequest(every_class=True)


@pytest.fixture(scope="module")
def s3() -> Iterator[ObjectStorage]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with object_storage() as service:
        yield service


@pytest.mark.long
@pytest.mark.parametrize("name", ["orders-5.5.0", "orders-4.9.7", "rollover-5.5.0", "crash-4.9.7", "propcrc-5.5.0"])
def test_a_store_in_object_storage_is_exported_whole(s3, tmp_path, name):
    url = s3.upload(copy_store(name, tmp_path), f"{name}/store")
    lake.run_export(f"b={url}", tmp_path / "lake", read=ALL, split_bytes=50_000)
    found = lake.in_log_order(lake.rows(tmp_path / "lake"))
    assert found == lake.expected_rows(name, every_class=True, broker="b")


def test_it_opens_like_any_other(s3, tmp_path):
    local = copy_store("orders-5.5.0", tmp_path)
    url = s3.upload(local, "opened/store")
    with mqtool.open(local) as store, mqtool.open(url) as remote:
        assert remote.commit_log.max_offset == store.commit_log.max_offset
        assert [(q.topic, q.queue_id, q.max_offset) for q in remote.queues()] == [
            (q.topic, q.queue_id, q.max_offset) for q in store.queues()
        ]
        assert remote.metadata.consumer_offsets == store.metadata.consumer_offsets
        assert remote.version == store.version
        key = next(message.unique_key for message in store.messages() if isinstance(message, Message))
        found = [m.physical_offset for m in remote.query_message("Orders", key)]
        assert found == [m.physical_offset for m in store.query_message("Orders", key)] == [0]


def big_store(tmp_path: Path) -> Path:
    """A log of one segment of 40 MB."""
    from tests.support.big_store import write_big_store

    return write_big_store(tmp_path / "big" / "store", messages=36_000, segment=40 << 20)


@pytest.mark.long
def test_a_part_of_a_log_is_read_by_ranges_and_never_a_whole_segment(s3, tmp_path):
    url = s3.upload(big_store(tmp_path), "big/store")
    with mqtool.open(url) as store:
        end = store.commit_log.max_offset
    s3.requests.clear()
    read = ReadRequest(Selection.of(start=end - 3_000_000, end=end - 1_000_000))
    lake.run_export(url, tmp_path / "lake", read=read, split_bytes=1 << 20)
    sizes = s3.got("commitlog")
    assert len(lake.rows(tmp_path / "lake")) > 1000
    assert max(sizes) <= 8 << 20
    assert sum(sizes) < 20 << 20


def test_an_empty_segment_made_ahead_is_reported_by_probes(s3, tmp_path):
    store = copy_store("crash-5.5.0", tmp_path)
    segments = sorted((store / "commitlog").iterdir())
    size = segments[0].stat().st_size
    ahead = store / "commitlog" / f"{int(segments[-1].name) + size:020}"
    with ahead.open("wb") as file:
        file.truncate(8 << 20)
    url = s3.upload(store, "ahead/store")
    with mqtool.open(url) as remote, mqtool.open(store) as local:
        assert remote.commit_log.max_offset == local.commit_log.max_offset
    assert sum(s3.got(ahead.name)) < 1 << 20


def test_several_stores_are_found_by_a_glob(s3, tmp_path):
    for name in ("ipv6", "orders-4.9.7"):
        s3.upload(copy_store(name, tmp_path / name), f"many/{name}/store")
    lake.run_export("s3://stores/many/*/store", tmp_path / "lake")
    assert set(lake.table(tmp_path / "lake")["broker"].to_pylist()) == {"ipv6", "orders-4.9.7"}


def test_a_prefix_with_nothing_below_is_named(s3):
    with pytest.raises(NotAStoreError, match="s3://stores/nothing: no such prefix"):
        mqtool.open("s3://stores/nothing")


def test_a_bucket_that_does_not_exist_is_named(s3):
    with pytest.raises((NotAStoreError, StoreError), match="s3://nobucket/store"):
        mqtool.open("s3://nobucket/store")


def test_a_segment_that_went_away_since_planning_is_damage(s3, tmp_path):
    from mqtool.export.plan import Partition, Span
    from mqtool.export.sources import Source
    from mqtool.export.task import read_partition

    span = Span("s3://stores/gone/store/commitlog/00000000000000000000", 0, 0, 1000)
    (damage,) = read_partition(Partition(0, Source("b", "s3://stores/gone/store"), (span,)), ALL)
    assert (damage.start, damage.end, str(damage.kind)) == (0, 1000, "missing")


def test_an_export_into_object_storage_is_incremental_and_published_whole(s3, tmp_path):
    name = "rollover-5.5.0"
    store, ends = copy_store(name, tmp_path), lake.record_ends(name)
    target, state = "s3://stores/lake/out", "s3://stores/lake/out.state"
    for records in (40, len(ends)):
        lake.grow(name, store, ends[records - 1])
        lake.run_export(f"b={store}", target, state=state, read=ALL, write=WriteOptions(("topic",)))
        keys = [key for key in s3.keys("lake/out/messages") if key.endswith(".parquet")]
        local = tmp_path / str(records)
        for number, key in enumerate(keys):
            (local / "messages").mkdir(parents=True, exist_ok=True)
            s3.client.download_file("stores", key, str(local / "messages" / f"{number}.parquet"))
        expected = lake.expected_rows(name, every_class=True, broker="b")[:records]
        assert lake.in_log_order(lake.rows(local)) == expected
    assert [key for key in s3.keys("lake/out") if "staging" in key] == []
    with pytest.raises(ExportError, match="contains an export already"):
        lake.run_export(f"b={store}", target)


def test_of_two_manifests_of_one_number_the_first_stays(s3):
    s3.requests.clear()
    target = RemoteTarget("s3://stores/twice/out")
    name = "_mqtool/commit-00000001.json"
    assert target.write_new(name, b"first")
    assert not target.write_new(name, b"second")
    assert target.read(name) == b"first"
    written = [key for method, key, _ in s3.requests if method == "PUT" and key.endswith(name)]
    assert len(written) == 2  # the service refused the second one
