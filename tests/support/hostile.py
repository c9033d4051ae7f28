"""Peers that do a broker harm: frames with every kind of mistake, connections that stay idle, one that never reads.

Shares no code with ours but the numbers of request codes. `Attack` says afterwards how the broker took each frame.
"""

import errno
import json
import random
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mqtool.protocol.command import RequestCode
from tests.support.remoting import Client

TOPIC = "Hostile"
SENTINEL_TIMES = 30.0
HUNG_UP = (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)
PEACEFUL = frozenset({RequestCode.UPDATE_BROKER_CONFIG, RequestCode.DELETE_EXPIRED_COMMITLOG})
"""Codes that are left out: carried out, they would change what the other peers of the test rely on."""

FIELDS: dict[str, Any] = {
    "topic": TOPIC,
    "queueId": "0",
    "queueOffset": "0",
    "offset": "0",
    "maxMsgNums": "8",
    "consumerGroup": "GHostile",
    "group": "GHostile",
    "producerGroup": "PHostile",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "bornTimestamp": "1700000000000",
    "flag": "0",
    "properties": "UNIQ_KEY\x01AA\x02",
    "reconsumeTimes": "0",
    "a": "PHostile",
    "b": TOPIC,
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "KEYS\x01k\x02",
    "j": "0",
    "k": "false",
    "l": "0",
    "m": "false",
    "invisibleTime": "5000",
    "pollTime": "0",
    "bornTime": "0",
    "initMode": "0",
    "exp": "*",
    "expType": "TAG",
    "order": "false",
    "extraInfo": "0 1700000000000 5000 0 0 broker-a 0 0",
    "delayLevel": "1",
    "originMsgId": "",
    "unitMode": "false",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicSysFlag": "0",
    "topicFilterType": "SINGLE_TAG",
    "timestamp": "0",
    "key": "k",
    "maxNum": "8",
    "beginTimestamp": "0",
    "endTimestamp": "9223372036854775807",
    "clientID": "h@1",
    "tranStateTableOffset": "0",
    "commitLogOffset": "0",
    "commitOrRollback": "8",
    "msgId": "",
    "isForce": "true",
    "index": "0",
    "count": "8",
    "statsName": "TOPIC_PUT_NUMS",
    "statsKey": TOPIC,
    "recallHandle": "djEgYSBi",
    "srcGroup": "GHostile",
    "destGroup": "GHostile2",
    "groupName": "GHostile",
}
BODIES = (
    b"",
    b"x" * 100,
    b"{}",
    b"[]",
    b"null",
    b'{"clientID":"h@1","consumerDataSet":[{"groupName":"GHostile"}],"producerDataSet":[]}',
    b'{"acks":[{"b":"AQ==","c":"GHostile","t":"Hostile","r":"0","so":0,"q":0,"rq":0,"pt":1,"it":1}]}',
    b'{"topic":"Hostile","consumerGroup":"GHostile","clientId":"h@1","mqSet":[{"topic":"Hostile","brokerName":"b","queueId":0}]}',
)
VALUES = (
    "",
    "-1",
    "0",
    "2147483648",
    "-9223372036854775808",
    "99999999999999999999",
    "NaN",
    "1e9",
    "\x00",
    "\u20ac" * 200,
    "true",
    "null",
    "../../etc",
    "%RETRY%",
    "a b",
    "x" * 40_000,
    "((((((((",
    "AND OR NOT",
    "\x01\x02\x01",
    "\ud83d\ude00",
)


def header(code: int, opaque: int, fields: dict[str, Any], random_: random.Random) -> bytes:
    """A header, in either of the two forms."""
    if random_.random() < 0.3 and -(1 << 15) <= code < 1 << 15:
        pairs = b"".join(
            struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value
            for name, value in ((name.encode(), value.encode("utf-8", "replace")) for name, value in fields.items())
        )
        return b"\x01" + struct.pack(">hbhiii", code, 0, 513, opaque, 0, 0) + struct.pack(">i", len(pairs)) + pairs
    found = {"code": code, "language": "JAVA", "version": 513, "opaque": opaque, "flag": 0, "extFields": fields}
    return b"\x00" + json.dumps(found, ensure_ascii=random_.random() < 0.5).encode("utf-8", "replace")


def frame(head: bytes, body: bytes) -> bytes:
    """A whole frame; the first byte of `head` says which form it has."""
    return struct.pack(">ii", 3 + len(head) + len(body), len(head) - 1 | head[0] << 24) + head[1:] + body


def handled(address: str) -> list[int]:
    """The request codes that a broker knows."""
    with Client(address) as client:
        return [
            int(code) for code in RequestCode if code not in PEACEFUL and client.call(int(code), **FIELDS).code != 3
        ]


