"""Stores in object storage are read, asked and checked like local ones; what is not read there is named."""

import itertools
import sys

import pytest

import mqtool
from mqtool.duckdb import Session
from mqtool.errors import NotAStoreError, StoreError, UsageError
from mqtool.scan.dataset import dataset
from mqtool.store import Message
from mqtool.store.lock import lock_holder
from mqtool.store.remote import RemotePath
from mqtool.verify import verify
from tests.support.builder import StoreBuilder
from tests.support.stores import answers, copy_store

MEMORY = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem
NUMBERS = itertools.count()


def uploaded(directory):
    """The URL of a copy of a directory in a bucket of its own."""
    prefix = f"bucket-{next(NUMBERS)}/store"
    for path in directory.rglob("*"):
        if path.is_file():
            MEMORY().pipe_file(f"/{prefix}/{path.relative_to(directory)}", path.read_bytes())
    return f"memory://{prefix}"


@pytest.mark.parametrize("name", ["orders-5.5.0", "dledger-5.5.0", "cqext-5.5.0"])
def test_a_healthy_store_has_no_findings_and_its_messages(name, tmp_path):
    url = uploaded(copy_store(name, tmp_path))
    places = (line.get("phyOffset", line.get("physicalOffset")) for line in answers(name, "messages"))
    stored = {place for place in places if place is not None}
    assert stored
    with mqtool.open(url) as store:
        assert stored <= {message.physical_offset for message in store.messages()}
        found = verify(store)
    assert found.findings == ()
    with Session(url) as session:
        assert list(session.ask("SELECT * FROM findings")[1]) == []


def test_messages_are_found_by_their_keys(tmp_path):
    queries = [line for line in answers("orders-5.5.0", "queries") if line["physicalOffsets"]][:20]
    assert len(queries) == 20
    with mqtool.open(uploaded(copy_store("orders-5.5.0", tmp_path))) as store:
        for asked in queries:
            found = store.query_message(asked["topic"], asked["key"], asked["max"], asked["begin"], asked["end"])
            assert [message.physical_offset for message in found] == asked["physicalOffsets"]


def test_columns_that_are_fields_are_those_of_a_local_store(tmp_path):
    """Compiled code reads local files by itself; there it does not."""
    path = copy_store("orders-5.5.0", tmp_path)
    columns = ["topic", "queue_id", "queue_offset", "physical_offset"]
    expected = dataset(f"b={path}").to_table(columns=columns)
    assert expected.num_rows > 500
    assert dataset(f"b={uploaded(path)}").to_table(columns=columns).equals(expected)


def test_damage_is_found(tmp_path):
    builder = StoreBuilder()
    for _ in range(200):
        builder.put(b"x" * 200)
    path = builder.write(tmp_path / "store", index=False)
    put = builder.puts[120]
    base = put.physical_offset // builder.segment_size * builder.segment_size
    data = bytearray((path / "commitlog" / f"{base:020}").read_bytes())
    data[put.physical_offset - base + 100] ^= 1
    (path / "commitlog" / f"{base:020}").write_bytes(data)
    with mqtool.open(uploaded(path)) as store:
        found = {finding.code: finding.physical_offset for finding in verify(store).findings}
    assert found["log-bad-body"] == put.physical_offset


def test_the_same_segment_in_two_directories_counts_once(tmp_path):
    builder = StoreBuilder()
    for _ in range(200):
        builder.put(b"x" * 200)
    path = builder.write(tmp_path / "store")
    (path / "more").mkdir()
    name = f"{0:020}"
    (path / "more" / name).write_bytes((path / "commitlog" / name).read_bytes())
    with mqtool.open(uploaded(path)) as store:
        assert sum(isinstance(item, Message) for item in store.messages()) == 200


def test_a_segment_that_is_deleted_after_the_listing_is_named(tmp_path):
    builder = StoreBuilder()
    for _ in range(200):
        builder.put(b"x" * 200)
    url = uploaded(builder.write(tmp_path / "store"))
    with mqtool.open(url) as store:
        assert lock_holder(store.path) is None
        MEMORY().rm_file(f"{url.removeprefix('memory:/')}/commitlog/{builder.segment_size:020}")
        with pytest.raises(StoreError, match="was deleted since it was listed; run the command again"):
            list(store.messages())


def test_queues_in_rocksdb_are_not_read_there_and_the_log_is(tmp_path):
    with mqtool.open(uploaded(copy_store("rocksdb-cq-5.5.0", tmp_path))) as store:
        assert store.queues() == []
        assert "is a RocksDB in object storage, which is not read; copy it here" in store.rocksdb.problem
        assert sum(1 for _ in store.messages()) == 47


def test_a_question_about_messages_is_refused_if_the_log_is_missing(tmp_path):
    path = copy_store("orders-5.5.0", tmp_path)
    (path / "commitlog").rename(tmp_path / "log")
    with Session(uploaded(path)) as session, pytest.raises(StoreError, match="expected a CommitLog, found no segment"):
        list(session.ask("SELECT topic FROM messages")[1])


def test_a_place_without_objects_is_named():
    with pytest.raises(NotAStoreError, match="memory://nothing/store: no such prefix; give the store's root"):
        mqtool.open("memory://nothing/store")


def test_without_fsspec_a_url_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(UsageError, match=r"^memory://b/store: needs fsspec: "):
        mqtool.open("memory://b/store")


def test_a_place_is_asked_about_without_a_listing_too(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "b").write_bytes(b"12")
    (tmp_path / "a").write_bytes(b"1")
    place = RemotePath(uploaded(tmp_path))
    for asked in (place, place.listed()):
        assert [(one.name, one.stat().st_size, one.is_dir()) for one in asked.iterdir()] == [
            ("a", 1, False),
            ("below", 0, True),
        ]
        assert [one.name for one in (asked / "below").iterdir()] == ["b"]
        for use in (lambda asked=asked: (asked / "c").stat(), lambda asked=asked: list((asked / "c").iterdir())):
            with pytest.raises(FileNotFoundError):
                use()
    assert repr(place / "a") == f"RemotePath('{place}/a')"
