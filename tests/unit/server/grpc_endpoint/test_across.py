"""Messages of every type, sent by one protocol and consumed by the other; bodies in every encoding."""

import gzip
import time
import zlib

import pytest

from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.server.testing import MqServer
from tests.support.grpc_client import GrpcClient, code
from tests.support.remoting import Client, records
from tests.unit.server.broker.conftest import until
from tests.unit.server.broker.test_transactions import COMMIT, end, half
from tests.unit.server.grpc_endpoint.test_lite import create, named, sync, take

TYPES = ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY"]
GZIP = gzip.compress(b"hello" * 40, mtime=0)


@pytest.fixture(scope="module", params=["fast", "ordinary"])
def server(request):
    """A broker whose sends take the fast path, and one whose sends do not."""
    settings = {"enableLmq": "true", "enableMultiDispatch": "true", "transactionTimeOut": "60000"}
    with MqServer(fast_sends=request.param == "fast", **settings) as found:
        yield found


@pytest.fixture
def remoting(server):
    with Client(server.broker_address) as found:
        yield found


@pytest.fixture
def client(server):
    with GrpcClient(server.endpoints) as found:
        yield found


@pytest.fixture
def topic(server, request):
    name = "".join(one if one.isalnum() else "-" for one in request.node.name)[-100:]
    kind = request.node.callspec.params.get("kind", "NORMAL")
    server.create_topic(name, kind, queues=4)
    server.create_group(f"G{name}"[:100], fifo=kind == "FIFO")
    return name


def pulled(remoting, topic, count):
    """The messages in all queues of a topic, as a pull consumer gets them, once there are so many."""

    def found():
        return [one for queue in range(4) for one in records(remoting.pull(topic, queue)) if one]

    until(lambda: len(found()) == count)
    return found()


def send_by_grpc(client, topic, kind):
    """Sends two messages of a type; commits them, where that is to be said."""
    system = {
        "NORMAL": {"message_type": d.NORMAL},
        "FIFO": {"message_type": d.FIFO, "message_group": "g"},
        "DELAY": {"message_type": d.DELAY, "delivery_timestamp": {"seconds": int(time.time()) + 1}},
        "TRANSACTION": {"message_type": d.TRANSACTION},
        "PRIORITY": {"message_type": d.PRIORITY, "priority": 2},
    }[kind]
    client.produce(topic)
    ids = []
    for body in (b"one", b"two"):
        answer = client.send(topic, body, properties={"p": "ü"}, tag="t", keys=["k1", "k2"], **system)
        assert code(answer) == "OK"
        ids.append(answer.entries[0].message_id)
        if kind == "TRANSACTION":
            fields = {"message_id": ids[-1], "transaction_id": answer.entries[0].transaction_id, "resolution": d.COMMIT}
            assert code(client.call("EndTransaction", topic=named(topic), **fields)) == "OK"
    return ids


@pytest.mark.parametrize("kind", TYPES)
def test_from_grpc_to_remoting(client, remoting, topic, kind):
    ids = send_by_grpc(client, topic, kind)
    found = pulled(remoting, topic, 2)
    assert sorted(body for _, body in found) == [b"one", b"two"]
    for facts, body in found:
        properties = facts["properties"]
        assert properties["UNIQ_KEY"] == ids[[b"one", b"two"].index(body)]
        assert {name: properties[name] for name in ("TAGS", "KEYS", "p")} == {"TAGS": "t", "KEYS": "k1 k2", "p": "ü"}
        assert properties.get("__SHARDINGKEY") == ("g" if kind == "FIFO" else None)
        assert properties.get("_SYS_MSG_PRIORITY_") == ("2" if kind == "PRIORITY" else None)
    queues = {facts["queue"] for facts, _ in found}
    assert len(queues) == 1 if kind == "FIFO" else queues == {2} if kind == "PRIORITY" else queues <= {0, 1, 2, 3}
    if kind == "FIFO":
        assert [body for _, body in found] == [b"one", b"two"]


