"""Units and index entries added up by bucket, and the queue offsets of a stretch of the log followed."""

from typing import Any

import numpy as np

from mqtool.kernels import mixing
from mqtool.kernels.compiling import compiled, inlined
from mqtool.kernels.machine_code import I32, I64, U64

_OFFSET, _PLACE, _SIZE, _TAGS, _TIME = mixing.OFFSET, mixing.PLACE, mixing.SIZE, mixing.TAGS, mixing.TIME
_FINAL, _FOLD = mixing.FINAL, mixing.FOLD


@inlined
def _finish(mixed: Any) -> Any:
    mixed ^= mixed >> _FOLD
    mixed *= _FINAL
    return mixed ^ (mixed >> _FOLD)


@inlined
def mixed_unit(physical: Any, offset: Any, size: Any, tags: Any, key: Any) -> Any:
    """Returns `verify.checksums.mix_units` of one unit."""
    mixed = np.uint64(physical) * _OFFSET + np.uint64(offset) * _PLACE
    return _finish(mixed + np.uint64(np.int64(size)) * _SIZE + np.uint64(tags) * _TAGS + key)


@compiled("none", U64, I64, I64, U64, I64, I64, I32, I64)
def add_units(
    total: Any, count: Any, buckets: Any, queue_keys: Any, offsets: Any, physical: Any, sizes: Any, tags: Any
) -> None:
    """Adds `verify.checksums.mix_units` of each unit to its bucket.

    Args:
        total, count: sums by bucket; updated.
        buckets: of each unit, none negative.
        queue_keys, offsets, physical, sizes, tags: of each unit.
    """
    for row in range(len(buckets)):
        total[buckets[row]] += mixed_unit(physical[row], offsets[row], sizes[row], tags[row], queue_keys[row])
        count[buckets[row]] += 1


@compiled("none", U64, I64, I64, I64, I64, I64)
def add_entries(total: Any, count: Any, buckets: Any, key_hashes: Any, physical: Any, times: Any) -> None:
    """Adds `verify.checksums.mix_entries` of each entry to its bucket; arguments as for `add_units`."""
    for row in range(len(buckets)):
        mixed = np.uint64(physical[row]) * _OFFSET + np.uint64(key_hashes[row]) * _TAGS
        mixed += np.uint64(times[row]) * _TIME
        total[buckets[row]] += _finish(mixed)
        count[buckets[row]] += 1


@compiled("int64", I32, I64, I64, "int64", I64, I64, I64, I64, I64, I64)
def follow(
    codes: Any,
    offsets: Any,
    physical: Any,
    room: int,
    first: Any,
    first_at: Any,
    following: Any,
    last_at: Any,
    messages: Any,
    jumps: Any,
) -> int:
    """Follows the queue offsets of units of one message each, in the order of the log.

    Args:
        codes: number of each unit's queue.
        offsets, physical: of each unit.
        room: jumps that are kept.
        first, first_at, following, last_at, messages: of each queue, see `verify.continuity.QueueSpan`; are changed.
        jumps: gets queue, expected and found queue offset, and the physical offsets of both sides, five for a jump.

    Returns:
        How many jumps were kept.
    """
    count = 0
    for row in range(len(codes)):
        code, offset = codes[row], offsets[row]
        if messages[code] == 0:
            first[code], first_at[code] = offset, physical[row]
        elif offset != following[code] and count < room:
            at = 5 * count
            jumps[at], jumps[at + 1], jumps[at + 2] = code, following[code], offset
            jumps[at + 3], jumps[at + 4] = last_at[code], physical[row]
            count += 1
        following[code] = offset + 1
        last_at[code] = physical[row]
        messages[code] += 1
    return count


@compiled("int64", I32, I64, I64, "int64", I64)
def chain(heads: Any, key_hashes: Any, previous: Any, first: int, wrong: Any) -> int:
    """Compares the predecessor of index entries with the newest entry of their slots before them.

    Args:
        heads: number of the newest entry by slot; is changed.
        key_hashes, previous: of each entry.
        first: number of the first of them.
        wrong: gets row and due predecessor of each entry that names another one, two for an entry.

    Returns:
        How many are wrong.
    """
    count, slots = 0, len(heads)
    for row in range(len(key_hashes)):
        slot = max(key_hashes[row], 0) % slots
        due = heads[slot]
        heads[slot] = first + row
        if due != previous[row]:
            wrong[2 * count], wrong[2 * count + 1] = row, due
            count += 1
    return count
