"""The life of a message as OpenTelemetry spans: OTLP in JSON, one trace for each message.

Names and attributes follow the semantic conventions for messaging and for RocketMQ (OpenTelemetry 1.30). Trace and
span ids are derived from the unique key, so the same life always gets the same ids.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from mqtool.story.history import MessageHistory
from mqtool.story.steps import Step, StepKind

_INTERNAL, _PRODUCER, _CONSUMER = 1, 4, 5
_SEND = (StepKind.SENT, StepKind.HALF, StepKind.DELAYED, StepKind.TIMED)
_OPERATIONS = {
    **dict.fromkeys(_SEND, ("send", "send", _PRODUCER)),
    StepKind.POPPED: ("receive", "receive", _CONSUMER),
    StepKind.PASSED: ("receive", "receive", _CONSUMER),
    StepKind.TRACED: ("process", "process", _CONSUMER),
    StepKind.ACKNOWLEDGED: ("ack", "settle", _CONSUMER),
    StepKind.SENT_BACK: ("nack", "settle", _CONSUMER),
    StepKind.COMMITTED: ("commit", "settle", _PRODUCER),
    StepKind.ROLLED_BACK: ("rollback", "settle", _PRODUCER),
    StepKind.RECALLED: ("recall", "settle", _PRODUCER),
}
"""Name and type of the operation and kind of span; other steps are the broker's own."""
_TYPES = {StepKind.HALF: "transaction", StepKind.DELAYED: "delay", StepKind.TIMED: "delay"}


def spans(histories: Sequence[MessageHistory]) -> dict[str, Any]:
    """Returns lives as an OTLP ExportTraceServiceRequest in JSON.

    Steps without a time, such as the consumer offset of a group, become events of their record's span.
    """
    history_spans = [span for history in histories for span in _of_history(history)]
    scope = {"scope": {"name": "mqtool.story"}, "spans": history_spans}
    resource = {"attributes": [_text("service.name", "rocketmq")]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def _of_history(history: MessageHistory) -> list[dict[str, Any]]:
    name = history.unique_key or str(history.records[0].physical_offset)
    trace = _id(name, 32)
    timed = [step for step in history.steps if step.at is not None]
    if not timed:
        return []
    root = _id(f"{name} root", 16)
    end = max(step.until or step.at or 0 for step in timed)
    begin = min(step.at or 0 for step in timed)
    root_span = _span(trace, root, f"message {history.topic}", begin, end, _INTERNAL)
    root_span["attributes"] = _of_message(history)
    step_spans = [root_span]
    for number, step in enumerate(timed):
        operation = _OPERATIONS.get(step.kind)
        title, kind = step.kind.value, _INTERNAL
        if step.kind is StepKind.TRACED and step.is_of_producer:
            operation = ("send", "send", _PRODUCER)
        if operation:
            title, kind = f"{operation[0]} {history.topic}", operation[2]
        span = _span(trace, _id(f"{name} {number}", 16), title, step.at or 0, step.until or step.at or 0, kind)
        span["parentSpanId"] = root
        span["attributes"] = [*_of_message(history), *_of_step(step, operation)]
        span["events"] = [_event(event, step) for event in history.steps if event.at is None and _is_about(event, step)]
        step_spans.append(span)
    return step_spans


def _is_about(step: Step, other: Step) -> bool:
    """Whether a step without a time belongs to the span of a record."""
    is_record = other.kind is not StepKind.TRACED and other.kind is not StepKind.POPPED
    return is_record and step.physical_offset is not None and step.physical_offset == other.physical_offset


def _span(trace: str, identity: str, name: str, begin: int, end: int, kind: int) -> dict[str, Any]:
    return {
        "traceId": trace,
        "spanId": identity,
        "name": name,
        "kind": kind,
        "startTimeUnixNano": f"{begin}000000",
        "endTimeUnixNano": f"{max(begin, end)}000000",
    }


def _event(step: Step, record: Step) -> dict[str, Any]:
    attributes = [_text("mqtool.proof", step.proof)]
    if step.group:
        attributes.append(_text("messaging.consumer.group.name", step.group))
    return {"name": step.text, "timeUnixNano": f"{record.at}000000", "attributes": attributes}


def _of_message(history: MessageHistory) -> list[dict[str, Any]]:
    first = next((step.kind for step in history.steps if step.kind in _SEND), StepKind.SENT)
    attributes = [
        _text("messaging.system", "rocketmq"),
        _text("messaging.rocketmq.namespace", _namespace(history.topic or "")),
        _text("messaging.destination.name", history.topic or ""),
        _text("messaging.rocketmq.message.type", _TYPES.get(first, "normal")),
    ]
    if history.unique_key:
        attributes.append(_text("messaging.message.id", history.unique_key))
    if history.tag:
        attributes.append(_text("messaging.rocketmq.message.tag", history.tag))
    if history.keys:
        values = [{"stringValue": key} for key in history.keys]
        attributes.append({"key": "messaging.rocketmq.message.keys", "value": {"arrayValue": {"values": values}}})
    return attributes


def _of_step(step: Step, operation: tuple[str, str, int] | None) -> list[dict[str, Any]]:
    attributes = [_text("mqtool.step", step.text), _text("mqtool.proof", step.proof)]
    if operation:
        attributes += [_text("messaging.operation.name", operation[0]), _text("messaging.operation.type", operation[1])]
        if step.group and operation[2] == _CONSUMER:
            attributes.append(_text("messaging.consumer.group.name", step.group))
    if step.queue_id is not None:
        attributes.append(_text("messaging.destination.partition.id", str(step.queue_id)))
    if step.queue_offset is not None:
        attributes.append(_number("mqtool.queue_offset", step.queue_offset))
    if step.physical_offset is not None:
        attributes.append(_number("mqtool.physical_offset", step.physical_offset))
    if step.due is not None:
        is_delayed = step.kind in (StepKind.DELAYED, StepKind.TIMED)
        name = "messaging.rocketmq.message.delivery_timestamp" if is_delayed else "mqtool.due"
        attributes.append(_number(name, step.due))
    return attributes


def _namespace(topic: str) -> str:
    """Returns the namespace in a topic's name, "" if it has none (NamespaceUtil: NAMESPACE%TOPIC)."""
    namespace, separator, _ = topic.partition("%")
    return namespace if separator else ""


def _text(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def _number(key: str, value: int) -> dict[str, Any]:
    return {"key": key, "value": {"intValue": str(value)}}


def _id(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
