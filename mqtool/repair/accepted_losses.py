"""Puts on record what is lost already when a change is made, so that `verify` expects the gaps that stay."""

from pathlib import Path

from mqtool.formats import file_names
from mqtool.formats.topics import TopicQueue
from mqtool.repair.staged_files import StagedFiles
from mqtool.store.known_losses import LostOffsets, content, known_losses
from mqtool.store.store import Store
from mqtool.verify import verify
from mqtool.verify.losses import merged


def record_losses(store: Store, out: Path, staged: StagedFiles) -> None:
    """Adds the losses of a store to its record, as a file of the change: `undo` removes it with the others.

    Args:
        store: before the change; only read.
        out: directory for the new file.
        staged: takes it, unless nothing is lost.
    """
    lost: dict[TopicQueue, list[tuple[int, int]]] = {}
    losses = verify(store).losses.queues
    parts = [LostOffsets(part.topic, part.queue_id, part.offsets) for part in losses]
    for part in (*parts, *known_losses(store.path).queues):
        lost.setdefault((part.topic, part.queue_id), []).extend(part.offsets)
    if losses:
        queues = [LostOffsets(*queue, merged(offsets)) for queue, offsets in sorted(lost.items())]
        (out / file_names.KNOWN_LOSSES).write_bytes(content(store.commit_log.max_offset, queues))
        staged.put(file_names.KNOWN_LOSSES, out / file_names.KNOWN_LOSSES)
        count = sum(part.messages for part in losses)
        staged.notes.append(f"{file_names.KNOWN_LOSSES}: {count} message(s) are lost already; verify will expect that")
