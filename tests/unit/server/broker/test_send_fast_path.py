"""The quick way of a send and the careful one store the same and answer the same; what is unusual goes the careful one."""

import asyncio
from typing import Any

import pytest

from mqtool.engine.flags import RunningFlag
from mqtool.protocol import Command, Serialization
from mqtool.server.broker.send.fast_path import QuickSends
from mqtool.server.net.client import Connection
from mqtool.server.testing import MqServer
from tests.support.remoting import Client, records
from tests.unit.server.broker.conftest import until
from tests.unit.server.broker.test_send import batch_of

KEY = "UNIQ_KEY\x01C0A80001\x02"

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
    "lone surrogate": {"i": KEY + "p\x01\ud800\x02"},
    "a batch": {"code": 320, "m": "true", "body": batch_of(b"one", b"two")},
    "what is no batch": {"code": 320, "m": "true", "body": b"nothing of the kind"},
}
UNUSUAL: dict[str, dict[str, Any]] = {
    "no unique key": {"i": "TAGS\x01t\x02"},
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
    "a batch in the other request": {"m": "true", "body": batch_of(b"one")},
}
CASES = USUAL | UNUSUAL
ELSEWHERE = {"delayed": "DELAY\x013\x02", "prepared": "TRAN_MSG\x01true\x02", "a timer": "TIMER_DELAY_SEC\x01100\x02"}
"""Properties of messages that first lie in a topic of the broker's."""

TOLD_APART = {"msgId", "recallHandle", "transactionId"}
"""Fields of answers with offsets and times in them, or with what the broker makes up."""


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Which sends went the quick way."""
    taken: list[bool] = []
    real = QuickSends.send

    def send(self: QuickSends, *request: Any) -> bool:
        taken.append(real(self, *request))
        return taken[-1]

    monkeypatch.setattr(QuickSends, "send", send)
    return taken


def sent(client: Client, topic: str, case: dict[str, Any]) -> Any:
    """The answer to a request that differs so from the usual one."""
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
    answer = client.call(
        given.pop("code"), given.pop("body"), **{name: value for name, value in given.items() if value is not None}
    )
    same = {name: value for name, value in answer.fields.items() if name not in TOLD_APART}
    return answer.code, (answer.remark or "").replace(topic, "T"), same, sorted(answer.fields)


def stored(client: Client, server: MqServer, topic: str) -> list[Any]:
    """What the queues of a topic hold, without what the time or the place makes."""
    found = []
    for queue in range(4):
        end = server.call(lambda queue=queue: server.broker.messages.queue_bounds(topic, queue)[1])
        held = records(client.pull(topic, queue)) if end else []
        found += [
            (
                {
                    name: value
                    for name, value in facts.items()
                    if name in ("sys_flag", "flag", "born", "properties", "reconsume_times")
                },
                body,
            )
            for facts, body in held
        ]
    return found


@pytest.mark.parametrize("name", list(CASES))
def test_both_ways_store_and_answer_the_same(client, server, ways, monkeypatch, topic, name):
    quick = sent(client, topic, CASES[name])
    assert ways == ([name in USUAL] if name != "what is no batch" else [])
    other = f"{topic}-2"
    client.call(
        17,
        topic=other,
        defaultTopic="TBW102",
        readQueueNums=4,
        writeQueueNums=4,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order=False,
    )
    monkeypatch.setattr(QuickSends, "send", lambda *_: False)
    careful = sent(client, other, {**CASES[name], **({"b": other} if "b" not in CASES[name] else {})})
    if name == "any queue":
        quick[2].pop("queueId"), careful[2].pop("queueId")
    until(lambda: server.call(lambda: server.broker.messages.dispatch_behind) == 0)
    assert quick == careful
    kept = [stored(client, server, one) for one in (topic, other)]
    if name in ("no unique key", "no properties"):
        assert all(facts["properties"].pop("UNIQ_KEY") for found in kept for facts, _ in found)
    assert kept[0] == kept[1]
    assert bool(kept[0]) == (quick[0] == 0)


@pytest.mark.parametrize("name", list(ELSEWHERE))
def test_what_is_not_for_its_topic_yet_goes_the_careful_way(client, server, topic, ways, name):
    assert sent(client, topic, {"i": KEY + ELSEWHERE[name]})[0] == 0
    assert ways == [False]
    assert server.call(lambda: server.broker.messages.queue_bounds(topic, 0)) == (0, 0)


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
    assert (ways, answer.fields["queueOffset"], "transactionId" in answer.fields) == ([True], "0", False)
    until(lambda: len(records(client.pull(topic, 1))) == 3)
    assert [facts["physical_offset"] for facts, _ in records(client.pull(topic, 1))] == [
        int(one[-16:], 16) for one in answer.fields["msgId"].split(",")
    ]


def test_a_topic_that_changes_is_looked_at_anew(client, topic, ways):
    assert client.put(topic, queue=3).code == 0
    client.call(
        17,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=1,
        writeQueueNums=1,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order=False,
    )
    assert client.put(topic, queue=3).code == 29
    assert client.put(topic, queue=0).code == 0
    assert ways == [True, False, True]


def test_a_setting_that_changes_counts_at_once(client, server, topic, ways):
    assert client.put(topic).code == 0
    try:
        client.call(25, b"brokerPermission=4\n")
        assert client.put(topic).code == 16
    finally:
        client.call(25, b"brokerPermission=6\n")
    assert client.put(topic).code == 0
    assert ways == [True, False, True]


def test_a_store_that_takes_nothing_refuses_on_the_quick_way_too(client, server, topic, ways):
    assert client.put(topic).code == 0
    failures, flags = server.broker.stats.put_failures, server.broker.messages._flags
    flags.set(RunningFlag.DISK_FULL)
    try:
        assert client.put(topic).code == 14
    finally:
        flags.clear(RunningFlag.DISK_FULL)
    assert (ways, server.broker.stats.put_failures) == ([True], failures + 1)


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
