"""Files of a log on a failing disk: unreadable parts read as zeros and are noted.

For salvage, which copies what proves itself, and for answers that name what they leave out: zeros contain no record.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.errors import StoreClosedError, StoreError
from mqtool.records.damage import Damage, DamageKind
from mqtool.records.frames import Frames
from mqtool.store.files import MappedFile, ReadFile

PAGE = 4096
"""Bytes that are given up together: a disk reads, and fails to read, no fewer."""


class _UnreadableFile(Struct):
    reason: str
    parts: dict[int, int] = field(default_factory=dict)


class UnreadableParts:
    """The unreadable parts of some files found so far."""

    def __init__(self) -> None:
        self._noted: dict[Path, _UnreadableFile] = {}

    def open(self, path: Path, size: int) -> ReadFile:
        """Opens a file of a known size; a file that cannot be opened reads as zeros."""
        return _ReadableFile(path, size, self)

    def note(self, path: Path, position: int, size: int, reason: str) -> None:
        """Notes bytes of a file; the first of several reasons is kept."""
        self._noted.setdefault(path, _UnreadableFile(reason)).parts[position] = size

    def ranges(self, path: Path, base: int) -> list[tuple[int, int]]:
        """Returns start and end of each unreadable range of a file, as physical offsets."""
        noted = self._noted.get(path)
        return [(base + at, base + at + size) for at, size in noted.parts.items()] if noted else []

    def damage(self, path: Path, base: int, start: int, end: int) -> Damage | None:
        """Returns the range of a file's unreadable parts between two physical offsets, None if all was read."""
        parts = [part for part in self.ranges(path, base) if part[0] < end and start < part[1]]
        if not parts:
            return None
        low, high = max(start, min(part[0] for part in parts)), min(end, max(part[1] for part in parts))
        reason = self._noted[path].reason.removeprefix(f"{path}: ")
        return Damage(low, high, DamageKind.UNREADABLE, reason, path, low - base)

    def reason_of(self, damage: Damage, file: MappedFile) -> Damage:
        """Returns a damage of a file; if bytes in it are unreadable, with that as its kind and detail."""
        unread = self.damage(file.path, file.base, damage.start, damage.end)
        return replace(damage, kind=unread.kind, detail=unread.detail) if unread else damage

    def split(self, frames: Frames, file: MappedFile) -> Iterator[Frames | Damage]:
        """Yields the frames that were read completely, and damage for the others, whose unreadable bytes are zeros."""
        ranges = self.ranges(file.path, file.base)
        if not ranges:
            yield frames
            return
        starts = frames.positions + frames.base
        ends = starts + frames.sizes
        incomplete = np.zeros(len(frames), bool)
        for low, high in ranges:
            incomplete |= (starts < high) & (ends > low)
        edges = (np.flatnonzero(np.diff(incomplete)) + 1).tolist()
        for low, high in pairwise([0, *edges, len(frames)]):
            if incomplete[low]:
                damage = Damage(int(starts[low]), int(ends[high - 1]), DamageKind.UNREADABLE, "")
                yield self.reason_of(damage.at(file.path, file.base), file)
            else:
                yield frames.select(slice(low, high))

    def sentences(self) -> list[str]:
        """Returns one sentence for each file with unreadable parts, with the first reason."""
        return [
            f"{path}: {sum(noted.parts.values())} byte(s) could not be read and are treated as bytes without a record: "
            f"{noted.reason.removeprefix(f'{path}: ')}"
            for path, noted in sorted(self._noted.items())
        ]


class _ReadableFile(ReadFile):
    def __init__(self, path: Path, size: int, unreadable: UnreadableParts) -> None:
        self._unreadable = unreadable
        self._is_denied = False
        try:
            super().__init__(path)
        except StoreError as error:
            self.path, self.size, self._bytes, self._is_denied = path, size, None, True
            unreadable.note(path, 0, size, str(error))

    def read(self, position: int, count: int) -> bytes:
        """Returns the bytes from a position, zeros for those that cannot be read."""
        count = max(0, min(count, self.size - position))
        if self._is_denied:
            return bytes(count)
        try:
            return super().read(position, count)
        except StoreClosedError:
            raise
        except StoreError:
            return self._by_pages(position, position + count)

    def _by_pages(self, start: int, end: int) -> bytes:
        parts, at = [], start
        while at < end:
            page = at - at % PAGE
            until = min(page + PAGE, end)
            try:
                part = super().read(at, until - at)
            except StoreError as error:
                part = bytes(until - at)
                self._unreadable.note(self.path, page, min(PAGE, self.size - page), str(error))
            parts.append(part)
            at = until
        return b"".join(parts)

    def read_into(self, position: int, target: memoryview) -> int:
        """Reads into memory that is there; see `read`."""
        data = self.read(position, len(target))
        target[: len(data)] = data
        return len(data)

    def data_end(self) -> int:
        """Returns a position after which the file holds only zeros; its size if unknown."""
        return self.size if self._is_denied else super().data_end()
