"""Bytes of real files, taken from the fixtures without the code under test wherever that is possible."""

import io
import struct
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import zstandard

from mqtool.formats import checkpoint, consume_queue, dledger, hosts, index_file, tiered, timer
from mqtool.formats.codec import Unit
from tests.support.stores import FIXTURES, fixture

UNITS: tuple[Unit, ...] = (
    consume_queue.CONSUME_QUEUE_UNIT,
    consume_queue.BATCH_CONSUME_QUEUE_UNIT,
    index_file.HEADER,
    index_file.ENTRY,
    checkpoint.CHECKPOINT,
    timer.SLOT,
    timer.LOG_UNIT,
    timer.LOG_END,
    timer.CHECKPOINT,
    hosts.OFFSET_ID_V4,
    hosts.OFFSET_ID_V6,
    hosts.UNIQUE_KEY_V4,
    hosts.UNIQUE_KEY_V6,
    tiered.INDEX_HEADER,
    tiered.INDEX_SLOT,
    tiered.INDEX_ITEM,
    tiered.INDEX_NODE,
    consume_queue.ROCKS_UNIT,
    consume_queue.ROCKS_BOUND,
    dledger.ENTRY,
    dledger.BLANK_ENTRY,
    dledger.INDEX_UNIT,
)
"""Every layout of a fixed size."""

RECORD_MAGICS = (0xDAA320A7, 0xDAA320AB)
DLEDGER_HEADER = 48
LOG_DIRECTORIES = ("commitlog", "clA", "clB", "clC", "data", "Compact/0")


def files(pattern: str) -> list[Path]:
    """Files in all stores and damage bases that match; packed ones are not among them."""
    return sorted(path for path in FIXTURES.glob(f"**/{pattern}") if path.is_file() and path.suffix != ".zst")


def label(path: Path) -> str:
    """A file's name below fixtures/, to name a test case by."""
    return path.relative_to(FIXTURES).as_posix()


def unpacked(path: Path, size: int) -> bytes:
    """The first bytes of a zstd file."""
    with path.open("rb") as packed:
        return zstandard.ZstdDecompressor().stream_reader(packed).read(size)


@cache
def default_sizes(member: str, size: int) -> bytes:
    """The first bytes of the first file of that directory in the store of default sizes."""
    packed = io.BytesIO(unpacked(fixture("default-sizes/store.tar.zst"), 1 << 26))
    with tarfile.open(fileobj=packed) as archive:
        name = min(entry.name for entry in archive if entry.isfile() and f"/{member}/" in f"/{entry.name}")
        file = archive.extractfile(name)
        assert file is not None
        return file.read(size)


def log_files() -> list[Path]:
    """Every file that holds records: plain, of several roots, behind DLedger headers, compacted, tiered."""
    digits = "[0-9]" * 20
    found = [path for name in LOG_DIRECTORIES for path in files(f"{name}/{digits}")]
    return sorted({path for path in found if "compactionCq" not in path.parts and "consumequeue" not in path.parts})


def record_places(data: bytes) -> Iterator[tuple[int, int]]:
    """Position and size of each record of a log file, by two hops of our own: a plain record, or a DLedger entry."""
    position = 0
    while position + 8 <= len(data):
        first, second = struct.unpack_from(">iI", data, position)
        if second in RECORD_MAGICS:
            yield position, first
            position += first
        elif first == 1 and position + DLEDGER_HEADER < len(data):
            position += DLEDGER_HEADER
        else:
            return


def record_bytes() -> Iterator[bytes]:
    """Every record of every fixture."""
    for path in log_files():
        data = path.read_bytes()
        yield from (data[position : position + size] for position, size in record_places(data))
    data = default_sizes("commitlog", 1 << 16)
    yield from (data[position : position + size] for position, size in record_places(data))


@cache
def sample_records() -> dict[str, bytes]:
    """One real record of each shape: both magics, four mixtures of hosts; the shortest there is."""
    found: dict[str, bytes] = {}
    for record in record_bytes():
        magic, sys_flag = record[7] == 0xAB, struct.unpack_from(">i", record, 36)[0]
        name = f"{'V2' if magic else 'V1'}-born{4 + (sys_flag >> 3 & 2)}-store{4 + (sys_flag >> 4 & 2)}"
        if name not in found or len(record) < len(found[name]):
            found[name] = record
    return found
