"""The bit map of a message in which its consumer groups' filters set bits.

Which bits a group sets is in consumerFilter.json (`bitPos`). Bits lie LSB first in each byte. Source: BloomFilter,
BitsArray (4.9.7, 5.5.0).
"""


def set_all(bit_map: bytearray, bits: tuple[int, ...]) -> None:
    """Sets every position."""
    for bit in bits:
        bit_map[bit >> 3] |= 1 << (bit & 7)
