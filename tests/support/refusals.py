"""A conversation with a broker in which hardly anything is right, and its answers in comparable form.

`converse` has it with any broker, ours or the real one, whose store is new and whose address is 127.0.0.1.
"""

import json
import re
import struct
from typing import Any, NamedTuple

from tests.support.remoting import Client

TOPIC, GROUP, MISSING = "Refused", "GRefused", "Nowhere"
SEND = {
    "a": "P",
    "b": TOPIC,
    "c": "TBW102",
    "d": 4,
    "e": 0,
    "f": 0,
    "g": 1_700_000_000_000,
    "h": 0,
    "i": "UNIQ_KEY\x01AA\x02",
    "j": 0,
    "k": False,
    "m": False,
}
PULL = {
    "consumerGroup": GROUP,
    "topic": TOPIC,
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 8,
    "sysFlag": 4,
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subscription": "*",
    "subVersion": 0,
    "expressionType": "TAG",
}
POP = {
    "consumerGroup": GROUP,
    "topic": TOPIC,
    "queueId": -1,
    "maxMsgNums": 8,
    "invisibleTime": 60_000,
    "pollTime": 0,
    "bornTime": 0,
    "initMode": 0,
    "exp": "*",
    "expType": "TAG",
    "order": False,
}
ACK = {
    "consumerGroup": GROUP,
    "topic": TOPIC,
    "queueId": 0,
    "offset": 0,
    "extraInfo": "0 1700000000000 60000 0 0 broker-a 0 0",
}
MADE = {
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "readQueueNums": 4,
    "writeQueueNums": 4,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": False,
}
GROUP_BODY = {
    "groupName": GROUP,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeBroadcastEnable": True,
    "retryQueueNums": 1,
    "retryMaxTimes": 16,
    "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
}
_SECRET = re.compile(r"127\.0\.0\.1:\d+")
_JAVA = re.compile(r"^[\w.$]+(?:Exception|Error)\b|^Cannot invoke ")
BATCH_OF_ONE = struct.pack(">iiiiibh", 22 + 1, 0, 0, 0, 1, ord("m"), 0)
"""One message of a batch: length, magic, CRC, flag, length of the body, body, length of the properties."""
JAVA = "an exception of Java"
"""Stands for the remark of a request that the real broker does not check and stumbles over; ours names what is wrong."""


class Said(NamedTuple):
    """One request."""

    label: str
    code: int
    fields: dict[str, Any]
    body: bytes = b""


