"""What outlives the process, what is put down where, and stores that are only read."""

import asyncio
import json
import socket
from types import SimpleNamespace

import pytest

from mqtool.errors import UsageError
from mqtool.formats import config_files
from mqtool.protocol import Command
from mqtool.server.broker.service import Registration
from mqtool.server.net.connections import Connection
from mqtool.server.serve import ServeOptions, Server
from mqtool.server.testing import MqServer
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.store import open_store
from mqtool.verify import State, verify
from tests.support.damage import damage_case
from tests.support.remoting import Client, bodies, records
from tests.support.stores import answers, copy_store, store_fixture, tree_digest
from tests.unit.server.broker.conftest import until
from tests.unit.server.broker.test_pop import pop


@pytest.mark.slow
def test_everything_is_there_after_an_orderly_stop(tmp_path):
    store = tmp_path / "store"
    with MqServer(store) as server:
        with Client(server.broker_address) as client:
            client.put("Kept", b"before", 1)
            client.put("Kept", b"delayed", 1, properties={"DELAY": "1"})
            client.put("Kept", b"timed", 1, properties={"TIMER_DELAY_MS": "1500"})
            client.heartbeat("c@1", consumers={"GKept": ["Kept"]})
            client.call(15, consumerGroup="GKept", topic="Kept", queueId=1, commitOffset=1)
        server.restart()
        with Client(server.broker_address) as client:
            assert client.call(14, consumerGroup="GKept", topic="Kept", queueId=1).fields["offset"] == "1"
            assert client.call(352, group="GKept").code == 0
            found = [b"before"]
            while len(found) < 3:
                found += bodies(client.pull("Kept", 1, len(found), hold_ms=20_000))
            assert (found[0], set(found[1:])) == (b"before", {b"delayed", b"timed"})
    assert not (store / "abort").exists()
    with open_store(store) as kept:
        assert verify(kept).state is State.CLEAN


def test_tables_are_the_real_broker_s(tmp_path):
    store = tmp_path / "store"
    with MqServer(store) as server, Client(server.broker_address) as client:
        client.put("Tables", b"x")
    topics = config_files.parse_topics((store / "config" / "topics.json").read_bytes())
    assert topics.topic_config_table["SCHEDULE_TOPIC_XXXX"].write_queue_nums == 18
    assert topics.topic_config_table["TBW102"].perm == 7
    real = json.loads((store_fixture("orders-5.5.0").directory / "config" / "topics.json").read_text("utf-8"))
    shown = json.loads((store / "config" / "topics.json").read_text("utf-8"))["topicConfigTable"]["TBW102"]
    assert shown == real["topicConfigTable"]["TBW102"]


