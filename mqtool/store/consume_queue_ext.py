"""ConsumeQueueExt, open for reading: its units, and the tags codes for addresses in a ConsumeQueue."""

from functools import cached_property
from pathlib import Path

import numpy as np

from mqtool.errors import FormatError, StoreError
from mqtool.formats import file_names
from mqtool.formats.consume_queue_ext import (
    END_BLANK_SIZE,
    HEAD_SIZE,
    LONGEST_UNIT,
    ConsumeQueueExtUnit,
    ext_offset,
    parse_ext_unit,
)
from mqtool.formats.java import LONG_MIN
from mqtool.store.files import MappedFile, ReadFile, list_mapped_files

MOST_PROBLEMS = 1000


class ExtUnits:
    """The extension of one queue; read on the first use of an address."""

    def __init__(self, root: Path, topic: str, queue_id: int) -> None:
        self.path = root / file_names.CONSUME_QUEUE_EXT / topic / str(queue_id)

    @cached_property
    def _units(self) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Offsets and tags codes of all units by offset, and what is malformed in words."""
        offsets: list[int] = []
        tags: list[int] = []
        problems: list[str] = []
        for file in list_mapped_files(self.path).files:
            try:
                with ReadFile(file.path) as opened:
                    data = opened.read(0, min(opened.data_end(), file.size))
            except StoreError as error:
                problems.append(str(error))
                continue
            problem = _read(file, data, offsets, tags)
            if problem:
                problems.append(f"{file.path.name}: {problem}")
        return np.array(offsets, np.int64), np.array(tags, np.int64), problems

    @property
    def malformed(self) -> list[str]:
        """What cannot be read, in words."""
        return self._units[2]

    def unit_at(self, address: int) -> ConsumeQueueExtUnit | None:
        """Returns the unit at an address as ConsumeQueue units store it, None if there is none."""
        offset = ext_offset(address)
        file = next((one for one in list_mapped_files(self.path).files if one.base <= offset < one.end), None)
        if file is None:
            return None
        try:
            with ReadFile(file.path) as opened:
                return parse_ext_unit(opened.read(offset - file.base, LONGEST_UNIT))
        except (StoreError, FormatError):
            return None

    def tags_of(self, addresses: np.ndarray, problems: list[tuple[int, str, str]]) -> np.ndarray:
        """Returns the tags codes at addresses; 0 and a problem if there is no unit.

        Args:
            addresses: as ConsumeQueue units store them.
            problems: receives (offset, code, evidence).
        """
        offsets, tags, malformed = self._units
        positions = addresses - LONG_MIN
        at = np.minimum(np.searchsorted(offsets, positions), max(0, len(offsets) - 1))
        found = offsets[at] == positions if len(offsets) else np.zeros(len(positions), bool)
        for index in np.flatnonzero(~found).tolist()[: MOST_PROBLEMS - len(problems)]:
            where = int(positions[index])
            evidence = f"no unit at extension offset {where}" + (f"; {malformed[0]}" if malformed else "")
            problems.append((where, "ext-dangling-address", evidence))
        return np.where(found, tags[at] if len(tags) else 0, 0)


def _read(file: MappedFile, data: bytes, offsets: list[int], tags: list[int]) -> str:
    """Reads one file's units; returns why reading ended early, "" if it did not."""
    at = 0
    while at + HEAD_SIZE <= len(data):
        if file.size - at <= END_BLANK_SIZE:
            break
        try:
            unit = parse_ext_unit(data, at)
        except FormatError as error:
            return str(error)
        if unit is None:
            break
        offsets.append(file.base + at)
        tags.append(unit.tags_code)
        at += unit.size
    return ""
