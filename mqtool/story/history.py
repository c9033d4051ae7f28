"""The life of a message: which records belong to it, and which steps they prove.

Records are found through the index: every copy of a message keeps its unique key (UNIQ_KEY), whatever topic it is
stored in. Records that the index does not cover (the ends of transactions, POP checkpoints) are searched for in
their queue, from the message's store timestamp on and up to a limit. If the limit is reached, the step is reported
as not provable. Clients report what they sent or consumed in trace records (TraceDataEncoder, TraceConstants,
AsyncTraceDispatcher, 4.9.7 and 5.5.0): several in a body, each terminated by 0x02, with fields separated by 0x01.
"""

import contextlib
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.errors import FormatError, UsageError
from mqtool.formats import file_names, java, properties, service_records, topics
from mqtool.formats.commit_log import TRANSACTION_MASK, SysFlag
from mqtool.store.find import KeyMatches, helps, is_unique_key, messages_by_key, messages_by_scan, not_queued, resolve
from mqtool.store.log.message import Message
from mqtool.store.queues import pull
from mqtool.store.store import Store
from mqtool.store.waiting.held_back import PARKING_TOPICS, delivered_offsets, event_of
from mqtool.store.waiting.pending import known_groups
from mqtool.store.waiting.timer import saved_checkpoint
from mqtool.story.steps import Step, StepKind, pops, positions_file, producer, transaction_ends
from mqtool.words import size

_FIELD, _REPORT = "\x01", "\x02"

_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

MAX_HISTORIES = 20
"""Maximum number of messages per key whose lives are returned."""

_RANK = {StepKind.TRACED: 0, StepKind.PASSED: 2, StepKind.WAITS: 3, StepKind.UNKNOWN: 3}


class Report(Struct, frozen=True):
    """One report of a client."""

    kind: str  # Pub, SubBefore, SubAfter, EndTransaction or Recall
    message_id: str  # unique key of the message
    physical_offset: int  # of the trace record
    at: int | None = None  # when, in ms since epoch; None if not stated
    group: str = ""  # group of the client; "" if not stated
    cost_ms: int | None = None  # duration in ms; None if not stated
    is_success: bool | None = None  # None if not stated
    tries: int = 0  # number of earlier delivery attempts to the group
    request: str = ""  # id that links SubBefore and SubAfter
    state: str = ""  # transaction state, of EndTransaction only


def reports(message: Message, message_id: str) -> Iterator[Report]:
    """Yields the reports about one message in a trace record; skips malformed reports."""
    for line in java.decode_utf8(message.body).split(_REPORT):
        fields = line.split(_FIELD)
        try:
            report = _report(fields, message.physical_offset)
        except (IndexError, FormatError):
            continue
        if report is not None and report.message_id == message_id:
            yield report


def _report(fields: list[str], offset: int) -> Report | None:
    number, kind = java.parse_long, fields[0]
    if kind == "Pub":  # … topic, id, tags, keys, store host, body length, cost, type, [offset id], success
        is_success = fields[13 if len(fields) > 13 else 12] == "true"
        return Report(kind, fields[5], offset, number(fields[1]), fields[3], number(fields[10]), is_success)
    if kind == "SubBefore":
        tries = number(fields[6])
        return Report(kind, fields[5], offset, number(fields[1]), fields[3], tries=tries, request=fields[4])
    if kind == "SubAfter":
        at, group = (number(fields[7]), fields[8]) if len(fields) > 8 else (None, "")
        is_success = fields[4] == "true"
        return Report(kind, fields[2], offset, at, group, number(fields[3]), is_success, request=fields[1])
    if kind == "EndTransaction":
        return Report(kind, fields[5], offset, number(fields[1]), fields[3], state=fields[11])
    if kind == "Recall":
        return Report(kind, fields[5], offset, number(fields[1]), fields[3], is_success=fields[6] == "true")
    return None


