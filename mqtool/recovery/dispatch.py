"""Giving records to their queues and to the index, as recovery and reput do.

Source: DefaultMessageStore.doDispatch, CommitLogDispatcherBuildConsumeQueue, CommitLogDispatcherBuildIndex,
ConsumeQueue.multiDispatchLmqQueue, MultiDispatchUtils (4.9.7, 5.5.0).
"""

from pathlib import Path

import numpy as np

from mqtool.errors import FormatError
from mqtool.formats import java, properties
from mqtool.formats.topics import LMQ_PREFIX
from mqtool.records.multi_dispatch import may_name_queues
from mqtool.recovery.batch_queues import BatchQueue
from mqtool.recovery.ledger import load_fails
from mqtool.recovery.mapped_files import obstacle
from mqtool.recovery.queues import SimpleQueue
from mqtool.recovery.requests import Requests
from mqtool.recovery.state import LastQueued, StoreState


def dispatch(state: StoreState, requests: Requests) -> None:
    """Dispatches records in order.

    Raises:
        StartEnds: a record's list of queues cannot be parsed (while the store is loaded).
    """
    if not len(requests):
        return
    state.scanned.dispatched += len(requests)
    rows = np.flatnonzero(requests.queued)
    if len(rows):
        rows = _queue(state, requests, rows)
    if len(rows):
        last = int(rows[-1])
        newest = LastQueued(int(requests.store_timestamp[last]), int(requests.physical_offset[last]))
        state.last_queued = newest
    if state.settings.index_enabled:
        state.index.put(requests)
        if state.index.is_broken:
            state.is_writeable = False


def _queue(state: StoreState, requests: Requests, rows: np.ndarray) -> np.ndarray:
    """Puts records into their queues; returns those that got there."""
    refused = []
    for topic, queue_id, mine in requests.by_queue(rows):
        queue = state.queue(topic, queue_id)
        blocked = None if queue.files.files else obstacle(queue.files.directory)
        if blocked is not None:
            _refuse(state, queue, blocked)
            refused.append(mine)
        elif isinstance(queue, SimpleQueue):
            _put_simple(queue, requests, mine)
        else:
            _put_batch(queue, requests, mine)
    if state.settings.multi_dispatch:
        named = requests.has_property(properties.INNER_MULTI_DISPATCH)
        for row in rows[named[rows]].tolist():
            _multi_dispatch(state, requests, row)
    return np.setdiff1d(rows, np.concatenate(refused)) if refused else rows


def _refuse(state: StoreState, queue: SimpleQueue | BatchQueue, blocked: Path) -> None:
    """Notes that a queue gets no file: what lies in its directory's place is no directory."""
    name = blocked.relative_to(state.settings.root).as_posix()
    words = (
        f"queue {queue} gets no file, as {name} is no directory: its messages are in no queue, and the broker takes no "
        "more (30 tries of a second, then makeLogicsQueueError; ConsumeQueue.putMessagePositionInfoWrapper)"
    )
    if words not in state.ledger.accepted:
        state.ledger.accept(words)
    state.is_writeable = False


def _put_simple(queue: SimpleQueue, requests: Requests, rows: np.ndarray) -> None:
    ends = requests.physical_offset[rows] + requests.frames.sizes[rows]
    rows = rows[ends > queue.max_physical_offset]  # it only grows: the others would be dropped one by one
    if not len(rows):
        return
    columns = (
        requests.physical_offset[rows].tolist(),
        requests.frames.sizes[rows].tolist(),
        requests.tags_code[rows].tolist(),
        requests.queue_offset[rows].tolist(),
    )
    for physical, size, tags, offset in zip(*columns, strict=True):
        queue.put(physical, size, tags, offset)


def _put_batch(queue: BatchQueue, requests: Requests, rows: np.ndarray) -> None:
    for row in rows[requests.physical_offset[rows] > queue.max_physical_offset].tolist():
        unit = (int(requests.physical_offset[row]), int(requests.frames.sizes[row]), int(requests.tags_code[row]))
        queue.put((*unit, int(requests.store_timestamp[row])), *requests.batch(row))


def _multi_dispatch(state: StoreState, requests: Requests, row: int) -> None:
    """Gives a record to the further queues that it names, of the same number of units each."""
    numbers, topics = requests.topics
    topic = java.decode_utf8(topics[numbers[row]])
    if not may_name_queues(topic, everywhere=state.settings.release < (5, 5)):
        return
    names = requests.property_of(row, properties.INNER_MULTI_DISPATCH) or ""
    offsets = requests.property_of(row, properties.INNER_MULTI_QUEUE_OFFSET) or ""
    queues, places = java.split_drop_trailing(names, ","), java.split_drop_trailing(offsets, ",")
    if not names.strip() or not offsets.strip() or len(queues) != len(places):
        return
    for name, place in zip(queues, places, strict=True):
        if state.settings.release >= (5, 5) and "/" in name:
            continue
        try:
            offset = java.parse_long(place)
        except FormatError:
            raise load_fails(f'load exception java.lang.NumberFormatException: For input string: "{place}"') from None
        is_lmq = state.settings.lmq and name.startswith(LMQ_PREFIX)
        queue = state.queue(name, 0 if is_lmq else int(requests.queue_id[row]))
        if isinstance(queue, SimpleQueue):
            size, tags = int(requests.frames.sizes[row]), int(requests.tags_code[row])
            if queue.files.files or obstacle(queue.files.directory) is None:
                queue.put(int(requests.physical_offset[row]), size, tags, offset)
