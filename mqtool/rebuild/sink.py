"""Writes batches, passed in log order, to queues and index; keeps track of the position in the log."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mqtool.formats.topics import is_lmq
from mqtool.rebuild.dispatch_batch import DispatchBatch, RebuildScope
from mqtool.rebuild.files import OutputFiles
from mqtool.rebuild.index_writer import IndexWriter
from mqtool.rebuild.listing import LISTED
from mqtool.rebuild.placement import HoleBudget
from mqtool.rebuild.queue_writer import BatchQueueWriter, ExtensionWriter, QueueName, SimpleQueueWriter, UnitBatch
from mqtool.rebuild.result import Result
from mqtool.rebuild.settings import RebuildSettings
from mqtool.records.damage import Damage, DamageKind
from mqtool.records.dispatch import Oddity

_BUFFERED = 64 << 20
"""Maximum bytes buffered over all queues."""

BitMaps = Callable[[str, Sequence[bytes], Sequence[int]], list[bytes]]
"""Returns the filter bit maps of a topic's messages from their properties and store timestamps."""

Claims = Callable[[QueueName, int], int | None]
"""Returns the `Claim` of a queue offset in a queue."""

Writer = SimpleQueueWriter | BatchQueueWriter


class Sink:
    """Writes the contents of dispatch batches.

    Attributes:
        result: so far; `finish` completes it.
    """

    def __init__(
        self,
        output: OutputFiles,
        settings: RebuildSettings,
        scope: RebuildScope,
        log_bytes: int,
        claims: Claims,
        bit_maps: BitMaps | None = None,
    ) -> None:
        """Starts with nothing written.

        Args:
            output: the new directory.
            settings: sizes and rules.
            scope: which files to rebuild.
            log_bytes: size of the whole log; limits the number of fill units.
            claims: see `Claims`.
            bit_maps: for extensions; None if queues have none.
        """
        self.result = Result()
        self._output = output
        self._settings = settings
        self._scope = scope
        self._index = IndexWriter(output, settings.index_slots, settings.index_entries)
        self._budget = HoleBudget(log_bytes)
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
        if sum(writer.files.buffered for writer in self._queues.values()) > _BUFFERED:
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
        self._queues[name] = SimpleQueueWriter(name, self._output, settings.consume_queue_size, self._budget, claim)
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
            "holes_left": self._budget.remaining,
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
        self._budget.remaining = state["holes_left"]
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
