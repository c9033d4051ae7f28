"""Rebuilt files have the bytes that the real broker wrote: every queue, extension and index file of every store."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import mqtool
from mqtool.formats.config_files import parse_delay_offsets, parse_topics
from mqtool.rebuild import parts
from mqtool.rebuild.job import KINDS, Options, rebuild, rebuild_index_file
from mqtool.rebuild.metadata import compose, survey_log
from mqtool.rebuild.parts import RebuildScope
from mqtool.rebuild.settings import RebuildSettings, settings_of
from mqtool.rebuild.sink import Result
from mqtool.store import Store
from mqtool.store.queues.filter_bit_maps import bit_maps_of
from tests.support.stores import STORES, StoreFixture, copy_store, store_fixture, tree_digest
from tests.support.task_rebuild import rebuild_by_tasks

QUEUE_KINDS = tuple(kind for kind in KINDS if kind != "index")
HEALTHY = [store for store in STORES if store.clean_stop]
WITH_FILE_QUEUES = [store for store in HEALTHY if store.name != "rocksdb-cq-5.5.0"]
SEVERAL_INDEX_FILES = (
    "orders-4.9.7",
    "orders-5.5.0",
    "rollover-4.9.7",
    "rollover-5.5.0",
    "hosts-5.5.0",
    "multipath-5.5.0",
    "v2-long-topic",
    "txbits-4.9.7",
)


def queue_files(root: Path) -> dict[str, bytes]:
    """Every file of a queue, by its path."""
    found = {}
    for kind in QUEUE_KINDS:
        paths = (path for path in (root / kind).rglob("*") if path.is_file() and path.name.isdigit())
        found.update({path.relative_to(root).as_posix(): path.read_bytes() for path in paths})
    return found


def index_files(root: Path) -> list[bytes]:
    """The bytes of the index files, oldest first; their names are clock times."""
    return [path.read_bytes() for path in sorted((root / "index").iterdir())] if (root / "index").is_dir() else []


def paths_of(store: StoreFixture, root: Path) -> dict[str, str] | None:
    """The CommitLog directories, where there are several."""
    if store.name != "multipath-5.5.0":
        return None
    return {"storePathCommitLog": ",".join(str(root / name) for name in ("clA", "clB", "clC"))}


@pytest.fixture(params=HEALTHY, ids=str)
def healthy(request, tmp_path) -> tuple[StoreFixture, Path]:
    """A store after an orderly stop, unpacked where it is packed."""
    store = request.param
    return store, store.directory or copy_store(store.name, tmp_path)


def alone(store: Store, out: Path, settings: RebuildSettings, **more: Any) -> Result:
    return rebuild(store, out, settings, RebuildScope(), Options(jobs=1), **more)


def together(store: Store, out: Path, settings: RebuildSettings, **more: Any) -> Result:
    return rebuild(store, out, settings, RebuildScope(), Options(jobs=2), **more)


@pytest.mark.parametrize("way", [alone, together, rebuild_by_tasks])
def test_all_derived_files_are_those_of_the_broker(healthy, tmp_path, way, monkeypatch):
    fixture, root = healthy
    monkeypatch.setattr(parts, "PART_BYTES", 8192)  # several parts, though these logs are small
    with mqtool.open(root, paths_of(fixture, root)) as store:
        settings = settings_of(store)
        bit_maps = bit_maps_of(store) if settings.has_extension else None
        result = way(store, tmp_path / "out", settings, bit_maps=bit_maps)
    assert result.is_complete
    if fixture in WITH_FILE_QUEUES:
        assert queue_files(tmp_path / "out") == queue_files(root)
    assert index_files(tmp_path / "out") == index_files(root)
    assert sorted(result.index_files) == result.index_files


def test_a_crashed_stores_files_are_begun_by_those_on_disk(tmp_path):
    root = store_fixture("crash-5.5.0").directory
    with mqtool.open(root) as store:
        rebuild(store, tmp_path / "out", settings_of(store))
    assert queue_files(tmp_path / "out") == queue_files(root)
    assert index_files(tmp_path / "out") == index_files(root)


@pytest.mark.parametrize("name", SEVERAL_INDEX_FILES)
def test_each_index_file_can_be_made_alone(name, tmp_path):
    root = store_fixture(name).directory
    with mqtool.open(root, paths_of(store_fixture(name), root)) as store:
        settings = settings_of(store)
        for path in sorted((root / "index").iterdir()):
            rebuild_index_file(store, tmp_path / path.name, settings, path.name)
            assert (tmp_path / path.name / "index" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(("topics", "queue_id"), [(("Orders",), None), (("Orders",), 3), (("%LMQ%*",), None), ((), 0)])
def test_chosen_queues_are_those_of_the_broker_and_no_others_are_made(topics, queue_id, tmp_path):
    root = store_fixture("orders-5.5.0").directory
    with mqtool.open(root) as store:
        rebuild(
            store, tmp_path / "out", settings_of(store), RebuildScope(index=False, topics=topics, queue_id=queue_id)
        )
    made = queue_files(tmp_path / "out")
    whole = queue_files(root)
    prefix = topics[0].rstrip("*") if topics else ""
    chosen = {
        path
        for path in whole
        if path.split("/")[1].startswith(prefix) and (queue_id is None or path.split("/")[2] == str(queue_id))
    }
    chosen = {path for path in chosen if not topics or "*" in topics[0] or path.split("/")[1] == topics[0]}
    assert made == {path: whole[path] for path in chosen}
    assert len(made) > 0
    assert not (tmp_path / "out" / "index").exists()


def test_sizes_come_from_a_configuration_where_no_file_tells(tmp_path):
    root = copy_store("orders-4.9.7", tmp_path / "copy")
    before = queue_files(root), index_files(root)
    for kind in ("consumequeue", "index"):
        shutil.rmtree(root / kind)
    with mqtool.open(root, store_fixture("orders-4.9.7").config) as store:
        rebuild(store, tmp_path / "out", settings_of(store))
    assert (queue_files(tmp_path / "out"), index_files(tmp_path / "out")) == before


def test_without_queues_and_configuration_batch_queues_are_known_by_their_records(tmp_path):
    root = copy_store("bcq-5.5.0", tmp_path / "copy")
    before = queue_files(root)
    for kind in ("batchconsumequeue", "index", "config"):
        shutil.rmtree(root / kind)
    with mqtool.open(root, {"mapperFileSizeBatchConsumeQueue": 460, "mappedFileSizeConsumeQueue": 2000}) as store:
        result = rebuild(store, tmp_path / "out", settings_of(store))
    assert result.is_complete
    assert queue_files(tmp_path / "out") == before


def test_rebuilding_leaves_the_store_as_it_was(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path / "copy")
    before = tree_digest(root)
    with mqtool.open(root) as store:
        rebuild(store, tmp_path / "out", settings_of(store))
        compose(store, survey_log(store, settings_of(store).rules))
    assert tree_digest(root) == before


def configured(store: StoreFixture) -> bool:
    return store.directory is not None and (store.directory / "config" / "delayOffset.json").is_file()


@pytest.mark.parametrize("fixture", [store for store in HEALTHY if configured(store)], ids=str)
def test_configuration_that_is_there_is_kept_byte_by_byte(fixture):
    root = fixture.directory
    with mqtool.open(root, paths_of(fixture, root)) as store:
        made = compose(store, survey_log(store, settings_of(store).rules))
    guessed = {guess.file for guess in made.guesses}
    for path, data in made.files.items():
        if path.split("/")[-1] not in guessed and (root / path).exists() and not _adds_version(path, data, root):
            assert data == (root / path).read_bytes(), path


def _adds_version(path: str, data: bytes, root: Path) -> bool:
    """4.9 writes delayOffset.json without a data version; then only that is new."""
    had = b"dataVersion" in (root / path).read_bytes()
    return path.endswith("delayOffset.json") and not had and b"dataVersion" in data


@pytest.mark.parametrize("name", ["orders-4.9.7", "orders-5.5.0", "metadata-5.5.0", "rocksdb-cq-5.5.0"])
def test_without_configuration_topics_and_delay_offsets_follow_from_the_log(name, tmp_path):
    root = copy_store(name, tmp_path)
    with mqtool.open(root) as store:
        known = store.metadata
        queues = {(queue.topic, queue.queue_id) for queue in store.queues() if not queue.topic.startswith("%LMQ%")}
    shutil.rmtree(root / "config")
    with mqtool.open(root) as store:
        made = compose(store, survey_log(store, settings_of(store).rules))
    topics = parse_topics(made.files["config/topics.json"]).topic_config_table
    assert all(queue_id < topics[topic].read_queue_nums for topic, queue_id in queues)
    assert made.unconfigured == sorted(topics)
    found = parse_delay_offsets(made.files["config/delayOffset.json"]).offset_table
    assert {level: offset for level, offset in found.items() if offset} == {
        level: offset for level, offset in known.delay_offsets.items() if offset
    }
