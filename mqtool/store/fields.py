"""Records, units, entries and headers field by field, with their bytes: the content of `dump --hex`."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from mqtool.choices import FileKind
from mqtool.errors import FormatError, UnsupportedFormatError
from mqtool.formats import checkpoint, commit_log, consume_queue, dledger, hosts, index_file, timer
from mqtool.formats.codec import FieldBytes, Unit, annotate
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.entries import in_file, index_entry_numbers, rows_of, unit_positions
from mqtool.store.files import ReadFile
from mqtool.store.known_file import KnownFile
from mqtool.store.log.commit_log import CommitLog

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


def record_fields(log: CommitLog, physical_offset: int, size: int) -> Annotated:
    """Returns the fields of a record that is known to be valid."""
    annotated = annotate(commit_log.RECORD, log.read(physical_offset, size), name="record")
    with_hosts = [replace(f, value=hosts.text_of(f.data)) if f.name in _HOSTS else f for f in annotated]
    return physical_offset, with_hosts


def file_fields(
    file: KnownFile, config: BrokerConfig | None = None, damaged: Callable[[FormatError], None] | None = None
) -> Iterator[Annotated]:
    """Yields the units of a file with their addresses: positions, plus the base where the file has one.

    Args:
        file, config, damaged: as for `entries.rows_of`.

    Raises:
        UnsupportedFormatError: the file is text.
        FormatError, LayoutError, StoreError: as `entries.rows_of`.
    """
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
        raise UnsupportedFormatError(f"{file.path}: is text and has no binary fields; leave out --hex")


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
