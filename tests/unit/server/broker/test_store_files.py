"""Which files a served store has: those of its own directory, wherever the configuration says they are."""

import asyncio
import shutil

import pytest

from mqtool.engine.start.detect import options_for
from mqtool.errors import ConfigFileError, LayoutError
from mqtool.server.serve import ServeOptions, Server
from mqtool.store.config import broker_config
from mqtool.store.store import open_store
from tests.support.remoting import Client, bodies
from tests.support.stores import copy_store, fixture, sizes_of, tree_digest


def serve(store, consume, config=None, **more):
    """Serves a store with a configuration and returns what a function that is given the address returns."""

    async def main():
        options = ServeOptions(store, config=broker_config.load(config), **more)
        async with Server(options) as server:
            return await asyncio.to_thread(consume, server.addresses["broker"])

    return asyncio.run(main())


def queues_of(store):
    with open_store(store) as found:
        return {(one.topic, one.queue_id): (one.min_offset, one.max_offset) for one in found.queues()}


@pytest.fixture
def original(tmp_path):
    """A store, and the configuration that names its directories."""
    store = copy_store("orders-5.5.0", tmp_path / "original")
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir={store}\nstorePathCommitLog={store / 'commitlog'}\n{sizes_of('orders-5.5.0')}")
    return store, config


def test_a_copy_is_written_with_the_configuration_of_the_original_and_the_original_is_not(tmp_path, original):
    store, config = original
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    before, queues = tree_digest(store), queues_of(copy)

    def put(address):
        with Client(address) as client:
            return client.put("Orders", b"to the copy").code

    assert serve(copy, put, config) == 0
    assert tree_digest(store) == before
    topic = ("Orders", 0)
    assert queues_of(copy)[topic] == (queues[topic][0], queues[topic][1] + 1)


@pytest.mark.parametrize("is_linked", [False, True])
def test_the_log_of_another_store_is_never_opened_for_writing(tmp_path, original, is_linked):
    """A broker started with this root would continue the other store's log; its lock is in the other root."""
    store, config = original
    other = tmp_path / "other"
    shutil.copytree(store, other, ignore=shutil.ignore_patterns("commitlog"))
    if is_linked:
        (other / "commitlog").symlink_to(store / "commitlog")
    words = "commitlog: is the log of the store .*original/store, which storePathRootDir of .*broker.conf names"
    with pytest.raises(LayoutError, match=words):
        options_for(other, config)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (
            "mappedFileSizeCommitLog",
            "a broker expects files of 1073741824 bytes, but 5 of 5 commitlog files have 131072",
        ),
        ("mappedFileSizeConsumeQueue", "a broker expects files of 6000000 bytes, but .* consumequeue files have 2000"),
        ("maxIndexNum", "a broker expects index files of 400000440 bytes, but this one has 8440"),
        ("mappedFileSizeTimerLog", "a broker expects files of 104857600 bytes, but 1 of 1 timerlog files have 52000"),
    ],
)
def test_a_size_that_a_configuration_lacks_is_the_default_and_must_fit_the_files(tmp_path, key, words):
    """A broker does not look at its files (MappedFileQueue.load: `length not matched message store config value`)."""
    store, config = copy_store("orders-5.5.0", tmp_path), tmp_path / "broker.conf"
    lines = fixture("orders-5.5.0/broker.conf").read_text("utf-8").splitlines()
    config.write_text("\n".join(lines))
    assert options_for(store, config).commit_log_file_size == 131_072
    config.write_text("\n".join(line for line in lines if not line.startswith(f"{key}=")))
    with pytest.raises(LayoutError, match=f"{key} is missing in .*broker.conf: {words}"):
        options_for(store, config)


def test_a_log_on_another_disk_is_opened_with_the_configuration_of_another_store(tmp_path, original):
    store, config = original
    copy, disk = tmp_path / "copy", tmp_path / "disk" / "commitlog"
    shutil.copytree(store, copy)
    disk.parent.mkdir()
    (copy / "commitlog").rename(disk)
    (copy / "commitlog").symlink_to(disk)
    assert options_for(copy, config).commit_log_dirs == ()