def but(fields: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """Fields with others; None leaves one out."""
    return {name: value for name, value in {**fields, **changed}.items() if value is not None}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _beginning() -> list[Said]:
    return [
        Said("make a topic", 17, MADE),
        Said("make a group", 200, {}, _json(GROUP_BODY)),
        Said("make one to be read only", 17, but(MADE, topic="ReadOnly", perm=4)),
        Said("make one to be written only", 17, but(MADE, topic="WriteOnly", perm=2)),
        Said("make one of batch queues", 17, but(MADE, topic="Batches", attributes="+queue.type=BatchCQ")),
        Said(
            "make a group that may not consume",
            200,
            {},
            _json({**GROUP_BODY, "groupName": "GStill", "consumeEnable": False}),
        ),
        Said("send", 310, SEND, b"first"),
    ]


def _sends() -> list[Said]:
    changed: dict[str, dict[str, Any]] = {
        "no group": {"a": None},
        "no topic": {"b": None},
        "no queue": {"e": None},
        "no flag": {"f": None},
        "no born time": {"g": None},
        "a queue that is not a number": {"e": "x"},
        "a born time that is not a number": {"g": "now"},
        "a queue beyond": {"e": 99},
        "no topic of that name and no pattern": {"b": MISSING, "c": "NoPattern"},
        "a name with a blank": {"b": "a b"},
        "a name too long": {"b": "n" * 128},
        "a blank name": {"b": " "},
        "to the schedule": {"b": "SCHEDULE_TOPIC_XXXX"},
        "to the half messages": {"b": "RMQ_SYS_TRANS_HALF_TOPIC"},
        "to one that is read only": {"b": "ReadOnly"},
        "properties too long": {"i": f"K\x01{'v' * 32_800}\x02"},
        "a delay beyond": {"i": "DELAY\x0199\x02"},
        "a timer too far": {"i": "TIMER_DELAY_SEC\x0199999999\x02"},
        "a timer that is not a time": {"i": "TIMER_DELIVER_MS\x01soon\x02"},
    }
    said = [Said(f"send, {label}", 310, but(SEND, **fields), b"body") for label, fields in changed.items()]
    return [
        *said,
        Said("send, no fields", 310, {}, b"x"),
        Said("send in the long form, no fields", 10, {}, b"x"),
        Said("send nothing", 310, SEND),
        Said("send too much", 310, SEND, b"x" * (4 * 1024 * 1024 + 1)),
        Said("send a batch to a retry topic", 320, but(SEND, b=f"%RETRY%{GROUP}", m=True), b"\0\0\0\1"),
        Said("send a batch to batch queues", 320, but(SEND, b="Batches", m=True), BATCH_OF_ONE),
        *(
            Said(
                f"send a delayed batch to {topic}",
                320,
                but(SEND, b=topic, m=True, i="UNIQ_KEY\x01AA\x02DELAY\x011\x02"),
                BATCH_OF_ONE,
            )
            for topic in ("Batches", TOPIC)
        ),
        Said(
            "send a batch with a timer to batch queues",
            320,
            but(SEND, b="Batches", m=True, i="UNIQ_KEY\x01AA\x02TIMER_DELAY_SEC\x011\x02"),
            BATCH_OF_ONE,
        ),
        Said("send back, no fields", 36, {}),
        Said("send back what is nowhere", 36, {"offset": 1 << 40, "group": GROUP, "delayLevel": 0}),
        Said(
            "end of no transaction",
            37,
            {
                "producerGroup": "P",
                "tranStateTableOffset": 0,
                "commitLogOffset": 1 << 40,
                "commitOrRollback": 8,
                "msgId": "x",
            },
        ),
    ]


def _pulls() -> list[Said]:
    changed: dict[str, dict[str, Any]] = {
        "no group": {"consumerGroup": None},
        "no topic": {"topic": None},
        "no queue": {"queueId": None},
        "an offset that is not a number": {"queueOffset": "first"},
        "a topic that is nowhere": {"topic": MISSING},
        "a queue beyond": {"queueId": 99},
        "a queue below": {"queueId": -1},
        "what is written only": {"topic": "WriteOnly"},
        "a group that may not consume": {"consumerGroup": "GStill"},
        "no subscription": {"sysFlag": 0},
        "an expression that is none": {"subscription": "a = = b", "expressionType": "SQL92"},
        "an offset beyond": {"queueOffset": 99},
        "an offset below": {"queueOffset": -5},
    }
    return [Said(f"pull, {label}", 11, but(PULL, **fields)) for label, fields in changed.items()] + [
        Said("pull in the light form, a topic that is nowhere", 361, but(PULL, topic=MISSING)),
        Said("pull, no fields", 11, {}),
        Said(
            "offset of a stranger",
            14,
            {"consumerGroup": "GStranger", "topic": TOPIC, "queueId": 0, "setZeroIfNotFound": False},
        ),
        Said("offset, no fields", 14, {}),
        Said("commit, no fields", 15, {}),
        Said(
            "commit in a topic that is nowhere",
            15,
            {"consumerGroup": GROUP, "topic": MISSING, "queueId": 0, "commitOffset": 1},
        ),
        Said("commit beyond", 15, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 99, "commitOffset": 1}),
        Said("end of a queue that is nowhere", 30, {"topic": MISSING, "queueId": 0}),
        Said("begin of a queue that is nowhere", 31, {"topic": MISSING, "queueId": 0}),
        Said("offset by time that is nowhere", 29, {"topic": MISSING, "queueId": 0, "timestamp": 0}),
        Said("time of what is nowhere", 32, {"topic": MISSING, "queueId": 0}),
        Said("message by an offset beyond", 33, {"offset": 1 << 40}),
        Said("message by no offset", 33, {}),
        Said(
            "messages by a key that is none",
            12,
            {"topic": TOPIC, "key": "no", "maxNum": 8, "beginTimestamp": 0, "endTimestamp": (1 << 63) - 1},
        ),
        Said("messages, no fields", 12, {}),
    ]


def _pops() -> list[Said]:
    pops: dict[str, dict[str, Any]] = {
        "too many": {"maxMsgNums": 33},
        "a topic that is nowhere": {"topic": MISSING},
        "a queue beyond": {"queueId": 99},
        "what is written only": {"topic": "WriteOnly"},
        "a group that is nowhere": {"consumerGroup": "GStranger"},
        "a group that may not consume": {"consumerGroup": "GStill"},
        "no queue": {"queueId": None},
        "an expression that is none": {"exp": "a = = b", "expType": "SQL92"},
    }
    acks: dict[str, dict[str, Any]] = {
        "a topic that is nowhere": {"topic": MISSING},
        "a queue beyond": {"queueId": 99},
        "an offset beyond": {"offset": 99},
        "an offset below": {"offset": -1},
        "no words": {"extraInfo": None},
        "too few words": {"extraInfo": "0 1"},
        "no offset": {"offset": None},
    }
    return [
        *(Said(f"pop, {label}", 200050, but(POP, **fields)) for label, fields in pops.items()),
        *(Said(f"acknowledge, {label}", 200051, but(ACK, **fields)) for label, fields in acks.items()),
        *(Said(f"put off, {label}", 200053, but(ACK, invisibleTime=5000, **fields)) for label, fields in acks.items()),
        Said("put off, no time", 200053, ACK),
        Said("acknowledge many, nothing", 200151, {}),
        Said("acknowledge many, none", 200151, {}, b'{"acks":[]}'),
        Said("acknowledge many, no JSON", 200151, {}, b"]"),
    ]


