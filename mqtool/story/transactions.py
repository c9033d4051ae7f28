"""The end of a transaction: its op message, which identifies half messages by their queue offsets.

Source: TransactionalMessageBridge, TransactionalMessageServiceImpl, TransactionalOpBatchService (5.5.0).
"""

from collections.abc import Iterator, Sequence

from mqtool.errors import FormatError, StoreError
from mqtool.formats import properties, service_records, topics
from mqtool.store.log.message import Message
from mqtool.store.queues import pull
from mqtool.store.store import Store
from mqtool.story.steps import Step, StepKind

MAX_OPS = 5_000
"""Maximum number of op messages read after a half message."""


def ends(store: Store, records: Sequence[Message], *, is_complete: bool) -> Iterator[Step]:
    """Yields the steps that ended the half messages of one message, except commits, which are records of their own.

    Args:
        is_complete: all records of the message are known, so that the absence of a committed one means a rollback.
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
