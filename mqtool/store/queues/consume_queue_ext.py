"""ConsumeQueueExt, open for reading: its units, and the tags codes for addresses in a ConsumeQueue."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from mqtool.errors import FormatError, StoreError, UnreadableError
from mqtool.formats import file_names
from mqtool.formats.consume_queue import (
    EXT_END_BLANK_SIZE,
    LONGEST_EXT_UNIT,
    ConsumeQueueExtUnit,
    ext_offset,
    parse_ext_unit,
)
from mqtool.formats.java import LONG_MIN
from mqtool.store.files import MappedFile, ReadFile, list_mapped_files, recording_unlisted

MAX_PROBLEMS = 1000
_PIECE = 1 << 20


def ext_units(file: ReadFile) -> Iterator[tuple[int, ConsumeQueueExtUnit]]:
    """Yields position and unit of each unit of a file.

    Raises:
        FormatError: the bytes at a position are no unit; the units before it have been yielded.
        StoreError: the file cannot be read.
    """
    data, start, at = b"", 0, 0
    while file.size - at > EXT_END_BLANK_SIZE:
        if at + LONGEST_EXT_UNIT > start + len(data) < file.size:
            start, data = at, file.read(at, _PIECE)
        try:
            unit = parse_ext_unit(data, at - start)
        except FormatError as error:
            raise FormatError(error.reason, layout=error.layout, field=error.field, position=at) from error
        if unit is None:
            return
        yield at, unit
        at += unit.size


class ExtUnits:
    """The extension of one queue; read on the first use of an address."""

    def __init__(self, root: Path, topic: str, queue_id: int) -> None:
        self.path = root / file_names.CONSUME_QUEUE_EXT / topic / str(queue_id)

    @cached_property
    def _listed(self) -> tuple[tuple[MappedFile, ...], str]:
        """The files, and why they cannot be listed."""
        try:
            with recording_unlisted(None):
                return list_mapped_files(self.path).files, ""
        except UnreadableError as error:
            return (), str(error)

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The files by offset; none if they cannot be listed."""
        return self._listed[0]

    @cached_property
    def _units(self) -> tuple[np.ndarray, np.ndarray, list[str], str]:
        """Offsets and tags codes of all units by offset, what is malformed in words, and why some are unknown."""
        offsets: list[int] = []
        tags: list[int] = []
        problems: list[str] = []
        files, unread = self._listed
        for file in files:
            try:
                with ReadFile(file.path) as opened:
                    for position, unit in ext_units(opened):
                        offsets.append(file.base + position)
                        tags.append(unit.tags_code)
            except StoreError as error:
                unread = unread or str(error)
            except FormatError as error:
                problems.append(f"{file.path.name}: {error}")
        return np.array(offsets, np.int64), np.array(tags, np.int64), problems, unread

    @property
    def malformed(self) -> list[str]:
        """Units that cannot be decoded, in words."""
        return self._units[2]

    @property
    def unread(self) -> str:
        """Why a file or the directory cannot be read; "" if all of it can."""
        return self._units[3]

    def unit_at(self, address: int) -> ConsumeQueueExtUnit | None:
        """Returns the unit at an address as ConsumeQueue units store it, None if there is none."""
        offset = ext_offset(address)
        file = next((candidate for candidate in self.files if candidate.base <= offset < candidate.end), None)
        if file is None:
            return None
        try:
            with ReadFile(file.path) as opened:
                return parse_ext_unit(opened.read(offset - file.base, LONGEST_EXT_UNIT))
        except (StoreError, FormatError):
            return None

    def tags_of(self, addresses: np.ndarray, problems: list[tuple[int, str, str]]) -> np.ndarray:
        """Returns the tags codes at addresses; 0 and a problem if there is no unit. If files are unread, 0 alone.

        Args:
            addresses: as ConsumeQueue units store them.
            problems: receives (offset, code, evidence).
        """
        offsets, tags, malformed, unread = self._units
        positions = addresses - LONG_MIN
        at = np.minimum(np.searchsorted(offsets, positions), max(0, len(offsets) - 1))
        is_present = offsets[at] == positions if len(offsets) else np.zeros(len(positions), bool)
        absent = [] if unread else np.flatnonzero(~is_present).tolist()
        for index in absent[: MAX_PROBLEMS - len(problems)]:
            where = int(positions[index])
            evidence = f"no unit at extension offset {where}" + (f"; {malformed[0]}" if malformed else "")
            problems.append((where, "ext-dangling-address", evidence))
        return np.where(is_present, tags[at] if len(tags) else 0, 0)