@pytest.mark.parametrize(
    ("system", "is_usual"),
    [
        ({"tag": "t", "keys": ["k1", "k2"], "born_host": "here"}, True),
        ({"body_encoding": d.GZIP}, True),
        ({"message_id": "no letters: ü-1"}, False),
        ({"born_timestamp": {"seconds": -1}}, False),
        ({"born_timestamp": {"seconds": 253_402_300_799}}, True),
    ],
    ids=["usual", "compressed", "id", "before 1970", "year 9999"],
)
def test_a_message_is_stored_alike_whichever_path_it_takes(
    server, client, remoting, topic, system, is_usual, monkeypatch
):
    """Stored bytes and answer of a send by the fast path are those of an ordinary one, and unusual sends do not take it."""
    taken, fast = [], server.call(lambda: server._server.service.fast_sends)
    put = fast and fast.put

    def counted(*request):
        taken.append(put(*request))
        return taken[-1]

    if fast is not None:
        monkeypatch.setattr(fast, "put", counted)
    given = {"message_id": "01AB", "born_timestamp": {"seconds": 1_700_000_000}} | system
    answer = client.send(topic, GZIP, properties={"p": "ü"}, **given)
    assert [one is not None for one in taken] == ([True] if fast and is_usual else [])
    (entry,) = answer.entries
    assert (code(answer), entry.message_id, entry.transaction_id) == ("OK", given["message_id"], given["message_id"])
    ((facts, body),) = pulled(remoting, topic, 1)
    assert (body, facts["born"]) == (GZIP, given["born_timestamp"]["seconds"] * 1000)
    assert (facts["queue_offset"], facts["sys_flag"]) == (entry.offset, 1 if "body_encoding" in system else 0)
    properties = {
        "p": "ü",
        "UNIQ_KEY": given["message_id"],
        "RECONSUME_TIME": "0",
        "PGROUP": topic,
        **({"KEYS": "k1 k2", "TAGS": "t", "__BORNHOST": "here"} if "tag" in system else {}),
        "BORN_TIMESTAMP": str(given["born_timestamp"]["seconds"] * 1000),
    }
    assert {name: facts["properties"].get(name) for name in properties} == properties


def test_a_born_time_after_the_year_9999_is_that_of_the_send(client, remoting, topic):
    """Timestamps.isValid in SendMessageActivity (5.5.0)."""
    before = time.time_ns() // 1_000_000
    assert code(client.send(topic, b"x", born_timestamp={"seconds": 10**17})) == "OK"
    ((facts, _),) = pulled(remoting, topic, 1)
    assert before <= facts["born"] <= time.time_ns() // 1_000_000


def send_by_remoting(remoting, topic, kind):
    given = {
        "NORMAL": {},
        "FIFO": {"__SHARDINGKEY": "g"},
        "DELAY": {"TIMER_DELIVER_MS": str(int(time.time() * 1000) + 1000)},
        "TRANSACTION": {},
        "PRIORITY": {"_SYS_MSG_PRIORITY_": "2"},
    }[kind]
    for number, body in enumerate((b"one", b"two")):
        if kind == "TRANSACTION":
            assert remoting.answer(end(remoting, half(remoting, topic, body), COMMIT)).code == 0
            continue
        more = {"TAGS": "t", "KEYS": "k1 k2", "p": "ü", "UNIQ_KEY": f"{number:032X}"}
        assert remoting.put(topic, body, 1, properties=given | more).code == 0


@pytest.mark.parametrize("kind", TYPES)
def test_from_remoting_to_grpc(client, remoting, topic, kind):
    send_by_remoting(remoting, topic, kind)
    group = f"G{topic}"[:100]
    client.consume(group, topic)
    found = []
    until(lambda: found.extend(client.receive(group, topic)) or len(found) == 2)
    assert sorted(one.body for one in found) == [b"one", b"two"]
    for one in found:
        system = one.system_properties
        expected = {"NORMAL": d.NORMAL, "FIFO": d.FIFO, "DELAY": d.DELAY, "PRIORITY": d.PRIORITY}.get(kind)
        assert expected is None or system.message_type == expected
        assert system.message_group == ("g" if kind == "FIFO" else "")
        assert system.priority == (2 if kind == "PRIORITY" else 0)
        assert system.HasField("delivery_timestamp") == (kind == "DELAY")
        if kind != "TRANSACTION":
            assert (system.tag, list(system.keys), dict(one.user_properties)) == ("t", ["k1", "k2"], {"p": "ü"})
        assert code(client.ack(group, topic, one)) == "OK"
    if kind == "FIFO":
        assert [one.body for one in found] == [b"one", b"two"]


def pop_lite(remoting, group, topic, client_id):
    fields = {"maxMsgNum": 8, "invisibleTime": 60_000, "pollTime": 0, "bornTime": int(time.time() * 1000)}
    return remoting.call(200070, clientId=client_id, consumerGroup=group, topic=topic, **fields)


