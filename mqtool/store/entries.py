"""The content of single files, row by row: units, entries, slots, fields; with their bytes for `dump --hex`.

Rows are mappings of field names: the layouts' own, and those of the place (topic, queue_id, queue_offset, number,
…). Files are read in pieces, so memory is constant; zeros after the last entry are not rows.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from mqtool.choices import FileKind
from mqtool.errors import FormatError, UnsupportedFormatError
from mqtool.formats import (
    checkpoint,
    commit_log,
    config_json,
    consume_queue,
    dledger,
    epoch,
    hosts,
    index_file,
    java,
    timer,
)
from mqtool.formats.codec import FieldBytes, Unit, annotate
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT, PRE_BLANK, ext_address
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.files import ReadFile, read_file
from mqtool.store.index_file import IndexFile, entries_written, places_of
from mqtool.store.known_file import KnownFile
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.queues.consume_queue import ext_units
from mqtool.values import asdict

Row = dict[str, Any]

PIECE = 1 << 20
"""Bytes read at a time."""

_MARKER_SIZE = 1 << 16
_DEEPEST = 64

ORDINALS = {
    FileKind.CONSUME_QUEUE: "queue_offset",
    FileKind.BATCH_CONSUME_QUEUE: "base_queue_offset",
    FileKind.CONSUME_QUEUE_EXT: "offset",
    FileKind.INDEX_FILE: "number",
    FileKind.TIMER_WHEEL: "slot",
    FileKind.TIMER_LOG: "position",
    FileKind.EPOCH_FILE: "epoch",
    FileKind.DLEDGER_ENTRY: "index",
    FileKind.DLEDGER_INDEX: "index",
}
"""The field by which rows of a kind are numbered, in ascending order; a range selects by it."""

Annotated = tuple[int, list[FieldBytes]]
"""Address of a record or unit, and its fields."""

_HOSTS = ("born_host", "store_host")

_UNITS: dict[FileKind, Unit] = {  # type: ignore[type-arg]  # of different values
    FileKind.CONSUME_QUEUE: CONSUME_QUEUE_UNIT,
    FileKind.BATCH_CONSUME_QUEUE: BATCH_CONSUME_QUEUE_UNIT,
    FileKind.TIMER_WHEEL: timer.SLOT,
    FileKind.DLEDGER_INDEX: dledger.INDEX_UNIT,
}

_HEADS: dict[FileKind, Unit] = {  # type: ignore[type-arg]
    FileKind.CHECKPOINT: checkpoint.CHECKPOINT,
    FileKind.TIMER_CHECKPOINT: timer.CHECKPOINT,
    FileKind.INDEX_HEADER: index_file.HEADER,
}

_WALKED = {
    FileKind.TIMER_LOG: (timer.LOG_UNIT.layout, "position", timer.LOG_UNIT_SIZE),
    FileKind.CONSUME_QUEUE_EXT: (consume_queue.EXT_UNIT, "offset", None),
    FileKind.DLEDGER_ENTRY: (dledger.ENTRY.layout, "position", dledger.ENTRY_HEADER_SIZE),
}
"""Kinds whose units only a walk finds: layout, field of a row that says where, bytes if they are always as many."""


def rows_of(
    file: KnownFile, config: BrokerConfig | None = None, damaged: Callable[[FormatError], None] | None = None
) -> Iterator[Row]:
    """Yields the rows of one file.

    Args:
        file: of any kind but COMMIT_LOG.
        config: supplies what files do not state: maxHashSlotNum.
        damaged: receives bytes that are not an entry, if reading continues after them; otherwise they are an error.

    Raises:
        FormatError: some bytes are not an entry, and what follows cannot be read; the rows before have been yielded.
        LayoutError: neither the file nor the configuration shows how it is divided.
        StoreError: the file cannot be read.
    """
    try:
        for row in _READERS[file.kind](file, config or BrokerConfig()):
            if not isinstance(row, FormatError):
                yield row
            elif damaged is None:
                raise row
            else:
                damaged(in_file(row, file))
    except FormatError as error:
        raise in_file(error, file) from error


def in_file(error: FormatError, file: KnownFile) -> FormatError:
    """Returns an error about bytes of a file that names the file."""
    reason = f"{str(error).partition(': ')[2]}; in {file.path}"
    return FormatError(reason, layout=error.layout, field=error.field, position=error.position)


def unit_positions(file: ReadFile, unit: Unit[Any]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yields (position, field values) of fixed-size units up to the last nonzero one."""
    piece = PIECE // unit.size * unit.size
    end = min(file.size, -(-file.data_end() // unit.size) * unit.size)
    zeros = at = 0
    while at < end:
        data = file.read(at, min(piece, end - at))
        units = unit.rows(data)
        if not len(units):
            return
        used = np.flatnonzero(np.frombuffer(data, np.uint8, len(units) * unit.size).reshape(-1, unit.size).any(axis=1))
        if len(used):
            blank = (0,) * len(unit.fields)
            yield from ((at - (zeros - i) * unit.size, blank) for i in range(zeros))
            last = int(used[-1]) + 1
            yield from ((at + i * unit.size, values) for i, values in enumerate(units[:last].tolist()))
            zeros = len(units) - last
        else:
            zeros += len(units)
        at += len(units) * unit.size


def _row(unit: Unit[Any], values: Sequence[int]) -> Row:
    return dict(zip((field.name for field in unit.fields), values, strict=True))


def _consume_queue(file: KnownFile, _: BrokerConfig) -> Iterator[Row]:
    pre_blank = (PRE_BLANK.physical_offset, PRE_BLANK.size, PRE_BLANK.tags_code)
    with ReadFile(file.path) as opened:
        for position, values in unit_positions(opened, CONSUME_QUEUE_UNIT):
            state = "pre-blank" if values == pre_blank else "unit" if any(values) else "empty"
            queue_offset = (file.base + position) // CONSUME_QUEUE_UNIT.size
            place = {"topic": file.topic, "queue_id": file.queue_id, "queue_offset": queue_offset}
            yield {**place, **_row(CONSUME_QUEUE_UNIT, values), "state": state}


def _batch_consume_queue(file: KnownFile, _: BrokerConfig) -> Iterator[Row]:
    with ReadFile(file.path) as opened:
        for position, values in unit_positions(opened, BATCH_CONSUME_QUEUE_UNIT):
            place = {"topic": file.topic, "queue_id": file.queue_id, "file": file.path.name, "position": position}
            yield {**place, **_row(BATCH_CONSUME_QUEUE_UNIT, values)}


def _consume_queue_ext(file: KnownFile, _: BrokerConfig) -> Iterator[Row]:
    with ReadFile(file.path) as opened:
        for position, unit in ext_units(opened):
            offset = file.base + position
            place = {"topic": file.topic, "queue_id": file.queue_id, "offset": offset, "address": ext_address(offset)}
            yield {**place, **asdict(unit), "bit_map": unit.bit_map.hex()}


def index_entry_numbers(file: KnownFile, config: BrokerConfig) -> tuple[IndexFile, int, FormatError | None]:
    """Returns an index file, the number of its last entry, and the error if its header differs; raises as `rows_of`."""
    with ReadFile(file.path) as opened:  # before the header: a broker that is running updates that last
        used_end = opened.used_end(index_file.HEADER_SIZE)
    index = IndexFile(file.path, config.integer("maxHashSlotNum"))
    slots = index.require_slots() if index.entry_count else index.slot_count
    written = entries_written(used_end, slots) if slots else 0
    error = None
    if written > index.entry_count or (not slots and used_end > index_file.HEADER_SIZE):
        actual = f"{written} are written" if slots else f"the bytes up to {used_end} are not all zeros"
        reason = f"the header states {index.entry_count} entries, but {actual}"
        error = FormatError(reason, layout=index_file.HEADER.name, field="index_count")
    last = max(index.entry_count, min(written, places_of(index.size, slots) - 1)) if slots else 0
    return index, last, error


def _index_entries(file: KnownFile, config: BrokerConfig) -> Iterator[Row | FormatError]:
    index, last, error = index_entry_numbers(file, config)
    if error is not None:
        yield error
    if not last:
        return
    slots = index.require_slots()
    begin = index.header.begin_timestamp
    count = PIECE // index_file.ENTRY_SIZE
    with ReadFile(file.path) as opened:
        for first in range(1, last + 1, count):
            size = min(count, last + 1 - first) * index_file.ENTRY_SIZE
            data = opened.read(index_file.entry_position(first, slots), size)
            entries = index_file.ENTRY.rows(data)
            for number, values in enumerate(entries.tolist(), first):
                row = _row(index_file.ENTRY, values)
                time = java.to_int64(begin + row["time_diff"] * 1000)
                place = {"file": file.path.name, "number": number, "slot": row["key_hash"] % slots}
                yield {**place, **row, "store_time": time}


def _index_header(file: KnownFile, config: BrokerConfig) -> Iterator[Row]:
    index = IndexFile(file.path, config.integer("maxHashSlotNum"))
    more = {"entries": index.entry_count, "slots": index.slot_count, "max_entries": index.max_entries}
    yield {"file": file.path.name, **asdict(index.header), **more}


def _checkpoint(file: KnownFile, _: BrokerConfig) -> Iterator[Row]:
    parsed = checkpoint.parse(read_file(file.path))
    yield {**asdict(parsed), "min_timestamp": parsed.min_timestamp}


def _timer_wheel(file: KnownFile, config: BrokerConfig) -> Iterator[Row]:
    with ReadFile(file.path) as opened:
        for position, values in unit_positions(opened, timer.SLOT):
            if any(values):
                row = _row(timer.SLOT, values)
                time = java.to_int64(row["time"] * config.timer_precision)
                yield {"slot": position // timer.SLOT_SIZE, **row, "deliver_time": time}


def _timer_log(file: KnownFile, _: BrokerConfig) -> Iterator[Row | FormatError]:
    with ReadFile(file.path) as opened:
        end, at = opened.used_end(), 0
        bad: FormatError | None = None
        while at < end:
            data = opened.read(at, timer.LOG_UNIT_SIZE)
            unit = timer.unit_at(data)
            if unit is None and timer.is_log_end(data, 0):
                break
            if unit is None:
                bad = bad or _no_timer_unit(data, at)
            else:
                if bad is not None:
                    yield bad
                    bad = None
                yield {"position": file.base + at, **asdict(unit), "deliver_time": unit.deliver_time}
            at += timer.LOG_UNIT_SIZE
        if bad is not None:
            yield bad


def _no_timer_unit(data: bytes, position: int) -> FormatError:
    unit = timer.LOG_UNIT.parse_start(data)
    field, reason = "size", f"expected size {timer.LOG_UNIT_SIZE}, found {unit.size}"
    if unit.size == timer.LOG_UNIT_SIZE:
        field, reason = "magic", f"invalid magic {unit.magic:#x}"
    if len(data) < timer.LOG_UNIT_SIZE:
        field, reason = "", f"expected {timer.LOG_UNIT_SIZE} bytes, found {len(data)}"
    return FormatError(reason, layout=timer.LOG_UNIT.name, field=field, position=position)


def _timer_checkpoint(file: KnownFile, _: BrokerConfig) -> Iterator[Row]:
    yield asdict(timer.parse_checkpoint(read_file(file.path)))


def _config(file: KnownFile, _: BrokerConfig) -> Iterator[Row]:
    for table, value in config_json.parse(read_file(file.path)).items():
        members = value if isinstance(value, dict) else {"": value}
        for name, member in members.items():
            yield {"file": file.path.name, "table": str(table), "name": str(name), "value": _plain(member, 0)}


def _plain(value: Any, depth: int) -> Any:
    """Returns a value in which all keys are strings."""
    if depth > _DEEPEST:
        raise FormatError(f"nested more than {_DEEPEST} deep", layout="configuration")
    if isinstance(value, dict):
        return {str(key): _plain(member, depth + 1) for key, member in value.items()}
    return [_plain(member, depth + 1) for member in value] if isinstance(value, list) else value


def _epoch_file(file: KnownFile, _: BrokerConfig) -> Iterator[Row]:
    entries = epoch.parse(read_file(file.path))
    ends = [*(entry.start_offset for entry in entries[1:]), None]
    for entry, end in zip(entries, ends, strict=True):
        yield {**asdict(entry), "end_offset": end}


def _marker(file: KnownFile, _: BrokerConfig) -> Iterator[Row]:
    with ReadFile(file.path) as opened:
        text = opened.read(0, _MARKER_SIZE).decode("utf-8", "replace")
        yield {"file": file.path.name, "size": opened.size, "text": text}


def _ledger_entries(file: KnownFile, _: BrokerConfig) -> Iterator[Row]:
    with ReadFile(file.path) as opened:
        at, end = 0, opened.data_end()
        while at < end:
            data = opened.read(at, dledger.ENTRY_HEADER_SIZE)
            if len(data) < dledger.BLANK_ENTRY_SIZE or not any(data):
                return
            if dledger.BLANK_ENTRY.parse(data).magic == dledger.MAGIC_BLANK_ENTRY:
                return
            header = dledger.ENTRY.parse(data)
            if header.magic != dledger.MAGIC_ENTRY or header.size != header.body_length + dledger.ENTRY_HEADER_SIZE:
                reason = f"no entry header: magic {header.magic}, size {header.size}, body_length {header.body_length}"
                raise FormatError(reason, layout=dledger.ENTRY.name, field="magic", position=at)
            yield {"file": file.path.name, **asdict(header)}
            at += max(header.size, dledger.ENTRY_HEADER_SIZE)


def _ledger_index(file: KnownFile, _: BrokerConfig) -> Iterator[Row]:
    with ReadFile(file.path) as opened:
        for _position, values in unit_positions(opened, dledger.INDEX_UNIT):
            yield {"file": file.path.name, **_row(dledger.INDEX_UNIT, values)}


_READERS: dict[FileKind, Callable[[KnownFile, BrokerConfig], Iterator[Row | FormatError] | Iterator[Row]]] = {
    FileKind.CONSUME_QUEUE: _consume_queue,
    FileKind.BATCH_CONSUME_QUEUE: _batch_consume_queue,
    FileKind.CONSUME_QUEUE_EXT: _consume_queue_ext,
    FileKind.INDEX_FILE: _index_entries,
    FileKind.INDEX_HEADER: _index_header,
    FileKind.CHECKPOINT: _checkpoint,
    FileKind.TIMER_WHEEL: _timer_wheel,
    FileKind.TIMER_LOG: _timer_log,
    FileKind.TIMER_CHECKPOINT: _timer_checkpoint,
    FileKind.CONFIG: _config,
    FileKind.EPOCH_FILE: _epoch_file,
    FileKind.MARKER: _marker,
    FileKind.DLEDGER_ENTRY: _ledger_entries,
    FileKind.DLEDGER_INDEX: _ledger_index,
}


def record_fields(log: CommitLog, physical_offset: int, size: int) -> Annotated:
    """Returns the fields of a record that is known to be valid."""
    annotated = annotate(commit_log.RECORD, log.read(physical_offset, size), name="record")
    with_hosts = [replace(f, value=hosts.text_of(f.data)) if f.name in _HOSTS else f for f in annotated]
    return physical_offset, with_hosts


def file_fields(
    file: KnownFile, config: BrokerConfig | None = None, damaged: Callable[[FormatError], None] | None = None
) -> Iterator[Annotated]:
    """Yields units with addresses: positions plus the file's base; raises as `rows_of`, and for text."""
    if file.kind in _UNITS:
        yield from _units(file, _UNITS[file.kind])
    elif file.kind in _HEADS:
        unit = _HEADS[file.kind]
        with ReadFile(file.path) as opened:
            yield 0, annotate(unit.layout, opened.read(0, unit.size).ljust(unit.size, b"\0"), name=unit.name)
    elif file.kind is FileKind.INDEX_FILE:
        yield from _entries(file, config or BrokerConfig(), damaged)
    elif file.kind in _WALKED:
        yield from _by_rows(file, damaged)
    else:
        raise UnsupportedFormatError(f"{file.path}: is text and has no binary fields; leave --hex out")


def _units(file: KnownFile, unit: Unit) -> Iterator[Annotated]:  # type: ignore[type-arg]
    with ReadFile(file.path) as opened:
        for position, values in unit_positions(opened, unit):
            if any(values) or file.kind is not FileKind.TIMER_WHEEL:
                yield file.base + position, annotate(unit.layout, opened.read(position, unit.size), name=unit.name)


def _entries(
    file: KnownFile, config: BrokerConfig, damaged: Callable[[FormatError], None] | None
) -> Iterator[Annotated]:
    index, last, error = index_entry_numbers(file, config)
    if error is not None:
        if damaged is None:
            raise in_file(error, file)
        damaged(in_file(error, file))
    if not last:
        return
    slots, unit = index.require_slots(), index_file.ENTRY
    with ReadFile(file.path) as opened:
        for number in range(1, last + 1):
            position = index_file.entry_position(number, slots)
            data = opened.read(position, unit.size)
            if len(data) < unit.size:
                return
            yield position, annotate(unit.layout, data, name=unit.name)


def _by_rows(file: KnownFile, damaged: Callable[[FormatError], None] | None) -> Iterator[Annotated]:
    """Handles kinds whose units are found only by a walk: rows contain their positions."""
    layout, name, size = _WALKED[file.kind]
    with ReadFile(file.path) as opened:
        for row in rows_of(file, damaged=damaged):
            yield row[name], annotate(layout, opened.read(row[name] - file.base, size or row["size"]))
