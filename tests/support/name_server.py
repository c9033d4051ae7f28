"""One conversation with a name server, the same with the real one and with ours, and its answers in comparable form."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from mqtool.formats.codec import crc32
from mqtool.formats.config_files import DataVersion, TopicConfig
from mqtool.protocol import Command, RequestCode, registration_body
from mqtool.protocol.registration_body import RegisterBody, document_in
from mqtool.server.namesrv import NameServer
from mqtool.server.net.connections import Connection

R = RequestCode
WORDS_OF_JAVA = {"register without fields", "register with a broken body"}
"""Answers whose remarks are stack traces: only their code is compared."""


def registration(
    name: str = "broker-a",
    address: str = "10.0.0.1:10911",
    id_: int = 0,
    cluster: str = "C1",
    topics: tuple[str, ...] = ("T1", "T2"),
    *,
    counter: int = 1,
    compressed: bool = False,
    crc: bool = True,
    state: int = 0,
    **extra: str,
) -> Command:
    """A broker's REGISTER_BROKER. Topics that begin with U or S have the flag of units."""
    flags = {"U": 1, "S": 2}
    table = {topic: TopicConfig(topic, 4, 4, 6, topic_sys_flag=flags.get(topic[0], 0)) for topic in topics}
    version = DataVersion(counter, 1_700_000_000_000, state)
    body = registration_body.build(RegisterBody(table, version), compressed=compressed)
    fields = {
        "brokerName": name,
        "brokerAddr": address,
        "clusterName": cluster,
        "haServerAddr": address[:-1] + "2",
        "brokerId": str(id_),
        "compressed": str(compressed).lower(),
        "bodyCrc32": str(crc32(body) if crc else 5),
        **extra,
    }
    return Command(R.REGISTER_BROKER, fields=fields, body=body)


def ask(code: int, body: bytes = b"", **fields: str) -> Command:
    """A request."""
    return Command(code, fields=fields, body=body)


def versioned(address: str, counter: int) -> Command:
    """A broker's QUERY_DATA_VERSION."""
    return ask(
        R.QUERY_DATA_VERSION,
        b'{"counter":%d,"stateVersion":0,"timestamp":1700000000000}' % counter,
        brokerName="broker-a",
        brokerAddr=address,
        clusterName="C1",
        brokerId="0",
    )


def route(topic: str, version: int = 513, **fields: str) -> Command:
    """GET_ROUTEINFO_BY_TOPIC."""
    return Command(R.GET_ROUTEINFO_BY_TOPIC, fields={"topic": topic, **fields}, version=version)


def zoned(zone: str) -> Command:
    """GET_ROUTEINFO_BY_TOPIC of a client that wants brokers nearby."""
    return ask(R.GET_ROUTEINFO_BY_TOPIC, topic="T1", __ZONE_MODE="true", __ZONE_NAME=zone)


def order(topic: str) -> Command:
    """A PUT_KV_CONFIG that gives a topic an order."""
    return ask(R.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key=topic, value="broker-a:4")


def rows(name: str) -> bytes:
    """A body that enters a topic by hand."""
    row = '{"brokerName":"%s","perm":6,"readQueueNums":4,"writeQueueNums":4,"topicSysFlag":0}'
    return ('{"queueDatas":[' + row % "broker-a" + "," + row % name + "]}").encode()


