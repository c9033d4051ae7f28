"""Detects which release wrote a store last, from traces that only some releases leave."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from mqtool.errors import StoreError
from mqtool.formats import checkpoint as checkpoint_format
from mqtool.formats import file_names, java
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.commit_log import Record
from mqtool.formats.config_files import DataVersion
from mqtool.formats.release import MEASURED, V5_5, V5_5_1, Release, assumed_release
from mqtool.store.config.metadata import Metadata
from mqtool.store.files import read_file

_SINCE_5 = (
    file_names.ABORT_BACKUP,
    file_names.TIMER_WHEEL,
    f"{file_names.CONFIG}/{file_names.TIMER_CHECKPOINT}",
    file_names.BATCH_CONSUME_QUEUE,
    file_names.COMPACTION,
)

RecordAt = Callable[[int], Record | None]
"""Returns the record at a physical offset, None if there is none or it cannot be read."""


class Version(Struct, frozen=True):
    """A release line and the evidence for it."""

    # The oldest release that leaves what was found: "4.9", "5.1" … "5.5"; "5" for some 5.x, None if nothing shows it.
    line: str | None
    evidence: str  # in words
    # Evidence for the other of 4.x and 5.x, newest first; older files of a store that changed its release, or files of
    # another broker.
    contrary: tuple[str, ...] = ()
    is_before_5_5_1: bool = False  # a table was written after the newest record, in a form that 5.5.1 does not write

    @property
    def release(self) -> Release:
        """The known release whose rules are assumed for the store: 4.9 or 5.5."""
        return assumed_release(self.line)

    @property
    def releases(self) -> tuple[Release, ...]:
        """The known releases that may have written the store, oldest first."""
        if self.line is None:
            return tuple(MEASURED)
        oldest = tuple(map(int, self.line.split(".")))
        newest = V5_5 if self.is_before_5_5_1 else V5_5_1
        return tuple(release for release in MEASURED if release[0] == oldest[0] and oldest <= release <= newest)

    @property
    def words(self) -> str:
        """The releases that may have written the store, as far as the files prove it."""
        if self.line in (None, "4.9", "5"):
            return self.line or "an unknown release"
        if self.line == "5.5":
            return " or ".join(MEASURED[release] for release in self.releases)
        return f"{self.line} or later"

    @property
    def assumption(self) -> str:
        """In words, why `release` is assumed for the store, and what speaks against it."""
        known = self.line is None or self.releases == (self.release,)
        words = f"assumed: {self.evidence}" if known else f"assumed for a store of {self.words}: {self.evidence}"
        if not self.contrary:
            return words
        more = len(self.contrary) - 1
        return f"{words}; against it: {self.contrary[0]}" + (f", and {more} more" if more else "")


class _Trace(Struct, frozen=True):
    line: str  # the oldest release that leaves it
    words: str
    is_before_5_5_1: bool = False  # and the newest is 5.5.0


def detect(
    root: Path, metadata: Metadata, checkpoint: Checkpoint | None, newest: Record | None, record_at: RecordAt
) -> Version:
    """Detects the release from the newest evidence.

    A release leaves the fields and files that it does not know: after a return from 5.5 to 4.9 the checkpoint keeps
    the sixth field for ever. So the newest evidence decides between 4.x and 5.x, and all evidence for the same of
    these decides which line it is.
    """
    current, older = _of_checkpoint(checkpoint, record_at)
    tables = list(_rewritten_by_every_run(metadata))
    families = Counter(trace.line[0] for _, trace in tables)
    tables.sort(key=lambda table: -families[table[1].line[0]])  # one may be of a setting that is not used any more
    stored = 0 if newest is None else newest.store_timestamp
    traces = [
        *(trace for written, trace in tables if written >= stored),
        *_of_newest_record(newest),
        *(trace for written, trace in tables if written < stored),
        *current,
        *_of_config(metadata),
        *_of_files(root),
        *older,
    ]
    if not traces:
        times = [getattr(checkpoint, name) for name in checkpoint_format.TIMES] if checkpoint else []
        if any(times) and checkpoint == Checkpoint(*times):
            return Version("4.9", "checkpoint has only the three fields of 4.x")
        return Version(None, "unknown from the store")
    newest_trace = traces[0]
    agreeing = [trace for trace in traces if trace.line[0] == newest_trace.line[0]]
    exact = max(agreeing, key=lambda trace: trace.line)
    words = [newest_trace.words] if exact.line == newest_trace.line else [newest_trace.words, exact.words]
    contrary = tuple(trace.words for trace in traces if trace.line[0] != newest_trace.line[0])
    is_old = any(trace.is_before_5_5_1 for written, trace in tables if written >= stored)
    return Version(exact.line, "; ".join(words), contrary, is_old)


def _rewritten_by_every_run(metadata: Metadata) -> Iterator[tuple[int, _Trace]]:
    """Yields the times in ms at which tables were written, and what they show.

    A broker writes these every few seconds, changed or not. A copy of a file may be of a later time, never of an
    earlier one. Source: BrokerController, ScheduleMessageService (4.9.7, 5.5.0).
    """
    tables = metadata.offset_tables
    for table in sorted(tables.tables, key=lambda table: table is not tables.read):
        if table.is_database:
            trace = _Trace("5.2", f"{table.name} is a database")
        elif table.offsets.pull_offset_table is not None:
            trace = _Trace("5.5", f"{table.name} has a pullOffsetTable", is_before_5_5_1=True)
        elif table.offsets.data_version is not None or table.offsets.offset_table:
            trace = _of_version(table.name, table.offsets.data_version)
        else:
            continue  # an empty table, which people write by hand too
        yield _written(table.path), trace
    delay = metadata.delay_file
    if delay is not None and (delay.data_version is not None or delay.offset_table):
        trace = _of_version(f"{file_names.CONFIG}/{file_names.DELAY_OFFSETS}", delay.data_version)
        yield _written(metadata.sources[file_names.DELAY_OFFSETS]), trace


def _written(path: Path) -> int:
    """Returns when a file was written, in ms; later than any record if that is unknown, as in object storage."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns // 1_000_000 or java.LONG_MAX
    return java.LONG_MAX


