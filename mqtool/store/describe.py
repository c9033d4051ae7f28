"""Describes a store in one value: the library counterpart of `mqtool info`, with hints for an operator.

Everything comes from names, sizes, headers and a few records, so the size of the store does not matter; `deep_scan`
reads every record. Only `verify` proves anything.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from msgspec import Struct, field

from mqtool.errors import StoreError, UnreadableError
from mqtool.formats import file_names, timer
from mqtool.formats.topics import LMQ_PREFIX, SCHEDULE_TOPIC
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.records.damage import Damage
from mqtool.store.file_sizes import KnownSize
from mqtool.store.files import list_mapped_files
from mqtool.store.index_file import IndexFile
from mqtool.store.paths import is_denied
from mqtool.store.queues.consume_queue import Queue
from mqtool.store.store import Store
from mqtool.store.waiting.timer import read_checkpoint, read_wheel
from mqtool.values import asdict

Description = dict[str, Any]

_ADDED_UP = 4_000_000
"""Units whose sizes are added up without a deep scan."""

_SIZES = ("commit_log_size", "consume_queue_size", "consume_queue_ext_size", "batch_consume_queue_size")


def describe(store: Store) -> Description:
    """Describes a store without reading its messages; see the columns of `mqtool info`."""
    log, version = store.commit_log, store.version
    return {
        "path": str(store.path),
        "version": version.line,
        "release": version.words,
        "version_evidence": version.evidence,
        "clean_stop": store.clean_stop,
        "commit_log": {
            "min_offset": log.min_offset,
            "max_offset": log.max_offset,
            "files": len(log.segments),
            "directories": [
                str(path)
                for path in dict.fromkeys(
                    (
                        *store.layout.commit_log_dirs,
                        *(segment.path.parent for segment in log.segments if segment.entries),
                    )
                )
            ],
            "first_timestamp": store_time(store, log.first_record),
            "last_timestamp": _last_time(store),
            "tail": {"kind": log.tail.kind, "length": log.tail.length, "detail": log.tail.detail},
        },
        "layout": _layout(store),
        "topics": _topics(store),
        "queues": [_queue(queue) for queue in store.queues()],
        "groups": _groups(store),
        "lags": [asdict(lag) for lag in store.lags()],
        "index_files": _index_files(store),
        "checkpoint": None if store.checkpoint is None else asdict(store.checkpoint),
        "timer": _timer(store),
        "delay_offsets": [{"level": level, "offset": n} for level, n in sorted(store.metadata.delay_offsets.items())],
    }


def store_time(store: Store, physical_offset: int) -> int | None:
    """Returns the store time of the record at an offset, None if there is none."""
    try:
        return store.commit_log.record(physical_offset).store_timestamp
    except StoreError:
        return None


def _last_time(store: Store) -> int | None:
    """Returns the store time of the newest record that a queue names; records without a unit are ignored."""
    newest = [last for queue in store.queues() if (last := _ends(queue))]
    return store_time(store, max(last[1] for last in newest)) if newest else None


def _layout(store: Store) -> list[Description]:
    rows = []
    for name in _SIZES:
        known: KnownSize | None = getattr(store.layout, name)
        if known is not None:
            rows.append({"name": name, "value": known.value, "evidence": known.evidence})
    for file in store.disk_index_files()[-1:]:
        slots, places = _shape(file)
        if slots:
            evidence = f"chains of {file.path.name}" if file.entry_count else "the default for a file of this length"
            rows.append({"name": "index_slots", "value": slots, "evidence": evidence})
            rows.append({"name": "index_entries", "value": places, "evidence": evidence})
    return rows


def _shape(file: IndexFile) -> tuple[int | None, int | None]:
    """Returns the numbers of slots and of places for entries; None if the file does not show them or is unreadable."""
    try:
        return file.slot_count, file.max_entries
    except UnreadableError:
        return None, None


def _queue(queue: Queue) -> Description:
    return {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "kind": queue.kind,
        "min_offset": queue.min_offset,
        "max_offset": queue.max_offset,
        "max_physical_offset": queue.max_physical_offset,
        "files": len(queue.files),
    }


def _ends(queue: Queue) -> tuple[int, int] | None:
    """Returns the physical offsets of the first and the last record of a queue that the log still has."""
    if queue.max_offset <= max(queue.min_offset, 0):
        return None
    first = _unit_offset(queue, queue.min_offset)
    last = _unit_offset(queue, queue.max_offset - 1)
    return None if first is None or last is None else (first, last)


def _unit_offset(queue: Queue, queue_offset: int) -> int | None:
    if queue.is_batch:
        for number in range(len(queue.files) - 1, -1, -1):
            units = queue.units_of(number)
            if len(units) and int(units[0]["base_queue_offset"]) <= queue_offset:
                return int(units[units["base_queue_offset"] <= queue_offset][-1]["physical_offset"])
        return None
    file = queue.find_file(queue_offset)
    if file is None:
        return None
    units = queue.units_of(file)
    index = queue_offset - queue.files[file].base // queue.unit_size
    return int(units[index]["physical_offset"]) if 0 <= index < len(units) else None


def _topics(store: Store) -> list[Description]:
    by_topic: dict[str, list[Queue]] = {topic: [] for topic in store.metadata.topics}
    for queue in store.queues():
        by_topic.setdefault(queue.topic, []).append(queue)
    total = sum(max(0, queue.max_offset - queue.min_offset) for queue in store.queues())
    return [_topic(store, topic, by_topic[topic], add_up=total <= _ADDED_UP) for topic in sorted(by_topic)]


def _topic(store: Store, topic: str, queues: list[Queue], *, add_up: bool) -> Description:
    config = store.metadata.topics.get(topic)
    ends = [end for queue in queues if (end := _ends(queue))]
    firsts = [time for first, _ in ends if (time := store_time(store, first)) is not None]
    lasts = [time for _, last in ends if (time := store_time(store, last)) is not None]
    return {
        "topic": topic,
        "messages": sum(max(0, queue.max_offset - max(queue.min_offset, 0)) for queue in queues),
        "queues": len(queues),
        "size": sum(_size(queue, store.commit_log.min_offset) for queue in queues) if add_up else None,
        "first_timestamp": min(firsts, default=None),
        "last_timestamp": max(lasts, default=None),
        "configured": config is not None,
        "perm": None if config is None else config.perm,
        "read_queues": None if config is None else config.read_queue_nums,
        "write_queues": None if config is None else config.write_queue_nums,
    }


def _size(queue: Queue, limit: int) -> int:
    """Returns the sum of the sizes of the records of a queue that the log still has."""
    total, end = 0, queue.max_physical_offset + queue.is_batch
    for number in range(len(queue.files)):
        units = queue.units_of(number)
        alive = (units["physical_offset"] >= limit) & (units["physical_offset"] < end) & (units["size"] > 0)
        total += int(units["size"][alive].astype("i8").sum())
    return total


def _groups(store: Store) -> list[Description]:
    by_group: dict[str, list[Any]] = {group: [] for group in store.metadata.groups}
    for lag in store.lags():
        by_group.setdefault(lag.group, []).append(lag)
    return [
        {
            "group": group,
            "configured": group in store.metadata.groups,
            "topics": len({lag.topic for lag in lags}),
            "queues": len(lags),
            "lag": sum(lag.lag or 0 for lag in lags),
        }
        for group, lags in sorted(by_group.items())
    ]


def _index_files(store: Store) -> list[Description]:
    return [
        {
            "file": file.path.name,
            "entries": file.entry_count,
            "max_entries": places,
            "slots": slots,
            "begin_timestamp": file.header.begin_timestamp,
            "end_timestamp": file.header.end_timestamp,
            "begin_physical_offset": file.header.begin_physical_offset,
            "end_physical_offset": file.header.end_physical_offset,
        }
        for file in store.disk_index_files()
        for slots, places in (_shape(file),)
    ]


def _timer(store: Store) -> Description | None:
    wheel = store.path / file_names.TIMER_WHEEL
    log = list_mapped_files(store.path / file_names.TIMER_LOG).files
    if not wheel.is_file() and not log:
        return None
    timer_row: Description = {"log_files": len(log), "waiting": None}
    try:
        read = read_checkpoint(store.path)
    except (UnreadableError, PermissionError):
        return {**timer_row, "last_read_time": None, "last_queue_offset": None}
    if wheel.is_file():
        slots = read_wheel(store.path)
        unread = timer.unread_slots(slots, read.last_read_time_ms, store.config.timer_precision)
        timer_row["waiting"] = int(slots["count"][unread].sum())
    return {**timer_row, "last_read_time": read.last_read_time_ms, "last_queue_offset": read.last_timer_queue_offset}


class DeepScan(Struct):
    """Result of reading every record.

    Attributes:
        messages, size: of valid records, by topic: (messages, bytes, first store time, last store time).
    """

    topics: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)  # every range without a valid record


def deep_scan(store: Store, on_progress: OnProgress = ignore) -> DeepScan:
    """Reads every record of the log and checks its CRC; reports bytes every ten thousand records or so."""
    import pyarrow as pa  # noqa: PLC0415 - costs 100 ms at import

    scan, log = DeepScan(), store.commit_log
    columns = ("physical_offset", "topic", "store_size", "store_timestamp")
    aggregates = [(columns[2], "count"), (columns[2], "sum"), (columns[3], "min"), (columns[3], "max")]
    for batch in store.batches(columns, damage=scan.damage):
        grouped = pa.Table.from_batches([batch]).group_by("topic")
        for row in grouped.aggregate(aggregates).to_pylist():
            count, size, first, last = scan.topics.get(row["topic"], (0, 0, 1 << 63, -1))
            scan.topics[row["topic"]] = (
                count + row["store_size_count"],
                size + row["store_size_sum"],
                min(first, row["store_timestamp_min"]),
                max(last, row["store_timestamp_max"]),
            )
        on_progress(batch.column(0)[-1].as_py() - log.min_offset, log.max_offset - log.min_offset)
    return scan


def oddities(store: Store) -> list[str]:
    """Returns sentences, the most important first."""
    return [
        *_unreadable(store),
        *_stop(store),
        *_log(store),
        *_queues(store),
        *_index(store),
        *_metadata(store),
        *store.layout.oddities,
    ]


def _unreadable(store: Store) -> Iterator[str]:
    denied = [segment.path.name for segment in store.commit_log.segments if is_denied(segment.path)]
    if denied:
        yield f"{len(denied)} segment(s) cannot be read, the first {denied[0]}: run `mqtool verify` as root"


def _stop(store: Store) -> Iterator[str]:
    if not store.clean_stop:
        yield "the last broker did not shut down cleanly, or is running: abort exists"
    if store.checkpoint is None:
        yield "no checkpoint can be read"


def _log(store: Store) -> Iterator[str]:
    log = store.commit_log
    entries = [file for file in store.layout.commit_log.files if file.entries]
    if entries:
        yield f"the log from physical offset {entries[0].base} on is a DLedger log, {entries[0].path.parent}"
    elif store.layout.dledger_dirs:
        yield f"{store.layout.dledger_dirs[0].name}/ exists, but contains no data file of a DLedger log in use"
    if log.tail.kind not in ("clean", "unreadable"):  # "unreadable" was reported before, with the other unknowns
        yield f"after the last record: {log.tail.kind}, {log.tail.length} bytes: {log.tail.detail}"
    for before, after in pairwise(store.layout.commit_log.files):
        if before.end < after.base:
            yield f"no file holds physical offsets {before.end} to {after.base}"
        elif before.end > after.base:
            yield f"{before.path.name} and {after.path.name} overlap by {before.end - after.base} bytes"
    empty = [segment.path.name for segment in log.segments if not segment.size]
    if empty:
        yield f"empty segments: {', '.join(empty[:5])}"


def _queues(store: Store) -> Iterator[str]:
    log, is_known = store.commit_log, not store.unlisted
    dispatched = max((queue.max_physical_offset for queue in store.disk_queues()), default=0)
    if is_known and log.segments and dispatched < log.max_offset and log.tail.kind != "unreadable":
        yield f"the queues end at physical offset {dispatched}, the log at {log.max_offset}"
    for queue in store.queues():
        name = f"{queue.topic}/{queue.queue_id}"
        if queue.strays:
            yield f"queue {name} contains files that do not belong to it: {queue.strays[0].name}"
        ends = [file.end for file in queue.files]
        if any(end != file.base for end, file in zip(ends, queue.files[1:], strict=False)) and not queue.is_batch:
            yield f"files of queue {name} are not contiguous"
    if store.rocksdb and store.rocksdb.exists:
        yield store.unread_queues or "the queues are in RocksDB"


def _index(store: Store) -> Iterator[str]:
    yield from (f"index file {problem}" for problem in store.unread_index_files)
    for file in store.disk_index_files():
        try:
            if file.entry_count and not file.slot_count:
                yield f"index file {file.path.name}: its chains do not fit any number of slots"
        except UnreadableError as error:
            yield f"index file {file.path.name}: {error.reason}"
        if not store.unlisted and file.header.end_physical_offset > store.commit_log.max_offset:
            end = file.header.end_physical_offset
            yield f"index file {file.path.name} ends at physical offset {end}, after the end of the log"


def _metadata(store: Store) -> Iterator[str]:
    yield from (f"configuration: {problem}" for problem in store.metadata.problems)
    if store.metadata.topics_file is not None:
        unknown = sorted({queue.topic for queue in store.queues()} - set(store.metadata.topics))
        foreign = [topic for topic in unknown if not topic.startswith((LMQ_PREFIX, SCHEDULE_TOPIC))]
        if foreign:
            yield f"topics with queues but without configuration: {', '.join(foreign[:5])}"
    ahead = [lag for lag in store.lags() if lag.max_offset is not None and lag.consumer_offset > lag.max_offset]
    for lag in () if store.unlisted else ahead[:5]:
        place = f"{lag.topic}/{lag.queue_id}"
        yield f"group {lag.group} is ahead of queue {place}: {lag.consumer_offset} of {lag.max_offset}"
    if store.metadata.topics_file is None:
        yield f"there is no {file_names.TOPICS} that can be read, so which topics there should be is unknown"
