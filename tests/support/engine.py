"""What tests of the engine share: a held clock, small stores, real stores put through the engine again."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

import mqtool
from mqtool.engine import Compat, MessageStore, StoreOptions, open_store
from mqtool.engine.options import options_from_config
from mqtool.engine.write.messages import BatchMessage
from mqtool.formats import commit_log
from mqtool.formats.commit_log import Record
from mqtool.store.config import broker_config
from mqtool.verify import Severity, verify

SMALL: dict[str, Any] = {
    "commit_log_file_size": 4096,
    "consume_queue_file_size": 200,
    "index_slots": 10,
    "index_entries": 20,
    "batch_consume_queue_file_size": 460,
    "zone": UTC,
}
"""Sizes of Appendix A: log files of 4096 bytes, ten units and nineteen index entries a file."""


@dataclass
class HeldClock:
    """Stands still until it is set; sleeping moves it on."""

    time: int = 1_700_000_000_000
    slept: list[float] = field(default_factory=list)

    def now(self) -> int:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += int(seconds * 1000)


def small_options(**more: Any) -> StoreOptions:
    """Options of a small store; compiled functions are used only where a test does."""
    return StoreOptions(**{**SMALL, **more})


def open_small(path: Path, clock: HeldClock | None = None, **more: Any) -> MessageStore:
    """A small store without threads."""
    return open_store(path, small_options(**more), clock=clock or HeldClock(), background=False)


def options_of(config: Path, version: str, **more: Any) -> StoreOptions:
    """Options for a store that a broker of this version wrote with this configuration."""
    compat = Compat.V4_9 if version.startswith("4.9") else Compat.V5_5
    base = StoreOptions(compat=compat, zone=UTC, **more)
    found = options_from_config(broker_config.load(config), base)
    return StoreOptions(
        **{
            **{name: getattr(found, name) for name in found.__struct_fields__},
            "commit_log_dirs": (),
            "read_only_dirs": (),
        }
    )


def records_of(directories: "list[Path]") -> "Iterator[tuple[int, Record | None]]":
    """Every record of a log with its physical offset, None for a BLANK, by hopping over total sizes."""
    for path in sorted((p for d in directories for p in d.iterdir() if p.name.isdigit()), key=lambda p: p.name):
        data, position = path.read_bytes(), 0
        while position + 8 <= len(data):
            total, magic = commit_log.FRAME.unpack_from(data, position)
            if magic == commit_log.MAGIC_BLANK:
                yield int(path.name) + position, None
                break
            if magic not in (commit_log.MAGIC_V1, commit_log.MAGIC_V2):
                break
            yield int(path.name) + position, commit_log.parse_record(data, position)
            position += total


def put_record(store: MessageStore, clock: HeldClock, record: Record) -> Any:
    """Puts what a stored record was made of, at its own time."""
    clock.time = record.store_timestamp
    return store.put(
        record.topic.decode(),
        record.queue_id,
        record.body,
        record.properties,
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        record.store_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
    )


def replay(store: MessageStore, clock: HeldClock, directories: "list[Path]") -> int:
    """Puts every record of a log into a store, batches together where a batch moved to the next file as a whole."""
    found = list(records_of(directories))
    size = store.options.commit_log_file_size
    done = number = 0
    while number < len(found):
        _, record = found[number]
        number += 1
        if record is None:
            room = size - store.max_physical_offset % size
            following = found[number][1] if number < len(found) else None
            if following is None or following.total_size + 8 > room:
                continue
            batch = _batch_at(found, number, room)
            clock.time = batch[0].store_timestamp
            first = batch[0]
            result = store.put_batch(
                first.topic.decode(),
                first.queue_id,
                [BatchMessage(r.body, _without_crc(store, r.properties), r.flag) for r in batch],
                b"",
                first.sys_flag,
                first.born_timestamp,
                first.born_host,
                first.store_host,
                first.reconsume_times,
            )
            assert result.ok, result
            number += len(batch)
            done += len(batch)
            continue
        result = put_record(store, clock, record)
        assert result.ok, result
        done += 1
    return done


def _batch_at(found: "list[tuple[int, Record | None]]", number: int, room: int) -> list[Record]:
    """The fewest records from `number` on that did not fit the room together."""
    batch: list[Record] = []
    while sum(r.total_size for r in batch) + 8 <= room:
        record = found[number + len(batch)][1]
        assert record is not None
        batch.append(record)
    return batch


def _without_crc(store: MessageStore, properties: bytes) -> bytes:
    return properties[:-20] if store.options.append_record_crc else properties


def findings_of(path: Path, options: StoreOptions, *declared: str) -> list[Any]:
    """What `verify` has to say about a closed store, notes and declared codes apart. No broker wrote its config/."""
    config = {"maxHashSlotNum": options.index_slots, "maxIndexNum": options.index_entries}
    with mqtool.open(path, config=config) as store:
        found = [finding for finding in verify(store).findings if finding.severity is not Severity.NOTE]
    return [finding for finding in found if finding.code not in (*declared, "config-missing")]


def tree(directory: Path) -> dict[str, bytes]:
    """Relative path to bytes of every file below a directory; {} if it is not there."""
    if not directory.is_dir():
        return {}
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}