def _of_version(name: str, version: DataVersion | None) -> _Trace:
    has_state = version is not None and version.state_version is not None
    return _Trace("5" if has_state else "4.9", f"{name} has {'a' if has_state else 'no'} stateVersion")


def _of_newest_record(newest: Record | None) -> Iterator[_Trace]:
    if newest is not None and newest.properties and not newest.properties.endswith(b"\x02"):
        where = f"the properties of the newest record, at {newest.physical_offset}, do not end in 0x02"
        yield _Trace("4.9", f"{where} (4.9.1 to 4.9.8, 5.0 and 5.1.0 to 5.1.4)")


def _of_checkpoint(checkpoint: Checkpoint | None, record_at: RecordAt) -> tuple[list[_Trace], list[_Trace]]:
    """Returns what the fields after the third show: of the last flush, and of one before it, or of another log.

    A flush of 5.5 stores the place and the time of the same record (DefaultMessageStore.FlushConsumeQueueService,
    5.5.0); 4.9 stores a later time and leaves the place.
    """
    current: list[_Trace] = []
    older: list[_Trace] = []
    place = 0 if checkpoint is None else checkpoint.logics_physical_offset
    if checkpoint is not None and place:
        record = record_at(place)
        words = f"checkpoint has the sixth field, logicsPhysicalOffset {place}"
        if record is None:
            older.append(_Trace("5.5", f"{words}, where no record begins"))
        elif record.store_timestamp != checkpoint.logics_msg_timestamp:
            older.append(_Trace("5.5", f"{words}, which is not of the last flush of queues"))
        else:
            current.append(_Trace("5.5", words))
    if checkpoint is not None and checkpoint.confirm_physical_offset:
        words = f"checkpoint has the fifth field, confirmPhyOffset {checkpoint.confirm_physical_offset}"
        older.append(_Trace("5.1", words))
    return current, older


def _of_config(metadata: Metadata) -> Iterator[_Trace]:
    """Yields what tables show that a broker writes when they change."""
    tables = [table for table in (metadata.topics_file, metadata.groups_file) if table is not None]
    versions = [table.data_version for table in tables if table.data_version is not None]
    if any(version.state_version is not None for version in versions):
        yield _Trace("5", "configuration files carry a stateVersion")
    elif tables:
        yield _Trace("4.9", "configuration files carry no stateVersion")


def _of_files(root: Path) -> Iterator[_Trace]:
    if (root / file_names.ROCKSDB_STORE).is_dir():
        yield _Trace("5.4", f"{file_names.ROCKSDB_STORE}/ exists")
    for name in _SINCE_5:
        if _exists(root / name):
            yield _Trace("5", f"{name} exists")


def _exists(path: Path) -> bool:
    with contextlib.suppress(OSError):  # its directory may not be searched: then it proves nothing
        return path.exists()
    return False


def had_log(checkpoint: Checkpoint | None, *, has_derived_files: bool) -> bool:
    """Whether a store without a segment had a log: its checkpoint states a flush, or queues or index have files."""
    flushed = checkpoint is not None and (checkpoint.physic_msg_timestamp > 0 or checkpoint.logics_msg_timestamp > 0)
    return flushed or has_derived_files


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Returns the parsed checkpoint, None if it is missing or unreadable."""
    try:
        return checkpoint_format.parse(read_file(path))
    except StoreError:
        return None
