"""The numbers that units and index entries are added up as; for other kernels."""

from typing import Any

import numpy as np

from mqtool.kernels import mixing
from mqtool.kernels.compiling import inlined

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


@inlined
def mixed_entry(physical: Any, key_hash: Any, seconds: Any) -> Any:
    """Returns `verify.checksums.mix_entries` of one entry or key."""
    return _finish(np.uint64(physical) * _OFFSET + np.uint64(key_hash) * _TAGS + np.uint64(seconds) * _TIME)