@pytest.fixture
def with_newer_retry_topic(tmp_path):
    """A store with a retry topic that a broker with enableRetryTopicV2 made: its name is not one that clients may give."""
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    table = {
        name: {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for name in ("T", "%RETRY%G+T")
    }
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    (config / "subscriptionGroup.json").write_text('{"subscriptionGroupTable": {"G": {"groupName": "G"}}}')
    (config / "consumerOffset.json").write_text('{"offsetTable": {"T@G": {0: 0}}}')
    return tmp_path / "store"


def test_retry_topics_of_the_newer_form_are_those_of_their_group(with_newer_retry_topic):
    """SendMessageProcessor.handleRetryAndDLQ and AdminBrokerProcessor.deleteTopic of 5.5.0."""
    with MqServer(with_newer_retry_topic) as server, Client(server.broker_address) as client:
        assert client.put("%RETRY%G+T", b"again").code == 0
        assert client.call(351, topic="%RETRY%G+T").code == 0
        assert client.call(215, topic="T").code == 0
        assert client.call(351, topic="%RETRY%G+T").code == 17


def test_an_empty_server_is_empty_again_after_a_reset(tmp_path):
    with MqServer() as server:
        with Client(server.broker_address) as client:
            client.put("Gone", b"x")
        address = server.broker_address
        server.reset()
        assert server.broker_address == address
        with Client(server.broker_address) as client:
            assert client.call(351, topic="Gone").code == 17


def test_senders_that_wait_for_the_disk_are_answered_when_it_is_there(tmp_path):
    with MqServer(tmp_path / "store", flushDiskType="SYNC_FLUSH") as server, Client(server.broker_address) as client:
        sent = [
            client.send(
                310, b"m", a="P", b="Sync", c="TBW102", d=4, e=0, f=0, g=1, h=0, j=0, i=f"UNIQ_KEY\x01{number:032X}\x02"
            )
            for number in range(20)
        ]
        for opaque in sent:
            answer = client.answer(opaque)
            assert answer.code == 0
            place = int(answer.fields["msgId"][-16:], 16)
            assert server.broker.messages.flushed_offset > place
        until(lambda: len(bodies(client.pull("Sync"))) == 20)
        client.put("Sync", b"nobody waits", 1, properties={"WAIT": "false"})
        until(lambda: bodies(client.pull("Sync", 1)) == [b"nobody waits"])


def read_only(store, consume):
    """Serves a store without writing, and returns what a function that is given the address returns."""

    async def main():
        async with Server(ServeOptions(store, read_only=True)) as server:
            return await asyncio.to_thread(consume, server.addresses["broker"])

    return asyncio.run(main())


@pytest.mark.parametrize("name", ["orders-5.5.0", "orders-4.9.7", "crash-5.5.0"])
def test_a_store_that_is_only_read_gives_what_the_broker_gave_and_stays_as_it_is(tmp_path, name):
    store = copy_store(name, tmp_path)
    rows = [row for row in answers(name, "queues") if row["maxOffset"] > row["minOffset"]][:6]

    def consume(address):
        with Client(address) as client:
            for row in rows:
                found, offset = [], row["minOffset"]
                while offset < row["maxOffset"]:
                    answer = client.pull(row["topic"], row["queueId"], offset)
                    if answer.code == 17:
                        break
                    found += [facts["physical_offset"] for facts, _ in records(answer)]
                    offset = int(answer.fields["nextBeginOffset"])
                if offset >= row["maxOffset"]:
                    assert found == [physical_offset for _, physical_offset, *_ in row["units"]]
            assert client.put(rows[0]["topic"]).code == 16
            assert (
                client.call(
                    17, topic="New", defaultTopic="TBW102", readQueueNums=1, writeQueueNums=1, perm=6, order=False
                ).code
                == 16
            )
            return len(rows)

    before = tree_digest(store)
    assert read_only(store, consume) > 0
    assert tree_digest(store) == before


@pytest.mark.parametrize("case", ["old-flip-body@5.5.0-clean", "old-zero-page@5.5.0-clean", "flip-magic@5.5.0-crash"])
def test_consumers_move_on_past_what_is_damaged(tmp_path, case):
    store = damage_case(case, tmp_path)
    sound = damage_case(f"none@{case.partition('@')[2]}", tmp_path / "sound")

    def consume(address):
        found = {}
        with Client(address) as client:
            topics = client.call(21).json["topicConfigTable"]
            for topic, config in topics.items():
                for queue in range(min(8, config["readQueueNums"])):
                    offset, end = 0, int(client.call(30, topic=topic, queueId=queue).fields["offset"])
                    offset = int(client.call(31, topic=topic, queueId=queue).fields["offset"])
                    while offset < end:
                        answer = client.pull(topic, queue, offset)
                        assert answer.code in (0, 20, 21)
                        following = int(answer.fields["nextBeginOffset"])
                        assert following > offset
                        found |= {(topic, queue, facts["queue_offset"]): body for facts, body in records(answer)}
                        offset = following
        return found

    whole, damaged = read_only(sound, consume), read_only(store, consume)
    assert 0 < len(damaged) < len(whole)
    assert damaged.items() <= whole.items()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.parametrize("taken", ["admin", "namesrv", "broker", "grpc", "ha"])
def test_a_start_that_fails_leaves_ports_and_store_free_and_nothing_running(tmp_path, taken):
    ports = {name: free_port() for name in ("broker", "namesrv", "grpc", "admin", "ha")}
    options = ServeOptions(
        tmp_path / "store",
        port=ports["broker"],
        name_server_port=ports["namesrv"],
        grpc_port=ports["grpc"],
        admin_port=ports["admin"],
        config=BrokerConfig({"haListenPort": str(ports["ha"])}, source="test"),
    )

    async def main():
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", ports[taken]))
            one.listen()
            with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{ports[taken]}"):
                await Server(options).start()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        async with Server(options) as server:
            return {name: int(address.rpartition(":")[2]) for name, address in server.addresses.items()}

    assert asyncio.run(main()) == ports | {"vip": ports["broker"] - 2}


def test_where_the_port_of_the_vip_channel_is_taken_others_are_served(tmp_path, caplog):
    port = free_port()

    async def main():
        with socket.socket() as one:
            one.bind(("127.0.0.1", port - 2))
            one.listen()
            async with Server(ServeOptions(tmp_path, port=port)) as server:
                assert "vip" not in server.addresses
                connection = await Connection.open(server.addresses["broker"])
                answer = await connection.call(Command(28), 20)
                connection.close()
                return answer.code

    assert asyncio.run(main()) == 0
    assert f"no VIP channel, so real slaves get no topics: cannot listen on 127.0.0.1:{port - 2}" in caplog.text


def test_a_name_server_that_is_down_is_logged_and_the_broker_serves(tmp_path, caplog):
    address = f"127.0.0.1:{free_port()}"
    config = BrokerConfig({"namesrvAddr": address}, source="test")

    async def main():
        async with Server(ServeOptions(tmp_path, config=config)) as server:
            await server._registration.wait_done()

    asyncio.run(main())
    assert f"not registered name_server={address}" in caplog.text
    assert f"not unregistered name_server={address}" in caplog.text


def test_a_change_is_registered_by_a_round_that_began_after_it(monkeypatch):
    may_end, sent = asyncio.Event(), []

    async def registers(self, address):
        sent.append(broker.topics.content)
        await may_end.wait()

    async def main():
        monkeypatch.setattr(Registration, "_register", registers)
        registration = Registration(broker, None, ["127.0.0.1:1"])
        running = asyncio.ensure_future(registration.run())
        await asyncio.sleep(0)
        broker.topics.content = "with a new topic"
        registration.trigger()
        waiting = asyncio.ensure_future(registration.wait_done())
        may_end.set()
        await waiting
        running.cancel()

    broker = SimpleNamespace(topics=SimpleNamespace(content="before"))
    asyncio.run(main())
    assert sent == ["before", "with a new topic"]


@pytest.mark.slow
def test_positions_of_services_after_the_end_of_their_queues_are_corrected(tmp_path):
    """As after a crash that cut the log: what is sent then is delivered, and what was popped comes again."""
    store = tmp_path / "store"
    with MqServer(store) as server, Client(server.broker_address) as client:
        client.put("Later", b"x")
        client.heartbeat("c@1", consumers={"GLater": ["Later"]})
    path = store / "config" / "timercheck"
    data = bytearray(path.read_bytes())
    data[16:24] = (1000).to_bytes(8, "big")
    path.write_bytes(data)
    path = store / "config" / "consumerOffset.json"
    document = json.loads(path.read_text("utf-8"))
    revive = "rmq_sys_REVIVE_LOG_DefaultCluster"
    document["offsetTable"][f"{revive}@CID_RMQ_SYS_REVIVE_GROUP"] = dict.fromkeys(map(str, range(8)), 1000)
    path.write_text(json.dumps(document), "utf-8")
    with MqServer(store) as server, Client(server.broker_address) as client:
        client.put("Later", b"timed", properties={"TIMER_DELAY_MS": "1000"})
        until(lambda: bodies(pop(client, "Later", group="GLater", invisible=1500)) == [b"x"])
        found = []
        until(lambda: found.extend(bodies(pop(client, "Later", group="GLater"))) or len(found) == 2)
        assert set(found) == {b"x", b"timed"}
