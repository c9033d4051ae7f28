"""A store of any size, quickly: V1 records of about a kilobyte in sixteen queues, their ConsumeQueues and an index.

A few thousand records are built field by field. The rest are copies of these, block by block, in which numpy writes
what differs: queue offset, physical offset, times, key and unique key. Lengths vary from record to record.
"""

import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mqtool.formats import java
from mqtool.formats.commit_log import MAGIC_V1, Record, body_crc, build_blank, build_record, field_offset
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT
from mqtool.rebuild.job import rebuild
from mqtool.rebuild.parts import RebuildScope
from mqtool.rebuild.settings import settings_of
from mqtool.store import open_store

TOPICS, QUEUES = 4, 4
SLOTS = TOPICS * QUEUES
HOST = bytes([10, 0, 0, 1]) + struct.pack(">i", 10911)
FIRST_TIME = 1_790_000_000_000
ROWS = 4096
FILE_UNITS = 300_000
_KEY, _UNIQUE = b"KEYS\x01k", b"UNIQ_KEY\x01"
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def write_big_store(
    root: Path, messages: int, *, size: int = 1024, segment: int = 1 << 28, index: bool = False
) -> Path:
    """Writes a store; the same arguments give the same bytes.

    Args:
        root: a new directory.
        messages: how many; message i goes to queue i % 16.
        size: bytes of a body; words, so that it can be compressed as text can.
        segment: bytes of a CommitLog file.
        index: whether index files are written too.
    """
    log = root / "commitlog"
    log.mkdir(parents=True)
    block = _Block(size)
    queues = [_QueueFile(root, slot) for slot in range(SLOTS)]
    for base, runs in _placed(block, messages, segment):
        with (log / f"{base:020}").open("wb") as file:
            at = base
            for first, row, count in runs:
                file.write(block.records(first, row, count, at))
                for queue in queues:
                    queue.add(block, first, row, count, at)
                at += int(block.starts[row + count] - block.starts[row])
            if runs[-1][0] + runs[-1][2] < messages:
                file.write(build_blank(segment - (at - base)))
            file.truncate(segment)
    for queue in queues:
        queue.close()
    if index:
        _write_index(root)
    return root


def add_empty_segments(root: Path, gib: int) -> None:
    """Adds empty segments to a log until it has a size, as if a broker had made them ahead; they take no space."""
    last = max((root / "commitlog").iterdir())
    segment = last.stat().st_size
    for base in range(int(last.name) + segment, gib << 30, segment):
        with (root / "commitlog" / f"{base:020}").open("wb") as file:
            file.truncate(segment)


def _placed(block: "_Block", messages: int, segment: int) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
    """Yields for each segment its base and runs of (first message, row of the block, how many)."""
    done = base = 0
    while done < messages:
        runs, room = [], segment - 8
        while done < messages:
            row = done % ROWS
            count = int(np.searchsorted(block.starts, block.starts[row] + room, side="right")) - 1 - row
            count = min(count, messages - done)
            if count <= 0:
                break
            runs.append((done, row, count))
            room -= int(block.starts[row + count] - block.starts[row])
            done += count
        yield base, runs
        base += segment


