"""A client of the remoting protocol that shares no code with ours: a socket, `struct` and `json`."""

import json
import socket
import struct
import time
from typing import Any, NamedTuple, Self

RESPONSE, ONEWAY = 1, 2


class Answer(NamedTuple):
    """An answer, or a request of the server."""

    code: int
    remark: str | None
    fields: dict[str, str]
    body: bytes
    opaque: int
    flag: int
    version: int

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Client:
    """One connection. What the server asks by itself is kept in `asked`.

    Args:
        address: "host:port".
        version: what the client says it is; 513 is 5.5.0.
    """

    def __init__(self, address: str, version: int = 513) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.stream = self.socket.makefile("rb")
        self.version = version
        self.opaque = 0
        self.asked: list[Answer] = []
        self.early: dict[int, Answer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self.stream.close()
        self.socket.close()

    def send(self, code: int, body: bytes = b"", *, frame_flag: int = 0, **fields: object) -> int:
        """Sends a request and returns its opaque."""
        self.opaque += 1
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
        header = json.dumps(
            {
                "code": code,
                "language": "JAVA",
                "version": self.version,
                "opaque": self.opaque,
                "flag": frame_flag,
                "extFields": texts,
            }
        ).encode()
        self.socket.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        return self.opaque

    def receive(self) -> Answer:
        """The next frame, whatever it is."""
        total, head = struct.unpack(">ii", self.stream.read(8))
        header = json.loads(self.stream.read(head & 0xFFFFFF))
        body = self.stream.read(total - 4 - (head & 0xFFFFFF))
        return Answer(
            header["code"],
            header.get("remark"),
            header.get("extFields") or {},
            body,
            header["opaque"],
            header["flag"],
            header["version"],
        )

    def answer(self, opaque: int) -> Answer:
        """The answer to a request, whenever it comes."""
        while opaque not in self.early:
            found = self.receive()
            if found.flag & RESPONSE:
                self.early[found.opaque] = found
            else:
                self.asked.append(found)
        return self.early.pop(opaque)

    def request(self, code: int) -> Answer:
        """The next request of the server with a code."""
        while not any(one.code == code for one in self.asked):
            found = self.receive()
            if found.flag & RESPONSE:
                self.early[found.opaque] = found
            else:
                self.asked.append(found)
        return self.asked.pop(next(place for place, one in enumerate(self.asked) if one.code == code))

    def reply(self, to: Answer, code: int = 0, body: bytes = b"") -> None:
        """Answers a request of the server."""
        header = json.dumps(
            {"code": code, "language": "JAVA", "version": self.version, "opaque": to.opaque, "flag": 1, "extFields": {}}
        ).encode()
        self.socket.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)

    def call(self, code: int, body: bytes = b"", **fields: Any) -> Answer:
        """Sends a request and returns its answer."""
        return self.answer(self.send(code, body, **fields))

    # -- what every test does ------------------------------------------------------------------------------------

    def create_topic(self, topic: str, queues: int = 1, **more: object) -> Answer:
        """Creates or changes a topic as mqadmin does: as many queues to read as to write, unless `more` says otherwise."""
        fields: dict[str, Any] = {
            "defaultTopic": "TBW102",
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        return self.call(17, topic=topic, **fields | more)

    def put(
        self,
        topic: str,
        body: bytes = b"x",
        queue: int = 0,
        *,
        properties: dict[str, str] | None = None,
        group: str = "P",
        sys_flag: int = 0,
        code: int = 310,
        **more: object,
    ) -> Answer:
        """Sends a message as the Java client does: header V2, properties with a unique key."""
        given = {"UNIQ_KEY": f"{self.opaque:032X}", "WAIT": "true", **(properties or {})}
        text = "".join(f"{name}\x01{value}\x02" for name, value in given.items())
        header: dict[str, Any] = {
            "a": group,
            "b": topic,
            "c": "TBW102",
            "d": 4,
            "e": queue,
            "f": sys_flag,
            "g": int(time.time() * 1000),
            "h": 0,
            "i": text,
            "j": 0,
            "k": False,
            "m": False,
            **more,
        }
        return self.call(code, body, **header)

    def pull(
        self,
        topic: str,
        queue: int = 0,
        offset: int = 0,
        *,
        group: str = "TOOLS_CONSUMER",
        tags: str = "*",
        count: int = 32,
        hold_ms: int = 0,
        **more: object,
    ) -> Answer:
        """Pulls with a subscription of its own, as tools do."""
        return self.answer(
            self.send_pull(topic, queue, offset, group=group, tags=tags, count=count, hold_ms=hold_ms, **more)
        )

    def send_pull(
        self,
        topic: str,
        queue: int = 0,
        offset: int = 0,
        *,
        group: str = "TOOLS_CONSUMER",
        tags: str = "*",
        count: int = 32,
        hold_ms: int = 0,
        **more: object,
    ) -> int:
        """Sends such a pull and returns its opaque."""
        fields: dict[str, Any] = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": queue,
            "queueOffset": offset,
            "maxMsgNums": count,
            "sysFlag": 4 | (2 if hold_ms else 0),
            "commitOffset": 0,
            "suspendTimeoutMillis": hold_ms,
            "subscription": tags,
            "subVersion": 0,
            "expressionType": "TAG",
            **more,
        }
        return self.send(11, **fields)

    def heartbeat(
        self,
        client_id: str,
        *,
        consumers: dict[str, list[str]] | None = None,
        producers: tuple[str, ...] = (),
        expression: str = "*",
        kind: str = "TAG",
    ) -> Answer:
        """Says who it is: consumer of topics in groups, producer in groups."""
        data = [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "unitMode": False,
                "subscriptionDataSet": [
                    {
                        "topic": topic,
                        "subString": expression,
                        "subVersion": 1,
                        "tagsSet": [],
                        "codeSet": [],
                        "expressionType": kind,
                    }
                    for topic in topics
                ],
            }
            for group, topics in (consumers or {}).items()
        ]
        body = {
            "clientID": client_id,
            "producerDataSet": [{"groupName": group} for group in producers],
            "consumerDataSet": data,
        }
        return self.call(34, json.dumps(body).encode())


def bodies(answer: Answer) -> list[bytes]:
    """The bodies of the records in an answer, by hand: IPv4 hosts, topic length of one byte."""
    return [body for _, body in records(answer)]


def records(answer: Answer) -> list[tuple[dict[str, Any], bytes]]:
    """What the records in an answer say of themselves, and their bodies."""
    found, at = [], 0
    while at < len(answer.body):
        total, magic, _, queue, flag, queue_offset, physical, sys_flag, born = struct.unpack_from(
            ">iiiiiqqiq", answer.body, at
        )
        assert magic == -626843481
        (stored,) = struct.unpack_from(">q", answer.body, at + 56)
        times, prepared, length = struct.unpack_from(">iqi", answer.body, at + 72)
        body = answer.body[at + 88 : at + 88 + length]
        rest = answer.body[at + 88 + length : at + total]
        topic, tail = rest[1 : 1 + rest[0]].decode(), rest[3 + rest[0] :].decode()
        properties = dict(pair.split("\x01", 1) for pair in tail.split("\x02") if pair)
        found.append(
            (
                {
                    "topic": topic,
                    "queue": queue,
                    "queue_offset": queue_offset,
                    "physical_offset": physical,
                    "sys_flag": sys_flag,
                    "reconsume_times": times,
                    "prepared": prepared,
                    "stored": stored,
                    "born": born,
                    "flag": flag,
                    "properties": properties,
                },
                body,
            )
        )
        at += total
    return found
