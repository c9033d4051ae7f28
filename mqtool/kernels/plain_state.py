"""What `plain_records` and its callers agree on; a separate module, so that callers need not load the kernels."""

from enum import IntEnum

COUNTED, BATCH = 1, 2
"""Bits of what is known of a queue: its units are summed; it holds batches."""

MAX_STEP_BACK = 1000
"""A store timestamp may be this many milliseconds less than the one before; a spike goes back by more."""


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
