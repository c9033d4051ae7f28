"""Writes batches, passed in log order, to queues and index; keeps track of the position in the log and the result."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field, structs

from mqtool.formats import file_names, index_file
from mqtool.formats.index_file import ENTRY_SIZE, HEADER, HEADER_SIZE, IndexHeader
from mqtool.formats.topics import is_lmq
from mqtool.rebuild.files import OutputFiles
from mqtool.rebuild.parts import DispatchBatch, RebuildScope
from mqtool.rebuild.placement import LISTED, HoleBudget, Listing, Note
from mqtool.rebuild.queue_writer import BatchQueueWriter, ExtensionWriter, QueueName, SimpleQueueWriter, UnitBatch
from mqtool.rebuild.settings import RebuildSettings
from mqtool.records.damage import Damage, DamageKind
from mqtool.records.dispatch import IndexKeys, Oddity
from mqtool.records.index_chains import Entries, IndexBuilder, IndexFileBuilder, chain

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR = 9999
BUFFERED = 64 << 20
"""Maximum bytes buffered over all queues."""
BitMaps = Callable[[str, Sequence[bytes], Sequence[int]], list[bytes]]
"""Returns the filter bit maps of a topic's messages from their properties and store timestamps."""
Claims = Callable[[QueueName, int], int | None]
"""Returns the `Claim` of a queue offset in a queue."""
Writer = SimpleQueueWriter | BatchQueueWriter


class IndexWriter:
    """Writes all index files of a rebuild."""

    def __init__(self, output: OutputFiles, slots: int, capacity: int, zone: tzinfo | None = None) -> None:
        """Starts without a file.

        The broker names a file after the time at which it creates it; here it is the store timestamp of the first
        record in the file, in a time zone; None for the machine's.
        """
        self.names: list[str] = []  # of the files written, oldest first
        self._output = output
        self._slots = slots
        self._capacity = capacity
        self._size = index_file.file_size(slots, capacity)
        self._zone = zone
        self._builder = IndexBuilder(slots, capacity)
        self._open: IndexFileBuilder | None = None

    def add(self, keys: IndexKeys, records: int, last_time: int) -> None:
        """Indexes the keys of some records; `last_time` is the store timestamp of the last of them."""
        for file, entries in self._builder.add(keys, records):
            if file is not self._open:
                self._complete()
                self._open = file
                self._begin(int(keys.store_timestamp[0]) if len(keys) else last_time)
            self._write(entries)

    def only(self, name: str, file: IndexFileBuilder) -> None:
        """Starts a single file with a given name; its keys are then added with `fill`."""
        self.names.append(name)
        self._open = file
        self._output.write(self._path(name), self._size, 0, bytes(HEADER_SIZE))

    @property
    def is_full(self) -> bool:
        """Whether the open file has no room for more keys."""
        return self._open is not None and not self._open.room

    def fill(self, keys: IndexKeys) -> int:
        """Adds keys to the open file until it is full; returns how many were added."""
        if self._open is None:
            return 0
        entries = self._open.add(keys)
        self._write(entries)
        return len(entries.entries)

    def finish(self) -> None:
        """Completes the last file."""
        self._complete()

    def _write(self, entries: Entries) -> None:
        if len(entries.entries):
            at = index_file.entry_position(entries.first, self._slots)
            self._output.write(self._path(self.names[-1]), self._size, at, entries.entries.tobytes())

    def _complete(self) -> None:
        if self._open is None:
            return
        path = self._path(self.names[-1])
        self._output.write(path, self._size, HEADER_SIZE, self._open.slot_bytes())
        self._output.write(path, self._size, 0, HEADER.build(self._open.header))

    def _begin(self, time: int) -> None:
        """Starts the next file."""
        name = index_name(time, self._zone, self.names[-1] if self.names else "")
        self.names.append(name)
        self._output.write(self._path(name), self._size, 0, bytes(HEADER_SIZE))

    @staticmethod
    def _path(name: str) -> str:
        return f"{file_names.INDEX}/{name}"

    def state(self) -> dict[str, Any]:
        """Returns what `resume` needs; all entries are written by then."""
        header = None if self._open is None else list(structs.astuple(self._open.header))
        return {"names": self.names, "header": header}

    def resume(self, state: dict[str, Any]) -> None:
        """Continues after what an earlier run wrote; recomputes the slots from the entries."""
        self.names = list(state["names"])
        for name in self.names:
            self._output.require(self._path(name), self._size)
        if state["header"] is None:
            return
        header = IndexHeader(*state["header"])
        heads = np.zeros(self._slots, np.int32)
        step = 1 << 18
        for first in range(1, header.index_count, step):
            count = min(step, header.index_count - first)
            at = index_file.entry_position(first, self._slots)
            data = self._output.read(self._path(self.names[-1]), at, count * ENTRY_SIZE)
            entries = index_file.ENTRY.rows(data)
            chain(heads, entries["key_hash"] % self._slots, first)
        self._open = IndexFileBuilder.resumed(header, heads, self._capacity)
        self._builder = IndexBuilder(self._slots, self._capacity, self._open)