class MessageHistory(Struct):
    """The life of one message."""

    unique_key: str | None  # the message's UNIQ_KEY; None if it has none, in which case only one record is known
    keys: tuple[str, ...]  # and tag: of the message
    tag: str | None
    topic: str | None  # the topic it was sent to; None if unknown
    records: list[Message]  # its records, ordered by physical offset
    steps: list[Step] = field(default_factory=list)  # in the order in which they happened
    notes: list[str] = field(default_factory=list)  # the limits of this account, as sentences


def histories_of(store: Store, address: str) -> tuple[list[MessageHistory], list[str]]:
    """Returns the lives of the messages that an address, id or key identifies, and the limits of the answer.

    The address is a physical offset, TOPIC/QUEUE@OFFSET, an offset message id, a unique key or a key. Raises
    StoreError.
    """
    messages, notes, is_scanned = _named(store, address)
    by_key: dict[str | int, Message] = {}
    for message in messages:
        if message.topic != topics.TRACE_TOPIC or len(messages) == 1:
            by_key.setdefault(message.unique_key or message.physical_offset, message)
    histories = [_history(store, message, is_scanned=is_scanned) for message in list(by_key.values())[:MAX_HISTORIES]]
    if len(by_key) > MAX_HISTORIES:
        notes.append(f"{len(by_key) - MAX_HISTORIES} more messages have this key: name one by its id")
    return histories, notes


def _named(store: Store, address: str) -> tuple[list[Message], list[str], bool]:
    """Returns the messages, the limits of the answer, and whether only a scan found them."""
    matches, scanned = messages_by_key(store, address), messages_by_scan(store, address)
    notes = _limits(matches)
    is_scanned = not notes and len(scanned.messages) > len(matches.messages)
    if is_scanned:
        matches = scanned
    messages, damage = matches.messages, matches.damage
    if not messages:
        with contextlib.suppress(UsageError):
            if not is_unique_key(address):
                resolved = resolve(store, address)
                messages, damage = resolved.messages, resolved.damage or damage
                notes += filter(None, [resolved.missing or ("" if messages else store.unread_queues)])
        if scanned.unread and not notes and not messages:
            notes.append(_not_scanned(scanned.unread))
    if damage:
        notes += [*(f"damaged: {item}" for item in damage), helps(store)]
    own = [message for message in messages if message.unique_key == address]
    return own or messages, notes, is_scanned


def _not_scanned(unread: int) -> str:
    return (
        f"the {size(unread)} of the log were not scanned: the index does not name records of rolled-back transactions, "
        "messages of inner batches, and topics without queue and configuration; "
        "`mqtool find STORE --key KEY --by scan` does"
    )


def _limits(matches: KeyMatches) -> list[str]:
    """Returns the reasons why a search may be incomplete."""
    notes = [_unread(matches.unread)] if matches.unread else []
    if matches.more:
        notes.append(f"{matches.more} more records have this key and were not read: name one message by its id")
    return notes


def _unread(unread: int) -> str:
    return (
        f"{size(unread)} of the log are not covered by the index and were not read: records there are missing from "
        "this story"
    )


def _history(store: Store, message: Message, *, is_scanned: bool) -> MessageHistory:
    key, find = message.unique_key, messages_by_scan if is_scanned else messages_by_key
    matches = find(store, key) if key else None
    records = [record for record in matches.messages if record.unique_key == key] if matches else [message]
    records = records or [message]
    traces = [record for record in matches.messages if record.topic == topics.TRACE_TOPIC] if matches else []
    first = records[0]
    topic = first.properties.get(properties.REAL_TOPIC, first.topic)
    if topic.startswith(topics.RETRY_PREFIX):
        topic = first.properties.get(properties.RETRY_TOPIC, topic)
    history = MessageHistory(key, first.keys, first.tags, topic, records)
    history.notes += [] if matches is None else _limits(matches)
    if key is None:
        history.notes.append("the message has no UNIQ_KEY, by which its other records could be found")
    if not _is_complete(first):
        history.notes.append(
            "an earlier record of the message is not in the store: what happened before is not provable"
        )
    is_complete = key is not None and not history.notes
    history.notes += filter(None, (not_queued(store, record) for record in records))
    steps = [
        *_of_records(store, records),
        *transaction_ends(store, records, is_complete=is_complete),
        *_of_waiting(store, records),
        *_of_groups(store, records),
        *pops(store, records, history.notes),
        *_of_traces([report for record in traces for report in reports(record, key or "")]),
    ]
    history.steps = _by_time(steps, records)
    return history


