"""Static topics: requests that need their mapping are refused, others are answered; slaves get the mapping."""

import json
from types import SimpleNamespace

import pytest

from mqtool.errors import ConfigFileError
from mqtool.server.broker.send.fast_path import SendNumbers
from mqtool.server.testing import MqServer
from tests.support.remoting import Client

MAPPING = {
    "bname": "broker-a",
    "currIdMap": {},
    "dirty": False,
    "epoch": 1,
    "hostedQueues": {
        "2": [
            {
                "bname": "broker-a",
                "endOffset": -1,
                "gen": 0,
                "logicOffset": 1000,
                "queueId": 0,
                "startOffset": 0,
                "timeOfEnd": -1,
                "timeOfStart": -1,
            }
        ]
    },
    "scope": "__global__",
    "topic": "S1",
    "totalQueues": 4,
}
"""Of a topic that a real 5.5.0 created: logical queue 2 is physical queue 0, and begins at the logical offset 1000."""
VERSION = {"counter": 1, "stateVersion": 0, "timestamp": 1795823427180}


def write(root, document):
    path = root / "config" / "topicQueueMapping.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), "utf-8")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    store = tmp_path_factory.mktemp("static") / "store"
    write(store, {"topicQueueMappingInfoMap": {"S1": MAPPING}, "dataVersion": VERSION})
    with MqServer(store) as found:
        found.create_topic("S1", queues=1)
        found.create_topic("Plain", queues=1)
        found.create_topic("Empty", queues=1)
        yield found


@pytest.fixture
def client(server):
    with Client(server.broker_address) as found:
        yield found


def of_queue(client, code, topic, **fields):
    names = {"topic": topic, "queueId": 0, "consumerGroup": "G", "commitOffset": 1, "timestamp": 0}
    return client.call(code, **(names | fields))


CODES = [14, 15, 29, 30, 31, 32]


def test_messages_for_logical_queues_are_refused(client):
    client.heartbeat("c@1", consumers={"G": ["S1"]})
    answer = client.put("S1", b"misplaced", 2)
    assert (answer.code, "static topic" in answer.remark) == (501, True)
    assert client.put("S1", b"misplaced", 0).code == 501
    assert client.pull("S1").code == 501
    assert client.call(215, topic="S1").code == 501
    assert client.put("Plain", b"placed").code == 0


@pytest.mark.parametrize("code", CODES)
def test_offsets_of_logical_queues_are_refused_and_those_of_physical_ones_answered(client, code):
    client.heartbeat("c@1", consumers={"G": ["S1"]})
    assert of_queue(client, code, "S1").code == of_queue(client, code, "S1", lo=True).code == 501
    assert of_queue(client, code, "S1", lo=False).code == of_queue(client, code, "Empty").code != 501


def test_the_fast_path_of_grpc_clients_takes_no_message_of_a_static_topic(server):
    fast = server.call(lambda: server._server.service.fast_sends)
    numbers = SendNumbers(0, 0, 1, 0, 0)
    peer = SimpleNamespace(address="c", attributes={"host_bytes": bytes(8)})
    sent = {
        topic: server.call(lambda topic=topic: fast.put(topic, numbers, "UNIQ_KEY\x01K\x02", b"x", peer))
        for topic in ("S1", "Plain")
    }
    assert (sent["S1"], sent["Plain"].ok) == (None, True)


def test_slaves_get_the_mapping(client):
    found = client.call(21).json
    assert (found["mappingDataVersion"], found["topicQueueMappingDetailMap"]) == (VERSION, {"S1": MAPPING})
    total = int(client.call(21, topicSeq=0, maxTopicNum=1).fields["totalTopicNum"])
    pages = [client.call(21, topicSeq=seq, maxTopicNum=1).json for seq in range(total)]
    mapped = {tuple(page["topicConfigTable"]): page["topicQueueMappingDetailMap"] for page in pages}
    assert {topics: maps for topics, maps in mapped.items() if maps} == {("S1",): {"S1": MAPPING}}


def test_without_static_topics_slaves_get_none(tmp_path):
    write(tmp_path / "store", {"topicQueueMappingInfoMap": {}})
    with MqServer(tmp_path / "store") as server, Client(server.broker_address) as client:
        assert client.call(21).json["topicQueueMappingDetailMap"] == {}
        assert client.put("S1", b"placed").code == 0


def test_a_mapping_that_cannot_be_read_is_an_error(tmp_path):
    write(tmp_path / "store", {"topicQueueMappingInfoMap": [5]})
    with pytest.raises(ConfigFileError, match=r"topicQueueMapping\.json: "), MqServer(tmp_path / "store"):
        pass
