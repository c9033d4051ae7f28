"""The fast path of a send stores and answers what the ordinary path does; every unusual send takes the ordinary one.

Each case is sent to two brokers, one with the fast path and one without it, in the same order, so that not only the
records but also their physical offsets must be the same.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from mqtool.engine.statuses import RunningFlag
from mqtool.formats import commit_log, properties
from mqtool.protocol import Command, Serialization
from mqtool.server.broker.send.fast_path import SendFastPath
from mqtool.server.net.connections import Connection
from mqtool.server.testing import MqServer
from tests.support.remoting import Answer, Client, records
from tests.unit.server.broker.conftest import until
from tests.unit.server.broker.test_send import batch_of

KEY = "UNIQ_KEY\x01C0A80001\x02"
IN_AN_HOUR = int(time.time() * 1000) + 3_600_000

USUAL: dict[str, dict[str, Any]] = {
    "a message": {},
    "tags and keys": {"i": KEY + "TAGS\x01t\x02KEYS\x01a b\x02"},
    "beyond ASCII": {"i": KEY + "p\x01é漢😀\x02"},
    "without a wait": {"i": KEY + "WAIT\x01false\x02"},
    "compressed": {"f": 1},
    "flag": {"h": 7},
    "sent back twice": {"j": 2},
    "light queues": {"i": KEY + "INNER_MULTI_DISPATCH\x01%LMQ%q\x02"},
    "no body": {"body": b""},
    "empty property": {"i": KEY + "p\x01\x02"},
    "old time": {"g": 0},
    "two unique keys": {"i": "UNIQ_KEY\x01A1\x02UNIQ_KEY\x01B2\x02"},
    "a key beside another": {"i": "MY_UNIQ_KEY\x01abc\x02" + KEY},
    "lone surrogate": {"i": KEY + "p\x01\ud800\x02"},
    "a batch": {"code": 320, "m": "true", "body": batch_of(b"one", b"two")},
    "what is not a batch": {"code": 320, "m": "true", "body": b"nothing of the kind"},
}
UNUSUAL: dict[str, dict[str, Any]] = {
    "no unique key": {"i": "TAGS\x01t\x02"},
    "the key of another property": {"i": "MY_UNIQ_KEY\x01abc\x02"},
    "open end": {"i": KEY[:-1]},
    "no properties": {"i": ""},
    "a key to escape": {"i": 'UNIQ_KEY\x01a"b\x02'},
    "any queue": {"e": -1},
    "a queue too many": {"e": 4},
    "no number": {"e": "one"},
    "a queue of Arabic digits": {"e": "\u0663"},
    "a flag below 0": {"h": -7},
    "no group": {"a": None},
    "no topic": {"b": None},
    "born far away": {"g": "9223372036854775808"},
    "a region of its own": {"i": KEY + "MSG_REGION\x01r\x02"},
    "popped": {"i": KEY + "POP_CK\x011 2\x02"},
    "a bit of a transaction": {"f": 4},
    "a level that is none": {"i": KEY + "DELAY\x01x\x02"},
    "long properties": {"i": KEY + "p\x01" + "v" * 32_700 + "\x02"},
    "a limit of tries": {"l": 3},
    "the long header": {"code": 10},
    "a strange number of queues": {"d": "four"},
    "a batch that says 1": {"code": 320, "m": "1", "body": batch_of(b"one")},
    "a batch that does not": {"code": 320, "m": "false"},
    "delayed": {"i": KEY + "DELAY\x0118\x02"},
    "prepared": {"i": KEY + "TRAN_MSG\x01true\x02"},
    "a timer": {"i": KEY + f"TIMER_DELIVER_MS\x01{IN_AN_HOUR}\x02"},
    "a batch in the other request": {"m": "true", "body": batch_of(b"one")},
}
CASES = USUAL | UNUSUAL

MADE_UP = {"no unique key", "no properties", "the key of another property"}
"""Cases in which the broker makes a unique key."""

CLIENTS_CHOICE = [name for name in CASES if name not in MADE_UP | {"any queue", "no body of a batch"}]


@pytest.fixture(scope="module")
def ordinary() -> Iterator[MqServer]:
    """A broker without the fast path."""
    with MqServer(fast_sends=False) as found:
        yield found


@pytest.fixture(scope="module")
def server() -> Iterator[MqServer]:
    """A broker with it; neither does anything by itself that writes into the log."""
    with MqServer() as found:
        yield found


@pytest.fixture
def brokers(server: MqServer, ordinary: MqServer) -> Iterator[list[tuple[MqServer, Client]]]:
    """Both, with a connection to each."""
    pairs = [(one, Client(one.broker_address)) for one in (server, ordinary)]
    yield pairs
    for _, client in pairs:
        client.close()


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Which of the sends took the fast path."""
    taken: list[bool] = []
    real = SendFastPath._stored

    def stored(self: SendFastPath, *request: Any) -> bytes | None:
        taken.append(True)  # also for one that the store refuses
        frame = real(self, *request)
        taken[-1] = frame is not None
        return frame

    monkeypatch.setattr(SendFastPath, "_stored", stored)
    return taken


