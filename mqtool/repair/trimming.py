"""The front of the log set aside, with what only leads there; files moved out of the way, or made long enough."""

from pathlib import Path

from mqtool.errors import UsageError
from mqtool.repair.building import Built, check_queues
from mqtool.repair.changes import Pad, SetAside, Trim
from mqtool.repair.copies import copy_patched
from mqtool.repair.paths import check_name, inside
from mqtool.store.consume_queue import Queue, has_record
from mqtool.store.store import Store


def trim(store: Store, change: Trim, _out: Path, built: Built) -> None:
    """Takes the oldest segments away, and the files of queues and index that lead to nothing else.

    What is kept is what the broker's own cleaning keeps: the last file of each queue and of the index, and of all
    other files those with something that is still there (CleanCommitLogService, ConsumeQueue.deleteExpiredFile,
    IndexService.deleteExpiredFile, 4.9.7 and 5.5.0).
    """
    check_queues(store)
    log = store.commit_log
    gone = [segment for segment in log.segments[: log.last_used] if segment.end <= change.before]
    if not gone:
        raise UsageError(f"nothing to trim: no segment before the last one ends at or before {change.before}")
    begins = log.segments[len(gone)].base
    for segment in gone:
        built.remove(segment.path)
        built.unhashed.add(built.name(segment.path))
    count = sum(segment.size for segment in gone)
    built.notes.append(f"{len(gone)} segments, {count} bytes: the log will begin at physical offset {begins}")
    for queue in store.disk_queues():
        for number, file in enumerate(queue.files[:-1]):
            units = queue.units_of(number)
            if (units["physical_offset"][has_record(units)] >= begins).any():
                break
            built.remove(file.path)
    for index in store.disk_index_files()[:-1]:
        if index.header.end_physical_offset >= begins:
            break
        built.remove(index.path)
    _tell_unread(store, begins, built)
    built.read_log(store, full=False)


def _tell_unread(store: Store, begins: int, built: Built) -> None:
    """Notes which groups will miss messages that they have not read."""
    for lag in store.lags():
        queue = store.queue(lag.topic, lag.queue_id)
        if queue is None or not lag.lag or lag.min_offset is None:
            continue
        unread = _first_at(queue, begins) - max(lag.consumer_offset, lag.min_offset)
        if unread > 0:
            built.notes.append(
                f"group {lag.group} has not read {unread} messages of {lag.topic}/{lag.queue_id} that go"
            )


def _first_at(queue: Queue, begins: int) -> int:
    """Returns the queue offset of the first unit that leads to a physical offset or beyond."""
    for number, file in enumerate(queue.files):
        units = queue.units_of(number)
        wanted = (has_record(units) & (units["physical_offset"] >= begins)).nonzero()[0]
        if len(wanted):
            at = int(wanted[0])
            return int(units["base_queue_offset"][at]) if queue.is_batch else file.base // queue.unit_size + at
    return queue.max_offset


def set_aside(store: Store, change: SetAside, _out: Path, built: Built) -> None:
    """Takes files away that are in the way."""
    for name in change.files:
        path = inside(store.path, check_name(name, store.path))
        if not path.is_file():
            raise UsageError(f"{path}: expected a file to set aside")
        built.remove(path)
    built.read_log(store, full=False)


def pad(store: Store, change: Pad, out: Path, built: Built) -> None:
    """Makes segments as long as the others."""
    known = store.layout.commit_log_size
    assert known is not None
    by_name = {built.name(segment.path): segment for segment in store.layout.commit_log.files}
    for name in change.files:
        segment = by_name.get(check_name(name, store.path))
        if segment is None or not 0 < segment.size < known.value:
            size = "none" if segment is None else f"{segment.size} bytes"
            raise UsageError(f"{name}: expected a segment of 1 to {known.value - 1} bytes, found {size}")
        copy_patched(segment.path, out / name, size=known.value)
        built.put(name, out / name, keep_time=True)
        built.notes.append(f"{name}: from {segment.size} to {known.value} bytes ({known.evidence})")
    built.read_log(store)
