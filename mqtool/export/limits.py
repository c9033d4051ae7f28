"""Where one run of an export ends if it is limited: at a record, after a prefix of what is new in each store.

Several stores share bytes and messages equally; what one does not need goes to the others. Each store with news adds at
least one record, or one damaged range, so that every run gets on.
"""

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import UsageError
from mqtool.export.plan import StorePlan
from mqtool.export.schema import ReadRequest, committed
from mqtool.records.damage import Damage
from mqtool.records.frames import Frames
from mqtool.store import Store
from mqtool.store.log.cuts import Cuts

_UNLIMITED = 1 << 62


class Limits(Struct, frozen=True):
    """How much one run exports; None for no limit."""

    max_bytes: int | None = None  # of log in existing files
    # Records that are exported; an inner batch is one. One whose body turns out to be damaged counts.
    max_messages: int | None = None
    until: int | None = None  # ms: the run ends at the first record that was stored then or later

    def __post_init__(self) -> None:
        if any(limit is not None and limit < 1 for limit in (self.max_bytes, self.max_messages)):
            raise UsageError("expected a limit of at least one byte or message")

    def __bool__(self) -> bool:
        return self != Limits()


class Prefix(Struct, frozen=True):
    """What a run exports of one store."""

    end: int  # physical offset: of a record, or the end of a file
    messages: int = 0  # of `Limits.max_messages`; 0 if they are not limited
    is_late: bool = False  # it ends because of `Limits.until`


def prefixes(limits: Limits, plans: list[StorePlan], stores: list[Store], read: ReadRequest) -> list[Prefix]:
    """Returns, for each plan, what the run exports of it; the records in front of a time or a count are walked.

    Stores with less news come first, so that the others know what is left for them.
    """
    ends = [Prefix(plan.end) for plan in plans]
    order = sorted(range(len(plans)), key=lambda index: plans[index].size)
    for position, index in enumerate(order):
        plan, others = plans[index], len(order) - position
        share = replace(
            limits, max_bytes=share_of(limits.max_bytes, others), max_messages=share_of(limits.max_messages, others)
        )
        ends[index] = prefix = _Walk(stores[index], plan, share, read).prefix()
        limits = replace(
            limits,
            max_bytes=_rest(limits.max_bytes, size_until(plan, prefix.end)),
            max_messages=_rest(limits.max_messages, prefix.messages),
        )
    return ends


def size_until(plan: StorePlan, end: int) -> int:
    """Returns the bytes of log in the spans of a plan before a physical offset."""
    return sum(max(0, min(span.end, end) - span.start) for span in plan.spans)


def share_of(limit: int | None, stores: int) -> int | None:
    """Returns the part of a limit for each of some stores; at least 1, None for no limit."""
    return None if limit is None else max(1, limit // stores)


def _rest(limit: int | None, used: int) -> int | None:
    return None if limit is None else max(1, limit - used)


class _Walk:
    """Finds where a run ends in one store."""

    def __init__(self, store: Store, plan: StorePlan, limits: Limits, read: ReadRequest) -> None:
        self._store, self._plan, self._limits, self._read = store, plan, limits, read
        self._log = store.commit_log

    def prefix(self) -> Prefix:
        """Walks over what is new until a limit is reached; if only bytes are limited, over the last of them."""
        last, start = self._last_byte()
        if self._limits.max_messages is None and self._limits.until is None and last >= self._plan.end:
            return Prefix(self._plan.end)
        messages, is_first = 0, size_until(self._plan, start) == 0
        for item in self._log.walk(start, self._plan.end, fields=True):
            if isinstance(item, Damage):
                if self._log.segment_at(item.start) is None:  # there is no file
                    continue
                if not is_first and item.end > last:
                    return Prefix(self._bound(item.start), messages)
            else:
                starts = item.base + item.positions
                counts, late = messages + np.cumsum(self._is_exported(item)), self._is_late(item)
                refused = late | (starts + item.sizes > last) | (counts > (self._limits.max_messages or _UNLIMITED))
                refused[0] = late[0] or (refused[0] and not is_first)
                if refused.any():
                    at = int(refused.argmax())
                    messages = int(counts[at - 1]) if at else messages
                    return Prefix(self._bound(int(starts[at])), messages, bool(late[at]))
                messages = int(counts[-1])
            is_first = False
        return Prefix(self._plan.end, messages)

    def _last_byte(self) -> tuple[int, int]:
        """Returns the physical offset after the last byte that is admitted, and where to begin to look at records."""
        left = _UNLIMITED if self._limits.max_bytes is None else self._limits.max_bytes
        for span in self._plan.spans:
            if left < span.end - span.start:
                last = span.start + left
                is_walked = self._limits.max_messages is not None or self._limits.until is not None
                return last, self._plan.start if is_walked else Cuts(self._store).last_at(last, span.start)
            left -= span.end - span.start
        return _UNLIMITED, self._plan.start

    def _is_exported(self, frames: Frames) -> np.ndarray:
        """Returns which records the export selects, by topic, queue, time and class."""
        if self._limits.max_messages is None:
            return np.zeros(len(frames), np.int64)
        selected = np.isin(frames.positions, self._read.selection.narrow(frames).positions)
        return selected if self._read.every_class else selected & committed(frames)

    def _is_late(self, frames: Frames) -> np.ndarray:
        until = self._limits.until
        return np.zeros(len(frames), bool) if until is None else frames.column("store_timestamp") >= until

    def _bound(self, offset: int) -> int:
        """Returns where to end in front of a record or damage: a watermark needs the bytes before it."""
        index = self._log.segment_at(offset)
        offset -= 0 if index is None else self._log.segments[index].record_header
        if self._log.segment_at(offset - 1) is not None:
            return offset
        return max((segment.end for segment in self._log.segments if segment.end < offset), default=self._plan.start)
