"""Trace records: reports by clients about messages that they sent or consumed.

A body contains several reports, each terminated by 0x02, with fields separated by 0x01. Source: TraceDataEncoder,
TraceConstants, AsyncTraceDispatcher (4.9.7, 5.5.0).
"""

from collections.abc import Iterator

from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats import java
from mqtool.store.log.message import Message

_FIELD, _REPORT = "\x01", "\x02"


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
