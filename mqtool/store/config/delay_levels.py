"""Infers the broker's messageDelayLevel from the queues of delayed messages.

No file of a store states the delays. Instead of a tag's hash, a unit of SCHEDULE_TOPIC_XXXX contains the time at
which the
message is due: the record's store time plus the delay of the queue's level (CommitLog.checkMessageAndReturnSize, 4.9.7
and 5.5.0).
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from mqtool.errors import StoreError
from mqtool.formats.service_records import DELAY_LEVELS, parse_delay_levels
from mqtool.formats.topics import SCHEDULE_TOPIC
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.queues.consume_queue import Queue, has_record

KEY = "messageDelayLevel"
_STEP_MS = 1000
"""Delays are whole seconds: s is the smallest unit that the key has."""
_LONGEST_MS = 3650 * 86_400_000
_SAMPLE = 16
"""Units of each queue that are compared with their records."""
MAX_LEVELS = 1000
"""Queue ids of SCHEDULE_TOPIC_XXXX that a level is inferred for."""


def is_possible_delay(delay: int) -> bool:
    """Whether messageDelayLevel can state a delay, in ms; one flipped bit never turns a possible delay into another."""
    return 0 <= delay <= _LONGEST_MS and delay % _STEP_MS == 0


def delay_levels(config: BrokerConfig, queues: Sequence[Queue], log: CommitLog) -> tuple[int, ...]:
    """Returns the delay of each level in ms, level 1 first.

    Args:
        config: its messageDelayLevel is decisive. Without it, each level has the delay that most units of its queue
            show.
        queues: as they are on disk.
        log: contains the records.
    """
    configured = config.text(KEY)
    levels = list(parse_delay_levels(configured or DELAY_LEVELS))
    if configured:
        return tuple(levels)
    for queue in queues:
        level = queue.queue_id + 1
        if queue.topic != SCHEDULE_TOPIC or queue.is_batch or not 1 <= level <= MAX_LEVELS:
            continue
        seen = Counter(delay for delay in _delays(queue, log) if is_possible_delay(delay))
        if seen:
            levels.extend(levels[-1:] * (level - len(levels)))
            levels[level - 1] = seen.most_common(1)[0][0]
    return tuple(levels)


def _delays(queue: Queue, log: CommitLog) -> Iterator[int]:
    """Yields the delays shown by units of a queue whose records can be read."""
    for number in sorted({0, len(queue.files) - 1} if queue.files else ()):
        try:
            units = queue.units_of(number)
            rows = np.flatnonzero(has_record(units) & (units["physical_offset"] >= log.min_offset))
            sample = rows[np.linspace(0, len(rows) - 1, _SAMPLE).astype(int)] if len(rows) else rows
            for row in sorted(set(sample.tolist())):  # np.unique would load the masked arrays of numpy
                record = log.record(int(units["physical_offset"][row]), int(units["size"][row]))
                yield int(units["tags_code"][row]) - record.store_timestamp
        except StoreError:
            continue
