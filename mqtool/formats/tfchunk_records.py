"""The records of EventStore's log: prepare, commit, system; each between two lengths as in EQueue's chunks.

Version 0 (up to 3.x) stores two event numbers in 32 bits, version 1 in 64. Docs page: docs/formats/tfchunk.md.
Source: LogRecord, PrepareLogRecord, CommitLogRecord, SystemLogRecord (5.0.8, 3.9.4).
"""

import enum
import uuid
from typing import Any

import construct as cs
from msgspec import Struct

from mqtool.errors import BadMagicError, FormatError
from mqtool.formats.codec import Buffer, Unit
from mqtool.formats.equeue_message import MAX_TICKS
from mqtool.formats.fields import le16u, le32, le64, raw, u8
from mqtool.formats.sequence import Sequence, bytes32, bytes_leb


class RecordType(enum.IntEnum):
    """First byte of a record."""

    PREPARE = 0
    COMMIT = 1
    SYSTEM = 2


class RecordHead(Struct, frozen=True):
    """The common head of all records."""

    record_type: int
    version: int
    log_position: int


class Prepare(Struct, frozen=True):
    """An event that a client wrote."""

    record_type: int
    version: int
    log_position: int
    flags: int
    transaction_position: int
    transaction_offset: int
    expected_version: int
    event_stream_id: bytes
    event_id: bytes
    correlation_id: bytes
    time: int
    event_type: bytes
    data: bytes
    metadata: bytes


class Commit(Struct, frozen=True):
    """Commits the events of a transaction."""

    record_type: int
    version: int
    log_position: int
    transaction_position: int
    first_event_number: int
    sort_key: int
    correlation_id: bytes
    time: int


class System(Struct, frozen=True):
    """The server's own records, e.g. of epochs."""

    record_type: int
    version: int
    log_position: int
    time: int
    system_type: int
    serialization: int
    reserved: int
    data: bytes


Record = Prepare | Commit | System

_HEAD = (
    u8("record_type", "0 prepare, 1 commit, 2 system"),
    u8("version", "0 up to 3.x, 1 since 4.0; system records stay 0"),
    le64("log_position", "of this record's frame, also after a scavenge"),
)

HEAD = Unit("EventStore record head", RecordHead, *_HEAD)


def _prepare(name: str, number: cs.Construct) -> Sequence[Prepare]:
    return Sequence(
        name,
        Prepare,
        *_HEAD,
        le16u("flags", "1 data, 2 begin, 4 end, 8 delete, 0x20 committed, 0x100 JSON, 0x200 redacted"),
        le64("transaction_position", "of the transaction's first record"),
        le32("transaction_offset", "ordinal in the transaction, -1 for its begin and end"),
        number,
        bytes_leb("event_stream_id", "UTF-8"),
        raw("event_id", 16, "GUID, mixed-endian"),
        raw("correlation_id", 16, "GUID, mixed-endian"),
        le64("time", "ticks of 100 ns since 0001-01-01, UTC"),
        bytes_leb("event_type", "UTF-8"),
        bytes32("data", "the event"),
        bytes32("metadata", "of the event"),
    )


def _commit(name: str, number: cs.Construct) -> Sequence[Commit]:
    return Sequence(
        name,
        Commit,
        *_HEAD,
        le64("transaction_position", "of the transaction's first record"),
        number,
        le64("sort_key", "= log_position"),
        raw("correlation_id", 16, "GUID, mixed-endian"),
        le64("time", "ticks of 100 ns since 0001-01-01, UTC"),
    )


_EXPECTED = "number of the stream's last event before this one"
_FIRST = "number of the first event"

PREPARE = _prepare("EventStore prepare", le64("expected_version", _EXPECTED))
PREPARE_V0 = _prepare("EventStore prepare of version 0", le32("expected_version", _EXPECTED))
COMMIT = _commit("EventStore commit", le64("first_event_number", _FIRST))
COMMIT_V0 = _commit("EventStore commit of version 0", le32("first_event_number", _FIRST))
SYSTEM = Sequence(
    "EventStore system record",
    System,
    *_HEAD,
    le64("time", "ticks of 100 ns since 0001-01-01, UTC"),
    u8("system_type", "1 epoch"),
    u8("serialization", "1 binary, 2 JSON, 3 BSON"),
    le64("reserved", "0"),
    bytes32("data", "an epoch: its id, number, previous epoch's position, time"),
)

LAYOUTS: dict[tuple[int, int], Sequence[Any]] = {
    (RecordType.PREPARE, 0): PREPARE_V0,
    (RecordType.PREPARE, 1): PREPARE,
    (RecordType.COMMIT, 0): COMMIT_V0,
    (RecordType.COMMIT, 1): COMMIT,
    (RecordType.SYSTEM, 0): SYSTEM,
}

LAST_OF_VERSION_0 = {
    RecordType.PREPARE: ("expected_version", (1 << 31) - 2),
    RecordType.COMMIT: ("first_event_number", (1 << 31) - 1),
}
"""Numbers in version 0 that mean the greatest one, so that a deleted stream stays deleted in version 1."""


_TIME = {"time": (0, MAX_TICKS)}
BOUNDS: dict[int, dict[str, tuple[int, int]]] = {
    RecordType.PREPARE: _TIME,
    RecordType.COMMIT: _TIME,
    RecordType.SYSTEM: _TIME | {"system_type": (1, 255), "serialization": (1, 255)},
}
"""Lowest and highest values of fields that the reading constructors accept: others make them throw (5.0.8)."""


def parse(data: Buffer, position: int = 0) -> Record:
    """Parses one record without its lengths, from a position to the end of the data.

    The server expects the length after the last field (TFChunkReadSide.TryReadForwardInternal), so a record fills its
    frame.

    Raises:
        BadMagicError: another type or version.
        FormatError: it does not fit, does not fill the data, or has a value with which the server does not read it.
    """
    head = HEAD.parse(data, position)
    layout = LAYOUTS.get((head.record_type, head.version))
    if layout is None:
        reason = f"expected type 0, 1 or 2 of version 0 or 1, found type {head.record_type} version {head.version}"
        raise BadMagicError(reason, layout="EventStore record", field="record_type", position=position)
    record, after = layout.parse(data, position)
    if after != len(data):
        reason = f"expected a record that fills {len(data) - position} bytes, found one of {after - position}"
        raise FormatError(reason, layout=layout.name, position=position)
    for name, (minimum, maximum) in BOUNDS[head.record_type].items():
        if not minimum <= getattr(record, name) <= maximum:
            reason = f"expected {name} from {minimum} to {maximum}, found {getattr(record, name)}"
            raise FormatError(reason, layout=layout.name, position=position)
    return record


def build(record: Record) -> bytes:
    """Returns the bytes of a record without its lengths.

    Raises:
        FormatError: a value does not fit its field.
    """
    layout = LAYOUTS.get((record.record_type, record.version))
    if layout is None:
        raise FormatError(f"no type {record.record_type} of version {record.version}", layout="EventStore record")
    return layout.build(record)


def event_number(record: Prepare | Commit) -> int:
    """Returns expected_version or first_event_number as version 1 would store it."""
    kind = RecordType(record.record_type)
    name, last = LAST_OF_VERSION_0[kind]
    value = int(getattr(record, name))
    if record.version == 0 and value == last:
        return (1 << 63) - 1 - (kind is RecordType.PREPARE)
    return value


def guid(data: bytes) -> str:
    """Returns a GUID as .NET prints it."""
    return str(uuid.UUID(bytes_le=data))
