"""The name server: its answers are those that the real one of 5.5.0 gave, and silent brokers are forgotten."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mqtool.errors import UsageError
from mqtool.formats.config_files import DataVersion, TopicConfig
from mqtool.protocol import Command, RequestCode
from mqtool.protocol.registration_body import RegisterBody
from mqtool.server.namesrv import NameServer
from mqtool.server.net.connections import Connection, Listener
from mqtool.server.routes import QueueData, Registration, Routes
from mqtool.server.routes import route as route_body
from tests.support.name_server import ask, converse, registration, route, talk

RECORDED = {
    row["label"]: row
    for row in map(
        json.loads, (Path(__file__).parents[1] / "answers" / "name-server-5.5.0.jsonl").read_text("utf-8").splitlines()
    )
}


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, 60))


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    async def main() -> list[dict[str, Any]]:
        name_server = NameServer("127.0.0.1", 0)
        await name_server.start()
        found = await converse(name_server.address)
        await name_server.stop()
        return found

    return {row["label"]: json.loads(json.dumps(row)) for row in run(main())}


@pytest.mark.parametrize("label", [label for label, _ in talk()] + ["slave lost at last"])
def test_an_answer_is_that_of_the_real_name_server(ours, label):
    assert ours[label] == RECORDED[label]


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def body(*topics: str, counter: int = 1, state: int = 0) -> RegisterBody:
    return RegisterBody({topic: TopicConfig(topic, 4, 4, 6) for topic in topics}, DataVersion(counter, 1, state))


def broker(name: str = "broker-a", id_: int = 0, address: str = "10.0.0.1:10911", **options: Any) -> Registration:
    options.setdefault("body", body("T1", "T2"))
    return Registration("C1", name, id_, address, **options)


def test_a_broker_is_forgotten_after_120_seconds_without_a_word():
    async def main() -> list[int]:
        clock = Clock()
        name_server = NameServer("127.0.0.1", 0, clock=clock)
        await name_server.start()
        connection = await Connection.open(name_server.address)
        await connection.call(registration())
        codes = []
        for seconds in (119, 1, 1):
            clock.now += seconds
            name_server.forget_silent()
            asker = await Connection.open(name_server.address)
            codes.append((await asker.call(route("T1"))).code)
            asker.close()
        await name_server.stop()
        return codes

    assert run(main()) == [0, 0, 17]


def test_a_heartbeat_keeps_a_broker_known():
    clock = Clock()
    routes = Routes(clock)
    routes.register(broker())
    clock.now += 100
    routes.renew("C1", "10.0.0.1:10911")
    clock.now += 100
    assert routes.expired() == []
    clock.now += 100
    assert [live.registration.address for live in routes.expired()] == ["10.0.0.1:10911"]


def test_a_heartbeat_of_a_broker_that_is_not_registered_registers_nothing():
    routes = Routes(Clock())
    routes.renew("C1", "10.0.0.1:10911")
    assert (routes.live, routes.brokers) == ({}, {})


def test_a_broker_chooses_how_long_it_may_be_silent():
    clock = Clock()
    routes = Routes(clock)
    routes.register(broker(lifetime=10))
    clock.now += 11
    assert len(routes.expired()) == 1


def test_a_broker_of_the_same_process_is_never_silent_and_has_a_route():
    async def main() -> tuple[int, int]:
        clock = Clock()
        name_server = NameServer("127.0.0.1", 0, clock=clock)
        await name_server.start()
        name_server.register(broker())
        clock.now += 1e6
        name_server.forget_silent()
        connection = await Connection.open(name_server.address)
        known = (await connection.call(route("T1"))).code
        name_server.unregister(broker())
        gone = (await connection.call(route("T1"))).code
        connection.close()
        await name_server.stop()
        return known, gone

    assert run(main()) == (0, 17)


def test_topics_that_a_broker_adds_are_routed_and_others_stay():
    routes = Routes(Clock())
    routes.register(broker())
    routes.register(broker(body=body("T2", "T3", counter=2)))
    assert set(routes.topics) == {"T1", "T2", "T3"}


def test_topics_that_a_broker_no_longer_lists_are_deleted_where_that_is_switched_on():
    """Of this broker only, and only by a broker without static topics (RouteInfoManager.registerBroker, 5.5.0)."""

    async def main() -> list[set[str]]:
        name_server = NameServer("127.0.0.1", 0, settings={"deleteTopicWithBrokerRegistration": "true"})
        await name_server.start()
        other = broker("broker-b", 0, "10.0.0.2:10911", body=body("T1", "T3"))
        found = []
        for one in (broker(), other, broker(body=body("T2", "T4", counter=2))):
            name_server.register(one)
            found.append({topic + " " + name for topic, of in name_server.routes.topics.items() for name in of})
        connection = await Connection.open(name_server.address)
        static = replace(body("T5", counter=3), mappings={"T5": {"bname": "broker-a"}})
        name_server.register(broker(body=static))
        found.append(set(name_server.routes.topics))
        assert (await connection.call(registration(topics=("T5", "T6"), counter=4))).code == 0
        found.append(set(name_server.routes.topics))
        connection.close()
        await name_server.stop()
        return found

    assert run(main()) == [
        {"T1 broker-a", "T2 broker-a"},
        {"T1 broker-a", "T2 broker-a", "T1 broker-b", "T3 broker-b"},
        {"T2 broker-a", "T4 broker-a", "T1 broker-b", "T3 broker-b"},
        {"T1", "T2", "T3", "T4", "T5"},
        {"T1", "T3", "T5", "T6"},
    ]


def test_queues_that_an_operator_registers_replace_those_of_the_topic():
    routes = Routes(Clock())
    routes.register(broker())
    routes.put_topic("T1", [QueueData("broker-a", 16, 16, 6)])
    assert routes.topics["T1"]["broker-a"].write_queue_nums == 16
    routes.put_topic("T1", [QueueData("unknown", 8, 8, 6)])
    assert list(routes.topics["T1"]) == ["broker-a"]


@pytest.mark.parametrize(("acting_master", "expected"), [(True, []), (False, ["broker-a"])])
def test_a_stand_in_master_of_another_zone_is_not_in_the_route(acting_master, expected):
    """ZoneRouteRPCHook (5.5.0) filters the finished answer, in which the slave is the master."""
    routes = Routes(Clock())
    routes.register(broker(id_=1, acting_master=acting_master, zone="far"))
    route_of = route_body(routes, "T1", standard=True, acting_master=True, zone="near")
    found = json.loads(route_of or b"")
    assert [one["brokerName"] for one in found["brokerDatas"]] == expected
    assert [one["brokerName"] for one in found["queueDatas"]] == expected


@pytest.mark.parametrize("acting_master", [True, False])
def test_only_groups_with_a_stand_in_master_are_notified_of_a_broker_that_left(acting_master):
    """RouteInfoManager.notifyMinBrokerIdChanged (5.5.0)."""
    routes = Routes(Clock())
    for id_ in (0, 1):
        routes.register(broker(id_=id_, address=f"10.0.0.{id_}:10911", acting_master=acting_master))
    assert not routes.unregister("C1", "broker-b", 0, "10.0.0.0:10911")
    assert routes.unregister("C1", "broker-a", 0, "10.0.0.0:10911") is acting_master


def test_topics_of_a_slave_count_only_where_it_may_stand_in_for_its_master():
    routes = Routes(Clock())
    routes.register(broker(id_=1, acting_master=None))
    assert routes.topics == {}
    routes.register(broker("broker-b", 1, "10.0.0.2:10911", acting_master=True))
    assert {data.perm for queues in routes.topics.values() for data in queues.values()} == {4}


def test_the_last_slave_is_read_from_where_groups_allow_it():
    async def main() -> dict[str, Any]:
        name_server = NameServer("127.0.0.1", 0, settings={"supportActingMaster": "true"})
        await name_server.start()
        name_server.register(broker(acting_master=True))
        slave = broker(id_=1, address="10.0.0.2:10911", acting_master=True)
        name_server.register(slave)
        name_server.unregister(broker())
        connection = await Connection.open(name_server.address)
        found = json.loads((await connection.call(route("T1"))).body)
        connection.close()
        await name_server.stop()
        return found

    found = run(main())
    assert found["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.2:10911"}
    assert found["queueDatas"][0]["perm"] == 4


def test_an_id_held_with_a_higher_state_is_not_given_to_another_address():
    routes = Routes(Clock())
    routes.register(broker(body=body("T1", "T2", state=5)))
    routes.register(broker(address="10.0.0.9:10911", body=body("T1", "T2", state=4)))
    assert routes.brokers["broker-a"].addresses == {0: "10.0.0.1:10911"}
    routes.register(broker(address="10.0.0.9:10911", body=body("T1", "T2", state=6)))
    assert routes.brokers["broker-a"].addresses == {0: "10.0.0.9:10911"}


def test_a_slave_that_becomes_master_has_one_id():
    routes = Routes(Clock())
    routes.register(broker(id_=1, acting_master=True))
    routes.register(broker(id_=0, acting_master=True))
    assert routes.brokers["broker-a"].addresses == {0: "10.0.0.1:10911"}


def test_brokers_are_notified_of_a_new_lowest_id_where_that_is_switched_on():
    async def main() -> dict[str, str]:
        notified: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        slave = Listener(
            "127.0.0.1",
            0,
            {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: lambda command, peer: notified.set_result(command)},
        )
        await slave.start()
        name_server = NameServer("127.0.0.1", 0, settings={"notifyMinBrokerIdChanged": "true"}, version=479)
        await name_server.start()
        name_server.register(broker(acting_master=True))
        name_server.register(broker(id_=1, address=slave.address, ha_address="10.0.0.2:10912", acting_master=True))
        name_server.unregister(broker())
        command = await notified
        fields, version = command.fields, command.version
        assert version == 479  # 5.3.3
        assert fields.pop("minBrokerAddr") == slave.address
        await slave.stop()
        await name_server.stop()
        return fields

    assert run(main()) == {
        "minBrokerId": "1",
        "brokerName": "broker-a",
        "offlineBrokerAddr": "10.0.0.1:10911",
        "haBrokerAddr": "10.0.0.2:10912",
    }


async def conversation(*commands: Command, **settings: str) -> list[Command]:
    """What a name server answers to requests over one connection."""
    name_server = NameServer("127.0.0.1", 0, settings=settings)
    await name_server.start()
    connection = await Connection.open(name_server.address)
    found = [await connection.call(command) for command in commands]
    connection.close()
    await name_server.stop()
    return found


def test_brokers_are_told_when_another_one_registers_with_a_lower_id_and_when_it_leaves(caplog):
    async def main() -> list[dict[str, str]]:
        told: asyncio.Queue[Command] = asyncio.Queue()
        code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
        slave = Listener("127.0.0.1", 0, {code: lambda command, peer: told.put_nowait(command)})
        await slave.start()
        name_server = NameServer("127.0.0.1", 0, settings={"notifyMinBrokerIdChanged": "true"})
        await name_server.start()
        connection = await Connection.open(name_server.address)
        gone = registration(address="127.0.0.1:1", enableActingMaster="true")
        for command in (registration(id_=1, address=slave.address, enableActingMaster="true"), gone):
            assert (await connection.call(command)).code == 0
        found = [(await told.get()).fields]
        leave = {"clusterName": "C1", "brokerName": "broker-a", "brokerId": "0", "brokerAddr": "127.0.0.1:1"}
        assert (await connection.call(ask(RequestCode.UNREGISTER_BROKER, **leave))).code == 0
        found.append((await told.get()).fields)
        name_server.register(broker(id_=2, address="127.0.0.1:1", acting_master=True))
        name_server.unregister(broker(id_=1, address=slave.address))
        while "lowest broker id not sent" not in caplog.text:
            await asyncio.sleep(0.01)
        connection.close()
        await name_server.stop()
        await slave.stop()
        return found

    came, left = run(main())
    assert (came["minBrokerId"], came["minBrokerAddr"], "offlineBrokerAddr" in came) == ("0", "127.0.0.1:1", False)
    assert (left["minBrokerId"], left["offlineBrokerAddr"]) == ("1", "127.0.0.1:1")


def test_lists_of_topics_can_be_switched_off():
    lists = [(206, {}), (224, {"cluster": "C1"}), (311, {})]
    commands = [ask(code, **fields) for code, fields in lists]
    settings = {"enableTopicList": "false", "enableAllTopicList": "false"}
    found = run(conversation(*commands, **settings))
    assert [(one.code, one.remark) for one in found] == [(1, "disable")] * 3


def test_properties_and_versions_that_cannot_be_parsed_are_refused():
    version = b'{"counter":"one"}'
    found = run(conversation(ask(318, b"a=\\uZZZZ"), ask(322, version, clusterName="C1", brokerAddr="a:1")))
    assert [one.code for one in found] == [1, 1]
    assert found[0].remark == "string2Properties error"
    assert "counter" in (found[1].remark or "")


def test_filter_servers_and_mappings_of_static_topics_are_in_the_route_as_they_were_registered():
    routes = Routes(Clock())
    mapping = {"bname": "broker-a", "totalQueues": 8}
    registered = replace(body("T1", "T2"), filter_servers=["10.0.0.1:9000"], mappings={"T1": mapping})
    routes.register(broker(body=registered))
    for topic, mappings in (("T1", {"broker-a": mapping}), ("T2", None)):
        found = json.loads(route_body(routes, topic, standard=True, acting_master=True) or b"")
        assert found["filterServerTable"] == {"10.0.0.1:10911": ["10.0.0.1:9000"]}
        assert found.get("topicQueueMappingByBroker") == mappings
        assert found["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911"}


def test_all_properties_are_shown_as_lines():
    async def main() -> str:
        name_server = NameServer("127.0.0.1", 0)
        await name_server.start()
        connection = await Connection.open(name_server.address)
        await connection.call(ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true"))
        found = (await connection.call(ask(RequestCode.GET_NAMESRV_CONFIG))).body
        connection.close()
        await name_server.stop()
        return bytes(found).decode()

    lines = dict(line.split("=") for line in run(main()).splitlines())
    assert lines["orderMessageEnable"] == "true"
    assert lines["supportActingMaster"] == "false"


@pytest.mark.parametrize(
    "command",
    [
        ask(103, brokerName="b"),
        ask(318, b"\xff\xfe"),
        ask(217, b"{}"),
        ask(217, b'{"queueDatas":[1]}', topic="T"),
        ask(322, b"x", clusterName="c", brokerAddr="a"),
        ask(224),
        ask(205),
        ask(104, brokerId="x"),
        ask(103, b"\x00" * 40, compressed="true"),
        ask(103, compressed="true", bodyCrc32="zz"),
        ask(101),
        ask(219),
    ],
    ids=lambda command: f"{command.code}-{len(command.body)}-{len(command.fields)}",
)
def test_wrong_requests_are_answered_and_the_server_goes_on(command, caplog):
    async def main() -> tuple[int, int]:
        name_server = NameServer("127.0.0.1", 0)
        await name_server.start()
        connection = await Connection.open(name_server.address)
        wrong = await connection.call(command)
        right = await connection.call(ask(106))
        connection.close()
        await name_server.stop()
        return wrong.code, right.code

    assert run(main()) in {(1, 0), (0, 0)}


def test_a_broker_in_place_of_one_that_was_in_this_process_is_forgotten_without_its_connection():
    async def main() -> tuple[int, bool]:
        clock = Clock()
        name_server = NameServer("127.0.0.1", 0, clock=clock)
        name_server.routes.register(broker(lifetime=10))  # over no connection
        clock.now += 11
        await name_server.start()
        name_server.forget_silent()
        connection = await Connection.open(name_server.address)
        code = (await connection.call(route("T1"))).code
        connection.close()
        await name_server.stop()
        return code, bool(name_server.routes.live)

    assert run(main()) == (17, False)


def test_a_name_server_that_cannot_listen_can_be_stopped():
    async def main() -> None:
        first = NameServer("127.0.0.1", 0)
        await first.start()
        second = NameServer("127.0.0.1", first.port)
        with pytest.raises(UsageError, match="cannot listen on"):
            await second.start()
        await second.stop()
        await first.stop()

    run(main())


def test_a_name_server_that_stops_notifies_no_more():
    async def main() -> list[str]:
        came: list[str] = []
        slave = Listener("127.0.0.1", 0, {}, opened=lambda peer: came.append(peer.address))
        await slave.start()
        name_server = NameServer("127.0.0.1", 0, settings={"notifyMinBrokerIdChanged": "true"})
        await name_server.start()
        name_server.register(broker(acting_master=True))
        name_server.register(broker(id_=1, address=slave.address, acting_master=True))
        before = asyncio.all_tasks()
        name_server.unregister(broker())
        assert asyncio.all_tasks() > before
        await name_server.stop()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        await slave.stop()
        return came

    assert run(main()) == []


def test_a_notification_about_a_broker_that_is_not_alive_has_no_address_for_replication():
    """Two groups with one address: when the broker of one leaves, nothing is known about that of the other."""

    async def main() -> dict[str, str]:
        notified: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
        slave = Listener("127.0.0.1", 0, {code: lambda command, peer: notified.set_result(command)})
        await slave.start()
        name_server = NameServer("127.0.0.1", 0, settings={"notifyMinBrokerIdChanged": "true"})
        await name_server.start()
        name_server.register(broker(acting_master=True))
        name_server.register(broker(id_=1, address=slave.address, ha_address="10.0.0.2:10912", acting_master=True))
        name_server.register(broker("broker-b", 0, slave.address))
        name_server.unregister(broker("broker-b", 0, slave.address))
        name_server.unregister(broker())
        fields = (await notified).fields
        await slave.stop()
        await name_server.stop()
        return fields

    fields = run(main())
    assert (fields["minBrokerId"], "haBrokerAddr" in fields) == ("1", False)
