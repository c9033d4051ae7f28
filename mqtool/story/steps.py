"""Steps in the life of a message with their evidence, and those that service records prove: ends of transactions, pops.

An op message identifies half messages by their queue offsets. A POP checkpoint names the messages of one pop by theirs,
not by their keys, so checkpoints are read sequentially, from the message's store timestamp on. Acknowledgements have a
unique key derived from the checkpoint, which the index contains. Source: TransactionalMessageBridge,
TransactionalMessageServiceImpl, TransactionalOpBatchService, PopMessageProcessor.buildCkMsg, AckMessageProcessor,
PopMessageProcessor.genAckUniqueId (5.5.0).
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

import numpy as np
from msgspec import Struct

from mqtool.errors import FormatError, StoreError
from mqtool.formats import java, properties, service_records, topics
from mqtool.formats.service_records import ACK_TAG, BATCH_ACK_TAG, CHECK_POINT_TAG, Ack, CheckPoint
from mqtool.store.find import messages_by_key
from mqtool.store.log.message import Message
from mqtool.store.queues import pull
from mqtool.store.queues.consume_queue import Queue
from mqtool.store.store import Store
from mqtool.store.waiting.popped import broker_names, has_pop_database, popped_in_database, revive_record_at
from mqtool.store.waiting.timer import saved_checkpoint

MAX_OPS = 5_000
"""Maximum number of op messages read after a half message."""
_NO_NAME = "null"
"""How Java writes a missing broker name into the unique key of an acknowledgement."""
MAX_POINTS = 5_000
"""Maximum number of POP checkpoints read after a record."""


class StepKind(StrEnum):
    """Kind of a step."""

    SENT = "sent"
    """Stored in its topic."""
    HALF = "half"
    """Stored as a half message of a transaction."""
    CHECKED = "checked"
    """The producer was asked for the state of its transaction."""
    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"
    GIVEN_UP = "given-up"
    """Neither committed nor rolled back after the last check."""
    DELAYED = "delayed"
    """Parked in a delay level."""
    TIMED = "timed"
    """Parked in the timer."""
    ROLLED = "rolled"
    """Parked in the timer again: it is due after the wheel's span."""
    RECALLED = "recalled"
    """Taken out of the timer before its time."""
    DELIVERED = "delivered"
    """Stored in its topic after its delay."""
    PASSED = "passed"
    """The position of a group is past it: the group got it or skipped it."""
    POPPED = "popped"
    ACKNOWLEDGED = "acknowledged"
    SENT_BACK = "sent-back"
    """A consumer could not process it; parked until the next try."""
    RETRY = "retry"
    """Stored in the retry topic of a group."""
    DEAD = "dead"
    """Stored in the dead letter topic of a group."""
    TRACED = "traced"
    """A client's own report, from the trace topic."""
    WAITS = "waits"
    """Not delivered, committed or read yet."""
    UNKNOWN = "not-provable"
    """The store does not show what happened."""


class Step(Struct, frozen=True):
    """One step."""

    kind: StepKind  # what happened
    text: str  # the same as a sentence
    proof: str  # the record, unit, file or consumer offset that proves it; the reason if it is not provable
    at: int | None = None  # when, in ms since epoch; None if the store does not contain the time
    order: int = 0  # for steps without a time, the physical offset after which to sort them
    group: str | None = None  # consumer group or producer group
    topic: str | None = None  # and queue_id, queue_offset, physical_offset: of the record that the step refers to
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    due: int | None = None  # when the message will be delivered, in ms since epoch
    tries: int = 0  # number of earlier delivery attempts to the group, or of transaction checks sent to the producer
    # End of the period that starts with this step, in ms since epoch; None if it has no duration or the store does not
    # contain it.
    until: int | None = None
    is_of_producer: bool = False  # `group` is a producer group

    @property
    def is_proved(self) -> bool:
        """Whether data in the store proves the step."""
        return self.kind is not StepKind.UNKNOWN


def transaction_ends(store: Store, records: Sequence[Message], *, is_complete: bool) -> Iterator[Step]:
    """Yields the steps that ended the half messages of one message, except commits, which are records of their own.

    If the records are complete, the absence of a committed one means a rollback.
    """
    halves = [record for record in records if record.topic in topics.HALF_TOPICS]
    if not halves:
        return
    is_committed = any(
        record.prepared_transaction_offset for record in records if record.topic not in topics.HALF_TOPICS
    )
    is_given_up = any(record.topic == topics.CHECKED_TOO_OFTEN_TOPIC for record in records)
    if is_committed or is_given_up:
        return
    why = ""
    for half in halves:
        op = op_of(store, half)
        if isinstance(op, Message):
            yield _ended(half, op, is_complete=is_complete)
            return
        why = op
    yield _open(store, halves[-1], why)


