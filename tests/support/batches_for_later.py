"""Batches and messages with a delay level or a timer, and what a broker makes of them, in comparable form."""

import time
from collections.abc import Iterator
from typing import Any

from tests.support.refusals import BATCH_OF_ONE, MADE, but, comparable
from tests.support.remoting import Client, records

TOPIC, INNER = "Later", "LaterInner"
_PREPARED = 4
_HOUR, _TOO_FAR = "3600", "99999999"
_GIVEN: tuple[dict[str, str], ...] = (
    {},
    {"DELAY": "x"},
    {"DELAY": ""},
    {"DELAY": "0"},
    {"DELAY": "-1"},
    {"DELAY": "1"},
    {"DELAY": "99"},
    {"DELAY": "\u0663"},
    {"DELAY": "99999999999"},
    {"TIMER_DELAY_SEC": _HOUR},
    {"TIMER_DELAY_MS": "3600000"},
    {"TIMER_DELAY_SEC": "0"},
    {"TIMER_DELAY_SEC": "x"},
    {"TIMER_DELAY_SEC": _TOO_FAR},
    {"TIMER_DELIVER_MS": "5"},
    {"TIMER_DELIVER_MS": ""},
    {"TIMER_DELAY_SEC": _HOUR, "DELAY": "0"},
    {"TIMER_DELAY_SEC": _HOUR, "DELAY": "x"},
    {"TIMER_DELAY_SEC": _HOUR, "DELAY": "1"},
    {"TIMER_DELAY_SEC": _HOUR, "TIMER_DEL_UNIQUE_KEY": f"{TOPIC}+k"},
    {"TIMER_OUT_MS": "5"},
    {"TIMER_OUT_MS": "5", "TIMER_DELAY_SEC": _HOUR},
)
_FIELDS = ("queueId", "queueOffset", "transactionId", "batchUniqId")
_OF_BROKER = {"MSG_REGION", "TRACE_ON", "CLUSTER", "WAIT"}


def converse(address: str, *, has_inner: bool = True) -> list[dict[str, Any]]:
    """Sends all of them to a broker whose store is new; returns its answers, then the messages that are in the queues."""
    found = []
    with Client(address) as client:
        for topic in (TOPIC, INNER)[: 1 + has_inner]:
            made = but(MADE, topic=topic, attributes="+queue.type=BatchCQ" if topic == INNER else None)
            assert client.call(17, **made).code == 0
        for label, topic, sent in _sends(has_inner=has_inner):
            answer = client.put(topic, **sent)
            fields = {name: answer.fields[name] for name in _FIELDS if answer.code == 0 and name in answer.fields}
            found.append({"label": label, "code": answer.code, "remark": comparable(answer.remark), **fields})
        ends = {"SCHEDULE_TOPIC_XXXX": 0, "rmq_sys_wheel_timer": 0, TOPIC: 2, INNER: 2}
        for topic, queue in list(ends.items())[: 3 + has_inner]:
            _await_dispatch(client, topic, queue)
            found += _held(client, topic, queue)
    return found


def _sends(*, has_inner: bool) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for topic in (TOPIC, INNER)[: 1 + has_inner]:
        for given in _GIVEN:
            for sys_flag in (0, _PREPARED):
                label = f"{topic}, {given}, system flags {sys_flag}"
                yield (
                    label,
                    topic,
                    {
                        "body": BATCH_OF_ONE,
                        "queue": 2,
                        "code": 320,
                        "m": True,
                        "sys_flag": sys_flag,
                        "properties": given,
                    },
                )
    for given in _GIVEN:
        if given.get("DELAY") in {"x", "", "0", "-1", "99999999999"}:  # those that no broker delivers meanwhile
            yield f"one message, {given}", TOPIC, {"body": b"one", "queue": 2, "properties": given}


def _await_dispatch(client: Client, topic: str, queue: int) -> None:
    """Waits until nothing more arrives in a queue."""
    deadline, last = time.monotonic() + 30, ""
    while time.monotonic() < deadline:
        end = client.call(30, topic=topic, queueId=queue).fields.get("offset", "")
        if end == last:
            return
        last = end
        time.sleep(0.5)
    raise AssertionError(f"messages still arrive in {topic}")


def _held(client: Client, topic: str, queue: int) -> Iterator[dict[str, Any]]:
    """The messages of a queue, without what depends on the time and the broker, and without properties of no value."""
    offset = 0
    while (answer := client.pull(topic, queue, offset)).code == 0:
        for facts, body in records(answer):
            held = {name: value for name, value in facts["properties"].items() if value and name not in _OF_BROKER}
            if len(held.get("TIMER_OUT_MS", "")) > 1:
                held["TIMER_OUT_MS"] = "in an hour"
            yield {
                "label": f"{topic} holds",
                "queueOffset": facts["queue_offset"],
                "body": body.hex(),
                "properties": held,
            }
        offset = int(answer.fields["nextBeginOffset"])
