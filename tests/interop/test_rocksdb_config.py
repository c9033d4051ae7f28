"""Topics, groups and consumer offsets in RocksDB: what the real broker kept there, and both ways to files and back."""

import importlib.util
import json
import re

import pytest

import mqtool
from mqtool.convert.queues import into_files, into_rocksdb
from mqtool.store.config.rocksdb import is_database
from tests.support.remoting import Client
from tests.support.stores import copy_store

if importlib.util.find_spec("rocksdict") is None:
    pytest.skip("rocksdict is not installed: the extra rocksdb has it", allow_module_level=True)

pytestmark = pytest.mark.interop

KEYS = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "timerWheelEnable": False,
    "autoCreateSubscriptionGroup": True,
}
ROCKS = {**KEYS, "storeType": "defaultRocksDB"}
QUERY_OFFSET, UPDATE_OFFSET, CREATE_TOPIC, CREATE_GROUP = 14, 15, 17, 200
GET_TOPICS, GET_GROUPS = 21, 201
OFFSETS = {("GroupA", "Rocks", 0): 5, ("GroupA", "Rocks", 1): 0, ("GroupB", "Rocks", 0): 7, ("GroupB", "Made", 3): 0}
TOPIC = {
    "topic": "Made",
    "defaultTopic": "TBW102",
    "readQueueNums": 4,
    "writeQueueNums": 5,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": False,
}
GROUP = {"groupName": "GroupA", "retryMaxTimes": 3, "retryQueueNums": 2, "consumeBroadcastEnable": False}


def ask(client, code, body=b"", **fields):
    """One request and its answer."""
    return client.answer(client.send(code, body, **fields))


def offsets_of(broker):
    """What a running broker answers to each query of a consumer offset; None where it knows none."""
    found = {}
    with Client(broker.address) as client:
        for group, topic, queue in OFFSETS:
            answer = ask(client, QUERY_OFFSET, consumerGroup=group, topic=topic, queueId=queue, setZeroIfNotFound=False)
            found[group, topic, queue] = int(answer.fields["offset"]) if answer.code == 0 else None
    return found


def give_tables(broker):
    """Gives a broker a topic, a group and consumer offsets."""
    with Client(broker.address) as client:
        assert ask(client, CREATE_TOPIC, **TOPIC).code == 0
        for name in ("GroupA", "GroupB"):
            assert ask(client, CREATE_GROUP, json.dumps(GROUP | {"groupName": name}).encode()).code == 0
        for (group, topic, queue), offset in OFFSETS.items():
            answer = ask(client, UPDATE_OFFSET, consumerGroup=group, topic=topic, queueId=queue, commitOffset=offset)
            assert answer.code == 0


def read(root, keys):
    """Offsets, and what matters of topic and group, as mqtool reads them."""
    with mqtool.open(root, keys) as store:
        tables = store.metadata
        offsets = {
            (group, topic, queue): offset
            for group, topics in tables.consumer_offsets.items()
            for topic, queues in topics.items()
            for queue, offset in queues.items()
        }
        topic, group = tables.topics["Made"], tables.groups["GroupA"]
        return offsets, (topic.read_queue_nums, topic.write_queue_nums), (group.retry_max_times, group.retry_queue_nums)


def exported(broker, name):
    """What the broker's own tool makes of a database: its rows as JSON."""
    printed = broker.rocketmq.admin(
        "rocksDBConfigToJson",
        "-p",
        str(broker.store / "config"),
        "-t",
        name,
        "-j",
        "true",
        name_server=broker.name_server,
    )
    whole = printed[printed.index("{") : printed.rindex("}") + 1]
    return json.loads(re.sub(r"([{,]\s*)(\d+)\s*:", r'\1"\2":', whole))  # it leaves keys that are numbers bare


def serves(broker):
    """Whether a running broker knows topic, group and offsets."""
    with Client(broker.address) as client:
        topics = ask(client, GET_TOPICS).body
        groups = ask(client, GET_GROUPS).body
    return b'"Made"' in topics and b'"GroupA"' in groups and offsets_of(broker) == OFFSETS


@pytest.mark.night
def test_what_a_broker_keeps_in_rocksdb_is_read_and_goes_to_files_and_back(tmp_path, rocketmq):
    real = rocketmq("5.5.0")
    copy_store("rocksdb-cq-5.5.0", tmp_path)
    broker = real.start_broker(tmp_path, **ROCKS)
    give_tables(broker)
    assert serves(broker)
    broker.stop()
    assert is_database(broker.store / "config" / "consumerOffsets")
    assert read(broker.store, ROCKS) == (OFFSETS, (4, 5), (3, 2))
    table = exported(broker, "consumerOffsets")["offsetTable"]
    assert {
        (group, topic, int(queue)): offset
        for name, kept in table.items()
        for topic, _, group in [name.partition("@")]
        for queue, offset in kept.get("offsetTable", kept).items()
    } == OFFSETS

    with mqtool.open(broker.store, ROCKS) as store:
        into_files(store, tmp_path / "plain" / "store")
    assert read(tmp_path / "plain" / "store", KEYS) == (OFFSETS, (4, 5), (3, 2))
    plain = real.start_broker(tmp_path / "plain", **KEYS)
    assert serves(plain)
    plain.stop()

    with mqtool.open(plain.store, KEYS) as store:
        into_rocksdb(store, tmp_path / "back" / "store")
    back = real.start_broker(tmp_path / "back", **ROCKS)
    assert serves(back)
    back.stop()
    assert read(back.store, ROCKS) == (OFFSETS, (4, 5), (3, 2))
