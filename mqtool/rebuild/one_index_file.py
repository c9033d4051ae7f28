"""Rebuilds a single index file; where it begins follows from the file before it."""

from pathlib import Path

import numpy as np

from mqtool.errors import UsageError
from mqtool.formats import file_names, index_file
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.rebuild.dispatch_batch import BatchBuilder, DispatchBatch, RebuildScope
from mqtool.rebuild.files import OutputFiles
from mqtool.rebuild.index_writer import IndexWriter
from mqtool.rebuild.job import check
from mqtool.rebuild.parts import parts_of, walk_part
from mqtool.rebuild.result import Result
from mqtool.rebuild.settings import RebuildSettings
from mqtool.records.index_build import IndexFileBuilder
from mqtool.store.files import ReadFile
from mqtool.store.index.index_file import IndexFile
from mqtool.store.store import Store

_STEP = 1 << 16
"""Entries read at a time."""


def rebuild_index_file(
    store: Store, out: Path, settings: RebuildSettings, name: str, on_progress: OnProgress = ignore
) -> Result:
    """Rebuilds one index file under its name.

    Args:
        store: opened; only read.
        out: new or empty directory; receives `index/NAME`.
        settings: of the broker.
        name: of the file. It need not exist; the name determines its position among the others.
        on_progress: called with bytes of the log.

    Raises:
        UsageError: the name is not a valid index file name; or the file before it is not full, so that the beginning
            of this one is unknown and the whole index must be rebuilt.
    """
    if not file_names.is_index_file_name(name):
        raise UsageError(f"{name!r}: expected the 17 digits of an index file's name")
    check(store, out, resume=False)
    earlier = [file for file in store.disk_index_files() if file.path.name < name]
    builder, start, skip = _beginning(earlier, settings)
    scope = RebuildScope(queues=False, start=start)
    result, total = Result(index_files=[name]), store.commit_log.bytes_in_use
    with OutputFiles(out) as output:
        writer = IndexWriter(output, settings.index_slots, settings.index_entries)
        writer.only(name, builder)
        batch_builder = BatchBuilder(settings.rules, scope)
        batches = (
            b for part in parts_of(store.commit_log, scope, cut=False) for b in walk_part(part, batch_builder, scope)
        )
        for batch in batches:
            skip = _add(writer, batch, start, skip, result)
            on_progress(batch.end - store.commit_log.min_offset, total)
            if writer.is_full:
                break
        writer.finish()
    return result


def _beginning(earlier: list[IndexFile], settings: RebuildSettings) -> tuple[IndexFileBuilder, int | None, int]:
    """Returns the empty file, its first record, and how many of its keys are in earlier files (oldest first)."""
    if not earlier:
        return IndexFileBuilder(settings.index_slots, settings.index_entries), None, 0
    before = earlier[-1]
    head = before.header
    if before.size != index_file.file_size(settings.index_slots, settings.index_entries) or (
        before.entry_count != settings.index_entries - 1
    ):
        raise UsageError(f"{before.path}: expected a full file before the one to be made; rebuild the whole index")
    builder = IndexFileBuilder(settings.index_slots, settings.index_entries, head)
    return builder, head.end_physical_offset, _keys_before(earlier, head.end_physical_offset, settings)


def _keys_before(earlier: list[IndexFile], physical_offset: int, settings: RebuildSettings) -> int:
    """Returns how many keys of a record end the last of some full files, and those before it that have no others."""
    total = 0
    for file in reversed(earlier):
        count = _trailing(file, physical_offset, settings)
        total += count
        if count < settings.index_entries - 1:
            break
    return total


def _trailing(file_before: IndexFile, physical_offset: int, settings: RebuildSettings) -> int:
    """Returns how many of a full file's last entries belong to a record."""
    total, end = 0, settings.index_entries
    with ReadFile(file_before.path) as file:
        while end > 1:
            first = max(1, end - _STEP)
            at = index_file.entry_position(first, settings.index_slots)
            data = file.read(at, (end - first) * index_file.ENTRY_SIZE)
            entries = np.frombuffer(data, index_file.ENTRY.dtype)
            others = np.flatnonzero(entries["physical_offset"] != physical_offset)
            if len(others):
                return total + len(entries) - 1 - int(others[-1])
            total, end = total + len(entries), first
    return total


def _add(writer: IndexWriter, batch: DispatchBatch, start: int | None, skip: int, result: Result) -> int:
    result.add_read(batch)
    if batch.keys is None:
        return skip
    keys = batch.keys
    skipped = int((keys.physical_offset[:skip] == start).sum()) if skip else 0
    keys = keys.select(slice(skipped, None))
    result.keys += writer.fill(keys)
    return skip - skipped if batch.records == 0 else 0
