"""Distinct keys of a column, numbered in the order in which they come."""

import numpy as np

from mqtool.kernels.choice import Kernels


def numbered(compiled: Kernels, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers distinct keys in the order in which they come.

    Args:
        compiled: the kernels.
        keys: int64.

    Returns:
        The first row of each number; int32, the number of each row.
    """
    slots = np.full(1 << (2 * len(keys)).bit_length(), -1, np.int32)
    firsts, numbers = np.empty(len(keys), np.int64), np.empty(len(keys), np.int32)
    count = compiled.number(keys, slots, numbers, firsts)
    return firsts[:count], numbers