def _by_time(steps: Sequence[Step], records: Sequence[Message]) -> list[Step]:
    """Returns steps sorted by time, with no step before the record it refers to, because clients' clocks may differ.

    Pending steps come after all other steps of their record.
    """
    latest: dict[int | None, int] = {}
    for step in steps:
        if step.at is not None:
            latest[step.physical_offset] = max(step.at, latest.get(step.physical_offset, 0))

    def place(step: Step) -> tuple[int, int, int]:
        base = max((record.store_timestamp for record in records if record.physical_offset <= step.order), default=0)
        if step.kind in (StepKind.WAITS, StepKind.UNKNOWN) and step.physical_offset is not None:
            base = max(base, latest.get(step.physical_offset, 0))
        return max(base, step.at or 0), _RANK.get(step.kind, 1), step.order

    return sorted(steps, key=place)


def _is_complete(first: Message) -> bool:
    """Whether the first known record is the first one that was stored for the message."""
    matches = first.properties
    if properties.ORIGIN_MESSAGE_ID in matches or first.prepared_transaction_offset:
        return False
    is_parked = first.topic in (*PARKING_TOPICS, topics.HALF_TOPIC)
    return is_parked or not {properties.REAL_TOPIC, properties.FIRST_POP_TIME} & set(matches)


# -- records ------------------------------------------------------------------------------------------------------


def record_proof(message: Message) -> str:
    """Returns a description of a record's position."""
    place = f"{message.topic}/{message.queue_id}@{message.queue_offset}"
    return f"record at physical offset {message.physical_offset}, {place}"


def step_of(message: Message, kind: StepKind, text: str, **more: object) -> Step:
    """Returns a step that a record proves, at the record's store timestamp."""
    place = {
        "at": message.store_timestamp,
        "order": message.physical_offset,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
    }
    return Step(kind, text, record_proof(message), **{**place, **more})  # type: ignore[arg-type]


def _of_records(store: Store, records: Sequence[Message]) -> Iterator[Step]:
    groups = known_groups(store)
    for number, message in enumerate(records):
        earlier = records[:number]
        topic = message.topic
        if topic in topics.HALF_TOPICS:
            yield _half(message)
        elif topic == topics.CHECKED_TOO_OFTEN_TOPIC:
            checks = max(0, service_records.check_times(message.properties))
            yield step_of(message, StepKind.GIVEN_UP, f"abandoned after {checks} check(s)", tries=checks)
        elif topic == topics.SCHEDULE_TOPIC:
            yield _delayed(store, message, groups)
        elif topic == topics.TIMER_TOPIC:
            yield _timed(message)
        elif topic.startswith(topics.DEAD_LETTER_PREFIX):
            group = topics.group_of_retry(topic, groups)
            text = f"dead letter of group {group} after {message.reconsume_times} tries"
            yield step_of(message, StepKind.DEAD, text, group=group, tries=message.reconsume_times)
        elif topic.startswith(topics.RETRY_PREFIX):
            group = message.properties.get(properties.ORIGIN_GROUP) or topics.group_of_retry(topic, groups)
            text = f"retry {message.reconsume_times} of group {group}"
            yield step_of(message, StepKind.RETRY, text, group=group, tries=message.reconsume_times)
        elif topic != topics.TRACE_TOPIC and not topics.holds_service_records(topic):
            yield _stored(message, earlier)


def _half(message: Message) -> Step:
    checks = max(0, service_records.check_times(message.properties))
    group = message.properties.get(properties.PRODUCER_GROUP)
    target = message.properties.get(properties.REAL_TOPIC, "an unknown topic")
    if checks:
        text = f"half message stored again for check {checks} of {producer(group)}"
        return step_of(message, StepKind.CHECKED, text, group=group, tries=checks, is_of_producer=True)
    text = f"half message for {target} from {producer(group)}"
    return step_of(message, StepKind.HALF, text, group=group, is_of_producer=True)


