"""FNV-1a, by which kernels find a string in a table."""

BASIS = 0xCBF29CE484222325
PRIME = 0x100000001B3
SHIFT = 32
"""The upper half of the 64 bits says where a search begins."""


def first_slot(data: bytes) -> int:
    """Returns where the search for a string begins, before it is cut to the size of the table."""
    value = BASIS
    for byte in data:
        value = (value ^ byte) * PRIME & 0xFFFFFFFFFFFFFFFF
    return value >> SHIFT
