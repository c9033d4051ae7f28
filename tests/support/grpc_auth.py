"""gRPC calls with good and bad credentials, and the users that they are checked against."""

import hashlib
import hmac
from collections.abc import Iterator
from typing import Any

import grpc

from mqtool.protocol import Command
from mqtool.protocol.rocketmq_v2 import definition as d
from tests.support.auth import ADMIN, ADMIN_PASSWORD, R, ask, create_user, entry, put_acl, signed
from tests.support.grpc_client import GrpcClient, message_of

TIME = "20261123T200000Z"
OLD = "20010101T000000Z"
OPEN, CLOSED, OPEN_GROUP, CLOSED_GROUP = "OpenTopic", "ClosedTopic", "OpenGroup", "ClosedGroup"
Headers = list[tuple[str, str]]


def users() -> Iterator[Command]:
    """Requests that prepare a broker: topics, users and permissions."""
    for topic in (OPEN, CLOSED):
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
            "attributes": "+message.type=NORMAL",
        }
        yield signed(ask(R.UPDATE_AND_CREATE_TOPIC, **fields), ADMIN)
    yield signed(create_user("reader", {"password": "readerPass"}), ADMIN)
    yield signed(create_user("idle", {"password": "idlePass", "userStatus": "disable"}), ADMIN)
    yield signed(create_user("lonely", {"password": "lonelyPass"}), ADMIN)
    entries = [
        entry(f"Topic:{OPEN}", ["Pub", "Sub"]),
        entry("Topic:Closed*", ["Pub"], "Deny"),
        entry(f"Group:{OPEN_GROUP}", ["Sub"]),
    ]
    yield signed(put_acl("User:reader", *entries), ADMIN)


def authorization(user: str, password: str, time: str = TIME) -> Headers:
    """The headers of a signed call."""
    signature = hmac.new(password.encode(), time.encode(), hashlib.sha1).hexdigest().upper()
    words = f"MQv2-HMAC-SHA1 Credential={user}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return [("authorization", words), ("x-mq-date-time", time)]


READER = [*authorization("reader", "readerPass"), ("x-mq-language", "JAVA")]
BAD: dict[str, Headers] = {
    "no credentials": [],
    "unknown user": authorization("nobody", "x"),
    "disabled user": authorization("idle", "idlePass"),
    "wrong password": authorization("reader", "wrong"),
    "user without policies": authorization("lonely", "lonelyPass"),
    "another time than signed": [READER[0], ("x-mq-date-time", OLD)],
    "no time": READER[:1],
    "no algorithm": [("authorization", "Credential=reader"), READER[1]],
    "no value": [("authorization", "MQv2-HMAC-SHA1 Credential"), READER[1]],
    "no user": [("authorization", "MQv2-HMAC-SHA1 Signature=AB"), READER[1]],
    "no signature": [("authorization", "MQv2-HMAC-SHA1 Credential=reader"), READER[1]],
    "signature is not hexadecimal": [("authorization", "MQv2-HMAC-SHA1 Credential=reader, Signature=xyz"), READER[1]],
    "old time, rightly signed": authorization("reader", "readerPass", OLD),
    "name with a region": authorization("reader/region/service", "readerPass"),
    "superuser": authorization(ADMIN, ADMIN_PASSWORD),
    "named by the client itself": [*authorization("lonely", "lonelyPass"), ("x-mq-channel-id", "c")],
}
"""Headers of a call that sends to the closed topic."""


def _resource(name: str) -> d.Resource:
    return d.Resource(name=name)


def _pair(group: str, topic: str) -> dict[str, Any]:
    return {"group": _resource(group), "topic": _resource(topic)}


