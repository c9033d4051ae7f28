"""Indexes the log again where a crash removed index files.

After a crash the broker deletes every IndexFile that is not full, and indexes only the records that it scans; older
keys of such a file are lost. The engine indexes the log again from where the deleted files began.
"""

from collections.abc import Iterator

from mqtool.engine.disk.mapped_file_queue import MappedFileQueue
from mqtool.engine.index.index_files import Index
from mqtool.errors import FormatError
from mqtool.formats import commit_log
from mqtool.records.dispatch import Dispatcher
from mqtool.records.dispatch_request import request_of
from mqtool.records.dispatched import DispatchRules
from mqtool.records.frames import Frames
from mqtool.records.intact_run import intact_run


def reindex(log: MappedFileQueue, index: Index, start: int, rules: DispatchRules) -> int:
    """Indexes every record from a physical offset on that is after the end of the index.

    In the page cache on return.

    Args:
        log: as recovery left it.
        index: with the files that recovery kept.
        start: physical offset of a record, or an offset below it in the same segment.
        rules: of dispatch.

    Returns:
        Number of records read.

    Raises:
        OSError: the index cannot be written.
    """
    columns, done = Dispatcher(rules), 0
    start = max(start, index.end_physical_offset)
    for window in _frames(log, start):
        frames = window.between(start, None)
        if not len(frames):
            continue
        done += len(frames)
        dispatched = columns.dispatch(frames)
        if dispatched.oddities:
            _one_by_one(frames, index, rules)
            continue
        index.put_many(dispatched.keys, len(frames))
    return done


def _frames(log: MappedFileQueue, start: int) -> Iterator[Frames]:
    """Yields the records of the segment that contains `start` and of those after it, up to the first invalid one."""
    for file in log.files:
        if file.end <= start:
            continue
        yield from intact_run(file.file.read, file.file_from_offset, 0, file.read_position)


def _one_by_one(frames: Frames, index: Index, rules: DispatchRules) -> None:
    for position in frames.positions.tolist():
        try:
            request = request_of(commit_log.parse_record(frames.view, position), rules)
        except FormatError:  # the broker does not dispatch such a record
            continue
        index.put(request, with_tags=rules.index_tags)
