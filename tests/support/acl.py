"""Requests with good and bad credentials, and the accounts that they are checked against."""

import json
from typing import Any

from mqtool.protocol import Command, RequestCode
from mqtool.server.net.acl import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, sign

ACCOUNTS = """
globalWhiteRemoteAddresses: []
accounts:
- {accessKey: AdminKey, secretKey: AdminSecret, admin: true}
- accessKey: ReaderKey
  secretKey: ReaderSecret
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [Open=PUB|SUB, ReadOnly=SUB, WriteOnly=PUB, Closed=DENY]
  groupPerms: [ClosedGroup=DENY, OpenGroup=SUB]
- {accessKey: WhiteKey, secretKey: WhiteSecret, whiteRemoteAddress: "127.0.0.*", defaultTopicPerm: DENY}
- {accessKey: FarAwayKey, secretKey: FarAwaySecret, whiteRemoteAddress: "10.0.0.1", defaultTopicPerm: PUB}
"""
SECRETS = {
    "AdminKey": "AdminSecret",
    "ReaderKey": "ReaderSecret",
    "WhiteKey": "WhiteSecret",
    "FarAwayKey": "FarAwaySecret",
}
R = RequestCode


def signed(command: Command, key: str, secret: str | None = None) -> Command:
    """A request with the signature of an account, or one made with another secret."""
    command.fields[ACCESS_KEY] = key
    command.fields[SIGNATURE] = sign(command, secret or SECRETS[key])
    return command


def send(topic: str, *, v2: bool = True) -> Command:
    """A send, whose empty body no broker stores."""
    names = {
        "producerGroup": "a",
        "topic": "b",
        "defaultTopic": "c",
        "defaultTopicQueueNums": "d",
        "queueId": "e",
        "sysFlag": "f",
        "bornTimestamp": "g",
        "flag": "h",
    }
    values = {
        "producerGroup": "PG",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
    }
    fields = {names[name] if v2 else name: value for name, value in values.items()}
    return Command(R.SEND_MESSAGE_V2 if v2 else R.SEND_MESSAGE, fields=fields, body="bödy".encode())


def pull(topic: str, group: str) -> Command:
    """A pull that wants its answer at once."""
    return Command(
        R.PULL_MESSAGE,
        fields={
            "consumerGroup": group,
            "topic": topic,
            "queueId": "0",
            "queueOffset": "0",
            "maxMsgNums": "1",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
        },
    )


def heartbeat(group: str, topic: str) -> Command:
    """A consumer's heartbeat."""
    body: dict[str, Any] = {
        "clientID": "client@1",
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "unitMode": False,
                "subscriptionDataSet": [
                    {
                        "topic": topic,
                        "subString": "*",
                        "tagsSet": [],
                        "codeSet": [],
                        "subVersion": 1,
                        "expressionType": "TAG",
                    }
                ],
            }
        ],
    }
    return Command(R.HEART_BEAT, body=json.dumps(body).encode())


def by_key(*, unique: bool) -> Command:
    """A query by key."""
    fields = {"topic": "Open", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "9999999999999"}
    return Command(R.QUERY_MESSAGE, fields=fields | ({UNIQUE_KEY_QUERY: "true"} if unique else {}))


def requests() -> dict[str, Command]:
    """Label to request; made anew by each call."""
    topic = {
        "topic": "Fresh",
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    found = {
        "no key": send("Open"),
        "unknown key": signed(send("Open"), "NobodyKey", "NobodySecret"),
        "wrong secret": signed(send("Open"), "ReaderKey", "WrongSecret"),
        "changed after signing": signed(send("Open"), "ReaderKey"),
        "body changed after signing": signed(send("Open"), "ReaderKey"),
        "send to open": signed(send("Open"), "ReaderKey"),
        "old send to open": signed(send("Open", v2=False), "ReaderKey"),
        "send to read-only": signed(send("ReadOnly"), "ReaderKey"),
        "send to write-only": signed(send("WriteOnly"), "ReaderKey"),
        "send to closed": signed(send("Closed"), "ReaderKey"),
        "send to unlisted": signed(send("Else"), "ReaderKey"),
        "send to a retry topic": signed(send("%RETRY%OpenGroup"), "ReaderKey"),
        "send to a closed group": signed(send("%RETRY%ClosedGroup"), "ReaderKey"),
        "admin sends anywhere": signed(send("Closed"), "AdminKey"),
        "white without signature": Command(
            R.SEND_MESSAGE_V2, fields={**send("Open").fields, ACCESS_KEY: "WhiteKey"}, body=b"x"
        ),
        "not so white": Command(R.SEND_MESSAGE_V2, fields={**send("Open").fields, ACCESS_KEY: "FarAwayKey"}, body=b"x"),
        "default topic right": signed(send("Else"), "FarAwayKey"),
        "pull": signed(pull("Open", "OpenGroup"), "ReaderKey"),
        "pull write-only": signed(pull("WriteOnly", "OpenGroup"), "ReaderKey"),
        "pull by closed group": signed(pull("Open", "ClosedGroup"), "ReaderKey"),
        "pull by unlisted group": signed(pull("Open", "ElseGroup"), "ReaderKey"),
        "heartbeat": signed(heartbeat("OpenGroup", "Open"), "ReaderKey"),
        "heartbeat of a closed group": signed(heartbeat("ClosedGroup", "Open"), "ReaderKey"),
        "heartbeat with a closed topic": signed(heartbeat("OpenGroup", "Closed"), "ReaderKey"),
        "query": signed(by_key(unique=False), "ReaderKey"),
        "admin makes a topic": signed(Command(R.UPDATE_AND_CREATE_TOPIC, fields=dict(topic)), "AdminKey"),
        "reader makes a topic": signed(Command(R.UPDATE_AND_CREATE_TOPIC, fields=dict(topic)), "ReaderKey"),
        "members": signed(Command(R.GET_CONSUMER_LIST_BY_GROUP, fields={"consumerGroup": "OpenGroup"}), "ReaderKey"),
        "members of a closed group": signed(
            Command(R.GET_CONSUMER_LIST_BY_GROUP, fields={"consumerGroup": "ClosedGroup"}), "ReaderKey"
        ),
        "trace": signed(send("RMQ_SYS_TRACE_TOPIC"), "ReaderKey"),
        "unique query": by_key(unique=True),
    }
    found["changed after signing"].fields["e"] = "1"
    found["body changed after signing"].body = b"changed"
    query = found["unique query"]
    query.fields[ACCESS_KEY] = "ReaderKey"
    query.fields[SIGNATURE] = sign(query, SECRETS["ReaderKey"], without=frozenset({UNIQUE_KEY_QUERY}))
    return found


def refusal(answer: Command | None) -> str | None:
    """Why a request was refused, in the words of 4.9.7 without the place in Java's code; None if it was not."""
    remark = (answer.remark or "") if answer is not None else ""
    if "AclException" not in remark:
        return None
    return remark.partition(": ")[2].partition(", org.")[0]