def index_name(time: int, zone: tzinfo | None, before: str) -> str:
    """Returns the file name for a time in ms; a time outside the calendar is clamped to its nearest end.

    Names must ascend, because the broker reads the files in their order: a name that is not after `before`, that of the
    previous file, is the next one after it.
    """
    try:
        moment = (_EPOCH + timedelta(milliseconds=time)).astimezone(zone)
    except (OverflowError, ValueError):
        moment = datetime(_LAST_YEAR if time > 0 else 1, 1, 1, tzinfo=UTC)
    name = file_names.index_file_name(moment)
    return name if name > before else f"{int(before) + 1:0{file_names.INDEX_NAME_DIGITS}d}"


class Result(Struct):
    """What was read and written."""

    next_offset: int = 0  # physical offset up to which the log has been processed
    records: int = 0  # number of records read
    units: int = 0  # number written to queues, without fill units
    keys: int = 0  # number added to the index
    queues: int = 0  # number of queues written
    index_files: list[str] = field(default_factory=list)  # names, oldest first
    damage: Listing[Damage] = field(default_factory=Listing)  # ranges of the log without a record
    damaged_bytes: int = 0  # total bytes in them
    # Units whose placement was unusual, with their queue.
    notes: Listing[tuple[QueueName, Note]] = field(default_factory=Listing)
    oddities: Listing[Oddity] = field(default_factory=Listing)  # records that a broker could not dispatch as they are
    # Queues whose topic is not usable as a directory name; they got no files.
    unwritable: Listing[QueueName] = field(default_factory=Listing)

    def add_read(self, batch: DispatchBatch) -> None:
        """Counts what was read of the log for a batch."""
        self.records += batch.records
        for damage in batch.damage:
            self.damage.add(damage)
            self.damaged_bytes += damage.end - damage.start
        self.next_offset = max(self.next_offset, batch.end)

    @property
    def is_complete(self) -> bool:
        """Whether every record of the log was readable and has its unit at the queue offset that it states."""
        return not (self.damage or self.notes or self.oddities or self.unwritable)


