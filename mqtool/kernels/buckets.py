"""Parts of the log over which sums of units and entries are kept; for other kernels."""

from typing import Any

import numpy as np

from mqtool.kernels.compiling import inlined


@inlined
def bucket_of(physical: Any, end: Any, bases: Any, ends: Any, first_buckets: Any, shift: Any, segment: Any) -> Any:
    """Finds the bucket of a physical offset.

    Args:
        physical: the offset.
        end: of the log, physical offset.
        bases, ends, first_buckets: of the segments, ascending: physical offsets, number of the first bucket.
        shift: bits of a bucket.
        segment: number of the one to begin with: offsets mostly ascend.

    Returns:
        Its number; the range of physical offsets in it, half-open, which is empty if the offset is not in the log; the
        number of the segment.
    """
    bucket = low = high = np.int64(0)
    if len(ends) > 0:
        if physical < bases[segment]:
            segment = np.int64(0)
        while segment < len(ends) - 1 and physical >= ends[segment]:
            segment += 1
        base, limit = bases[segment], min(ends[segment], end)
        if base <= physical < limit:
            number = (physical - base) >> shift
            bucket, low = first_buckets[segment] + number, base + (number << shift)
            high = min(low + (np.int64(1) << shift), limit)
    return bucket, low, high, segment


@inlined
def add_to_bucket(total: Any, count: Any, bucket: Any, mixed: Any, number: Any) -> None:
    """Adds the sum and the number of units or entries to those of their bucket, unless the number is 0."""
    if number != 0:
        total[bucket] += mixed
        count[bucket] += number
