"""Detects messages that a store already contains, so that a repeated command does not store them twice unnoticed."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from mqtool.engine.start.detect import is_new
from mqtool.engine.write.hooks import OutgoingMessage
from mqtool.errors import RefusedError
from mqtool.formats import properties
from mqtool.ingest.bulk_ingest import HasMessage, take
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.index.index_file import query_message
from mqtool.store.store import Store, open_store

_T = TypeVar("_T", bound=HasMessage)

SAMPLE = 1024
"""Maximum messages whose unique keys are looked up before anything is written."""
_MARK = properties.mark(properties.UNIQUE_KEY)


def refuse_duplicates(root: Path, config: BrokerConfig, messages: Iterable[OutgoingMessage | None]) -> None:
    """Refuses an input whose first messages are already in the store.

    A message is recognised by its unique key (UNIQ_KEY, which every client sets), looked up in the store's index
    within microseconds. Messages without a unique key are not recognised.

    Args:
        root: of the store, which may not exist yet.
        config: to read the store with; see `config_for_reading`.
        messages: the input; the first `SAMPLE` are looked up. None for a row that is not a valid message.

    Raises:
        RefusedError: a message is already stored.
    """
    if is_new(root):
        return
    with open_store(root, config) as store:
        for number, message in enumerate(islice(messages, SAMPLE), 1):
            key = None if message is None else _unique_key(message)
            if message is None or not key:
                continue
            place = _place(store, message.topic, key)
            if place is not None:
                raise RefusedError(
                    "duplicate",
                    f"message {number} of the input (unique key {key}) is already stored at physical offset {place}; "
                    "nothing was written. Use --duplicates append to store the messages once more",
                    root,
                )


def peeked(items: Iterable[_T]) -> tuple[list[_T], Iterator[_T]]:
    """Returns the first items, at most `SAMPLE` and as many as `take` returns, and an iterator over all of them."""
    iterator = iter(items)
    head = take(iterator, SAMPLE)
    return head, chain(head, iterator)


def _unique_key(message: OutgoingMessage) -> str | None:
    if _MARK not in message.properties:
        return None
    return properties.decode(message.properties).get(properties.UNIQUE_KEY)


def _place(store: Store, topic: str, key: str) -> int | None:
    """Returns the physical offset of the message with a unique key; None if the index finds none."""
    messages = query_message(store.commit_log, store.index_files(), topic, key)
    return next(
        (message.physical_offset for message in messages if message.unique_key == key and message.topic == topic), None
    )
