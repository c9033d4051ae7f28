"""Units and index entries added up by bucket."""

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
