"""The hash by which kernels and array operations find a topic: eight bytes a step."""

import numpy as np

MIX, FOLD = np.uint64(0xD6E8FEB86659FD93), np.uint64(32)
"""A step multiplies by an odd number, and combines the lower half of the product with the upper one by XOR."""
_ALL = 0xFFFFFFFFFFFFFFFF


def topic_hash(topic: bytes) -> int:
    """Returns the hash of one topic, 64 bits; it begins with the length, and zeros fill the last step."""
    value = len(topic)
    for at in range(0, len(topic), 8):
        value = (value ^ int.from_bytes(topic[at : at + 8], "little")) * int(MIX) & _ALL
        value ^= value >> int(FOLD)
    return value
