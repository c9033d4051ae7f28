"""Runs the builder of each change and merges the results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mqtool.errors import UsageError
from mqtool.repair import (
    changes,
    configuration,
    derived,
    offsets,
    purge,
    recovering,
    redaction,
    timer,
    trimming,
    truncation,
)
from mqtool.repair.changes import Change
from mqtool.repair.staged_files import Builder, StagedFiles, check_layout
from mqtool.store.store import Store

_BUILDERS: dict[type[Any], Builder] = {
    changes.RebuildQueues: derived.rebuild_queues,
    changes.RebuildIndex: derived.rebuild_index,
    changes.RebuildMetadata: configuration.rebuild_metadata,
    changes.RebuildTimer: timer.rebuild_timer,
    changes.Undelete: configuration.undelete,
    changes.Truncate: truncation.truncate,
    changes.Redact: redaction.redact,
    changes.Trim: trimming.trim,
    changes.Purge: purge.purge,
    changes.SetAside: trimming.set_aside,
    changes.RenameSegments: trimming.rename_segments,
    changes.Pad: trimming.pad,
    changes.MoveOffsets: offsets.move_offsets,
    changes.Recover: recovering.recover,
}


def build(store: Store, requested: Sequence[Change], out: Path) -> StagedFiles:
    """Builds the result of changes in an empty directory.

    Args:
        store: only read.
        requested: at least one change.
        out: empty directory; on the store's file system if the files are to be moved into the store.

    Raises:
        UsageError: a change does not apply to this store.
        UnsupportedFormatError: the kind of store is not supported.
        StoreError: a file cannot be read or written.
    """
    if any(not isinstance(change, changes.MoveOffsets) for change in requested):
        check_layout(store)
    if len(requested) > 1 and any(isinstance(change, changes.Purge) for change in requested):
        raise UsageError("a purge moves every record of the log: apply it by itself")
    staged = StagedFiles(store.path)
    for number, change in enumerate(requested):
        own = out / str(number)
        own.mkdir()
        _BUILDERS[type(change)](store, change, own, staged)
    for name in (*staged.files, *staged.removed):
        staged.reads.pop(name, None)
    return staged