def _delayed(store: Store, message: Message, groups: Collection[str]) -> Step:
    target, level = message.properties.get(properties.REAL_TOPIC, "?"), message.queue_id + 1
    due = _due_of_unit(store, message)
    if target.startswith(topics.RETRY_PREFIX):
        group = topics.group_of_retry(target, groups)
        text = f"sent back by group {group}, to be tried again after delay level {level}"
        return step_of(message, StepKind.SENT_BACK, text, group=group, tries=message.reconsume_times, due=due)
    return step_of(message, StepKind.DELAYED, f"parked in delay level {level} for {target}", due=due)


def _timed(message: Message) -> Step:
    matches = message.properties
    target = matches.get(properties.REAL_TOPIC, "?")
    due, rolls = _due(message), 0
    with contextlib.suppress(FormatError):
        rolls = service_records.roll_times(matches)
    if properties.TIMER_DEL_UNIQUE_KEY in matches:
        return step_of(message, StepKind.RECALLED, "recalled: the timer drops it when it is due", due=due)
    if rolls:
        return step_of(message, StepKind.ROLLED, f"parked in the timer again, roll {rolls}, for {target}", due=due)
    return step_of(message, StepKind.TIMED, f"parked in the timer for {target}", due=due)


def _due(message: Message) -> int | None:
    try:
        return service_records.deliver_ms(message.properties)
    except FormatError:
        return None


def _due_of_unit(store: Store, message: Message) -> int | None:
    """Returns the deliver time of a message of a delay level: its unit has it."""
    queue = store.queue(message.topic, message.queue_id)
    unit = None if queue is None else pull.unit_at(queue, message.queue_offset)
    return None if unit is None else unit.tags_code


def _stored(message: Message, earlier: Sequence[Message]) -> Step:
    topic = message.topic
    if message.sys_flag & TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT:
        text = f"committed into {topic}"
        group = message.properties.get(properties.PRODUCER_GROUP)
        return step_of(message, StepKind.COMMITTED, text, group=group, is_of_producer=True)
    targets = [record.topic for record in earlier if record.properties.get(properties.REAL_TOPIC) == topic]
    if properties.TIMER_DEQUEUE_MS in message.properties or topics.TIMER_TOPIC in targets:
        return step_of(message, StepKind.DELIVERED, f"delivered to {topic} by the timer")
    if topics.SCHEDULE_TOPIC in targets or message.properties.get(properties.REAL_TOPIC) == topic:
        return step_of(message, StepKind.DELIVERED, f"delivered to {topic} after its delay")
    suffix = " again" if any(record.topic == topic for record in earlier) else ""
    return step_of(message, StepKind.SENT, f"sent{suffix} to {topic}", until=None)


# -- what has not happened yet ------------------------------------------------------------------------------------


def _of_waiting(store: Store, records: Sequence[Message]) -> Iterator[Step]:
    """Yields the state of messages that are parked in the timer or schedule topic and not delivered."""
    read_to, delivered = saved_checkpoint(store.path).last_read_time_ms, delivered_offsets(map(event_of, records))
    for message in records:
        if properties.TIMER_DEL_UNIQUE_KEY in message.properties or message.physical_offset in delivered:
            continue
        if message.topic == topics.SCHEDULE_TOPIC:
            position = store.metadata.delay_offsets.get(message.queue_id + 1, 0)
            proof = f"delayOffset.json: level {message.queue_id + 1} at {position}"
            yield _parked(store, message, proof, is_past=message.queue_offset < position)
        elif message.topic == topics.TIMER_TOPIC and not _is_recalled(store, message, records):
            due = _due(message)
            proof = f"{file_names.TIMER_CHECKPOINT}: slots before {read_to} are delivered"
            yield _parked(store, message, proof, is_past=due is not None and due < read_to)