def calls() -> Iterator[tuple[str, Headers, str, dict[str, Any]]]:
    """Label, headers, rpc and fields of calls."""
    for label, headers in BAD.items():
        yield f"send, {label}", headers, "SendMessage", {"messages": [message_of(CLOSED, b"x")]}
    yield "send", READER, "SendMessage", {"messages": [message_of(OPEN, b"x")]}
    yield "send nothing", READER, "SendMessage", {}
    yield "send without a topic", READER, "SendMessage", {"messages": [message_of("", b"x")]}
    for topic in (OPEN, CLOSED, ""):
        yield f"route of {topic!r}", READER, "QueryRoute", {"topic": _resource(topic)}
        yield f"recall from {topic!r}", READER, "RecallMessage", {"topic": _resource(topic), "recall_handle": "x"}
        end = {"topic": _resource(topic), "transaction_id": "x", "message_id": "x", "resolution": d.COMMIT}
        yield f"end of a transaction in {topic!r}", READER, "EndTransaction", end
    for group, topic in ((OPEN_GROUP, OPEN), (OPEN_GROUP, CLOSED), (CLOSED_GROUP, OPEN), ("", OPEN), (OPEN_GROUP, "")):
        where, fields = f"{group!r}, {topic!r}", _pair(group, topic)
        yield f"acknowledge in {where}", READER, "AckMessage", fields
        yield f"assignment of {where}", READER, "QueryAssignment", fields
        yield f"dead letter of {where}", READER, "ForwardMessageToDeadLetterQueue", {**fields, "receipt_handle": "x"}
        yield f"change in {where}", READER, "ChangeInvisibleDuration", {**fields, "receipt_handle": "x"}
        yield f"lite topics of {where}", READER, "SyncLiteSubscription", {**fields, "lite_topic_set": ["a"]}
    for group in (OPEN_GROUP, CLOSED_GROUP, ""):
        beat = {"group": _resource(group), "client_type": d.PUSH_CONSUMER}
        yield f"heartbeat of {group!r}", READER, "Heartbeat", beat
        yield f"leave {group!r}", READER, "NotifyClientTermination", {"group": _resource(group)}
    yield "no lite topics", READER, "SyncLiteSubscription", _pair(CLOSED_GROUP, CLOSED)
    yield "heartbeat of a producer", READER, "Heartbeat", {"client_type": d.PRODUCER}
    for group, topic in ((CLOSED_GROUP, OPEN), (OPEN_GROUP, CLOSED)):
        queue = d.MessageQueue(topic=_resource(topic), id=-1)
        fields = {"group": _resource(group), "message_queue": queue}
        yield f"receive {group!r}, {topic!r}", READER, "ReceiveMessage", fields
    yield "receive from no queue", READER, "ReceiveMessage", {"group": _resource(OPEN_GROUP)}


def settings() -> Iterator[tuple[str, Headers, d.Settings]]:
    """Label, headers and settings of telemetry streams."""
    publishing = d.Publishing(topics=[_resource(OPEN)])
    yield "settings", READER, d.Settings(client_type=d.PRODUCER, publishing=publishing)
    yield "settings without credentials", [], d.Settings(client_type=d.PRODUCER, publishing=publishing)
    closed = d.Publishing(topics=[_resource(OPEN), _resource(CLOSED)])
    yield "settings with a closed topic", READER, d.Settings(client_type=d.PRODUCER, publishing=closed)
    for group, topic in ((OPEN_GROUP, OPEN), (CLOSED_GROUP, OPEN), (OPEN_GROUP, CLOSED)):
        subscription = d.Subscription(
            group=_resource(group), subscriptions=[d.SubscriptionEntry(topic=_resource(topic))]
        )
        one = d.Settings(client_type=d.SIMPLE_CONSUMER, subscription=subscription)
        yield f"settings of {group!r}, {topic!r}", READER, one


def seen(answer: Any) -> dict[str, str]:
    """What is compared of an answer: status and message of a refusal, otherwise that it was allowed."""
    if isinstance(answer, grpc.RpcError):
        return {"grpc": answer.code().name, "message": answer.details() or ""}
    status = (answer[0] if isinstance(answer, list) else answer).status
    if status.code != d.UNAUTHORIZED:
        return {"allowed": "yes"}
    return {"code": d.Code.Name(status.code), "message": status.message}


def answers(address: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Label, and what a server answers."""
    for label, headers, rpc, fields in calls():
        with GrpcClient(address, headers=headers) as client:
            yield label, seen(_result(client, rpc, fields))
    for label, headers, one in settings():
        with GrpcClient(address, headers=headers) as client:
            yield label, seen(client.telemetry(one))
    with GrpcClient(address, headers=READER) as client:
        client.client_id = ""
        answer = client.call("SendMessage", 20, messages=[message_of(OPEN, b"x")])
        yield "no client id", {"code": d.Code.Name(answer.status.code)}
        answer = client.call("SendMessage", 20, messages=[message_of(CLOSED, b"x")])
        yield "no client id, closed topic", {"code": d.Code.Name(answer.status.code)}


def _result(client: GrpcClient, rpc: str, fields: dict[str, Any]) -> Any:
    try:
        return client.call(rpc, 20, **fields)
    except grpc.RpcError as error:
        return error