def send(client: Client, topic: str, case: dict[str, Any]) -> Answer:
    """Sends a request that differs in this from the usual one."""
    given = {
        "body": b"body",
        "code": 310,
        "a": "P",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": 1000,
        "h": 0,
        "i": KEY,
        "j": 0,
        "k": False,
        "m": False,
        **case,
    }
    if given["code"] == 10:
        names = (
            "producerGroup",
            "topic",
            "defaultTopic",
            "defaultTopicQueueNums",
            "queueId",
            "sysFlag",
            "bornTimestamp",
            "flag",
            "properties",
            "reconsumeTimes",
            "unitMode",
        )
        given = {dict(zip("abcdefghijk", names, strict=True)).get(name, name): value for name, value in given.items()}
    return client.call(
        given.pop("code"), given.pop("body"), **{name: value for name, value in given.items() if value is not None}
    )


def end_of_log(server: MqServer) -> int:
    return max(0, server.call(lambda: server.broker.messages.max_physical_offset))


def stored_since(server: MqServer, start: int, *, key_made_up: bool) -> list[bytes]:
    """The records from a physical offset on; times and addresses, and a key of the broker's, are left out."""
    found = []
    while start < end_of_log(server):
        data = server.call(lambda at=start: bytes(server.broker.messages.message_at(at) or b""))
        record = commit_log.parse_record(data)
        start += record.total_size
        kept = properties.decode(record.properties)
        if key_made_up:
            assert len(kept["UNIQ_KEY"]) == 32
            kept["UNIQ_KEY"] = "0" * 32
        record = replace(
            record,
            store_timestamp=0,
            born_host=record.born_host[:-4],
            store_host=record.store_host[:-4],
            properties=properties.encode(kept.items()),
        )
        found.append(repr(record).encode())
    return found


def outcome(server: MqServer, client: Client, topic: str, case: dict[str, Any], *, key_made_up: bool) -> Any:
    """The answer to a send, without addresses and made-up keys, and the records that it left."""
    start = end_of_log(server)
    answer = send(client, topic, case)
    fields = dict(answer.fields)
    if "msgId" in fields:
        fields["msgId"] = ",".join(one[-16:] for one in fields["msgId"].split(","))
    if key_made_up:
        assert len(fields.pop("transactionId")) == 32
    return answer.code, answer.remark, fields, stored_since(server, start, key_made_up=key_made_up)


def create(client: Client, topic: str, queues: int = 4, filter_type: str = "SINGLE_TAG", attributes: str = "") -> None:
    made = client.create_topic(topic, queues, topicFilterType=filter_type, attributes=attributes)
    assert made.code == 0, made.remark


@pytest.mark.parametrize("name", list(CASES))
def test_both_paths_store_and_answer_the_same(brokers, ways, monkeypatch, name):
    topic = f"Case{list(CASES).index(name)}"
    for _, client in brokers:
        create(client, topic)
    monkeypatch.setattr("random.randrange", lambda *_: 2)
    fast, without = (
        outcome(server, client, topic, CASES[name], key_made_up=name in MADE_UP) for server, client in brokers
    )
    assert fast == without
    assert ways == ([] if name == "the long header" else [name in USUAL])
    assert bool(fast[3]) == (fast[0] == 0)


