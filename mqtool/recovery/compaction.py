"""Compacted topics at a start: a broker serves them from their own logs only.

Dispatch appends to these logs, and nothing fills them with messages that were dispatched before. Files that do not fit
each other keep the broker from starting; a log with a file of another length is left out. Source: CompactionStore.load,
CompactionLog.TopicPartitionLog, CompactionService.putRequest, DefaultMessageStore.getMessage (5.5.0).
"""

from pathlib import Path

import numpy as np
from msgspec.structs import replace

from mqtool.formats import file_names
from mqtool.formats.topics import TopicQueue
from mqtool.recovery.action_log import StartFailed, load_fails
from mqtool.recovery.mapped_files import LENGTH_NOT_MATCHED, Segments, list_entries
from mqtool.recovery.reading import NOT_COMPACTED, QueueReading
from mqtool.recovery.state import StoreState
from mqtool.store.layout import queue_directories
from mqtool.store.queues.consume_queue import last_queue_offset


def load_compaction(state: StoreState) -> None:
    """Loads the compacted logs and notes the ends of those that are served.

    Raises:
        StartFailed: a file is not named by a number, or log and queue do not have the same files.
    """
    sizes, root = state.settings.compaction_sizes, state.settings.root
    if sizes is None:
        return
    for topic, queue_id, log in queue_directories(root / file_names.COMPACTION_LOG):
        queue = root / file_names.COMPACTION_CONSUME_QUEUE / topic / str(queue_id)
        if not queue.is_dir():
            continue
        try:
            names = [_load(state, directory, size) for directory, size in zip((log, queue), sizes, strict=True)]
        except StartFailed as failure:
            if LENGTH_NOT_MATCHED not in failure.refusal:
                raise load_fails(f"load compactionLog {topic}:{queue_id} exception: {failure.refusal}") from failure
            state.actions.log_accepted(f"compacted topic {topic}/{queue_id} is not served: {failure.refusal}")
            continue
        for part, only in (("log", names[0] - names[1]), ("consumeQueue", names[1] - names[0])):
            if only:
                other = "consumeQueue" if part == "log" else "log"
                reason = f"{part} file mismatch with {other} file {min(only)}"
                raise load_fails(f"load compactionLog {topic}:{queue_id} exception: {reason}")
        state.compacted_ends[topic, queue_id] = last_queue_offset(root, topic, queue_id)


def _load(state: StoreState, directory: Path, size: int) -> set[str]:
    files = Segments(directory, size, state.actions)
    files.load(list_entries(directory) or [], release=state.settings.release)
    return {file.path.name for file in files.files}


def without_uncompacted(state: StoreState, key: TopicQueue, reading: QueueReading) -> QueueReading:
    """Returns what consumers get of a queue: of a compacted one no message after the end of its own log.

    Messages before that end count as delivered: compaction removes them on purpose.
    """
    if key[0] not in state.compacted_topics:
        return reading
    dispatched = state.reput_from if state.clean_stop else (state.scanned.from_offset or 0)
    last = state.compacted_ends.get(key, -1)
    missing = (reading.offsets > last) & (reading.physical >= 0) & (reading.physical < dispatched)
    return replace(reading, states=np.where(missing, np.int8(NOT_COMPACTED), reading.states))
