"""What a broker's store must hold after a replay was sent to it."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import mqtool
from mqtool.store import Message
from tests.support import lake

OF_A_BROKER = {"MSG_REGION", "TRACE_ON", "CLUSTER", "__CRC32#", "INNER_MULTI_QUEUE_OFFSET"}
"""Properties that each broker sets anew."""

WAITED = {
    "DELAY",
    "TIMER_DELAY_SEC",
    "TIMER_DELAY_MS",
    "TIMER_DELIVER_MS",
    "TIMER_OUT_MS",
    "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES",
}

Queues = dict[tuple[str, int], list[tuple[Any, ...]]]


def expected_queues(name: str) -> Queues:
    """What the real broker gave to consumers of a fixture, by queue and in its order, as a replay is to keep it."""
    found: Queues = defaultdict(list)
    for row in lake.expected_rows(name, every_class=False, broker="b"):
        gone = OF_A_BROKER | {"TRAN_MSG"} | (WAITED if "REAL_TOPIC" in row["properties"] else set())
        if row["batch_index"] is not None:
            gone |= {"INNER_NUM", "INNER_BASE"}
        found[row["topic"], row["queue_id"]].append(_kept(row["properties"], gone, row["flag"], row["body"]))
    return dict(found)


def queues_of(root: Path) -> Queues:
    """What lies in the queues of a store, in the same form."""
    found: Queues = defaultdict(list)
    with mqtool.open(root) as store:
        for one in store.messages():
            assert isinstance(one, Message)
            found[one.topic, one.queue_id].append(_kept(one.properties, OF_A_BROKER, one.flag, one.body))
    return dict(found)


def _kept(properties: dict[str, str], gone: set[str], flag: int, body: bytes) -> tuple[Any, ...]:
    return tuple(sorted(pair for pair in properties.items() if pair[0] not in gone)), flag, body
