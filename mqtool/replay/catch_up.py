"""Finds the messages that an interrupted run had stored already, in the target's log.

A run stores messages in the source's order and saves its position at intervals. Messages stored after that are
after the saved offset of the log, in order, possibly among messages of other writers.
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

Answered = tuple[Original, Ack]


def found_there(
    target: Path, since: int, originals: Iterator[Original], validator: PutValidator
) -> tuple[list[Answered], Iterator[Original]]:
    """Returns those originals that are in a log, with their answers, and an iterator over all others.

    Args:
        target: the store.
        since: physical offset up to which its log was accounted for.
        originals: that follow.
        validator: of the target.
    """
    done: list[Answered] = []
    pending: list[Answered] = []
    with open_store(target) as store:
        there = store.messages(start=since)
        for original in originals:
            message = validator.prepared(original.message) if original.message is not None else None
            if not isinstance(message, OutgoingMessage):
                pending.append((original, answer_to(original, validator)))
                continue
            found = next((one for one in there if not isinstance(one, Damage) and _is(one, message)), None)
            if found is None:
                return done, chain((one for one, _ in pending), [original], originals)
            done += pending
            done.append((original, _ack(original, found)))
            pending = []
    return done, chain((one for one, _ in pending), originals)


def answer_to(original: Original, validator: PutValidator) -> Ack:
    """Returns the store's answer to an original; stores nothing."""
    (answer,) = bulk_ingest.check([Row(0, original.message, original.reason)], validator)
    return answer


def _is(found: Message, wanted: OutgoingMessage) -> bool:
    """Whether a put of the message creates this record; the store may add properties."""
    if (found.topic, found.queue_id, found.flag) != (wanted.topic, wanted.queue_id, wanted.flag):
        return False
    said = properties.decode(wanted.properties)
    return found.raw_body == wanted.body and said.items() <= found.properties.items()


def _ack(original: Original, found: Message) -> Ack:
    assert original.message is not None
    sent_to = original.message.topic, original.message.queue_id
    return Ack(
        0,
        PutStatus.PUT_OK,
        "",
        found.topic,
        found.queue_id,
        found.queue_offset,
        found.physical_offset,
        found.offset_message_id,
        sent_to,
    )
