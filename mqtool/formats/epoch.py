"""Text files of controller mode: epochFileCheckpoint and brokerIdentity.

Docs page: docs/formats/epoch.md. Source: CheckpointFile, EpochFileCache, BrokerMetadata,
TempBrokerMetadata (5.5.0).
"""

from collections.abc import Iterable

from msgspec import Struct

from mqtool.errors import ChecksumError, FormatError, TruncatedError
from mqtool.formats import codec, java
from mqtool.formats.codec import Buffer

_NAME = "epoch file"
_NOT_VERIFIED = 0


class EpochEntry(Struct, frozen=True):
    """An epoch and the physical offset from which records were written in it."""

    epoch: int
    start_offset: int


def parse(data: Buffer) -> tuple[EpochEntry, ...]:
    """Parses an epoch file.

    Raises TruncatedError if there are fewer entries than the first line states, ChecksumError if the CRC in the second
    line is neither 0 nor that of the entries, FormatError if a line is malformed, or there are more entries.
    """
    lines = _text_of(data).splitlines(keepends=True)
    if len(lines) < 2:
        raise TruncatedError(f"expected a count and a CRC, found {len(lines)} lines", layout=_NAME)
    count = _number(lines[0], "count")
    expected = _number(lines[1], "crc")
    entries = tuple(_entry(line, number) for number, line in enumerate(lines[2:]))
    if len(entries) < count:
        raise TruncatedError(f"expected {count} entries, found {len(entries)}", layout=_NAME)
    if len(entries) > count:
        raise FormatError(f"expected {count} entries, found {len(entries)}", layout=_NAME)
    computed = _crc("".join(line if line.endswith("\n") else line + "\n" for line in lines[2:]))
    if expected not in (_NOT_VERIFIED, computed):
        raise ChecksumError(f"expected {computed}, found {expected}", layout=_NAME, field="crc")
    return entries


def build(entries: Iterable[EpochEntry]) -> bytes:
    """Returns the bytes of an epoch file as a broker on a POSIX system writes it."""
    lines = [f"{entry.epoch}-{entry.start_offset}\n" for entry in entries]
    text = "".join(lines)
    return f"{len(lines)}\n{_crc(text)}\n{text}".encode()


def _entry(line: str, number: int) -> EpochEntry:
    epoch, dash, start = line.strip().partition("-")
    if not dash:
        raise FormatError(f"expected epoch-offset, found {line[:40]!r}", layout=_NAME, field=f"entry {number}")
    return EpochEntry(java.parse_int(epoch), java.parse_long(start))


def _number(line: str, field: str) -> int:
    try:
        return java.parse_int(line.strip())
    except FormatError as error:
        raise FormatError(f"expected a number, found {line[:40]!r}", layout=_NAME, field=field) from error


def _crc(text: str) -> int:
    return codec.crc32(text.encode())


def _text_of(data: Buffer) -> str:
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError("expected text", layout=_NAME, position=error.start) from error