def test_the_same_holds_of_a_long_random_sequence(brokers, ways):
    """Differences in any field at once, over several topics, one of which is not there at first."""
    chance = random.Random(5)
    different = list(
        itertools.chain.from_iterable(CASES[name].items() for name in CLIENTS_CHOICE if "code" not in CASES[name])
    )
    for _, client in brokers:
        create(client, "Random0")
        create(client, "Random1", 1, "MULTI_TAG")
    for number in range(150):
        case = dict(chance.sample(different, chance.choice([0, 0, 1, 2])))
        case.setdefault("e", chance.randrange(4))
        topic = f"Random{chance.randrange(3)}"
        found = [outcome(server, client, topic, case, key_made_up=False) for server, client in brokers]
        assert found[0] == found[1], (number, topic, case)
    assert 30 < sum(ways) < 150
    assert end_of_log(brokers[0][0]) == end_of_log(brokers[1][0])


def test_a_batch_for_a_topic_that_keeps_batches_takes_the_ordinary_path(brokers, ways):
    for _, client in brokers:
        create(client, "Batches", attributes="+queue.type=BatchCQ")
    case = {"code": 320, "m": "true", "body": batch_of(b"one", b"two")}
    found = [outcome(server, client, "Batches", case, key_made_up=False) for server, client in brokers]
    assert (found[0], len(found[0][3]), ways) == (found[1], 1, [False])


def test_a_broker_without_the_fast_path_never_takes_it(ordinary, ways):
    with Client(ordinary.broker_address) as client:
        create(client, "Without")
        assert send(client, "Without", {}).code == 0
    assert ways == []


def test_the_answer_has_the_place_and_the_key_of_the_message(client, topic, ways):
    answers = [
        client.call(310, b"x", a="P", b=topic, d=4, e=2, f=0, g=1, h=0, i=f"UNIQ_KEY\x01K{number}\x02")
        for number in range(2)
    ]
    assert ways == [True, True]
    assert [(one.fields["queueId"], one.fields["queueOffset"], one.fields["transactionId"]) for one in answers] == [
        ("2", "0", "K0"),
        ("2", "1", "K1"),
    ]
    until(lambda: len(records(client.pull(topic, 2))) == 2)
    assert [facts["physical_offset"] for facts, _ in records(client.pull(topic, 2))] == [
        int(one.fields["msgId"][-16:], 16) for one in answers
    ]


def test_the_answer_to_a_batch_has_the_places_of_all_its_messages(client, topic, ways):
    answer = client.put(topic, batch_of(b"one", b"two", b"three"), 1, code=320, m="true")
    assert (ways, answer.fields["queueOffset"], "transactionId" in answer.fields) == ([True], "0", True)
    until(lambda: len(records(client.pull(topic, 1))) == 3)
    assert [facts["physical_offset"] for facts, _ in records(client.pull(topic, 1))] == [
        int(one[-16:], 16) for one in answer.fields["msgId"].split(",")
    ]


def test_a_topic_that_changes_is_looked_at_anew(client, topic, ways):
    assert client.put(topic, queue=3).code == 0
    client.create_topic(topic)
    assert client.put(topic, queue=3).code == 29
    assert client.put(topic, queue=0).code == 0
    assert ways == [True, False, True]


def test_a_setting_that_changes_counts_at_once(client, server, topic, ways):
    assert client.put(topic).code == 0
    try:
        client.call(25, b"maxMessageSize=10\n")
        assert client.put(topic, b"longer than that").code == 13
    finally:
        client.call(25, b"maxMessageSize=4194304\n")
    assert client.put(topic).code == 0
    assert ways == [True, False, True]


def test_a_store_that_takes_nothing_refuses_on_the_fast_path_too(client, server, topic, ways):
    assert client.put(topic).code == 0
    failures, flags = server.broker.stats.put_failures, server.broker.messages._flags
    flags.set(RunningFlag.DISK_FULL)
    try:
        assert client.put(topic).code == 14
    finally:
        flags.clear(RunningFlag.DISK_FULL)
    assert (ways, server.broker.stats.put_failures) == ([True, True], failures + 1)


def test_a_header_in_the_binary_form_is_answered_in_it(server, topic):
    async def ask() -> Command:
        connection = await Connection.open(server.broker_address)
        fields = {"a": "P", "b": topic, "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": KEY}
        try:
            return await connection.call(Command(310, fields=fields, serialization=Serialization.ROCKETMQ))
        finally:
            connection.close()

    answer = asyncio.run(ask())
    assert (answer.code, answer.serialization) == (0, Serialization.ROCKETMQ)
