"""The Bloom filter of consumer filters: which bits a group sets in the bit map of a message.

Bits lie LSB first in each byte. Source: BloomFilter, BitsArray, ConsumerFilterManager (4.9.7, 5.5.0).
"""

import math

_MASK = (1 << 64) - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F
DEFAULT_ERROR_PER_CENT = 20
DEFAULT_CONSUMERS = 32


def size_of(error_per_cent: int = DEFAULT_ERROR_PER_CENT, consumers: int = DEFAULT_CONSUMERS) -> tuple[int, int]:
    """Returns (bits of the map, bits that a group sets): 112 and 3 for the defaults."""
    hashes = math.ceil(math.log(error_per_cent / 100) / math.log(0.5))
    bits = math.ceil(consumers * math.log(1 / (error_per_cent / 100)) / math.log(2) ** 2)
    return -(-bits // 8) * 8, hashes


def positions(text: str, bits: int, hashes: int) -> tuple[int, ...]:
    """Returns the positions that a group sets.

    Args:
        text: "group#topic".
        bits, hashes: of the filter (`size_of`).
    """
    low, high = murmur3_128(text.encode("utf-8"))
    h1, h2 = low & 0xFFFFFFFF, low >> 32
    del high
    found = []
    for number in range(1, hashes + 1):
        combined = _signed32(h1 + number * h2)
        found.append((~combined if combined < 0 else combined) % bits)
    return tuple(found)


def has_all(bit_map: bytes, bits: tuple[int, ...]) -> bool:
    """Whether every position is set."""
    return all(bit_map[bit >> 3] >> (bit & 7) & 1 for bit in bits)


def set_all(bit_map: bytearray, bits: tuple[int, ...]) -> None:
    """Sets every position."""
    for bit in bits:
        bit_map[bit >> 3] |= 1 << (bit & 7)


def _signed32(value: int) -> int:
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def murmur3_128(data: bytes, seed: int = 0) -> tuple[int, int]:
    """Returns the two 64-bit halves of MurmurHash3 x64 128."""
    h1 = h2 = seed
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        h1 = (_rotate(h1 ^ _mix(data[at : at + 8], _C1, 31, _C2), 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 = (_rotate(h2 ^ _mix(data[at + 8 : at + 16], _C2, 33, _C1), 31) + h1) * 5 + 0x38495AB5 & _MASK
    tail = data[whole:]
    h2 ^= _mix(tail[8:], _C2, 33, _C1)
    h1 ^= _mix(tail[:8], _C1, 31, _C2)
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    h1, h2 = _final(h1), _final(h2)
    h1 = h1 + h2 & _MASK
    return h1, h2 + h1 & _MASK


def _mix(part: bytes, first: int, turn: int, second: int) -> int:
    return _rotate(int.from_bytes(part, "little") * first & _MASK, turn) * second & _MASK


def _rotate(value: int, turn: int) -> int:
    return (value << turn | value >> 64 - turn) & _MASK


def _final(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
