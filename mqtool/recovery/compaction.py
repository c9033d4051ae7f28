"""Compacted topics after a start: a broker serves them from their own log only.

Dispatch appends to that log, and nothing fills it with messages that were dispatched before. Source:
DefaultMessageStore.getMessage, CompactionService.putRequest, CompactionLog.asyncPutMessage (5.5.0).
"""

import numpy as np
from msgspec.structs import replace

from mqtool.formats.topics import TopicQueue
from mqtool.recovery.delivery import Delivery
from mqtool.recovery.reading import STATES, QueueReading
from mqtool.recovery.state import StoreState
from mqtool.store.compacted_queue import last_queue_offset

_NOT_COMPACTED = STATES.index(Delivery.NOT_COMPACTED)


def without_uncompacted(state: StoreState, key: TopicQueue, reading: QueueReading) -> QueueReading:
    """Returns what consumers get of a queue: of a compacted one no message after the end of its own log.

    Messages before that end count as delivered: compaction removes them on purpose.
    """
    if key[0] not in state.compacted:
        return reading
    dispatched = state.reput_from if state.clean_stop else (state.scanned.from_offset or 0)
    last = last_queue_offset(state.settings.root, *key)
    missing = (reading.offsets > last) & (reading.physical >= 0) & (reading.physical < dispatched)
    return replace(reading, states=np.where(missing, np.int8(_NOT_COMPACTED), reading.states))
