"""The DLedger log: entry header, end of a data file, index unit, and its two small text files.

An entry consists of this header and, as its body, one record of the CommitLog. The record states its own position:
the entry's position + 48. Docs page: docs/formats/dledger.md. Source: DLedgerEntryCoder, DLedgerMmapFileStore,
MmapFileList, MemberState (dledger 0.3.1.2 of RocketMQ 4.9.7, 0.3.2 of 5.5.0), DLedgerCommitLog (4.9.7, 5.5.0).
"""

from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats import java
from mqtool.formats.codec import Buffer, Unit
from mqtool.formats.fields import i32, i64

MAGIC_ENTRY = 1
MAGIC_BLANK_ENTRY = -1
DATA = "data"
INDEX = "index"
CHECKPOINT = "checkpoint"
CURRENT_TERM = "currterm"
COMMITTED_INDEX = "committedIndex"

DEFAULT_INDEX_FILE_SIZE = 5 * 1024 * 1024 * 32


class EntryHeader(Struct, frozen=True):
    """Header before each record of a DLedger log."""

    magic: int
    size: int
    index: int
    term: int
    position: int
    channel: int
    chain_crc: int
    body_crc: int
    body_length: int


class BlankEntry(Struct, frozen=True):
    """Ends a data file; the rest of the file is zeros."""

    magic: int
    remaining: int


class IndexUnit(Struct, frozen=True):
    """Position of an entry; the unit of entry n is at byte 32 · n, counted over all index files."""

    magic: int
    position: int
    size: int
    index: int
    term: int


class LedgerState(Struct, frozen=True):
    """Progress of the ledger according to its file `checkpoint`.

    Attributes:
        end_index: of the last entry, None if the file does not state it.
        committed_index: of the last entry that a majority has.
    """

    end_index: int | None
    committed_index: int | None


ENTRY = Unit(
    "DLedger entry",
    EntryHeader,
    i32("magic", "1"),
    i32("size", "bytes of header and body"),
    i64("index", "number of the entry, from 0"),
    i64("term", "term of the leader that wrote it"),
    i64("position", "where the entry starts in the log; the record after the header is 48 bytes further on"),
    i32("channel", "0"),
    i32("chain_crc", "0: is not computed"),
    i32("body_crc", "0: is not computed"),
    i32("body_length", "bytes of the record that follows"),
)

BLANK_ENTRY = Unit(
    "DLedger blank entry",
    BlankEntry,
    i32("magic", "-1"),
    i32("remaining", "bytes from here to the end of the file, these 8 included"),
)

INDEX_UNIT = Unit(
    "DLedger index unit",
    IndexUnit,
    i32("magic", "1"),
    i64("position", "where the entry starts in the log"),
    i32("size", "bytes of the entry, header included"),
    i64("index", "number of the entry"),
    i64("term", "term of the entry"),
)

ENTRY_HEADER_SIZE = ENTRY.size
BLANK_ENTRY_SIZE = BLANK_ENTRY.size
INDEX_UNIT_SIZE = INDEX_UNIT.size


def parse_properties(data: Buffer) -> dict[str, str]:
    """Parses `checkpoint` or `currterm`: lines of `name=value`, as IOUtils.properties2String writes them.

    Raises:
        FormatError: not text, or a line without `=`.
    """
    try:
        lines = bytes(data).decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise FormatError("expected text", layout="DLedger properties", position=error.start) from error
    found = {}
    for number, line in enumerate(lines):
        name, equals, value = line.partition("=")
        if line and not line.startswith("#"):
            if not equals:
                raise FormatError(
                    f"expected name=value, found {line[:40]!r}", layout="DLedger properties", field=f"line {number + 1}"
                )
            found[name.strip()] = value.strip()
    return found


def parse_state(data: Buffer) -> LedgerState:
    """Parses `checkpoint`.

    Raises:
        FormatError: it is not a valid checkpoint.
    """
    found = parse_properties(data)
    return LedgerState(_number(found, "endIndex"), _number(found, COMMITTED_INDEX))


def parse_current_term(data: Buffer) -> int | None:
    """Returns the term in `currterm`; None if it contains none.

    Raises:
        FormatError: it is not a valid file of this kind.
    """
    return _number(parse_properties(data), "currTerm")


def _number(found: dict[str, str], name: str) -> int | None:
    return java.parse_long(found[name]) if name in found else None