def _parked(store: Store, message: Message, proof: str, *, is_past: bool) -> Step:
    if is_past:
        reason = f"{proof}, so it was delivered or dropped; its record was not found"
        text = "not provable: what happened to the parked message"
        return Step(StepKind.UNKNOWN, text, reason, order=message.physical_offset + 1)
    due = _due_of_unit(store, message) if message.topic == topics.SCHEDULE_TOPIC else _due(message)
    order = message.physical_offset + 1
    waits = step_of(message, StepKind.WAITS, "waits for its time", at=None, order=order, due=due)
    return replace(waits, proof=proof)


def _is_recalled(store: Store, message: Message, records: Sequence[Message]) -> bool:
    """Whether a recall request that names a message is in the same timer slot, so that the timer drops the message."""
    slot = _slot(store, message)
    if slot is None:
        return False
    named = {
        record.properties.get(properties.TIMER_DEL_UNIQUE_KEY, "")
        for record in records
        if record.topic == topics.TIMER_TOPIC and _slot(store, record) == slot
    }
    return service_records.is_recalled(message.properties.get(properties.REAL_TOPIC), message.unique_key, named)


def _slot(store: Store, message: Message) -> int | None:
    due = _due(message)
    return None if due is None else due // store.config.timer_precision


# -- consumers ----------------------------------------------------------------------------------------------------


def _of_groups(store: Store, records: Sequence[Message]) -> Iterator[Step]:
    """Yields, for each record visible to consumers, which consumer groups have passed it and which have not."""
    for message in records:
        if not topics.is_for_consumers(message.topic):
            continue
        for group, positions in sorted(store.metadata.consumer_offsets.items()):
            position = positions.get(message.topic, {}).get(message.queue_id)
            if position is None or group.startswith(_SYSTEM_GROUP_PREFIX):
                continue
            is_past = position > message.queue_offset
            about = {
                "order": message.physical_offset + 1,
                "group": group,
                "topic": message.topic,
                "queue_id": message.queue_id,
                "queue_offset": message.queue_offset,
                "physical_offset": message.physical_offset,
                "tries": message.reconsume_times,
            }
            proof = f"{positions_file(store)}: {group} is at {position} of {message.topic}/{message.queue_id}"
            kind = StepKind.PASSED if is_past else StepKind.WAITS
            text = f"group {group} is past it" if is_past else f"group {group} has not got it yet"
            yield Step(kind, text, proof, **about)  # type: ignore[arg-type]


def _of_traces(reports: Sequence[Report]) -> Iterator[Step]:
    starts = {report.request: report for report in reports if report.kind == "SubBefore"}
    ended = {report.request for report in reports if report.kind == "SubAfter"}
    for report in reports:
        proof = f"trace record at physical offset {report.physical_offset}"
        until = None if report.at is None or report.cost_ms is None else report.at + report.cost_ms
        how = {True: "successfully", False: "without success", None: ""}[report.is_success]
        if report.kind == "Pub":
            text = f"producer group {report.group} reports that it sent it {how} in {report.cost_ms} ms"
        elif report.kind == "SubAfter":
            start = starts.get(report.request)
            at, group = (start.at, start.group) if start else (report.at, report.group)
            tries = start.tries if start else 0
            until = None if at is None or report.cost_ms is None else at + report.cost_ms
            text = f"group {group} reports that it processed it {how} in {report.cost_ms} ms"
            yield Step(StepKind.TRACED, text, proof, at, group=group, tries=tries, until=until)
            continue
        elif report.kind == "SubBefore":
            if report.request in ended:
                continue
            text = f"group {report.group} reports that it began to process it"
        elif report.kind == "EndTransaction":
            text = f"producer group {report.group} reports the state {report.state}"
        else:
            text = f"producer group {report.group} reports that it recalled it {how}"
        is_of_producer = report.kind != "SubBefore"
        yield Step(
            StepKind.TRACED,
            text,
            proof,
            report.at,
            group=report.group,
            tries=report.tries,
            until=until,
            is_of_producer=is_of_producer,
        )
