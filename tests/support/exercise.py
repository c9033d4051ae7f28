"""Everything that can be asked of a store, asked: for tests that only want to know that it answers or says no."""

from functools import partial
from pathlib import Path
from typing import Any

import mqtool
from mqtool.errors import MqtoolError
from mqtool.records.damage import Damage
from mqtool.store import Message
from mqtool.store.describe import describe, oddities
from mqtool.store.log.json_lines import json_lines

Answers = dict[str, Any]

_OFFSETS = (-1, 0, 1, 30, 1 << 40)
_TIMES = (0, 1_700_000_000_123, 1 << 62)


def ask_everything(root: Path, config: dict[str, str] | None = None) -> Answers:
    """What a store answers, or the error of ours with which it refuses; any other exception passes.

    Returns:
        By question: the answer, or the `MqtoolError`. "open" alone if it cannot be opened.
    """
    try:
        store = mqtool.open(root, config)
    except MqtoolError as error:
        return {"open": error}
    with store:
        return {name: _asked(question) for name, question in _questions(store).items()}


def _asked(question: Any) -> Any:
    try:
        return question()
    except MqtoolError as error:
        return error


def _questions(store: "mqtool.Store") -> dict[str, Any]:
    topics = sorted({queue.topic for queue in store.disk_queues()})[:3] or ["Topic"]
    return {
        "bounds": lambda: (store.commit_log.min_offset, store.commit_log.max_offset, store.commit_log.tail),
        "messages": lambda: _offsets(store),
        "unchecked": lambda: [str(item) for item in store.messages(check_crc=False)][:1],
        "arrow": lambda: store.to_arrow().num_rows,
        "lines": lambda: [getattr(item, "count", 0) for item in json_lines(store)],
        "queues": lambda: [
            (q.topic, q.queue_id, q.min_offset, q.max_offset, q.max_physical_offset, len(q.units()))
            for q in store.queues()
        ],
        "index": lambda: [
            (file.slot_count, file.max_entries, len(file.entries), len(file.slots)) for file in store.index_files()
        ],
        "plain": lambda: (store.clean_stop, store.checkpoint, store.metadata.problems, store.version, store.lags()),
        "describe": lambda: describe(store),
        "oddities": lambda: oddities(store),
        "message at": lambda: [_asked(partial(store.message_at, at)) for at in (0, 1, 4096, 1 << 62, -1)],
        "gets": lambda: [_asked(partial(store.get_message, topic, 0, at)) for topic in topics for at in _OFFSETS],
        "tagged": lambda: [_asked(partial(store.get_message, topic, 0, 0, tags="a || b")) for topic in topics],
        "queries": lambda: [_asked(partial(store.query_message, topic, "k0")) for topic in topics],
        "times": lambda: [
            _asked(partial(store.offset_in_queue_by_time, topic, 0, time, boundary, version=version))
            for topic in topics
            for time in _TIMES
            for version in ("4.9", "5.5")
            for boundary in ("LOWER", "UPPER")
        ],
        "selected": lambda: [type(item) for item in store.messages(topics=["T*"], tags=["a"], grep="x", limit=5)],
    }


def _offsets(store: "mqtool.Store") -> tuple[list[int], list[Damage]]:
    items = list(store.messages())
    return (
        [item.physical_offset for item in items if isinstance(item, Message)],
        [item for item in items if isinstance(item, Damage)],
    )
