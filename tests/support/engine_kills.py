"""A store whose process is killed, for real, at a random point: what was acknowledged must be there afterwards."""

import os
import random
import signal
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqtool.engine import FlushMode, GetStatus, MessageStore, StoreOptions, open_store
from mqtool.engine.write.messages import BatchMessage
from mqtool.formats import commit_log
from tests.support.engine import findings_of, small_options

TOPICS, QUEUES, PRODUCERS = ("A", "B", "C"), 2, 3
_ACK = struct.Struct(">iiqq")
_SIZES = {"commit_log_file_size": 16384, "consume_queue_file_size": 400, "index_slots": 50, "index_entries": 100}

Queue = tuple[str, int]


def body_of(number: int) -> bytes:
    """The body of message `number`; its length is its own, too."""
    return b"message %d " % number * (1 + number * 7919 % 60)


@dataclass
class Victim:
    """One store through any number of kills.

    Attributes:
        root: of the store.
        options: how it is opened; SYNC_FLUSH.
        acknowledged: message number by queue and queue offset.
        killed: how many processes were killed while they had the store open, or were opening it.
    """

    root: Path
    chance: random.Random
    options: StoreOptions = field(default_factory=lambda: small_options(flush_mode=FlushMode.SYNC_FLUSH, **_SIZES))
    acknowledged: dict[Queue, dict[int, int]] = field(default_factory=dict)
    killed: int = 0

    def run(self) -> None:
        """Lets a process write, kills it somewhere, then recovers and checks everything.

        Raises:
            AssertionError: an acknowledged message is gone, one is wrong, or `verify` finds something.
        """
        reader, writer = os.pipe()
        seed = self.chance.randrange(1 << 40)
        child = os.fork()
        if child == 0:
            os.close(reader)
            _write(self.root, self.options, writer, random.Random(seed))
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            wanted = self.chance.choice([0, 1, self.chance.randrange(20), self.chance.randrange(150)])
            data = pipe.read(wanted * _ACK.size) if wanted else b""
            _spin(self.chance.random() * (0.002 if wanted else 0.03))
            os.kill(child, signal.SIGKILL)
            data += pipe.read()  # what was acknowledged before the kill came
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        self.killed += 1
        whole = len(data) - len(data) % _ACK.size
        for topic, queue_id, offset, number in _ACK.iter_unpack(data[:whole]):
            held = self.acknowledged.setdefault((TOPICS[topic], queue_id), {})
            assert offset not in held, "two messages were acknowledged at one place"
            held[offset] = number
        self.check()

    def check(self) -> None:
        """Opens the store, reads everything, closes it and verifies."""
        with open_store(self.root, self.options, background=False) as store:
            for topic in TOPICS:
                for queue_id in range(QUEUES):
                    found = dict(_served(store, topic, queue_id))
                    acknowledged = self.acknowledged.get((topic, queue_id), {})
                    assert acknowledged.items() <= found.items(), (topic, queue_id)
        assert findings_of(self.root, self.options) == []


def _spin(seconds: float) -> None:
    """Waits a random time that is shorter than a scheduler's tick."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def _served(store: MessageStore, topic: str, queue_id: int) -> Iterator[tuple[int, int]]:
    """Yields queue offset and message number of every message of a queue."""
    offset, highest = store.queue_bounds(topic, queue_id)
    while offset < highest:
        got = store.get_message(topic, queue_id, offset)
        assert got.status is GetStatus.FOUND
        for place, data in zip(got.queue_offsets, got.records, strict=True):
            record = commit_log.parse_record(data)
            assert (record.topic.decode(), record.queue_id, record.queue_offset) == (topic, queue_id, place)
            number = int(record.body.split()[1])
            assert record.body == body_of(number)
            yield place, number
        offset = got.next_begin_offset


def _write(root: Path, options: StoreOptions, writer: int, chance: random.Random) -> Any:
    """The process that is killed: producers that tell each acknowledgement at once, until the end."""
    store = open_store(root, options)
    seeds = [chance.randrange(1 << 40) for _ in range(PRODUCERS)]
    threads = [threading.Thread(target=_produce, args=(store, writer, random.Random(seed))) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(1)


def _produce(store: MessageStore, writer: int, chance: random.Random) -> None:
    while True:
        topic, queue_id = chance.randrange(len(TOPICS)), chance.randrange(QUEUES)
        numbers = [chance.randrange(1 << 30) for _ in range(chance.choice([1, 1, 1, 4]))]
        held = f"KEYS\x01k{numbers[0]}\x02".encode()
        if len(numbers) == 1:
            result = store.put(TOPICS[topic], queue_id, body_of(numbers[0]), held)
        else:
            result = store.put_batch(TOPICS[topic], queue_id, [BatchMessage(body_of(one), held) for one in numbers])
        if not result.ok or result.status.name != "PUT_OK":
            os._exit(2)
        acks = (_ACK.pack(topic, queue_id, result.queue_offset + at, one) for at, one in enumerate(numbers))
        os.write(writer, b"".join(acks))  # shorter than PIPE_BUF: whole or not at all
