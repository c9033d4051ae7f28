"""Checks ConsumeQueueExt: positions and tags codes of its units."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from mqtool.errors import FormatError, StoreError
from mqtool.formats import commit_log
from mqtool.formats.commit_log import Record
from mqtool.formats.consume_queue import EXT_HEAD_SIZE, MAX_EXT_ADDRESS, ConsumeQueueExtUnit, ext_offset, parse_ext_unit
from mqtool.jobs.progress import Throttle
from mqtool.store.file_sizes import KnownSize
from mqtool.store.files import MappedFile, ReadFile
from mqtool.store.queues.consume_queue_ext import ExtUnits
from mqtool.store.queues.filter_bit_maps import FilterBitMaps
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.survey import QueueFiles, Survey

if TYPE_CHECKING:  # it imports this module
    from mqtool.verify.queues.consume_queue import QueueFacts

_WINDOW = 1 << 20


def check_extensions(
    survey: Survey, facts: "Iterable[QueueFacts]", size: KnownSize | None, collector: FindingCollector
) -> str:
    """Reports malformed extension files, addresses without a unit, and units that belong to another record.

    Returns:
        Why some of it could not be read; "" if all was.
    """
    unread = ""
    for queue, queue_facts in zip(survey.queues, facts, strict=True):
        units = ExtUnits(survey.root, queue.topic, queue.queue_id)
        if not survey.includes(queue.topic):
            continue
        for file in units.files:
            if size is not None and file.size != size.value:
                evidence = f"expected {size.value} bytes, found {file.size}"
                collector.add("ext-file-size", file.path, evidence, queue=queue.key)
        for evidence in units.malformed:
            collector.add("ext-bad-unit", units.path, evidence, queue=queue.key)
        for _, code, evidence in queue_facts.ext_problems:
            collector.add(code, queue.path, evidence, queue=queue.key)
        unread = unread or units.unread
    return unread


def compare_extensions(survey: Survey, bit_maps: FilterBitMaps, collector: FindingCollector) -> None:
    """Reports extension units whose store timestamp or filter bits do not match their records.

    An extra bit is harmless: the broker then evaluates the filter on the message. It may come from a filter that was
    removed since. A missing bit hides the message from its group (ExpressionMessageFilter.isMatchedByConsumeQueue).
    """
    log = _Window(survey.segments)
    throttle = Throttle(survey.throttle)
    for queue in survey.queues:
        extension = ExtUnits(survey.root, queue.topic, queue.queue_id)
        if queue.is_batch or not survey.includes(queue.topic) or not extension.files:
            continue
        times, bits = _Wrong(), _Wrong()
        for number, unit, record in _pairs(survey, queue, log, _Window(extension.files)):
            throttle.spend(record.total_size)
            if unit.store_timestamp != record.store_timestamp:
                times.add(number, f"time {unit.store_timestamp}, the record was stored at {record.store_timestamp}")
            (due,) = bit_maps(queue.topic, [record.properties], [record.store_timestamp])
            if len(due) == len(unit.bit_map) and any(
                want & ~present for want, present in zip(due, unit.bit_map, strict=True)
            ):
                bits.add(number, f"bit map {unit.bit_map.hex()}, the filters that the record passes set {due.hex()}")
        for code, wrong in (("ext-wrong-unit", times), ("ext-missing-bits", bits)):
            if wrong.count:
                evidence = f"{wrong.count} unit(s), the first of queue offset {wrong.first}: {wrong.evidence}"
                collector.add(code, extension.path, evidence, queue=queue.key)


class _Wrong(Struct):
    """Units with the same fault."""

    count: int = 0
    first: int = -1
    evidence: str = ""

    def add(self, number: int, evidence: str) -> None:
        """Counts one."""
        if not self.count:
            self.first, self.evidence = number, evidence
        self.count += 1


def _pairs(
    survey: Survey, queue: QueueFiles, log: "_Window", extension: "_Window"
) -> Iterator[tuple[int, ConsumeQueueExtUnit, Record]]:
    """Yields (queue offset, unit of the extension, record) where both can be read; other findings report the rest."""
    try:
        for file, first, units in queue.chunks():
            physical = units["physical_offset"].astype(np.int64)
            inside = (physical >= survey.min_offset) & (physical < survey.end) & (units["size"] > 0)
            for row in np.flatnonzero(inside & (units["tags_code"] <= MAX_EXT_ADDRESS)).tolist():
                at = int(physical[row])
                position = ext_offset(int(units["tags_code"][row]))
                try:
                    size = int.from_bytes(extension.read(position, 2), "big", signed=True)
                    unit = parse_ext_unit(extension.read(position, size)) if size >= EXT_HEAD_SIZE else None
                    record = commit_log.parse_record(log.read(at, int(units["size"][row])))
                except FormatError:
                    continue
                if unit is not None and record.physical_offset == at:
                    yield file.base // queue.unit.size + first + row, unit, record
    except StoreError:
        return


class _Window:
    """Reads files by offset in cached blocks, for offsets that mostly ascend."""

    def __init__(self, files: Sequence[MappedFile]) -> None:
        self._files = files
        self._start = 0
        self._data = b""

    def read(self, offset: int, size: int) -> bytes:
        """Returns bytes of one file; fewer at its end."""
        if not self._start <= offset <= offset + size <= self._start + len(self._data):
            file = next((file for file in self._files if file.base <= offset < file.end), None)
            if file is None:
                return b""
            with ReadFile(file.path) as opened:
                self._start, self._data = offset, opened.read(offset - file.base, max(size, _WINDOW))
        return self._data[offset - self._start : offset - self._start + size]