def mutated(random_: random.Random, opaque: int, codes: list[int]) -> tuple[bytes, bool]:
    """A frame with mistakes, and whether its lengths are right, so that the stream goes on behind it."""
    code = random_.choice(codes) if random_.random() < 0.9 else random_.randrange(-(1 << 31), 1 << 31)
    fields = dict(FIELDS)
    for name in random_.sample(sorted(fields), random_.choice([0, 1, 1, 2, 5, 40])):
        fields.pop(name)
    for name in random_.sample(sorted(fields), random_.choice([0, 1, 1, 3])):
        fields[name] = random_.choice(VALUES)
    head, body = bytearray(header(code, opaque, fields, random_)), random_.choice(BODIES)
    way = random_.randrange(6)
    if way == 0:  # within the header
        for _ in range(random_.choice([1, 2, 8])):
            head[random_.randrange(1, len(head))] = random_.randrange(256)
    elif way == 1:
        body = bytes(byte ^ (1 << random_.randrange(8)) if random_.random() < 0.05 else byte for byte in body)
    elif way == 2:
        body = random_.randbytes(random_.choice([1, 7, 300, 5000]))
    data = bytearray(frame(bytes(head), body))
    if way == 3:  # lengths that lie, bytes too many or too few
        place = random_.randrange(8)
        data[place] = random_.randrange(256)
        return bytes(data), False
    if way == 4:
        return bytes(data[: random_.randrange(1, len(data))]), False
    return bytes(data), way != 0  # a header that is none ends its connection, as the real broker's decoder does


class Attack:
    """Mutated frames over many connections, one after the other.

    Attributes:
        outcomes: how frames were taken: "answered", "passed over", "closed".
    """

    def __init__(self, address: str, seed: int) -> None:
        host, _, port = address.rpartition(":")
        self.address = host, int(port)
        self.random = random.Random(seed)
        self.outcomes: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self.opaque = 0
        self.known = handled(address)
        self.socket: socket.socket | None = None

    def run(self, count: int, batch: int = 20) -> None:
        """Sends so many frames; each batch has to be followed by an answer to a plain request, or by a closed connection."""
        done = 0
        while done < count:
            number = min(batch, count - done)
            frames = [mutated(self.random, self._next(), self.known) for _ in range(number)]
            for data, in_step in frames:
                if not in_step:
                    self._alone(data)
            self._together([data for data, in_step in frames if in_step])
            done += number
        self.close()

    def close(self) -> None:
        """Ends the connection; the next batch opens another one."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def _next(self) -> int:
        self.opaque += 1
        return self.opaque

    def _alone(self, data: bytes) -> None:
        """A frame whose lengths lie: everything up to the end of the stream, then the broker hangs up."""
        with socket.create_connection(self.address, timeout=SENTINEL_TIMES) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
            except OSError as error:  # the broker may hang up before it has read everything
                if error.errno not in HUNG_UP:
                    raise
        self.outcomes["closed"] += 1

    def _together(self, frames: list[bytes]) -> None:
        if self.socket is None:
            self.socket = socket.create_connection(self.address, timeout=SENTINEL_TIMES)
        sentinel = self._next()
        try:
            self.socket.sendall(
                b"".join(frames)
                + frame(
                    b"\x00"
                    + json.dumps(
                        {"code": 28, "language": "JAVA", "version": 513, "opaque": sentinel, "flag": 0}
                    ).encode(),
                    b"",
                )
            )
            answered = self._until(sentinel)
        except OSError as error:
            if error.errno not in HUNG_UP:
                raise
            answered = None
        if answered is None:
            self.outcomes["closed"] += len(frames)
            self.close()
        else:
            self.outcomes["answered"] += answered
            self.outcomes["passed over"] += len(frames) - answered

    def _until(self, sentinel: int) -> int | None:
        """How many answers came before that of the sentinel; None if the connection was closed."""
        assert self.socket is not None
        count, buffer = 0, b""
        while True:
            while len(buffer) >= 8 and len(buffer) >= 4 + struct.unpack_from(">i", buffer)[0]:
                total, length = struct.unpack_from(">ii", buffer)
                found = buffer[8 : 8 + (length & 0xFFFFFF)]
                if length >> 24 == 0:
                    one = json.loads(found)
                    if one["opaque"] == sentinel:
                        return count
                    self.codes[one["code"]] += bool(one["flag"] & 1)
                    count += one["flag"] & 1
                else:
                    self.codes[struct.unpack_from(">h", found)[0]] += 1
                    count += 1
                buffer = buffer[4 + total :]
            data = self.socket.recv(1 << 18)
            if not data:
                return None
            buffer += data


@contextmanager
def idle(address: str, count: int) -> Iterator[None]:
    """Connections that say nothing."""
    host, _, port = address.rpartition(":")
    connections = [socket.create_connection((host, int(port)), timeout=SENTINEL_TIMES) for _ in range(count)]
    try:
        yield
    finally:
        for one in connections:
            one.close()


def never_reads(address: str, topic: str, requests: int) -> socket.socket:
    """A connection that asks for messages again and again and reads none of the answers; stops when it cannot send more."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=2)
    fields = FIELDS | {"topic": topic, "maxMsgNums": "32"}
    data = b"".join(frame(header(11, number + 1, fields, random.Random(0)), b"") for number in range(100))
    try:
        for _ in range(requests // 100):
            connection.sendall(data)
    except OSError:
        pass
    return connection


def resident(pid: int) -> int:
    """Memory of a process, bytes."""
    with Path(f"/proc/{pid}/status").open(encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))


def witness(client: Client, number: int) -> None:
    """A peer that behaves: sends, and reads what it sent."""
    body = b"%d " % number + b"w" * 1000
    answer = client.put("Witness", body)
    assert answer.code == 0, answer.remark
    offset = int(answer.fields["queueOffset"])
    found = client.pull("Witness", 0, offset, hold_ms=10_000, count=1)
    assert found.code == 0, found.remark
    assert body in found.body