def _groups() -> list[Said]:
    return [
        Said("heartbeat, nothing", 34, {}),
        Said("heartbeat, no JSON", 34, {}, b"{"),
        Said("members of no group", 38, {"consumerGroup": MISSING}),
        Said("members, no fields", 38, {}),
        Said("consumers of no group", 203, {"consumerGroup": MISSING}),
        Said("producers of no group", 204, {"producerGroup": MISSING}),
        Said("lock, no JSON", 41, {}, b"{"),
        Said("unlock, no JSON", 42, {}, b"{"),
        Said("assignment, no JSON", 400, {}, b"{"),
        Said(
            "mode of a retry topic", 401, {}, _json({"topic": f"%RETRY%{GROUP}", "consumerGroup": GROUP, "mode": "POP"})
        ),
        Said("running info of nobody", 307, {"consumerGroup": GROUP, "clientId": "nobody"}),
        Said(
            "consume directly at nobody",
            309,
            {
                "consumerGroup": GROUP,
                "clientId": "nobody",
                "msgId": "7F00000100002A9F0000000000000000",
                "brokerName": "broker-a",
            },
        ),
        Said("statistics of no group", 208, {"consumerGroup": MISSING}),
        Said("statistics of no topic", 202, {"topic": MISSING}),
        Said("groups of no topic", 300, {"topic": MISSING}),
        Said("topics of no group", 343, {"group": MISSING}),
        Said("subscription of no group", 345, {"group": MISSING, "topic": TOPIC}),
        Said("time span of no topic", 303, {"topic": MISSING, "group": GROUP}),
        Said("configuration of no topic", 351, {"topic": MISSING}),
        Said("configuration of no group", 352, {"group": MISSING}),
        Said("reset in no topic", 222, {"topic": MISSING, "group": GROUP, "timestamp": -1, "isForce": True}),
        Said("reset of no group", 222, {"topic": TOPIC, "group": MISSING, "timestamp": -1, "isForce": True}),
    ]


def _administration() -> list[Said]:
    topics: dict[str, dict[str, Any]] = {
        "no name": {"topic": None},
        "a blank name": {"topic": " "},
        "a name with a blank": {"topic": "a b"},
        "a name too long": {"topic": "n" * 128},
        "a system topic": {"topic": "SCHEDULE_TOPIC_XXXX"},
        "no queues": {"readQueueNums": None},
        "queues that are not a number": {"writeQueueNums": "x"},
    }
    return [
        *(Said(f"make a topic, {label}", 17, but(MADE, **fields)) for label, fields in topics.items()),
        Said("delete a system topic", 215, {"topic": "SCHEDULE_TOPIC_XXXX"}),
        Said("delete a blank topic", 215, {"topic": " "}),
        Said("delete a topic that is nowhere", 215, {"topic": MISSING}),
        Said("delete no topic", 215, {}),
        Said("make no group", 200, {}),
        Said("make a group, no JSON", 200, {}, b"{"),
        Said("delete a group that is nowhere", 207, {"groupName": MISSING}),
        Said("delete no group", 207, {}),
        Said("recall, not allowed", 370, {"topic": TOPIC, "recallHandle": "x"}),
        Said("configure nothing", 25, {}),
        Said("queue that is nowhere", 321, {"topic": MISSING, "queueId": 0, "index": 0, "count": 8}),
        Said("clone in no topic", 314, {"srcGroup": MISSING, "destGroup": GROUP, "topic": MISSING, "offline": False}),
        Said("statistics that nobody keeps", 315, {"statsName": "NO_SUCH", "statsKey": TOPIC}),
        Said("a code that nobody knows", 9999, {}),
        Said("a code of name servers", 105, {"topic": TOPIC}),
        Said("a negative code", -7, {}),
    ]


def talk() -> list[Said]:
    """Everything, in this order."""
    return [*_beginning(), *_sends(), *_pulls(), *_pops(), *_groups(), *_administration()]


def converse(address: str) -> list[dict[str, Any]]:
    """Has the conversation; returns for each request its label, and code and remark of the answer."""
    found = []
    with Client(address) as client:
        for said in talk():
            answer = client.call(said.code, said.body, **said.fields)
            found.append({"label": said.label, "code": answer.code, "remark": comparable(answer.remark)})
    return found


def comparable(remark: str | None) -> str | None:
    """A remark without ports; None where nothing is said."""
    if not remark or remark == "not set any response code":  # what is left where a handler says nothing
        return None
    return JAVA if _JAVA.match(remark) else _SECRET.sub("127.0.0.1:PORT", remark)
