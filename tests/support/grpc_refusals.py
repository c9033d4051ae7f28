"""Calls that a proxy refuses, and what it answers: `python -m tests.support.grpc_refusals GRPC_ADDRESS BROKER_ADDRESS`.

Prints a line for each call; `tests/unit/server/answers/refusals-proxy-5.5.0.jsonl` has those of a real proxy 5.5.0 that
was started with enableLmq, enableMultiDispatch, enablePropertyFilter and recallMessageEnable.
"""

import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import grpc

from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s
from tests.support.grpc_client import GrpcClient, message_of
from tests.support.remoting import Client

KINDS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "LITE")
TOPIC, GROUP = "RefusedNORMAL", "GRefused"
LONG = "n" * 256
HEADERS = [("x-mq-language", "JAVA"), ("x-mq-client-version", "5.0.0")]
OWN = re.compile(r"\.? \w+Exception\. [\w.$]+\(\w+\.java:\d+\)$|\d{10,}")
"""Not compared: the place in the proxy's classes that ends a text, and times."""

Row = dict[str, Any]


def _named(name: str) -> d.Resource:
    return d.Resource(name=name)


def _pair(group: str = GROUP, topic: str = TOPIC) -> dict[str, Any]:
    return {"group": _named(group), "topic": _named(topic)}


def _status(status: d.Status) -> dict[str, str]:
    return {"code": d.Code.Name(status.code), "message": OWN.sub("", status.message)}


def seen(answer: Any) -> Row:
    """Status and text of an answer and of each entry, or those of gRPC itself."""
    if isinstance(answer, grpc.RpcError):
        return {"grpc": answer.code().name, "message": OWN.sub("", answer.details() or "")}
    first = answer[0] if isinstance(answer, list) else answer
    entries = [_status(entry.status) for entry in getattr(first, "entries", ())]
    return _status(first.status) | ({"entries": entries} if entries else {})


def _call(client: GrpcClient, rpc: str, **fields: Any) -> Row:
    try:
        return seen(client.call(rpc, fields.pop("seconds", 30), **fields))
    except grpc.RpcError as error:
        return seen(error)


def _sends() -> Iterator[tuple[str, list[d.Message]]]:
    """Label and messages of sends."""
    yield "nothing", []
    yield "two topics", [message_of(TOPIC, b"b"), message_of("RefusedFIFO", b"b", message_group="g")]
    yield "no body", [message_of(TOPIC, b"")]
    yield "a large body", [message_of(TOPIC, bytes((4 << 20) + 1))]
    yield "many properties", [message_of(TOPIC, b"b", properties={f"p{number}": "v" for number in range(129)})]
    yield "large properties", [message_of(TOPIC, b"b", properties={"p": "v" * (16 << 10)})]
    yield "a system property", [message_of(TOPIC, b"b", properties={"TAGS": "v"})]
    yield "a control character", [message_of(TOPIC, b"b", properties={"p": "\x01"})]
    yield "a control character in a name", [message_of(TOPIC, b"b", properties={"\x01": "v"})]
    yield "a blank name", [message_of(TOPIC, b"b", properties={" ": "v", "p": " "})]
    yield "a topic without writers", [message_of("RefusedSends", b"b")]
    for name, texts in {
        "tag": ("a|b", "\x01", " "),
        "message_group": ("g" * 65, "\x01", " "),
        "lite_topic": ("l" * 65, " ", "a b"),
        "message_id": ("", " "),
    }.items():
        for text in texts:
            field: dict[str, Any] = {name: text}
            yield f"{name} {text[:3]!r}", [message_of(TOPIC, b"b", **field)]
    yield "a key of a blank", [message_of(TOPIC, b"b", keys=[" "])]
    yield "a key with a control character", [message_of(TOPIC, b"b", keys=["\x01"])]
    later = {"seconds": int(time.time()) + 90_000}
    yield "a late delivery", [message_of("RefusedDELAY", b"b", delivery_timestamp=later)]
    yield "no time", [message_of("RefusedDELAY", b"b", delivery_timestamp={"seconds": 1 << 40})]
    marks: dict[str, Any] = {"message_type": d.TRANSACTION, "orphaned_transaction_recovery_duration": {"seconds": 3601}}
    yield "a late check", [message_of("RefusedTRANSACTION", b"b", **marks)]
    yield "a negative priority", [message_of(TOPIC, b"b", priority=-1)]
    for kind in KINDS:
        if kind != "NORMAL":
            yield f"a message of another type than {kind}", [message_of(f"Refused{kind}", b"b")]
    for topic in ("", "a b", "t" * 128, "SCHEDULE_TOPIC_XXXX", "%RETRY%never", "Never"):
        yield f"topic {topic[:20]!r}", [message_of(topic, b"b")]
    soon = {"seconds": int(time.time()) + 60}
    yield "delayed ones at once", [message_of("RefusedDELAY", b"b", delivery_timestamp=soon) for _ in range(2)]