def producer(group: str | None) -> str:
    """Names a producer group in a sentence."""
    return f"producer group {group}" if group else "an unknown producer group"


def _ended(half: Message, op: Message, *, is_complete: bool) -> Step:
    proof = f"op message at physical offset {op.physical_offset} names half message {half.queue_offset}"
    group = half.properties.get(properties.PRODUCER_GROUP)
    about = {
        "at": op.store_timestamp,
        "order": op.physical_offset,
        "group": group,
        "topic": op.topic,
        "is_of_producer": True,
    }
    place = {"queue_id": op.queue_id, "queue_offset": op.queue_offset, "physical_offset": op.physical_offset}
    if is_complete:
        text = f"rolled back by {producer(group)}: no record of it was committed"
        return Step(StepKind.ROLLED_BACK, text, proof, **about, **place)  # type: ignore[arg-type]
    reason = f"{proof}, but not all records of the message are known"
    text = "not provable: whether it was committed or rolled back"
    return Step(StepKind.UNKNOWN, text, reason, **about, **place)  # type: ignore[arg-type]


def _open(store: Store, half: Message, why: str) -> Step:
    offsets = store.metadata.consumer_offsets.get(service_records.TRANSACTION_GROUP, {})
    position = offsets.get(topics.HALF_TOPIC, {}).get(half.queue_id, 0)
    order = half.physical_offset + 1
    if half.queue_offset >= position and not why:
        proof = f"{positions_file(store)}: half messages before {position} are settled; no op message names it"
        group = half.properties.get(properties.PRODUCER_GROUP)
        text = f"open: {producer(group)} has neither committed nor rolled back"
        return Step(
            StepKind.WAITS,
            text,
            proof,
            order=order,
            group=group,
            physical_offset=half.physical_offset,
            is_of_producer=True,
        )
    reason = why or f"half messages before {position} are settled, but no op message names it"
    return Step(StepKind.UNKNOWN, "not provable: the end of the transaction", reason, order=order)


def op_of(store: Store, half: Message) -> Message | str:
    """Returns the op message that ends a half message; "" if there is none; the reason if it cannot be determined."""
    if half.topic == topics.ROCKSDB_HALF_TOPIC:
        return f"half messages of {half.topic} are settled in RocksDB, which is not read"
    queue = store.queue(topics.OP_TOPIC, half.queue_id)
    if queue is None:
        return ""
    offset = store.offset_in_queue_by_time(topics.OP_TOPIC, half.queue_id, half.store_timestamp)
    offset, left = max(offset, queue.min_offset), MAX_OPS
    while offset < queue.max_offset and left:
        units = list(pull.units_from(queue, offset, left))
        if not units:
            return f"queue {topics.OP_TOPIC}/{half.queue_id} has no file for the op message at queue offset {offset}"
        for unit in units:
            left -= 1
            try:
                op = store.message_at(unit.physical_offset)
                if half.queue_offset in service_records.op_offsets(op.body):
                    return op
            except (FormatError, StoreError):
                continue
        offset = units[-1].queue_offset + 1
    return "" if left else f"the first {MAX_OPS} op messages after it do not name it; later ones were not read"


def positions_file(store: Store) -> str:
    """Returns the name of the file from which the consumer offsets were read."""
    read = store.metadata.offset_tables.read
    return "consumer offsets" if read is None else read.file_name


def pops(store: Store, records: Sequence[Message], notes: list[str]) -> Iterator[Step]:
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
    offsets = _check_points(queue, max(start, queue.min_offset))
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


def _check_points(queue: Queue, start: int) -> Iterator[int]:
    """Yields the physical offsets of POP checkpoints, from a queue offset on."""
    code = java.string_hash(CHECK_POINT_TAG)
    for number, file in enumerate(queue.files):
        first = file.base // queue.unit_size
        if queue.is_batch or file.end // queue.unit_size <= start:
            continue
        units = queue.units_of(number)[max(0, start - first) : max(0, queue.max_offset - first)]
        selected = (units["tags_code"] == code) & (units["size"] > 0)
        yield from units["physical_offset"][selected].astype(np.int64).tolist()


def _popped(message: Message, point: CheckPoint, proof: str) -> Step:
    group = point.key.group
    text = f"popped by group {group}, invisible for {point.invisible_ms} ms"
    order, tries = message.physical_offset + 1, message.reconsume_times
    return Step(StepKind.POPPED, text, proof, point.pop_time, order, group, *_place(message), point.revive_time, tries)


def _waits(message: Message, point: CheckPoint, proof: str) -> Step:
    group = point.key.group
    text = f"not acknowledged by group {group}"
    order = message.physical_offset + 2
    return Step(StepKind.WAITS, text, proof, None, order, group, *_place(message), point.revive_time)


def _place(message: Message) -> tuple[str, int, int, int]:
    return message.topic, message.queue_id, message.queue_offset, message.physical_offset


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
        *_place(message),
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
