"""When a message was popped, and whether it was acknowledged.

A POP checkpoint names the messages of one pop by their queue offsets. It does not contain their keys, so checkpoints
are read sequentially, from the message's store timestamp on. Acknowledgements have a unique key derived from the
checkpoint, which the index contains. Source: PopMessageProcessor.buildCkMsg, AckMessageProcessor,
PopMessageProcessor.genAckUniqueId (5.5.0).
"""

from collections.abc import Iterator, Sequence

import numpy as np

from mqtool.formats import java, properties, topics
from mqtool.formats.service_records import ACK_TAG, BATCH_ACK_TAG, CHECK_POINT_TAG, Ack, CheckPoint
from mqtool.store.find import messages_by_key
from mqtool.store.log.message import Message
from mqtool.store.queues.consume_queue import Queue
from mqtool.store.store import Store
from mqtool.store.waiting.popped import broker_names, has_pop_database, popped_in_database, revive_record_at
from mqtool.store.waiting.timer import saved_checkpoint
from mqtool.story.steps import Step, StepKind

_NO_NAME = "null"
"""How Java writes a missing broker name into the unique key of an acknowledgement."""

MAX_POINTS = 5_000
"""Maximum number of POP checkpoints read after a record."""


def steps(store: Store, records: Sequence[Message], notes: list[str]) -> Iterator[Step]:
    """Yields pops and acknowledgements of a message's records; appends the limits of the answer to `notes`."""
    out = popped_in_database(store)
    if out.unknown:
        notes.append(f"pops are not provable: {out.unknown}")
    elif out.points or has_pop_database(store):
        notes.append("the broker keeps pops in kvStore, which only holds those that are not acknowledged")
    for message in records:
        if not topics.is_for_consumers(message.topic) or store.queue(message.topic, message.queue_id) is None:
            continue
        place = (message.topic, message.queue_id)
        for point in out.points:
            if (point.key.topic, point.key.queue_id) == place and message.queue_offset in point.offsets:
                yield _popped(message, point, "a record of kvStore")
                yield _waits(message, point, "a record of kvStore")
        for point, offset in _points(store, message, notes):
            yield _popped(message, point, f"check point at physical offset {offset}")
            if not _is_retried(message, point, records):
                yield _end(store, message, point, offset)


def _is_retried(message: Message, point: CheckPoint, records: Sequence[Message]) -> bool:
    """Whether a later record is the retry of the message by the checkpoint's consumer group."""
    return any(
        record.physical_offset > message.physical_offset
        and record.topic.startswith(topics.RETRY_PREFIX)
        and record.properties.get(properties.ORIGIN_GROUP) == point.key.group
        for record in records
    )


def _points(store: Store, message: Message, notes: list[str]) -> Iterator[tuple[CheckPoint, int]]:
    """Yields the POP checkpoints that name a record, with the checkpoints' physical offsets."""
    queue = store.queue(topics.TIMER_TOPIC, 0)
    if queue is None:
        return
    place = (message.topic, message.queue_id)
    start = store.offset_in_queue_by_time(topics.TIMER_TOPIC, 0, message.store_timestamp)
    offsets = _tagged(queue, max(start, queue.min_offset), CHECK_POINT_TAG)
    for number, physical_offset in enumerate(offsets):
        if number >= MAX_POINTS:
            notes.append(
                f"only the first {MAX_POINTS} check points of POP after physical offset {message.physical_offset} "
                "were read: later pops are not provable"
            )
            return
        point = revive_record_at(store, physical_offset, is_parked=True)
        if not isinstance(point, CheckPoint) or (point.key.topic, point.key.queue_id) != place:
            continue
        if message.queue_offset in point.offsets:
            yield point, physical_offset


def _tagged(queue: Queue, start: int, tag: str) -> Iterator[int]:
    """Yields the physical offsets of the units with a tag, from a queue offset on."""
    code = java.string_hash(tag)
    for number, file in enumerate(queue.files):
        first = file.base // queue.unit_size
        if queue.is_batch or file.end // queue.unit_size <= start:
            continue
        units = queue.units_of(number)[max(0, start - first) : max(0, queue.max_offset - first)]
        selected = (units["tags_code"] == code) & (units["size"] > 0)
        yield from units["physical_offset"][selected].astype(np.int64).tolist()


def _popped(message: Message, point: CheckPoint, proof: str) -> Step:
    group = point.key.group
    return Step(
        StepKind.POPPED,
        f"popped by group {group}, invisible for {point.invisible_ms} ms",
        proof,
        point.pop_time,
        message.physical_offset + 1,
        group,
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        point.revive_time,
        message.reconsume_times,
    )


def _waits(message: Message, point: CheckPoint, proof: str) -> Step:
    group = point.key.group
    text = f"not acknowledged by group {group}"
    place = (message.topic, message.queue_id, message.queue_offset, message.physical_offset, point.revive_time)
    return Step(StepKind.WAITS, text, proof, None, message.physical_offset + 2, group, *place)


def _end(store: Store, message: Message, point: CheckPoint, offset: int) -> Step:
    """Returns the step for the acknowledgement of a pop, or the step that states that there is none."""
    ack = _ack(store, message, point)
    group = point.key.group
    if ack is None and point.revive_time < saved_checkpoint(store.path).last_read_time_ms:
        reason = f"no acknowledgement of the check point at physical offset {offset} and no retry was found"
        text = f"not provable: what group {group} did with it"
        at = message.physical_offset
        return Step(StepKind.UNKNOWN, text, reason, order=at + 2, group=group, physical_offset=at)
    if ack is None:
        return _waits(message, point, f"no acknowledgement of the check point at physical offset {offset}")
    return Step(
        StepKind.ACKNOWLEDGED,
        f"acknowledged by group {group}",
        f"acknowledgement at physical offset {ack.physical_offset}",
        ack.store_timestamp,
        message.physical_offset + 2,
        group,
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        tries=message.reconsume_times,
    )


def _ack(store: Store, message: Message, point: CheckPoint) -> Message | None:
    key, names = point.key, broker_names(store, [point])
    for number, tag in ((message.queue_offset, ACK_TAG), (-1, ACK_TAG), (-1, BATCH_ACK_TAG)):
        for broker_name in (point.broker_name, _NO_NAME):
            name = f"{key.topic}@{key.queue_id}@{number}@{key.group}@{point.pop_time}@{broker_name}@{tag}"
            for candidate in messages_by_key(store, name).messages:
                record = revive_record_at(store, candidate.physical_offset)
                if not isinstance(record, Ack) or message.queue_offset not in record.offsets:
                    continue
                if point.identity in record.identities(names):
                    return candidate
    return None
