"""One store engine through puts, kills, power cuts, broken and full disks; a model knows what must be there.

A run is `EngineRun(root, seed).run()`. Everything random comes from the seed and nothing runs in a thread, so that a
seed that fails gives the same failure again.
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from mqtool.engine import Compat, FlushMode, GetStatus, MessageStore, open_store
from mqtool.engine.write.messages import BatchMessage
from mqtool.errors import StoreError
from mqtool.formats import commit_log
from tests.simulation.disk import Killed, SimulatedDisk
from tests.support.engine import HeldClock, findings_of, small_options
from tests.support.engine_faults import kill

TOPICS, QUEUES = ("A", "B"), 2
SIZES = {"commit_log_file_size": 8192, "consume_queue_file_size": 400, "index_slots": 20, "index_entries": 60}
ROUNDS, STEPS = 4, 60

Queue = tuple[str, int]


@dataclass
class Model:
    """What the store has acknowledged.

    Attributes:
        stored: body by queue and queue offset: survives a kill.
        durable: the part of it that survives a power cut.
    """

    stored: dict[Queue, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    durable: dict[Queue, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))

    def acknowledge(self, queue: Queue, queue_offset: int, body: bytes, *, durable: bool) -> None:
        assert queue_offset not in self.stored[queue], "two messages were acknowledged at one place"
        self.stored[queue][queue_offset] = body
        if durable:
            self.durable[queue][queue_offset] = body

    def flushed(self) -> None:
        for queue, messages in self.stored.items():
            self.durable[queue].update(messages)

    def power_cut(self) -> None:
        """Only what is durable is promised from now on."""
        self.stored = defaultdict(dict, {queue: dict(messages) for queue, messages in self.durable.items()})


class EngineRun:
    """One run; see the module."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = SimulatedDisk(self.chance)
        self.clock = HeldClock()
        self.root = root
        self.model = Model()
        self.number = 0
        self.faults = 0
        compat = self.chance.choice([Compat.V4_9, Compat.V5_5])
        self.sync = self.chance.random() < 0.5
        mode = FlushMode.SYNC_FLUSH if self.sync else FlushMode.ASYNC_FLUSH
        self.options = small_options(compat=compat, flush_mode=mode, **SIZES)

    def run(self) -> None:
        """Writes, lets the process end in some way, opens again and checks; several times."""
        for _ in range(ROUNDS):
            ending = self.chance.choice(["close", "kill", "kill", "power cut", "broken disk", "full disk"])
            self._live(ending)
            self.disk.heal()
            self.check()

    # -- one life of the process ---------------------------------------------------------------------------------

    def _live(self, ending: str) -> None:
        store: MessageStore | None = None
        if ending in {"kill", "power cut"}:
            self.disk.kill_at = self.disk.operations + self.chance.randrange(1, 120)
        elif ending == "broken disk":
            self.disk.error_rate = self.chance.choice([0.002, 0.02])
        self.disk.short_rate = self.chance.choice([0.0, 0.0, 0.2])
        try:
            store = self._open()
            for step in range(self.chance.randrange(STEPS)):
                self.disk.full = ending == "full disk" and step > 10
                self._step(store)
            if ending == "close":
                store.close()
                self.model.flushed()
                return
        except Killed:
            pass
        except (StoreError, OSError):
            assert ending in {"broken disk", "full disk"}, "an error without a cause"
        self.faults += 1
        self.disk.heal()
        self._end(store)
        if ending == "power cut":
            self.disk.power_cut(self.chance)
            self.model.power_cut()

    def _end(self, store: MessageStore | None) -> None:
        """Ends the process: what is open is closed by the system, nothing is written."""
        if store is not None and not store._closed:
            kill(store)

    def _open(self) -> MessageStore:
        return open_store(self.root, self.options, clock=self.clock, files=self.disk, background=False)

    def _step(self, store: MessageStore) -> None:
        self.clock.time += self.chance.choice([0, 1, 5, 900])
        match self.chance.choices(["put", "batch", "dispatch", "flush", "get"], [10, 3, 4, 2, 2])[0]:
            case "put":
                self._put(store)
            case "batch":
                self._put_batch(store)
            case "dispatch":
                store.dispatch()
            case "flush":
                store.flush()
                self.model.flushed()
            case "get":
                store.get_message(self.chance.choice(TOPICS), self.chance.randrange(QUEUES), 0)

    def _body(self) -> bytes:
        self.number += 1
        return b"message %d " % self.number * self.chance.randrange(1, 60)

    def _put(self, store: MessageStore) -> None:
        queue, body = (self.chance.choice(TOPICS), self.chance.randrange(QUEUES)), self._body()
        result = store.put(*queue, body, f"KEYS\x01k{self.number}\x02".encode())
        if result.ok and result.status.name == "PUT_OK":
            self.model.acknowledge(queue, result.queue_offset, body, durable=self.sync)

    def _put_batch(self, store: MessageStore) -> None:
        queue = self.chance.choice(TOPICS), self.chance.randrange(QUEUES)
        bodies = [self._body() for _ in range(self.chance.randrange(1, 5))]
        result = store.put_batch(*queue, [BatchMessage(body, b"") for body in bodies])
        if result.ok and result.status.name == "PUT_OK":
            for at, body in enumerate(bodies):
                self.model.acknowledge(queue, result.queue_offset + at, body, durable=self.sync)

    # -- afterwards ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Opens the store on a healthy disk: all that was promised is served, and `verify` finds nothing."""
        store = self._open()
        store.dispatch()
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                served = self._served(store, topic, queue_id)
                promised = self.model.stored.get((topic, queue_id), {})
                lost = {place: body for place, body in promised.items() if served.get(place) != body}
                assert not lost, f"{topic}/{queue_id}: acknowledged and not served: {sorted(lost)}"
                # what was never acknowledged may be there; from now on it stays
                self.model.stored[topic, queue_id] = served
        store.close()
        self.model.flushed()
        found = findings_of(self.root, self.options)
        assert found == [], found

    @staticmethod
    def _served(store: MessageStore, topic: str, queue_id: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset, highest = store.queue_bounds(topic, queue_id)
        while offset < highest:
            got = store.get_message(topic, queue_id, offset)
            assert got.status is GetStatus.FOUND, got.status
            for place, data in zip(got.queue_offsets, got.records, strict=True):
                record = commit_log.parse_record(data)
                assert (record.topic.decode(), record.queue_id, record.queue_offset) == (topic, queue_id, place)
                found[place] = record.body
            offset = got.next_begin_offset
        return found
