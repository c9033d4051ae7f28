"""What our programs do with the official gRPC clients at `mqtool serve`, and what is to be seen.

The table of docs/serve.md makes the same statements: `tests/house/test_clients_table.py` compares the two.
"""

from collections.abc import Mapping
from typing import Any

TOPICS = {
    "Normal": ("NORMAL", 2),
    "Fifo": ("FIFO", 2),
    "Delay": ("DELAY", 2),
    "Transactions": ("TRANSACTION", 2),
    "Checks": ("TRANSACTION", 2),
    "Lite": ("LITE", 1),
    "Priority": ("PRIORITY", 4),
    "Recall": ("DELAY", 2),
    "Redelivery": ("NORMAL", 1),
    "Push": ("NORMAL", 2),
    "Filters": ("NORMAL", 2),
}
"""Topics of the programs: message type and number of queues."""
IN_ORDER = "GFifo"
LITE_GROUP = "GLite"

ROWS: Mapping[str, tuple[str, ...]] = {
    "normal, ordered and delayed messages": ("normal", "fifo", "delay"),
    "transactions": ("transactions",),
    "check-backs of transactions": ("checks",),
    "lite topics": ("lite",),
    "priority": ("priority",),
    "recall of delayed messages": ("recall",),
    "simple consumer, redelivery": ("redelivery",),
    "push consumer, retries": ("push",),
    "tag and SQL92 filters": ("filters",),
    "users and passwords (ACL 2.0)": ("credentials",),
}
"""Rows of the table, and the features that each is about."""
_ALL = ("normal", "fifo", "delay", "transactions", "checks", "redelivery", "push", "filters", "credentials")
CELLS: Mapping[str, tuple[str, ...]] = {
    "Java": (*_ALL, "lite", "priority", "recall"),
    "Python": (*_ALL, "priority", "recall"),
    "Node.js": (*_ALL, "lite", "priority", "recall"),
    "Go": _ALL,
}
"""Features that are tested with each client."""

EXPECTED: Mapping[str, Any] = {
    "transactions": ["kept"],
    "checks": {"got": ["orphan"], "asked": ["orphan"]},
    "lite": [["first", "to first"], ["second", "to second"]],
    "priority": [3],
    "recall": ["kept"],
    "redelivery": [1, 2],
    "push": sorted([[f"m{number}", 1] for number in range(10)] + [["m3", 2]]),
    "filters": {"tags": ["a", "c"], "sql": ["b", "c"]},
}
"""What a program sees; `check_seen` knows the others."""
_COUNTS = {"normal": 10, "fifo": 10, "delay": 1}
_LATEST_S = 15.0


def check_seen(feature: str, seen: Any) -> None:
    """Asserts that a client saw of a feature what it has to see."""
    if feature not in _COUNTS:
        assert seen == EXPECTED[feature]
        return
    sent, got = seen["sent"], seen["got"]
    wanted = [[body, message_id, "t", ["k" + body[1:]], "ü"] for body, message_id in sent]
    assert len(sent) == _COUNTS[feature]
    assert got == wanted if feature == "fifo" else sorted(got) == sorted(wanted)
    if feature == "delay":  # to the second
        assert -1 <= seen["late_s"] < _LATEST_S
