"""Ordinary stores put into DLedger mode by a model of our own: what `convert dledger` has to undo, byte for byte."""

import struct
import zlib
from pathlib import Path

HEADER = struct.Struct(">iiqqqiiii")
UNIT = struct.Struct(">iqiqq")
RECORD_MAGICS = (0xDAA320A7, 0xDAA320AB)
PREPARED_AT = 76
TIMER_UNIT = 52


def records(segment: bytes) -> list[bytes]:
    """The records of one ordinary segment, in order."""
    found, at = [], 0
    while at + 8 <= len(segment):
        size, magic = struct.unpack_from(">iI", segment, at)
        if magic not in RECORD_MAGICS:
            break
        found.append(segment[at : at + size])
        at += size
    return found


def into_ledger(store: Path, *, term: int = 1) -> None:
    """Replaces `commitlog/` of a store by a DLedger log with the same records; queues, index and the rest go.

    The timer log stays, with the new physical offsets.
    """
    log = sorted((store / "commitlog").iterdir())
    size = log[0].stat().st_size
    files: dict[int, bytearray] = {}
    index, at, moved = b"", 0, {}
    number = 0
    for path in log:
        data = path.read_bytes()
        old = int(path.name)
        for record in records(data):
            length = HEADER.size + len(record)
            if at % size + length + 8 > size:
                files[at - at % size] += struct.pack(">ii", -1, size - at % size)
                at += size - at % size
            moved[old] = at + HEADER.size
            old += len(record)
            file = files.setdefault(at - at % size, bytearray())
            file += HEADER.pack(1, length, number, term, at, 0, 0, 0, len(record)) + _moved(record, at, moved)
            index += UNIT.pack(1, at, length, number, term)
            number, at = number + 1, at + length
        path.unlink()
    (store / "commitlog").rmdir()
    home = store / "dledger-n0"
    for name in ("data", "index"):
        (home / name).mkdir(parents=True)
    for base, content in files.items():
        (home / "data" / f"{base:020d}").write_bytes(bytes(content).ljust(size, b"\0"))
    (home / "index" / f"{0:020d}").write_bytes(index)
    (home / "checkpoint").write_text(f"committedIndex={number - 1}\nendIndex={number - 1}\n")
    (home / "currterm").write_text(f"voteLeader=n0\ncurrTerm={term}\n")
    _move_timer(store, moved)


def _moved(record: bytes, at: int, moved: dict[int, int]) -> bytes:
    data = bytearray(record)
    struct.pack_into(">q", data, 28, at + HEADER.size)
    (flags,) = struct.unpack_from(">i", data, 36)
    prepared_at = PREPARED_AT + 12 * ((flags >> 4 & 1) + (flags >> 5 & 1))
    (prepared,) = struct.unpack_from(">q", data, prepared_at)
    if prepared:
        struct.pack_into(">q", data, prepared_at, moved.get(prepared, prepared))
    if data[-20:].startswith(b"__CRC32#"):  # covers the rest of the record; its digits begin with the lowest
        data[-11:-1] = str(zlib.crc32(data[:-20]) & 0x7FFFFFFF)[::-1].ljust(10, "0").encode()
    return bytes(data)


def _move_timer(store: Path, moved: dict[int, int]) -> None:
    for path in (store / "timerlog").glob("*"):
        data, at = bytearray(path.read_bytes()), 0
        while at + TIMER_UNIT <= len(data) and struct.unpack_from(">i", data, at)[0] == TIMER_UNIT:
            (offset,) = struct.unpack_from(">q", data, at + 28)
            struct.pack_into(">q", data, at + 28, moved.get(offset, offset))
            at += TIMER_UNIT
        path.write_bytes(data)