def talk() -> list[tuple[str, Command]]:
    """What is said, in this order. A label that begins with "slave" goes over a second connection; one that ends in
    "at last" is asked until the answer is another than the one before: the real server forgets brokers in a thread.
    """
    broken = Command(R.REGISTER_BROKER, fields=registration().fields | {"bodyCrc32": "0"}, body=b"xx")
    empty = Command(R.REGISTER_BROKER, fields=registration("broker-n", "10.0.0.9:10911").fields | {"bodyCrc32": "0"})
    return [
        ("no route", route("T1")),
        ("route of nothing", ask(105)),
        ("no clusters", ask(106)),
        ("no topics", ask(206)),
        ("no system topics", ask(304)),
        ("register", registration()),
        ("slave", registration(id_=1, address="10.0.0.2:10911", enableActingMaster="true")),
        ("wrong checksum", registration(crc=False)),
        (
            "compressed",
            registration("broker-b", "10.0.0.3:10911", cluster="C2", topics=("T2", "UU", "SU", "Ünï"), compressed=True),
        ),
        ("units by JSON", registration("broker-u", "10.0.0.6:10911", cluster="C3", topics=("U1", "S1", "P1"))),
        ("one topic", registration("broker-c", "10.0.0.4:10911", topics=("T1",))),
        ("in a zone", registration("broker-z", "10.0.0.5:10911", topics=("T1", "T9"), __ZONE_NAME="z1")),
        *[(f"route for version {version}", route("T2", version)) for version in (513, 407, 401, 400, 317)],
        ("route as JSON", route("T2", 317, acceptStandardJsonOnly="true")),
        ("beyond ASCII", route("Ünï")),
        ("route in a zone", zoned("z1")),
        ("route in no zone", zoned("z2")),
        ("zone without mode", route("T1", __ZONE_NAME="z1")),
        ("clusters", ask(106)),
        ("clusters for 4.9", Command(106, version=407)),
        ("topics", ask(206)),
        ("topics of a cluster", ask(224, cluster="C1")),
        ("topics of none", ask(224, cluster="CX")),
        *[(f"units {code}", ask(code)) for code in (311, 312, 313)],
        ("no value", ask(101, namespace="n", key="k")),
        ("put", ask(100, namespace="n", key="k", value="v ü")),
        ("value", ask(101, namespace="n", key="k")),
        ("values", ask(219, namespace="n")),
        ("no values", ask(219, namespace="x")),
        ("delete", ask(102, namespace="n", key="k")),
        ("values left", ask(219, namespace="n")),
        ("delete again", ask(102, namespace="n", key="k")),
        ("put nowhere", ask(100, key="k", value="v")),
        ("put an order", order("T1")),
        ("order not enabled", route("T1")),
        ("register again", registration()),
        ("wipe", ask(205, brokerName="broker-a")),
        ("wiped", route("T1")),
        ("same version", registration()),
        ("still wiped", route("T1")),
        ("wipe nobody", ask(205, brokerName="nope")),
        ("add", ask(327, brokerName="broker-a")),
        ("added", route("T1")),
        ("delete in another cluster", ask(216, topic="T1", clusterName="C2")),
        ("still there", route("T1")),
        ("delete in its cluster", ask(216, topic="T1", clusterName="C1")),
        ("deleted", route("T1")),
        ("delete everywhere", ask(216, topic="T2")),
        ("deleted everywhere", route("T2")),
        ("delete nothing", ask(216, topic="TN")),
        ("by hand with a stranger", ask(217, rows("nope"), topic="TR")),
        ("not entered", route("TR")),
        ("by hand", ask(217, rows("broker-b"), topic="TH")),
        ("entered", route("TH")),
        ("same topics", versioned("10.0.0.1:10911", 1)),
        ("other topics", versioned("10.0.0.1:10911", 2)),
        ("unknown broker", versioned("10.0.0.8:10911", 2)),
        ("members", ask(901, clusterName="C1", brokerName="broker-a")),
        ("no members", ask(901, clusterName="C1", brokerName="nope")),
        ("heartbeat", ask(904, clusterName="C1", brokerAddr="10.0.0.1:10911", brokerName="broker-a")),
        ("enable orders", ask(318, b"orderMessageEnable=true\n")),
        ("locked", ask(318, b"rocketmqHome=/x")),
        ("nothing to change", ask(318)),
        ("unknown property", ask(318, b"foo=bar")),
        ("put another order", order("T9")),
        ("with order", route("T9")),
        ("older state", registration(address="10.0.0.7:10911", state=-1)),
        ("kept", ask(106)),
        ("slave grows", registration(id_=1, address="10.0.0.2:10911", enableActingMaster="true", counter=2)),
        ("unregister", ask(104, brokerName="broker-z", brokerAddr="10.0.0.5:10911", clusterName="C1", brokerId="0")),
        ("gone at last", route("T9")),
        ("unregister nobody", ask(104)),
        ("unknown code", ask(4711)),
        ("code of a broker", ask(10)),
        ("register without fields", ask(103)),
        ("register with a broken body", broken),
        ("register without topics", empty),
        ("at the end", ask(106)),
    ]


async def converse(address: str) -> list[dict[str, Any]]:
    """Has the conversation with the server at an address; last, the slave's connection goes down."""
    first, second = await Connection.open(address), await Connection.open(address)
    found: list[dict[str, Any]] = []
    for label, command in talk():
        connection = second if label.startswith("slave") else first
        if label.endswith("at last"):
            found.append(await _until(first, label, command, lambda answer: answer["code"] != 0))
        else:
            found.append(comparable(label, await connection.call(command, 20)))
    second.close()
    found.append(await _until(first, "slave lost at last", ask(106), lambda answer: "10.0.0.2" not in str(answer)))
    first.close()
    return found


async def _until(
    connection: Connection, label: str, command: Command, enough: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while True:
        answer = comparable(label, await connection.call(command, 20))
        if enough(answer):
            return answer
        assert time.monotonic() < deadline, f"{label}: {answer}"
        await asyncio.sleep(0.01)


def comparable(label: str, answer: Command) -> dict[str, Any]:
    """An answer without what only Java's hash maps decide: the order of members and of listed names."""
    body = plain(document_in(answer.body)) if len(answer.body) else None
    remark = None if label in WORDS_OF_JAVA else answer.remark
    return {"label": label, "code": answer.code, "remark": remark, "fields": answer.fields, "body": body}


def plain(value: Any) -> Any:
    """Keys that stood bare become "bare N", so that a comparison sees them; lists are sorted."""
    if isinstance(value, dict):
        return {f"bare {key}" if isinstance(key, int) else key: plain(one) for key, one in value.items()}
    return sorted(map(plain, value), key=str) if isinstance(value, list) else value


@contextlib.contextmanager
def in_a_thread(name_server: NameServer) -> Iterator[str]:
    """Runs a name server of ours beside the test; gives its address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(name_server.start(), loop).result(30)
        yield name_server.address
    finally:
        asyncio.run_coroutine_threadsafe(name_server.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