def test_a_new_store_with_the_configuration_of_another_has_its_own_log(tmp_path, original):
    store, config = original
    before = tree_digest(store)

    def put(address):
        with Client(address) as client:
            return client.put("Orders", b"first").code

    assert [serve(tmp_path / "new", put, config) for _ in range(2)] == [0, 0]
    assert tree_digest(store) == before
    assert sorted(queues_of(tmp_path / "new").values()) == [(0, 2)]


def test_a_new_store_has_as_many_directories_of_the_log_as_the_configuration_names(tmp_path):
    config = {"storePathRootDir": "/original", "storePathCommitLog": "/original/a,/disk/b,/disk2/b"}
    found = options_for(tmp_path / "new", config)
    assert (found.commit_log_dirs, found.read_only_dirs) == ((tmp_path / "new" / "a", tmp_path / "new" / "b"), ())
    own = options_for(tmp_path / "new", config | {"storePathRootDir": str(tmp_path / "new")})
    assert [str(path) for path in own.commit_log_dirs] == ["/original/a", "/disk/b", "/disk2/b"]


def test_a_store_with_several_directories_of_the_log_keeps_its_queues(tmp_path):
    store = copy_store("multipath-5.5.0", tmp_path)
    before = queues_of(store)

    def pull(address):
        with Client(address) as client:
            return len(bodies(client.pull("Paths", 0, 0)))

    assert serve(store, pull) > 0
    after = queues_of(store)
    assert {name: after[name] for name in before} == before


def test_a_store_of_4_9_remains_one_when_its_tables_change(tmp_path):
    """Files with a stateVersion are of 5.x; the next start would have written them, and the store, as 5.5 does."""
    store = copy_store("orders-4.9.7", tmp_path)

    def change(address):
        with Client(address) as client:
            client.create_topic("New")
            client.call(200, b'{"groupName": "GNew"}')
            client.call(15, consumerGroup="GNew", topic="New", queueId=0, commitOffset=1)
            return client.put("New", properties={"DELAY": "1"}).code

    assert serve(store, change) == 0
    files = {path.name: path.read_bytes() for path in (store / "config").glob("*.json")}
    assert [name for name, data in files.items() if b"stateVersion" in data] == []
    assert {name for name, data in files.items() if b"dataVersion" in data} == {"subscriptionGroup.json", "topics.json"}
    with open_store(store) as found:
        assert found.version.line == "4.9"


@pytest.mark.parametrize("keys", [{}, {"enableLmq": "true"}])
def test_positions_are_kept_in_the_file_that_has_them(tmp_path, keys):
    store = copy_store("orders-4.9.7", tmp_path)
    with open_store(store) as found:
        before = found.metadata.consumer_offsets
    assert before["pull-group"]["Orders"] == {0: 10, 1: 27, 2: 3, 3: 24}

    def commit(address):
        with Client(address) as client:
            fields = {"consumerGroup": "pull-group", "topic": "Orders", "queueId": 1}
            assert client.call(15, commitOffset=28, **fields).code == 0
            return client.call(14, **fields).fields["offset"]

    assert serve(store, commit, keys) == "28"
    assert not (store / "config" / "consumerOffset.json").exists()
    with open_store(store) as found:
        assert found.metadata.offset_tables.read.file_name == "lmqConsumerOffset.json"
        assert found.metadata.consumer_offsets["pull-group"]["Orders"] == {0: 10, 1: 28, 2: 3, 3: 24}
        assert found.metadata.consumer_offsets["ordered-half"] == before["ordered-half"]


def test_a_broken_file_of_positions_is_not_replaced_by_the_other(tmp_path):
    store = copy_store("orders-4.9.7", tmp_path)
    (store / "config" / "consumerOffset.json").write_text("broken")
    with open_store(store) as found:
        assert found.metadata.offset_tables.read is None
    with pytest.raises(ConfigFileError, match=r"consumerOffset\.json: is not valid"):
        serve(store, lambda _: None)


def test_relative_directories_of_a_configuration_start_at_its_file_when_a_store_is_only_read(tmp_path, original):
    store, _ = original
    (store / "commitlog").rename(tmp_path / "records")
    config = tmp_path / "relative.conf"
    config.write_text("storePathCommitLog=records\n")

    def pull(address):
        with Client(address) as client:
            return len(bodies(client.pull("Orders", 0, 0)))

    assert serve(store, pull, config, read_only=True) > 0