class Sink:
    """Writes the contents of dispatch batches."""

    def __init__(
        self,
        output: OutputFiles,
        settings: RebuildSettings,
        scope: RebuildScope,
        log_bytes: int,
        claims: Claims,
        bit_maps: BitMaps | None = None,
    ) -> None:
        """Starts with nothing written. The size of the log limits the number of fill units."""
        self.result = Result()  # so far; `finish` completes it
        self._output = output
        self._settings = settings
        self._scope = scope
        self._index = IndexWriter(output, settings.index_slots, settings.index_entries)
        self.budget = HoleBudget(log_bytes)  # for fill units
        self._bit_maps = bit_maps
        self._claims = claims
        self._queues: dict[QueueName, Writer] = {}
        self._extensions: dict[QueueName, ExtensionWriter] = {}
        self._unwritable: set[QueueName] = set()

    def add(self, batch: DispatchBatch) -> None:
        """Writes one batch, which must follow the previous one."""
        result = self.result
        result.add_read(batch)
        for oddity in batch.oddities:
            result.oddities.add(oddity)
        for name, units in batch.queues:
            self._add_units(name, units)
        if batch.keys is not None and batch.records:
            self._index.add(batch.keys, batch.records, batch.last_time)
            result.keys += len(batch.keys)
        if sum(writer.files.buffered for writer in self._queues.values()) > BUFFERED:
            self.flush()

    def _add_units(self, name: QueueName, units: UnitBatch) -> None:
        writer = self._queues.get(name) or self._new(name)
        if writer is None:
            return
        self.result.units += len(units.offsets)
        if name in self._extensions and self._bit_maps is not None:
            stored = units.properties or [b""] * len(units.offsets)
            self._extensions[name].add(units, self._bit_maps(name.topic, stored, units.times.tolist()))
        writer.add(units)

    def _new(self, name: QueueName) -> Writer | None:
        if not name.is_path:
            if name not in self._unwritable and len(self._unwritable) < LISTED:
                self._unwritable.add(name)
                self.result.unwritable.add(name)
            return None
        settings = self._settings
        if name.topic in settings.rules.batch_topics:
            self._queues[name] = BatchQueueWriter(name, self._output, settings.batch_consume_queue_size)
            return self._queues[name]
        claim = partial(self._claims, name)
        self._queues[name] = SimpleQueueWriter(name, self._output, settings.consume_queue_size, self.budget, claim)
        if self._bit_maps is not None and not is_lmq(name.topic):
            self._extensions[name] = ExtensionWriter(name, self._output, settings.consume_queue_ext_size)
        return self._queues[name]

    def flush(self) -> None:
        """Writes all buffered bytes to the files."""
        for writer in (*self._queues.values(), *self._extensions.values()):
            writer.files.flush()

    def finish(self) -> Result:
        """Writes the units that were waiting; returns the result."""
        for writer in (*self._queues.values(), *self._extensions.values()):
            writer.finish()
        if self._scope.index:
            self._index.finish()
        self.result.queues = len(self._queues)
        self.result.index_files = self._index.names
        for name in sorted(self._queues, key=lambda queue: (queue.topic, queue.queue_id)):
            writer = self._queues[name]
            if isinstance(writer, SimpleQueueWriter):
                notes = writer.placement.notes
                self.result.notes.extend(((name, note) for note in notes.items), notes.count)
        return self.result

    def state(self) -> dict[str, Any]:
        """Returns what `resume` needs, as JSON, after writing everything else."""
        self.flush()
        result = self.result
        return {
            **{name: getattr(result, name) for name in _COUNTS},
            "queues": [[name.topic, name.queue_id, writer.state()] for name, writer in self._queues.items()],
            "extensions": [[name.topic, name.queue_id, w.files.end] for name, w in self._extensions.items()],
            "index": self._index.state(),
            "holes_left": self.budget.remaining,
            "damage": [result.damage.count, [_damage_state(damage) for damage in result.damage.items]],
            "oddities": [
                result.oddities.count,
                [[oddity.physical_offset, oddity.detail] for oddity in result.oddities.items],
            ],
            "unwritable": [result.unwritable.count, [[q.topic, q.queue_id] for q in result.unwritable.items]],
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continues after what an earlier run wrote into the same directory."""
        for name in _COUNTS:
            setattr(self.result, name, state[name])
        for topic, queue_id, of_queue in state["queues"]:
            writer = self._new(QueueName(topic, queue_id))
            assert writer is not None
            writer.resume(of_queue)
        for topic, queue_id, end in state["extensions"]:
            self._extensions[QueueName(topic, queue_id)].files.resume(0, end)
        self._index.resume(state["index"])
        self.budget.remaining = state["holes_left"]
        result = self.result
        result.damage.extend(map(_damage_of, state["damage"][1]), state["damage"][0])
        result.oddities.extend((Oddity(*values) for values in state["oddities"][1]), state["oddities"][0])
        result.unwritable.extend((QueueName(*name) for name in state["unwritable"][1]), state["unwritable"][0])
        self._unwritable.update(result.unwritable.items)


def _damage_state(damage: Damage) -> list[Any]:
    path = None if damage.path is None else str(damage.path)
    return [damage.start, damage.end, str(damage.kind), damage.detail, path, damage.position]


def _damage_of(state: list[Any]) -> Damage:
    start, end, kind, detail, path, position = state
    return Damage(start, end, DamageKind(kind), detail, None if path is None else Path(path), position)


_COUNTS = ("next_offset", "records", "units", "keys", "damaged_bytes")
