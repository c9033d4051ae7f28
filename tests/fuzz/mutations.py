"""Small harm to the files of a real store, by a seed: bits, bytes, blocks, lengths, cuts, swaps."""

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

NUMBERS = (-(1 << 31), -1, 0, 1, 20, 91, 0x7F, 0x80, 0x7FFF, 0xFFFF, 1 << 20, (1 << 31) - 1)


class Mutator:
    """Harms one copy of a store again and again, and heals it in between."""

    def __init__(self, root: Path, seed: int) -> None:
        """Takes a copy that may be written to; files above 1 MiB stay as they are."""
        self.root = root
        self.random = random.Random(seed)
        self._whole = {
            path: path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.stat().st_size <= 1 << 20
        }

    def harm(self) -> str:
        """Change one to three files; return in words what was done."""
        said = []
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            path = self.random.choice(list(self._whole))
            kind = self.random.choice(KINDS)
            data = self._whole[path]
            path.write_bytes(kind(self.random, data) if data else self.random.randbytes(9))
            said.append(f"{kind.__name__} {path.relative_to(self.root)}")
        return ", ".join(said)

    def heal(self) -> None:
        """Put everything back."""
        for path, data in self._whole.items():
            path.write_bytes(data)


def bits(source: random.Random, data: bytes) -> bytes:
    """Some bits flipped."""
    changed = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 8))):
        changed[_place(source, data)] ^= 1 << source.randrange(8)
    return bytes(changed)


def number(source: random.Random, data: bytes) -> bytes:
    """A number that a length should not be."""
    at = _place(source, data)
    size = source.choice((">i", ">h", ">q"))
    most = (1 << 8 * struct.calcsize(size) - 1) - 1
    value = max(-most - 1, min(most, source.choice(NUMBERS)))
    return (data[:at] + struct.pack(size, value) + data[at + struct.calcsize(size) :])[: len(data)]


def block(source: random.Random, data: bytes) -> bytes:
    """A run of zeros, ones or random bytes."""
    at, length = _place(source, data), source.choice((8, 88, 512, 4096))
    filler = source.choice((bytes(length), b"\xff" * length, source.randbytes(length)))
    return (data[:at] + filler + data[at + length :])[: len(data)]


def cut(source: random.Random, data: bytes) -> bytes:
    """Shorter, or longer by zeros."""
    length = source.randrange(len(data) + 1)
    return data[:length] if source.random() < 0.8 else data + bytes(source.randrange(5000))


def moved(source: random.Random, data: bytes) -> bytes:
    """A part of the file over another part."""
    start, at, length = _place(source, data), _place(source, data), source.choice((20, 112, 500, 4096))
    part = data[start : start + length]
    return (data[:at] + part + data[at + len(part) :])[: len(data)]


def lost(source: random.Random, data: bytes) -> bytes:
    """Bytes taken out: everything behind them shifts."""
    at = _place(source, data)
    return data[:at] + data[at + source.choice((1, 4, 20, 100)) :]


KINDS: tuple[Callable[[random.Random, bytes], bytes], ...] = (bits, bits, number, number, block, cut, moved, lost)


def _place(source: random.Random, data: bytes) -> int:
    used = len(data.rstrip(b"\0")) or len(data)
    return source.randrange(used)


def fresh_copy(source: Path, target: Path) -> Path:
    """A copy that may be written to."""
    shutil.copytree(source, target)
    for path in target.rglob("*"):
        path.chmod(path.stat().st_mode | 0o200)
    return target
