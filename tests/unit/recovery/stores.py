"""Small stores written field by field, for the tests of recovery."""

import shutil
import struct
from pathlib import Path

from msgspec.structs import replace

from mqtool.formats import commit_log, properties
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT, ConsumeQueueUnit
from mqtool.formats.release import release_of
from mqtool.recovery.settings import RecoverySettings

SEGMENT = 4096
QUEUE_FILE = 200
HOST = bytes((127, 0, 0, 1)) + struct.pack(">i", 10911)


def record(body: bytes = b"hello", topic: bytes = b"Orders", stored: bytes = b"", **fields: int) -> bytes:
    """A record; `fields` are those of commit_log.Record, set after the lengths have been worked out."""
    length = 2 if fields.get("magic_code") == commit_log.MAGIC_V2 else 1
    total = commit_log.MIN_RECORD_SIZE - 1 + length + len(body) + len(topic) + len(stored)
    made = commit_log.Record(
        total_size=total,
        magic_code=commit_log.MAGIC_V1,
        body_crc=commit_log.body_crc(body),
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        born_host=HOST,
        store_timestamp=1_700_000_000_000,
        store_host=HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_length=len(body),
        body=body,
        topic_length=len(topic),
        topic=topic,
        properties_length=len(stored),
        properties=stored,
    )
    return commit_log.build_record(replace(made, **fields))


def named(**values: str) -> bytes:
    """A properties string."""
    return properties.encode(values.items())


def unit(physical_offset: int, size: int = 100, tags_code: int = 0) -> bytes:
    return CONSUME_QUEUE_UNIT.build(ConsumeQueueUnit(physical_offset, size, tags_code))


def settings(root: Path, release: str = "5.5", **more: object) -> RecoverySettings:
    known = {
        "segment_size": SEGMENT,
        "queue_file_size": QUEUE_FILE,
        "batch_file_size": 460,
        "index_slots": 10,
        "index_entries": 20,
        **more,
    }
    return RecoverySettings(release=release_of(release), root=root, commit_log_dirs=(root / "commitlog",), **known)  # type: ignore[arg-type]


class StoreWriter:
    """Writes a store of one queue, Orders/0, as a broker that stops in order leaves it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.end = 0
        self.units: list[tuple[int, int]] = []

    def put(self, body: bytes = b"hello", **fields: int) -> "StoreWriter":
        """Appends a record, with a BLANK before it where the segment has no room."""
        data = record(body, **{"queue_offset": len(self.units), "physical_offset": self.end, **fields})
        if self.end % SEGMENT + len(data) + 8 > SEGMENT:
            rest = SEGMENT - self.end % SEGMENT
            self._write(commit_log.build_blank(rest))
            self.end += rest
            data = record(body, **{"queue_offset": len(self.units), "physical_offset": self.end, **fields})
        self._write(data)
        self.units.append((self.end, len(data)))
        self.end += len(data)
        return self

    def _write(self, data: bytes) -> None:
        path = self.segment(self.end // SEGMENT)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(bytes(SEGMENT))
        patch(path, self.end % SEGMENT, data)

    def segment(self, number: int) -> Path:
        return self.root / "commitlog" / f"{number * SEGMENT:020d}"

    def queue(self, *numbers: int) -> "StoreWriter":
        """Writes the units of Orders/0: all, or those up to a number."""
        units = self.units[: numbers[0]] if numbers else self.units
        write_queue(self.root / "consumequeue" / "Orders" / "0", [unit(*one) for one in units])
        return self


def write_queue(directory: Path, units: list[bytes]) -> None:
    """Writes units into files of full length, in the place of what was there."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    data = b"".join(units)
    for start in range(0, max(len(data), 1), QUEUE_FILE):
        (directory / f"{start:020d}").write_bytes(data[start : start + QUEUE_FILE].ljust(QUEUE_FILE, b"\0"))


def patch(path: Path, position: int, data: bytes) -> None:
    """Overwrites bytes of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
