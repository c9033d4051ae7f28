"""The rules of dispatch and recovery that a store's broker followed, from its release, configuration and files.

No file of a store states messageDelayLevel. Instead of a tag's hash, a unit of SCHEDULE_TOPIC_XXXX contains the time at
which the message is due: the record's store time plus the delay of the queue's level. Source: MessageStoreConfig,
CommitLog.checkMessageAndReturnSize (4.9.7, 5.5.0).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial

import numpy as np

from mqtool.errors import StoreError
from mqtool.formats.config_files import batch_topics
from mqtool.formats.release import Release
from mqtool.formats.service_records import parse_delay_levels
from mqtool.formats.topics import SCHEDULE_TOPIC, is_lmq
from mqtool.records.dispatch import DispatchRules, rules_for
from mqtool.records.record_check import DEFAULT_HEAP, DEFAULT_RECOVER_MAX, RecoveryRules
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.broker_keys import default_of
from mqtool.store.config.metadata import Metadata
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.queues.consume_queue import Queue, has_record

DELAY_LEVELS_KEY = "messageDelayLevel"
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


def delays_of(configured: str | None, release: Release) -> tuple[int, ...]:
    """Returns the delay of each level in ms, level 1 first; without messageDelayLevel, those of the release."""
    return parse_delay_levels(configured or default_of(DELAY_LEVELS_KEY, release) or "")


def delay_levels_of(config: BrokerConfig, release: Release, queues: Sequence[Queue], log: CommitLog) -> tuple[int, ...]:
    """Returns `delays_of`; without messageDelayLevel, a level has the delay that most units of its queue show."""
    configured = config.text(DELAY_LEVELS_KEY)
    levels = list(delays_of(configured, release))
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


def recovery_rules(config: BrokerConfig, release: Release, heap: int | None = None) -> RecoveryRules:
    """Returns the rules of a release under a configuration; 4.9 ignores keys that it does not know.

    `heap` is in bytes; None is the default of the start script. Raises UsageError for a wrong messageDelayLevel.
    """
    flag = partial(config.flag_or_default, release=release)
    recover_max = config.integer("commitLogRecoverMaxNum")
    index = flag("messageIndexEnable")
    return RecoveryRules(
        release=release,
        check_crc=flag("checkCRCOnRecover"),
        force_property_crc=flag("forceVerifyPropCRC"),
        check_offset_on_recover=flag("checkCommitLogOffsetOnRecover"),
        index_enabled=index and flag("indexFileWriteEnable", default=True),
        index_safe=index and flag("messageIndexSafe"),
        recheck_reput=flag("recheckReputOffsetFromCq"),
        recover_max=recover_max if recover_max is not None and recover_max > 0 else DEFAULT_RECOVER_MAX,
        delay_levels_ms=delays_of(config.text(DELAY_LEVELS_KEY), release),
        heap_bytes=heap or DEFAULT_HEAP,
    )


def has_further_queues(config: BrokerConfig, topics: Collection[str]) -> bool:
    """Whether the further queues that records name (INNER_MULTI_DISPATCH) should have units.

    The records show it: only a broker with enableMultiDispatch adds the queue offsets in these. A broker that has it
    switched off serves these queues if there are some.
    """
    return config.flag("enableMultiDispatch") is not False or any(is_lmq(topic) for topic in topics)


def rules_of(
    release: tuple[int, ...],
    config: BrokerConfig,
    metadata: Metadata,
    delay_levels: tuple[int, ...],
    topics: Collection[str],
    further_batch_topics: "set[str] | frozenset[str]" = frozenset(),
) -> DispatchRules:
    """Returns the rules of dispatch; `delay_levels` are in ms."""
    return rules_for(
        release,
        multi_dispatch=has_further_queues(config, topics),
        delay_levels=delay_levels,
        batch_topics=batch_topics(metadata.topics) | further_batch_topics,
    )
