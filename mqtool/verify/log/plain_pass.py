"""The compiled pass over the plain records of one segment; all other records are checked by array operations."""

from enum import IntEnum

import numpy as np
from msgspec import Struct

from mqtool import native
from mqtool.jobs.progress import Throttle
from mqtool.records.dispatch import Dispatcher
from mqtool.records.segment_bytes import page_aligned
from mqtool.records.walk import Skimmed
from mqtool.store.files import MappedFile
from mqtool.verify.log.checksums import BUCKET_BITS, Sums
from mqtool.verify.log.continuity import Continuity
from mqtool.verify.log.record_rules import RecordRules
from mqtool.verify.survey import Survey

WINDOW = 1 << 20
"""Bytes read at a time. Measured: 128 KiB to 2 MiB take about the same time, 8 MiB a tenth more."""
_STEP, _LONG_STEP = 4 << 20, 32 << 20
"""Bytes per call with and without a throttle; a task can be stopped between calls."""
_MAX_KEYS = 1 << 15
"""Index keys of one record: a word of KEYS and the space after it take two bytes of at most 32,767."""

COUNTED, BATCH = 1, 2
"""Bits of what is known of a queue: its units are summed; it holds batches."""


class State(IntEnum):
    """Places in the array of int64 that a pass updates.

    Attributes:
        RECORDS: number of records read by the last call.
        NEWEST: latest store timestamp of all calls.
        KNOWN: of how many records `LAST` has times, at most 2.
        FIRST: store timestamp and physical offset of the first two records of the last call.
        LAST: the same of the last two of all calls, the later one last.
        SIZE: of the array.
    """

    RECORDS = 0
    NEWEST = 1
    KNOWN = 2
    FIRST = 3
    LAST = 7
    SIZE = 11


class KnownQueues:
    """Properties of the queues seen so far, by the number that `Continuity` assigns to them.

    Attributes:
        keys: uint64, `checksums.queue_key`.
        flags: uint8, `COUNTED` and `BATCH`.
    """

    def __init__(self) -> None:
        self.keys = np.empty(0, np.uint64)
        self.flags = np.empty(0, np.uint8)

    @property
    def counted(self) -> np.ndarray:
        """Bool per queue: whether its units are summed."""
        return (self.flags & COUNTED) != 0

    @property
    def batch(self) -> np.ndarray:
        """Bool per queue: whether it is a BatchConsumeQueue."""
        return (self.flags & BATCH) != 0


class Shared(Struct, frozen=True):
    """State shared by the compiled pass and the array operations over one segment."""

    dispatcher: Dispatcher  # and continuity, queues, rules: state of the checks
    continuity: Continuity
    queues: KnownQueues
    rules: RecordRules
    units: Sums  # and keys: sums by bucket
    keys: Sums
    first_record: np.ndarray  # int64, physical offset of the first record by bucket, -1 if there is none


class PlainPass:
    """Reads plain records and adds them to the facts about a segment.

    Attributes:
        records: number of records read.
        newest: their latest store timestamp, 0 if there is none.
    """

    def __init__(
        self,
        survey: Survey,
        file: tuple[int, MappedFile, int],
        shared: Shared,
        throttle: Throttle,
    ) -> None:
        """Prepares the pass; reads nothing yet.

        Args:
            survey: the store.
            file: descriptor of the open file, the segment, and the position after which no record may end.
            shared: is updated.
            throttle: receives the number of bytes read.
        """
        self._survey = survey
        self._descriptor, segment, self._end = file
        self._base = segment.base
        self._shared = shared
        self._throttle = throttle
        self._step = _STEP if survey.throttle else _LONG_STEP
        self._window = page_aligned(WINDOW)
        self._scratch = np.empty(_MAX_KEYS, np.int32)
        self._starts = np.ascontiguousarray(survey.index.starts)
        self._begins = np.ascontiguousarray(survey.index.begins)
        self.records = self.newest = 0

    def skim(self, position: int) -> Skimmed:
        """Reads records from a position on; implements `records.walk.Skim`."""
        shared, at = self._shared, position
        rules, dispatcher, queues = shared.rules, shared.dispatcher, shared.queues
        span, numbers = shared.continuity.span, shared.continuity.numbers
        state = np.zeros(State.SIZE, np.int64)
        while at < self._end:
            state[State.NEWEST], state[State.KNOWN] = self.newest, rules.last.shape[1]
            state[State.LAST + 2 * (2 - rules.last.shape[1]) : State.SIZE] = rules.last.T.reshape(-1)
            end, may_go_on = native.logs.plain_records(
                self._descriptor,
                self._base,
                at,
                self._end,
                at + self._step,
                self._window,
                dispatcher.topics.slots,
                dispatcher.schedule,
                self._survey.with_index,
                dispatcher.rules.index_tags,
                numbers.columns,
                queues.keys,
                queues.flags,
                span.first,
                span.first_at,
                span.following,
                span.last_at,
                span.messages,
                self._starts,
                self._begins,
                BUCKET_BITS,
                shared.units.total,
                shared.units.count,
                shared.keys.total,
                shared.keys.count,
                shared.first_record,
                self._scratch,
                state,
            )
            taken = int(state[State.RECORDS])
            self.records += taken
            self.newest = int(state[State.NEWEST])
            first, last = state[State.FIRST : State.LAST].reshape(2, 2), state[State.LAST : State.SIZE].reshape(2, 2)
            rules.continue_after(first[: min(taken, 2)], last[2 - int(state[State.KNOWN]) :])
            self._throttle.spend(end - at)
            at = end
            if not may_go_on:
                break
        return Skimmed(at, int(state[State.LAST + 2]) if at > position else 0)