class _Block:
    """Records that are copied again and again.

    Attributes:
        starts: position of each, and behind the last.
        tags: tags code of each.
    """

    def __init__(self, size: int) -> None:
        rnd = random.Random(1)
        words = [bytes(rnd.choices(b"abcdefghijklmnopqrstuvwxyz", k=rnd.randint(3, 9))) for _ in range(2000)]
        bodies = [b" ".join(rnd.choices(words, k=size // 7 + 1))[:size] for _ in range(ROWS)]
        records = [_record(row, body) for row, body in enumerate(bodies)]
        self.starts = np.cumsum([0, *map(len, records)])
        self.tags = np.array([java.string_hash(f"Tag{row % 8}") for row in range(ROWS)], np.int64)
        self._data = np.frombuffer(b"".join(records), np.uint8)
        self._keys = self.starts[:-1] + [one.index(_KEY) + len(_KEY) for one in records]
        self._uniques = self.starts[:-1] + [one.index(_UNIQUE) + len(_UNIQUE) for one in records]

    def records(self, first: int, row: int, count: int, at: int) -> memoryview:
        """Returns the records of messages from `first` on, as they stand at a physical offset."""
        low = int(self.starts[row])
        data = self._data[low : int(self.starts[row + count])].copy()
        where = slice(row, row + count)
        starts, numbers = self.starts[where] - low, np.arange(first, first + count, dtype=np.uint64)
        _put(data, starts + field_offset("queue_offset"), (numbers // SLOTS).astype(">i8"))
        _put(data, starts + field_offset("physical_offset"), (starts + at).astype(">i8"))
        for name, before in (("born_timestamp", 3), ("store_timestamp", 0)):
            _put(data, starts + field_offset(name), (numbers + (FIRST_TIME - before)).astype(">i8"))
        powers = 10 ** np.arange(9, -1, -1, dtype=np.uint64)
        digits = (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)
        data[(self._keys[where] - low)[:, None] + np.arange(10)] = digits
        halves = np.stack([numbers * np.uint64(2654435761), numbers], axis=1)
        nibbles = halves[:, :, None] >> np.arange(60, -1, -4, dtype=np.uint64) & np.uint64(15)
        data[(self._uniques[where] - low)[:, None] + np.arange(32)] = _HEX[nibbles.reshape(count, 32)]
        return data.data


def _put(data: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    data[places[:, None] + np.arange(8)] = values.view(np.uint8).reshape(-1, 8)


class _QueueFile:
    """The files of one queue, one after the other."""

    def __init__(self, root: Path, slot: int) -> None:
        self._directory = root / "consumequeue" / f"bench-{slot // QUEUES}" / str(slot % QUEUES)
        self._directory.mkdir(parents=True)
        self._slot = slot
        self._units: list[np.ndarray] = []
        self._files = 0

    def add(self, block: _Block, first: int, row: int, count: int, at: int) -> None:
        """Takes the units of those of these messages that are in this queue."""
        mine = np.arange(row + (self._slot - first) % SLOTS, row + count, SLOTS)
        units = np.zeros(len(mine), CONSUME_QUEUE_UNIT.dtype)
        units["physical_offset"] = block.starts[mine] - block.starts[row] + at
        units["size"] = block.starts[mine + 1] - block.starts[mine]
        units["tags_code"] = block.tags[mine]
        self._units.append(units)
        if sum(map(len, self._units)) >= FILE_UNITS:
            whole = self._joined()
            self._write(whole[:FILE_UNITS])
            self._units = [whole[FILE_UNITS:]]

    def close(self) -> None:
        """Writes what is left."""
        self._write(self._joined())

    def _joined(self) -> np.ndarray:
        return np.concatenate(self._units).astype(CONSUME_QUEUE_UNIT.dtype)  # numpy joins in the machine's byte order

    def _write(self, units: np.ndarray) -> None:
        size = FILE_UNITS * CONSUME_QUEUE_UNIT.size
        with (self._directory / f"{self._files * size:020}").open("wb") as file:
            file.write(units.tobytes())
            file.truncate(size)
        self._files += 1


def _write_index(root: Path) -> None:
    aside = root.with_name(f"{root.name}-index")
    with open_store(root) as store:
        rebuild(store, aside, settings_of(store), RebuildScope(queues=False))
    (aside / "index").rename(root / "index")
    shutil.rmtree(aside)


def _record(row: int, body: bytes) -> bytes:
    slot = row % SLOTS
    topic = f"bench-{slot // QUEUES}".encode()
    properties = (
        f"KEYS\x01k{0:010}\x02TAGS\x01Tag{row % 8}\x02UNIQ_KEY\x01{0:032X}\x02WAIT\x01true\x02"
        f"user\x01u{'x' * (row * 7 % 11)}\x02"
    ).encode()
    total = 88 + len(body) + 1 + len(topic) + 2 + len(properties)
    record = Record(
        total,
        MAGIC_V1,
        body_crc(body),
        slot % QUEUES,
        row % 7,
        0,
        0,
        0,
        0,
        HOST,
        0,
        HOST,
        0,
        0,
        len(body),
        body,
        len(topic),
        topic,
        len(properties),
        properties,
    )
    return build_record(record)
