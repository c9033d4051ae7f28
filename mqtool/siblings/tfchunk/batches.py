"""Records of an EventStore database as Arrow record batches, without one object for each."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from mqtool.formats.tfchunk_records import LAST_OF_VERSION_0, RecordType
from mqtool.records.damage import Damage
from mqtool.siblings import arrow
from mqtool.siblings.tfchunk import RECORDS
from mqtool.siblings.tfchunk.chunk import Group, StoredRecord, ValidRun
from mqtool.siblings.tfchunk.store import TFChunkDb

_NULL = -1
_NUMBERS = {
    "flags": "flags",
    "transaction_position": "transaction_position",
    "transaction_offset": "transaction_offset",
}
_RANGES = {"event_stream_id": "event_stream_id", "event_type": "event_type", "metadata": "metadata", "body": "data"}
_GUIDS = ("event_id", "correlation_id")
_EVENT_NUMBERS = {RecordType.PREPARE: "expected_version", RecordType.COMMIT: "first_event_number"}
_LONG_MAX = (1 << 63) - 1


def record_batches(database: TFChunkDb, chunk: str = "") -> Iterator[Any]:
    """Yields record batches of records, with damage between them.

    Args:
        database: the database.
        chunk: file name of the only chunk to read; "" for all.
    """
    for item in database.runs(chunk):
        if isinstance(item, Damage):
            yield item
        else:
            yield _records(database.run_of(item) if isinstance(item, StoredRecord) else item)


class _Columns:
    """Builds the columns of a run, one group of records after another; fields that a group does not have stay null."""

    def __init__(self, valid: ValidRun) -> None:
        count = len(valid.run)
        self._valid = valid
        names = (*_NUMBERS, "event_number")
        self.numbers = {name: (np.zeros(count, np.int64), np.zeros(count, bool)) for name in names}
        self.starts = {name: np.zeros(count, np.int64) for name in (*_RANGES, *_GUIDS)}
        self.lengths = {name: np.full(count, _NULL) for name in (*_RANGES, *_GUIDS)}
        self.types, self.versions, self.ticks = (np.zeros(count, np.int64) for _ in range(3))
        for group in valid.groups:
            self._fill(group)

    def _fill(self, group: Group) -> None:
        rows, fixed = group.rows, group.fields.fixed
        self.types[rows], self.versions[rows], self.ticks[rows] = group.record_type, group.version, fixed["time"]
        for name, source in _NUMBERS.items():
            if source in fixed:
                self._put(name, rows, fixed[source])
        number = _EVENT_NUMBERS.get(RecordType(group.record_type))
        if number is not None:
            self._put("event_number", rows, _event_numbers(group, fixed[number]))
        for name, source in _RANGES.items():
            if source in group.fields.starts:
                self.starts[name][rows] = group.fields.starts[source]
                self.lengths[name][rows] = group.fields.lengths[source]
        for name in _GUIDS:
            if name in fixed:
                self.starts[name][rows] = group.fields.places[name]
                self.lengths[name][rows] = 16

    def _put(self, name: str, rows: np.ndarray, values: np.ndarray) -> None:
        column, known = self.numbers[name]
        column[rows], known[rows] = values, True


def _event_numbers(group: Group, stored: np.ndarray) -> np.ndarray:
    """Converts event numbers as stored by version 1, see `tfchunk_records.event_number`."""
    if group.version:
        return stored
    kind = RecordType(group.record_type)
    last = LAST_OF_VERSION_0[kind][1]
    return np.where(stored == last, _LONG_MAX - (kind is RecordType.PREPARE), stored.astype(np.int64))


def _records(valid: ValidRun) -> Any:
    fields, data = _Columns(valid), valid.run.data
    names = np.array([kind.name.lower() for kind in RecordType])
    columns: dict[str, Any] = {
        "position": valid.positions,
        "chunk": [valid.chunk.path.name] * len(valid.run),
        "length": valid.run.sizes,
        "type": names[fields.types].tolist(),
        "version": fields.versions,
        "time": arrow.times(fields.ticks),
        "ticks": fields.ticks,
        "body_size": arrow.nullable(fields.lengths["body"], fields.lengths["body"] >= 0, "int32"),
    }
    for column in RECORDS.columns:
        name = column.name
        if name in fields.numbers:
            columns[name] = arrow.nullable(*fields.numbers[name], column.type)
        elif name in _GUIDS:
            columns[name] = arrow.guids(data, fields.starts[name], fields.lengths[name] >= 0)
        elif name in _RANGES:
            make = arrow.texts if column.type == "string" else arrow.raw
            columns[name] = make(data, fields.starts[name], fields.lengths[name])
    return arrow.record_batch(RECORDS, columns)
