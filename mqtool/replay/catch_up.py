"""Finds the messages that an interrupted run has already stored in the target's log.

A run stores messages in the source's order and saves its position at intervals. Messages that it stored after the last
save are in the log after the saved physical offset, in order, possibly among messages of other writers.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from mqtool.engine.statuses import PutStatus
from mqtool.engine.write.hooks import OutgoingMessage
from mqtool.formats import properties
from mqtool.ingest import bulk_ingest
from mqtool.ingest.bulk_ingest import Ack, PutValidator
from mqtool.ingest.row_parser import Row
from mqtool.records.damage import Damage
from mqtool.replay.originals import Original
from mqtool.store import Message, open_store
from mqtool.store.config.broker_config import BrokerConfig

Answered = tuple[Original, Ack]


def already_stored(
    target: Path, config: BrokerConfig, since: int, originals: Iterator[Original], validator: PutValidator
) -> tuple[list[Answered], Iterator[Original]]:
    """Returns the messages that are already in the target's log, with their answers, and an iterator over all others.

    Args:
        target: root of the target store.
        config: to read it with; see `config_for_reading`.
        since: physical offset at which to start the search; the saved state covers the log up to it.
        originals: the messages after the saved position, in the source's order.
        validator: checks messages by the rules of the target store.
    """
    done: list[Answered] = []
    pending: list[Answered] = []
    with open_store(target, config) as store:
        messages = store.messages(start=since)
        for original in originals:
            message = validator.prepared(original.message) if original.message is not None else None
            if not isinstance(message, OutgoingMessage):
                pending.append((original, ack_of(original, validator)))
                continue
            stored = next(
                (
                    candidate
                    for candidate in messages
                    if not isinstance(candidate, Damage) and _matches(candidate, message)
                ),
                None,
            )
            if stored is None:
                return done, chain((candidate for candidate, _ in pending), [original], originals)
            done += pending
            done.append((original, _ack(original, stored)))
            pending = []
    return done, chain((candidate for candidate, _ in pending), originals)


def ack_of(original: Original, validator: PutValidator) -> Ack:
    """Returns the answer that the target store would give to a message; stores nothing."""
    (answer,) = bulk_ingest.check([Row(0, original.message, original.reason)], validator)
    return answer


def _matches(stored: Message, expected: OutgoingMessage) -> bool:
    """Whether storing `expected` could have created the record `stored`; the store may have added properties."""
    if (stored.topic, stored.queue_id, stored.flag) != (expected.topic, expected.queue_id, expected.flag):
        return False
    values = properties.decode(expected.properties)
    return stored.raw_body == expected.body and values.items() <= stored.properties.items()


def _ack(original: Original, stored: Message) -> Ack:
    assert original.message is not None
    sent_to = original.message.topic, original.message.queue_id
    return Ack(
        0,
        PutStatus.PUT_OK,
        "",
        stored.topic,
        stored.queue_id,
        stored.queue_offset,
        stored.physical_offset,
        stored.offset_message_id,
        sent_to,
    )
