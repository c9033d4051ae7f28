"""The DLedger log: entry header, end of a data file, index unit, and its two small text files.

An entry consists of this header and, as its body, one record of the CommitLog. The record states its own position:
the entry's position + 48. Docs page: docs/formats/dledger.md. Source: DLedgerEntryCoder, DLedgerMmapFileStore,
MmapFileList, MemberState (dledger 0.3.1.2 of RocketMQ 4.9.7, 0.3.2 of 5.5.0), DLedgerCommitLog (4.9.7, 5.5.0).
"""

from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats import java
from mqtool.formats.codec import Buffer, Unit, i32, i64

MAGIC_ENTRY = 1
MAGIC_BLANK_ENTRY = -1
DATA = "data"
INDEX = "index"
CHECKPOINT = "checkpoint"
CURRENT_TERM = "currterm"
END_INDEX = "endIndex"
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
    """Progress of the ledger according to its file `checkpoint`."""

    end_index: int | None  # of the last entry, None if the file does not state it
    committed_index: int  # of the last entry that a majority has


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


def parse_state(data: Buffer) -> LedgerState:
    """Parses `checkpoint`; raises FormatError if it is not valid."""
    committed = committed_index_text(data)
    if not committed:
        raise FormatError(f"expected {COMMITTED_INDEX} with a number, found none", layout="DLedger checkpoint")
    end = java.trim(java.parse_properties(bytes(data)).get(END_INDEX, ""))
    return LedgerState(java.parse_long(end) if end else None, java.parse_long(committed))


def committed_index_text(data: Buffer) -> str:
    """Returns the number of the last committed entry in `checkpoint` as a text; "" if it states none.

    DLedgerMmapFileStore.recover trims the text and parses it. Raises FormatError if java.util.Properties rejects the
    file.
    """
    return java.trim(java.parse_properties(bytes(data)).get(COMMITTED_INDEX, ""))


def is_state_of(data: Buffer, end: int) -> bool:
    """Whether `checkpoint` is what the broker writes if the last entry is committed, in any order of the lines."""
    lines = (f"{COMMITTED_INDEX}={end}".encode(), f"{END_INDEX}={end}".encode(), b"")
    return sorted(bytes(data).split(b"\n")) == sorted(lines)


def parse_current_term(data: Buffer) -> int | None:
    """Returns the term in `currterm`; None if it contains none, FormatError if it is not valid.

    MemberState.loadTerm does not trim it.
    """
    values = java.parse_properties(bytes(data))
    return java.parse_long(values["currTerm"]) if "currTerm" in values else None
