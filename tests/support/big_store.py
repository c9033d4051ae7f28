"""A store of any size, quickly: V1 records of about a kilobyte in sixteen queues, and their ConsumeQueues."""

import random
import struct
from pathlib import Path

from mqtool.formats.commit_log import MAGIC_V1, Record, body_crc, build_blank, build_record

TOPICS, QUEUES = 4, 4
HOST = bytes([10, 0, 0, 1]) + struct.pack(">i", 10911)
FIRST_TIME = 1_790_000_000_000


def write_big_store(root: Path, messages: int, *, size: int = 1024, segment: int = 1 << 28) -> Path:
    """Writes a store; the same arguments give the same bytes.

    Args:
        root: a new directory.
        messages: how many; message i goes to queue i % 16.
        size: bytes of a body; words, so that it can be compressed as text can.
        segment: bytes of a CommitLog file.
    """
    log = root / "commitlog"
    log.mkdir(parents=True)
    rnd = random.Random(1)
    words = [bytes(rnd.choices(b"abcdefghijklmnopqrstuvwxyz", k=rnd.randint(3, 9))) for _ in range(2000)]
    units: list[list[bytes]] = [[] for _ in range(TOPICS * QUEUES)]
    base = at = 0
    file = (log / f"{0:020}").open("wb")
    for number in range(messages):
        body = b" ".join(rnd.choices(words, k=size // 7))[:size]
        slot = number % len(units)
        record = _record(number, slot, len(units[slot]), at, body)
        if at - base + len(record) + 8 > segment:
            file.write(build_blank(segment - (at - base)))
            file.truncate(segment)
            file.close()
            base += segment
            at = base
            file = (log / f"{base:020}").open("wb")
            record = _record(number, slot, len(units[slot]), at, body)
        file.write(record)
        units[slot].append(struct.pack(">qiq", at, len(record), 0))
        at += len(record)
    file.truncate(segment)
    file.close()
    for slot, found in enumerate(units):
        directory = root / "consumequeue" / f"bench-{slot // QUEUES}" / str(slot % QUEUES)
        directory.mkdir(parents=True)
        for start in range(0, max(len(found), 1), 300_000):
            with (directory / f"{start * 20:020}").open("wb") as queue:
                queue.write(b"".join(found[start : start + 300_000]))
                queue.truncate(6_000_000)
    return root


def _record(number: int, slot: int, queue_offset: int, at: int, body: bytes) -> bytes:
    topic = f"bench-{slot // QUEUES}".encode()
    properties = (
        f"KEYS\x01k{number}\x02TAGS\x01Tag{number % 8}\x02UNIQ_KEY\x01{number * 2654435761 % 2**64:016X}{number:016X}"
        f"\x02WAIT\x01true\x02user\x01u{number % 1000}\x02"
    ).encode()
    total = 88 + len(body) + 1 + len(topic) + 2 + len(properties)
    now = FIRST_TIME + number
    record = Record(
        total, MAGIC_V1, body_crc(body), slot % QUEUES, number % 7, queue_offset, at, 0, now - 3, HOST, now, HOST, 0, 0,
        len(body), body, len(topic), topic, len(properties), properties,
    )  # fmt: skip
    return build_record(record)