def test_lite_topics_both_ways(server, client, remoting):
    create(server, "LiteBoth", "GLiteA")
    create(server, "LiteBoth", "GLiteB")
    one = b'{"action":"COMPLETE_ADD","clientId":"r@1","group":"GLiteA","topic":"LiteBoth","liteTopicSet":["room"]}'
    assert remoting.call(200071, b'{"subscriptionSet":[%s]}' % one).code == 0
    client.consume("GLiteB", "LiteBoth", d.LITE_PUSH_CONSUMER)
    assert sync(client, "GLiteB", "LiteBoth", d.COMPLETE_ADD, "room") == "OK"
    assert code(client.send("LiteBoth", b"by grpc", lite_topic="room")) == "OK"
    assert remoting.put("LiteBoth", b"by remoting", properties={"__LITE_TOPIC": "room"}).code == 0
    until(lambda: server.call(lambda: server.broker.messages.queue_bounds("%LMQ%$LiteBoth$room", 0)) == (0, 2))
    assert [body for _, body in records(pop_lite(remoting, "GLiteA", "LiteBoth", "r@1"))] == [
        b"by grpc",
        b"by remoting",
    ]
    assert take(client, "GLiteB", "LiteBoth") == [b"by grpc", b"by remoting"]


@pytest.mark.parametrize("kind", ["NORMAL"])
def test_a_group_goes_on_in_the_other_protocol(client, remoting, topic, kind):
    group = f"G{topic}"[:100]
    for body in (b"1", b"2", b"3"):
        client.send(topic, body, message_type=d.NORMAL)
    client.consume(group, topic)
    found = []
    until(lambda: found.extend(client.receive(group, topic)) or len(found) == 3)
    for one in found:
        assert code(client.ack(group, topic, one)) == "OK"

    def committed():
        answers = [remoting.call(14, consumerGroup=group, topic=topic, queueId=queue) for queue in range(4)]
        return sum(int(one.fields["offset"]) for one in answers if one.code == 0)

    until(lambda: committed() == 3)
    remoting.put(topic, b"4", 2)
    assert [one.body for one in client.receive(group, topic)] == [b"4"]


@pytest.mark.parametrize("kind", ["NORMAL"])
@pytest.mark.parametrize(
    "body", [GZIP, zlib.compress(b"hello" * 40), b"not what it claims"], ids=["gzip", "zlib", "neither"]
)
def test_a_body_is_stored_as_it_was_sent_and_marked(client, remoting, topic, kind, body):
    """As rocketmq-proxy 5.5.0: COMPRESSED and no type of compression, whatever the body is."""
    assert code(client.send(topic, body, body_encoding=d.GZIP)) == "OK"
    ((facts, stored),) = pulled(remoting, topic, 1)
    assert (stored, facts["sys_flag"]) == (body, 1)


@pytest.mark.parametrize("kind", ["NORMAL"])
@pytest.mark.parametrize(
    ("body", "flag", "expected"),
    [
        (GZIP, 1, (GZIP, d.GZIP)),
        (zlib.compress(b"hello"), 1, (b"hello", d.IDENTITY)),
        (zlib.compress(b"hello"), 0x301, (b"hello", d.IDENTITY)),
        (b"nonsense", 0x301, (b"nonsense", d.GZIP)),
        (b"\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00hello", 0x201, (b"hello", d.IDENTITY)),
        (b"plain", 0, (b"plain", d.IDENTITY)),
    ],
    ids=["gzip", "zlib", "zlib-typed", "damaged", "zstd", "plain"],
)
def test_a_compressed_body_arrives_so_that_a_client_can_read_it(client, remoting, topic, kind, body, flag, expected):
    if b"hello" in body and flag == 0x201:
        pytest.importorskip("zstandard")
    assert remoting.put(topic, body, sys_flag=flag).code == 0
    group = f"G{topic}"[:100]
    client.consume(group, topic)
    (found,) = client.receive(group, topic)
    assert (found.body, found.system_properties.body_encoding) == expected


@pytest.mark.parametrize("own", [False, True])
def test_a_route_has_the_port_that_the_settings_say(own):
    with MqServer(useEndpointPortFromRequest=str(own).lower()) as server, GrpcClient(server.endpoints) as client:
        server.create_topic("Mapped")
        asked = d.Endpoints(scheme=d.DOMAIN_NAME, addresses=[d.Address(host="docker.example", port=32768)])
        route = client.call("QueryRoute", topic=named("Mapped"), endpoints=asked)
        found = {(one.host, one.port) for queue in route.message_queues for one in queue.broker.endpoints.addresses}
        assert found == {("docker.example", 32768 if own else int(server.endpoints.rpartition(":")[2]))}
        assigned = client.call("QueryAssignment", topic=named("Mapped"), group=named("G"), endpoints=asked)
        assert {one.message_queue.broker.endpoints.addresses[0].port for one in assigned.assignments} == {
            next(iter(found))[1]
        }
