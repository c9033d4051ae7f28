"""Multi-dispatch: one record in several queues, most of them light message queues (LMQ), `%LMQ%name` queue 0.

Source: ConsumeQueue.multiDispatchLmqQueue, MultiDispatchUtils (5.5.0), DefaultMessageStore.checkMultiDispatchQueue
(4.9.7).
"""

from typing import NamedTuple

from mqtool.errors import FormatError
from mqtool.formats import java
from mqtool.formats.topics import RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX, is_lmq
from mqtool.records.dispatched import DispatchRules

_NEVER = (RETRY_PREFIX, SYSTEM_PREFIX)
_SPLITTER = ","
_PATH_SEPARATOR = "/"


class FurtherQueues(NamedTuple):
    """The further queues that a record names."""

    queues: list[tuple[str, int]]  # name and queue offset of each, up to the first unreadable one
    problem: str = ""  # why others are missing, in words; "" if none are
    # Queue offset that Java cannot parse; None if there is none. At such a record the broker's dispatch stops forever;
    # if the numbers of names and offsets differ, it drops all of them.
    not_a_number: str | None = None


_NONE = FurtherQueues([])


def applies(topic: str, rules: DispatchRules) -> bool:
    """Whether records of a topic are dispatched to further queues under these rules."""
    is_excluded = topic == SCHEDULE_TOPIC or topic.startswith(_NEVER)
    return rules.multi_dispatch and (rules.lmq_everywhere or not is_excluded)


def further_queues(topic: str, queues: str, offsets: str, rules: DispatchRules) -> FurtherQueues:
    """Returns the further queues of a record.

    Args:
        topic: of the record.
        queues, offsets: its INNER_MULTI_DISPATCH and INNER_MULTI_QUEUE_OFFSET, "" if missing.
        rules: of the store.
    """
    if not queues.strip() or not offsets.strip() or not applies(topic, rules):
        return _NONE
    names, places = (java.split_drop_trailing(text, _SPLITTER) for text in (queues, offsets))
    if len(names) != len(places):
        problem = f"{len(names)} queues in INNER_MULTI_DISPATCH, {len(places)} in INNER_MULTI_QUEUE_OFFSET"
        return FurtherQueues([], problem)
    further: list[tuple[str, int]] = []
    for name, place in zip(names, places, strict=True):
        if rules.drops_paths and _PATH_SEPARATOR in name:
            continue
        try:
            further.append((name, java.parse_long(place)))
        except FormatError as error:
            return FurtherQueues(further, f"INNER_MULTI_QUEUE_OFFSET: {error}", place)
    return FurtherQueues(further)


def queue_id_of(name: str, own: int, rules: DispatchRules) -> int:
    """Returns the queue id of a record in a further queue; a light queue has only queue 0.

    Args:
        name: of the further queue.
        own: the record's queue id.
        rules: of the store.
    """
    return 0 if rules.light_queues and is_lmq(name) else own
