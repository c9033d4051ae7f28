"""Multi-dispatch: one record in several queues, most of them light message queues (LMQ), `%LMQ%name` queue 0.

Source: ConsumeQueue.multiDispatchLmqQueue, MultiDispatchUtils (5.5.0), DefaultMessageStore.checkMultiDispatchQueue
(4.9.7).
"""

from mqtool.errors import FormatError
from mqtool.formats import java
from mqtool.formats.topics import RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX
from mqtool.records.dispatched import DispatchRules

_NEVER = (RETRY_PREFIX, SYSTEM_PREFIX)
_SPLITTER = ","


def applies(topic: str, rules: DispatchRules) -> bool:
    """Whether records of a topic are dispatched further under these rules."""
    return rules.multi_dispatch and may_name_queues(topic, everywhere=rules.lmq_everywhere)


def may_name_queues(topic: str, *, everywhere: bool) -> bool:
    """Whether records of a topic may name further queues.

    Args:
        topic: of the records.
        everywhere: as 4.9 has it, also in retry, system and schedule topics.
    """
    return everywhere or not (topic == SCHEDULE_TOPIC or topic.startswith(_NEVER))


def queues_of(queues: str, offsets: str) -> tuple[list[tuple[str, int]], str]:
    """Reads INNER_MULTI_DISPATCH and INNER_MULTI_QUEUE_OFFSET.

    Returns:
        Name and queue offset of each queue, up to the first that cannot be read, and what is wrong in words or "".
        (There the broker's dispatch stops for ever; where the counts differ it drops all of them.)
    """
    names, places = (java.split_drop_trailing(text, _SPLITTER) for text in (queues, offsets))
    if len(names) != len(places):
        return [], f"{len(names)} queues in INNER_MULTI_DISPATCH, {len(places)} in INNER_MULTI_QUEUE_OFFSET"
    found: list[tuple[str, int]] = []
    for name, place in zip(names, places, strict=True):
        try:
            found.append((name, java.parse_long(place)))
        except FormatError as error:
            return found, f"INNER_MULTI_QUEUE_OFFSET: {error}"
    return found, ""