def _handles(client: GrpcClient) -> tuple[str, str]:
    """Returns an expired handle and a good one."""
    expired, good = (_receive(client, seconds) for seconds in (10, 60))
    time.sleep(11)
    return expired, good


def _receive(client: GrpcClient, seconds: int) -> str:
    client.send(TOPIC, b"b")
    for _ in range(10):
        for message in client.receive(GROUP, TOPIC, batch_size=1, invisible=seconds):
            return message.system_properties.receipt_handle
    raise AssertionError("no message")


def _acks(expired: str, good: str) -> Iterator[tuple[str, list[str]]]:
    """Label and handles of acknowledgements."""
    words = good.split(" ")
    yield "nothing", []
    yield "an expired handle", [expired]
    yield "two expired handles", [expired, expired]
    yield "an expired handle and a good one", [expired, good]
    yield "no handle", [""]
    yield "a handle of another shape", ["x"]
    yield "two handles of another shape", ["x", "y"]
    yield "a handle of another broker", [" ".join([*words[:5], "broker-z", *words[6:]])]
    yield "a handle of another queue", [" ".join([*words[:6], "77", *words[7:]])]
    yield "a handle of another offset", [" ".join([*words[:7], "777777", *words[8:]])]


def answers(endpoints: str, broker: str) -> Iterator[tuple[str, Row]]:
    """Label of each call, and what the server answers."""
    with Client(broker) as remoting:
        for kind in KINDS:
            assert remoting.create_topic(f"Refused{kind}", 1, attributes=f"+message.type={kind}").code == 0
        for name, permissions in (("RefusedSends", 4), ("RefusedReads", 2)):
            assert remoting.create_topic(name, 1, perm=permissions).code == 0
    with GrpcClient(endpoints, headers=HEADERS) as client:
        yield "heartbeat without settings", _call(client, "Heartbeat", group=_named(GROUP))
        queue = {"message_queue": d.MessageQueue(topic=_named(TOPIC), id=-1), "batch_size": 1}
        receive = {**queue, "group": _named(GROUP), "invisible_duration": {"seconds": 30}}
        yield "receive without settings", _call(client, "ReceiveMessage", **receive)
        for label, messages in _sends():
            yield f"send {label}", _call(client, "SendMessage", messages=messages)
        for topic in ("", "a b", "SCHEDULE_TOPIC_XXXX", "Never", "RefusedReads"):
            where = {"topic": _named(topic), "endpoints": client.endpoints}
            yield f"route of {topic!r}", _call(client, "QueryRoute", **where)
            yield f"assignment of {topic!r}", _call(client, "QueryAssignment", **where, group=_named(GROUP))
        for group in ("", "a b", LONG, "CID_RMQ_SYS_X"):
            where = {**_pair(group), "endpoints": client.endpoints}
            yield f"assignment of group {group[:20]!r}", _call(client, "QueryAssignment", **where)
    with GrpcClient(endpoints, headers=HEADERS) as client:
        assert client.consume(GROUP, TOPIC).status.code == d.OK
        for group in ("", "a b", LONG, "CID_RMQ_SYS_X"):
            yield (
                f"receive of group {group[:20]!r}",
                _call(client, "ReceiveMessage", **receive | {"group": _named(group)}),
            )
        for topic in ("", "Never", "RefusedReads"):
            other = d.MessageQueue(topic=_named(topic), id=-1)
            yield f"receive from {topic!r}", _call(client, "ReceiveMessage", **receive | {"message_queue": other})
        for seconds in (9, 43_201, -1):
            late = {"invisible_duration": {"seconds": seconds}}
            yield f"receive for {seconds} s", _call(client, "ReceiveMessage", **receive | late)
        yield "receive -1 messages", _call(client, "ReceiveMessage", **receive | {"batch_size": -1})
        yield "receive within 3 s", _call(client, "ReceiveMessage", **receive, seconds=3)
        wait = {"long_polling_timeout": {"seconds": 5}}
        yield "receive from an empty queue", _call(client, "ReceiveMessage", **receive, **wait)
        for filter_type, text in ((d.SQL, "a ="), (d.SQL, ""), (d.TAG, "||")):
            expression = {"filter_expression": d.FilterExpression(type=filter_type, expression=text)}
            yield f"receive by {text!r}", _call(client, "ReceiveMessage", **receive, **wait, **expression)
        expired, good = _handles(client)
        for label, handles in _acks(expired, good):
            entries = [s.AckMessageEntry(message_id="m", receipt_handle=handle) for handle in handles]
            yield f"acknowledge {label}", _call(client, "AckMessage", **_pair(), entries=entries)
            if len(handles) == 1:
                fields: dict[str, Any] = {**_pair(), "receipt_handle": handles[0], "message_id": "m"}
                minute = {"invisible_duration": {"seconds": 60}}
                yield f"change {label}", _call(client, "ChangeInvisibleDuration", **fields, **minute)
                if "expired" in label or "shape" in label or "no handle" in label:
                    yield f"forward {label}", _call(client, "ForwardMessageToDeadLetterQueue", **fields)
        entry = [s.AckMessageEntry(message_id="m", receipt_handle=good)]
        for seconds in (-1, 43_201):
            fields = {**_pair(), "receipt_handle": good, "invisible_duration": {"seconds": seconds}}
            yield f"change to {seconds} s", _call(client, "ChangeInvisibleDuration", **fields)
        for seconds, nanos in ((1, -1), (1 << 40, 0)):
            wrong = {"invisible_duration": {"seconds": seconds, "nanos": nanos}}
            yield f"change to {seconds} s and {nanos} ns", _call(client, "ChangeInvisibleDuration", **fields | wrong)
        for group, topic in (("", TOPIC), (GROUP, ""), (GROUP, "Never"), ("GNever", TOPIC)):
            label = f"acknowledge in {group!r}, {topic!r}"
            yield label, _call(client, "AckMessage", **_pair(group, topic), entries=entry)
        for identity in ("", "x"):
            for end in (d.COMMIT, d.TRANSACTION_RESOLUTION_UNSPECIFIED):
                fields = {"topic": _named("RefusedTRANSACTION"), "message_id": "m", "transaction_id": identity}
                label = f"end {identity!r}, {d.TransactionResolution.Name(end)}"
                yield label, _call(client, "EndTransaction", **fields, resolution=end)
        for topic in ("RefusedDELAY", TOPIC, "", "Never"):
            for handle in ("", "x"):
                fields = {"topic": _named(topic), "recall_handle": handle}
                yield f"recall {handle!r} from {topic!r}", _call(client, "RecallMessage", **fields)
        for group, topic in ((GROUP, "RefusedLITE"), ("", "RefusedLITE"), (GROUP, ""), (GROUP, "Never")):
            fields = {**_pair(group, topic), "lite_topic_set": ["a"]}
            yield f"lite topics of {group!r}, {topic!r}", _call(client, "SyncLiteSubscription", **fields)
    for label, settings in _settings():
        with GrpcClient(endpoints, headers=HEADERS) as client:
            yield label, seen(client.telemetry(settings))


def _settings() -> Iterator[tuple[str, d.Settings]]:
    """Label and settings of telemetry streams that are refused."""
    yield "no settings", d.Settings()
    yield "a producer of no topic", d.Settings(client_type=d.PRODUCER, publishing=d.Publishing(topics=[_named("")]))
    entry = d.SubscriptionEntry(topic=_named(TOPIC))
    for kind, group in ((d.SIMPLE_CONSUMER, ""), (d.SIMPLE_CONSUMER, "a b"), (d.LITE_PUSH_CONSUMER, GROUP)):
        subscription = d.Subscription(group=_named(group), subscriptions=[entry])
        label = f"settings of {d.ClientType.Name(kind)} in {group!r}"
        yield label, d.Settings(client_type=kind, subscription=subscription)


if __name__ == "__main__":
    for label, row in answers(*sys.argv[1:]):
        print(json.dumps({"label": label, **row}, ensure_ascii=False))
