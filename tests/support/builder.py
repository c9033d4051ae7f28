"""Small stores made byte by byte, where a test needs to know every byte: a log, its queues, its index.

Independent of the code under test but for the layouts, which have tests of their own against the broker's files.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqtool.formats import checkpoint as checkpoint_format
from mqtool.formats import commit_log, index_file, java
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.commit_log import Record
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT, ConsumeQueueUnit, tags_code
from mqtool.formats.index_file import ENTRY, HEADER, IndexEntry, IndexHeader

IPV4 = bytes([10, 0, 0, 7]) + (10911).to_bytes(4, "big")
IPV6 = bytes(15) + b"\1" + (10911).to_bytes(4, "big")
FIRST_TIME = 1_700_000_000_000


def record_of(
    physical_offset: int,
    body: bytes = b"body",
    topic: bytes = b"Topic",
    properties: bytes = b"TAGS\1a\2",
    **changes: Any,
) -> Record:
    """A sound record; `changes` are fields of `Record` that are to be as given, whether they fit or not.

    Hosts are IPv6 where sys_flag says so, and the topic's length decides the version.
    """
    sys_flag = changes.get("sys_flag", 0)
    is_v2 = len(topic) > 127
    values: dict[str, Any] = {
        "magic_code": commit_log.MAGIC_V2 if is_v2 else commit_log.MAGIC_V1,
        "body_crc": commit_log.body_crc(body),
        "queue_id": 0,
        "flag": 0,
        "queue_offset": 0,
        "physical_offset": physical_offset,
        "sys_flag": sys_flag,
        "born_timestamp": FIRST_TIME,
        "born_host": IPV6 if sys_flag & 0x10 else IPV4,
        "store_timestamp": FIRST_TIME,
        "store_host": IPV6 if sys_flag & 0x20 else IPV4,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body_length": len(body),
        "body": body,
        "topic_length": len(topic),
        "topic": topic,
        "properties_length": len(properties),
        "properties": properties,
    }
    head = commit_log.BODY_POSITIONS[(sys_flag >> 4) & 3]
    total = head + len(body) + (2 if is_v2 else 1) + len(topic) + 2 + len(properties)
    return Record(**{"total_size": total, **values, **changes})


def encode(physical_offset: int, body: bytes = b"body", **changes: Any) -> bytes:
    """The bytes of `record_of`."""
    return commit_log.build_record(record_of(physical_offset, body, **changes))


@dataclass(frozen=True, slots=True)
class Put:
    """Where a message went.

    Attributes:
        physical_offset, size: of its record.
        topic, queue_id, queue_offset: its place in a queue.
        tags, keys, unique_key: as given.
        store_timestamp: ms.
        data: the record's bytes.
    """

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    tags: str
    keys: str
    unique_key: str
    store_timestamp: int
    data: bytes

    @property
    def end(self) -> int:
        """Physical offset behind the record."""
        return self.physical_offset + self.size


@dataclass
class StoreBuilder:
    """A store as a broker would write it, in memory until `write`.

    Attributes:
        segment_size: bytes of a segment.
        queue_file_units: units of a ConsumeQueue file.
        slots, entries: of an index file.
        base: physical offset of the first segment.
        puts: what was put, in order.
        segments: base to bytes, each of full length.
    """

    segment_size: int = 1 << 14
    queue_file_units: int = 50
    slots: int = 50
    entries: int = 200
    base: int = 0
    puts: list[Put] = field(default_factory=list)
    segments: dict[int, bytearray] = field(default_factory=dict)
    _position: int = 0

    def put(
        self,
        body: bytes = b"body",
        topic: str = "Topic",
        queue_id: int = 0,
        tags: str = "",
        keys: str = "",
        unique_key: str = "",
        step: int = 1,
        **changes: Any,
    ) -> Put:
        """Append a message, after a BLANK in a new segment if it does not fit into the last.

        Args:
            body, topic, queue_id, tags, keys, unique_key: of the message; empty ones get no property.
            step: ms after the message before.
            changes: fields of `Record`.
        """
        pairs = (("KEYS", keys), ("UNIQ_KEY", unique_key), ("TAGS", tags))
        properties = "".join(f"{name}\1{value}\2" for name, value in pairs if value).encode()
        time = (self.puts[-1].store_timestamp if self.puts else FIRST_TIME) + step
        queue_offset = sum(put.topic == topic and put.queue_id == queue_id for put in self.puts)
        given = {
            "topic": topic.encode(),
            "properties": properties,
            "queue_id": queue_id,
            "queue_offset": queue_offset,
            "store_timestamp": time,
            **changes,
        }
        size = record_of(0, body, **given).total_size
        segment = self._segment_for(size)
        physical_offset = segment + self._position
        data = encode(physical_offset, body, **given)
        self.segments[segment][self._position : self._position + size] = data
        self._position += size
        self.puts.append(
            Put(
                physical_offset,
                size,
                topic,
                queue_id,
                queue_offset,
                tags,
                keys,
                unique_key,
                given["store_timestamp"],
                data,
            )
        )
        return self.puts[-1]

    def _segment_for(self, size: int) -> int:
        if not self.segments:
            self.segments[self.base] = bytearray(self.segment_size)
        last = max(self.segments)
        left = self.segment_size - self._position
        if size + commit_log.BLANK_SIZE <= left:
            return last
        if left >= commit_log.BLANK_SIZE:
            blank = commit_log.build_blank(left)
            self.segments[last][self._position : self._position + len(blank)] = blank
        self.segments[last + self.segment_size] = bytearray(self.segment_size)
        self._position = 0
        return last + self.segment_size

    @property
    def end(self) -> int:
        """Physical offset behind the last record."""
        return self.puts[-1].end if self.puts else self.base

    def write(self, root: Path, *, queues: bool = True, index: bool = True) -> Path:
        """Write the store below `root` and return it."""
        log = root / "commitlog"
        log.mkdir(parents=True)
        for base, data in self.segments.items():
            (log / f"{base:020}").write_bytes(data)
        if queues:
            self._write_queues(root / "consumequeue")
        if index:
            self._write_index(root / "index")
        last = self.puts[-1].store_timestamp if self.puts else 0
        (root / "checkpoint").write_bytes(checkpoint_format.build(Checkpoint(last, last, last)))
        return root

    def _write_queues(self, directory: Path) -> None:
        units: dict[tuple[str, int], bytearray] = {}
        for put in self.puts:
            unit = ConsumeQueueUnit(put.physical_offset, put.size, tags_code(put.tags))
            units.setdefault((put.topic, put.queue_id), bytearray()).extend(CONSUME_QUEUE_UNIT.build(unit))
        size = self.queue_file_units * CONSUME_QUEUE_UNIT.size
        for (topic, queue_id), data in units.items():
            (directory / topic / str(queue_id)).mkdir(parents=True)
            for start in range(0, len(data), size):
                file = directory / topic / str(queue_id) / f"{start:020}"
                file.write_bytes(data[start : start + size].ljust(size, b"\0"))

    def _write_index(self, directory: Path) -> None:
        keyed = [(put, key) for put in self.puts for key in [put.unique_key, *put.keys.split(" ")] if key]
        room = self.entries - 1
        for number in range(0, len(keyed), room):
            directory.mkdir(exist_ok=True)
            data = index_bytes(keyed[number : number + room], self.slots, self.entries)
            (directory / f"{20_231_114_221_320_000 + number:017}").write_bytes(data)


def index_bytes(keyed: list[tuple[Put, str]], slots: int, entries: int) -> bytes:
    """An index file of messages and their keys, entry by entry (IndexFile.putKey)."""
    data = bytearray(index_file.file_size(slots, entries))
    heads = [0] * slots
    first = keyed[0][0]
    for number, (put, key) in enumerate(keyed, 1):
        value = java.index_hash(index_file.key_text(put.topic, key))
        seconds = (put.store_timestamp - first.store_timestamp) // 1000 if number > 1 else 0
        at = index_file.entry_position(number, slots)
        data[at : at + ENTRY.size] = ENTRY.build(IndexEntry(value, put.physical_offset, seconds, heads[value % slots]))
        heads[value % slots] = number
    for slot, head in enumerate(heads):
        at = index_file.slot_position(slot)
        data[at : at + index_file.SLOT_SIZE] = index_file.SLOT.pack(head)
    last, used = keyed[-1][0], sum(head > 0 for head in heads)
    header = IndexHeader(
        first.store_timestamp, last.store_timestamp, first.physical_offset, last.physical_offset, used, len(keyed) + 1
    )
    data[: HEADER.size] = HEADER.build(header)
    return bytes(data)
