"""The consecutive valid records from a position up to the first invalid byte.

For code that writes or recovers a log and must not read further than the broker would. It does not search after
damage and reports no tail; `records.walk` does.
"""

from collections.abc import Iterator

import numpy as np

from mqtool.formats import commit_log
from mqtool.records.frame_scan import Stop
from mqtool.records.frames import Frames, frames_at
from mqtool.records.segment_bytes import WINDOW, Read


def intact_run(read: Read, base: int, start: int, end: int) -> Iterator[Frames]:
    """Yields valid records (`Frames.valid`) window by window, in order.

    Args:
        read: reads one segment.
        base: physical offset of the segment's first byte.
        start: position of the first record.
        end: position past which no record extends.
    """
    at, count = start, WINDOW
    while at + commit_log.FRAME.size <= end:
        view = memoryview(read(at, min(count, end - at)))
        chain, frames = frames_at(view, 0, base + at)
        if not len(frames):
            if chain.stop is not Stop.MORE:
                return
            total = commit_log.frame_size(view, 0, end - at)
            if total <= len(view):
                return
            count = total  # a record longer than a window is read alone
            continue
        valid = frames.valid
        run = len(frames) if valid.all() else int(np.argmin(valid))
        if run:
            yield frames.select(slice(0, run))
        if run < len(frames):
            return
        at, count = at + chain.end, WINDOW
