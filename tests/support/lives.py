"""What is expected of the scripted lives of tests/interop/java/Lives.java, and how they are judged."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from mqtool.formats.hosts import parse_offset_id
from mqtool.store import Store
from mqtool.story import MessageHistory, Step, StepKind, histories_of

GROUP, OTHER = "LivesGroup", "LivesOther"
STORED = (StepKind.SENT, StepKind.HALF, StepKind.DELAYED, StepKind.TIMED)
PROGRAMS = {"4.9.7": "Lives", "5.5.0": "LivesSince5"}
"""Class that gives messages their lives, by release: 4.9.7 has neither timers nor POP."""

_SINCE_4_9 = {
    "mappedFileSizeCommitLog": 262144,
    "mappedFileSizeConsumeQueue": 20000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "traceTopicEnable": True,
    "transactionTimeOut": 3000,
    "transactionCheckInterval": 4000,
    "transactionCheckMax": 2,
    "flushConsumerOffsetInterval": 500,
    "waitTimeMillsInSendQueue": 20000,
}
KEYS = {
    "4.9.7": _SINCE_4_9,
    "5.5.0": _SINCE_4_9
    | {"mappedFileSizeTimerLog": 10240, "recallMessageEnable": True, "transactionOpBatchInterval": 500},
}
"""Keys of the brokers, as in broker.conf of the fixtures."""

SCRIPTS = {
    "plain": {"sent": 1, "passed": 2},
    "unread": {"sent": 1, "waits": 2},
    "delay": {"delayed": 1, "delivered": 1, "passed": 1},
    "delaywait": {"delayed": 1, "waits": 1},
    "timer": {"timed": 1, "delivered": 1, "passed": 1},
    "timerwait": {"timed": 1, "waits": 1},
    "recall": {"timed": 1, "recalled": 1},
    "txcommit": {"half": 1, "committed": 1, "passed": 1},
    "txrollback": {"half": 1, "rolled-back": 1},
    "txchecked": {"half": 1, "checked": 1, "committed": 1, "passed": 1},
    "txgivenup": {"half": 1, "checked": 2, "given-up": 1},
    "txopen": {"half": 1, "checked": 2, "given-up": 1},
    "retry1": {"sent": 1, "sent-back": 1, "retry": 1, "passed": 2},
    "retry2": {"sent": 1, "sent-back": 2, "retry": 2, "passed": 3},
    "dead": {"sent": 1, "sent-back": 2, "retry": 2, "dead": 1, "passed": 3},
    "pop": {"sent": 1, "popped": 1, "acknowledged": 1, "passed": 1},
    "popretry": {"sent": 1, "popped": 2, "retry": 1, "acknowledged": 1, "passed": 2},
    "pophang": {"sent": 1, "popped": 1, "waits": 1, "passed": 1},
}
"""Steps of each kind of life, but for the clients' own reports."""

Row = Mapping[str, Any]
"""What a client saw: `life`, `event`, and more by event."""


def histories_by_key(store: Store, rows: Iterable[Row]) -> tuple[dict[str, MessageHistory], dict[str, list[Row]]]:
    """What `histories_of` finds of each life, and what the clients saw of it, by the key of the message."""
    events = defaultdict(list)
    for row in rows:
        events[row["life"]].append(row)
    lives = {}
    for name in events:
        found, notes = histories_of(store, name)
        assert len(found) == 1, name
        assert notes == found[0].notes == [], name
        lives[name] = found[0]
    return lives, dict(events)


def judge(lives: Mapping[str, MessageHistory], events: Mapping[str, list[Row]]) -> tuple[int, list[str], list[str]]:
    """How many steps the scripts have, those that were not found, and those that were found and did not happen.

    A step that a client saw counts as found only if it is at the record that the client saw, and a group that got a
    message only if a client of it did.
    """
    expected, missing, invented = 0, [], []
    for name, life in lives.items():
        script = Counter(SCRIPTS[name.partition("-")[0]])
        found = Counter(step.kind.value for step in life.steps if step.kind is not StepKind.TRACED)
        expected += script.total()
        missing += [f"{name}: {kind}" for kind in (script - found).elements()]
        invented += [f"{name}: {kind}" for kind in (found - script).elements()]
        missing += [f"{name}: {row}" for row in events[name] if not any(fits(row, step) for step in life.steps)]
        seen = {(row["group"], row["offset"]) for row in events[name] if row["event"] == "delivered"}
        passed = [step for step in life.steps if step.kind is StepKind.PASSED]
        invented += [f"{name}: {step}" for step in passed if (step.group, step.physical_offset) not in seen]
    return expected, missing, invented


def fits(row: Row, step: Step) -> bool:
    """Whether a step is the one that a client saw."""
    if row["event"] == "sent" and row["offsetMsgId"] == "null":  # of a half message
        return step.kind is StepKind.HALF and step.queue_offset == row["queueOffset"]
    if row["event"] == "sent":
        return step.kind in STORED and step.physical_offset == parse_offset_id(row["offsetMsgId"]).physical_offset
    if row["event"] == "recalled":
        return step.kind is StepKind.RECALLED
    if row["event"] == "checked":
        return step.kind is StepKind.CHECKED and step.physical_offset == row["offset"]
    is_pop = row["group"] not in (GROUP, OTHER)
    kind = StepKind.POPPED if is_pop else StepKind.PASSED
    seen = (step.group, step.physical_offset, step.queue_offset, step.tries)
    return step.kind is kind and seen == (row["group"], row["offset"], row["queueOffset"], row["times"])
