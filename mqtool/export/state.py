"""The watermark: how far a store has been exported, and the means to detect that its log is no longer the same.

A physical offset alone is not sufficient, because a log can be truncated and grow again. The mark therefore contains
digests of bytes that a log never changes: the first ones of the segment, and the last ones before the offset.
`plan_since` plans what follows a mark, with what was lost before it could be read.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.errors import ExportError
from mqtool.export.plan import StorePlan, plan_store
from mqtool.export.sources import Source
from mqtool.jobs import resume
from mqtool.records.damage import Damage, DamageKind
from mqtool.store import Store
from mqtool.store.log.selection import Selection
from mqtool.values import asdict

HEAD_BYTES, TAIL_BYTES = 4096, 65536
VERSION = 1
_WHAT = "an export"
_REMEDY = "Add --rewind to remove those rows, or export into a new directory with a new --state"


class Mark(Struct, frozen=True):
    """A position in a log, with fingerprints."""

    offset: int  # physical offset up to which everything is exported
    base: int  # physical offset of the segment's first byte
    head_bytes: int  # and head: count and digest of the segment's first bytes
    head: str
    tail_bytes: int  # and tail: count and digest of the bytes before the offset
    tail: str


def mark_at(store: Store, offset: int) -> Mark | None:
    """Returns the mark of an offset; None if the log has no byte before it."""
    index = store.commit_log.segment_at(offset - 1)
    if index is None:
        return None
    base = store.commit_log.segments[index].base
    head_bytes, tail_bytes = min(HEAD_BYTES, offset - base), min(TAIL_BYTES, offset - base)
    head, tail = _digest(store, base, head_bytes), _digest(store, offset - tail_bytes, tail_bytes)
    return Mark(offset, base, head_bytes, head, tail_bytes, tail)


def _digest(store: Store, offset: int, count: int) -> str:
    return hashlib.blake2b(store.commit_log.read(offset, count), digest_size=16).hexdigest()


def check_mark(store: Store, mark: Mark, end: int, remedy: str = _REMEDY) -> int:
    """Returns the physical offset from which to continue: the mark's, or the log's first if that is larger.

    Raises ExportError, with a remedy, if the log, which has this end now, ends before the mark, or is another log.
    """
    log = store.commit_log
    if log.min_offset >= mark.offset and log.segments:
        return log.min_offset
    if end < mark.offset:
        raise ExportError(
            f"the log is shorter than at the last export: exported up to physical offset {mark.offset}, it now ends "
            f"at {end}. Was it cut by a recovery, or replaced? {remedy}",
            store.path,
        )
    index = log.segment_at(mark.offset - 1)
    base = None if index is None else log.segments[index].base
    if base is not None and base != mark.base:
        raise ExportError(
            f"expected a segment at {mark.base}, found one at {base}: another log; give its own state",
            store.path,
        )
    for what, at, count, digest in (
        ("the segment's first bytes", mark.base, mark.head_bytes, mark.head),
        ("the bytes before the watermark", mark.offset - mark.tail_bytes, mark.tail_bytes, mark.tail),
    ):
        if base is not None and _digest(store, at, count) != digest:
            raise ExportError(
                f"the log is not the one that was exported: {what} (physical offset {at}) have changed. It was cut "
                f"back below {mark.offset} and written on, or replaced. {remedy}",
                store.path,
            )
    return mark.offset


def require_new_log(store: Store, broker: str, marks: Mapping[str, Mark]) -> None:
    """Raises ExportError if the log of a store without a mark was read already, under the name of another one.

    All of its rows would appear twice. A log whose segment of the mark has expired since is not recognised. `marks` are
    by broker, of all stores that were read.
    """
    bases = {segment.base for segment in store.commit_log.segments}
    for name, mark in marks.items():
        if name != broker and mark.base in bases and _digest(store, mark.base, mark.head_bytes) == mark.head:
            raise ExportError(
                f"this log was read before under the name {name!r}, up to physical offset {mark.offset}, and is now "
                f"named {broker!r}: its messages would appear twice. Give it as {name}={store.path}",
                store.path,
            )


class State(Struct, frozen=True):
    """The persistent state of an incremental export."""

    export_id: str  # of the directory it belongs to
    sequence: int  # of the last commit
    shape: dict[str, Any]  # what must be the same in all runs: columns, classes, body, partitions, redaction
    marks: dict[str, Mark] = field(default_factory=dict)  # by broker

    def to_json(self) -> dict[str, Any]:
        """Returns the state as plain data for JSON."""
        return {"version": VERSION, **asdict(self)}

    def to_bytes(self) -> bytes:
        """Returns the contents of the state file."""
        return resume.build(VERSION, asdict(self), indent=1)


def state_from_json(data: Any, where: str) -> State:
    """Parses the result of `to_json`; raises ConfigFileError if the data is not a state."""
    return _state_of(resume.fields_of(data, VERSION, _WHAT, where), where)


def _state_of(fields: dict[str, Any], where: str) -> State:
    try:
        marks = {str(broker): Mark(**mark) for broker, mark in fields["marks"].items()}
        return State(str(fields["export_id"]), int(fields["sequence"]), dict(fields["shape"]), marks)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise resume.not_the_state(_WHAT, where, repr(error)) from error


def parse_state(data: bytes, where: str) -> State:
    """Reads a state file; raises ConfigFileError if it is not valid."""
    return _state_of(resume.parse(data, VERSION, _WHAT, where), where)


def plan_since(
    store: Store,
    source: Source,
    selection: Selection,
    mark: Mark | None,
    *,
    until: int | None = None,
    target: int | None = None,
) -> StorePlan:
    """Plans what a store contains after a watermark, None if nothing was read; see `plan_store`.

    A range that expired before it was read is the first damage of the plan. Raises ExportError if the log was
    truncated, or is another log.
    """
    plan = plan_store(store, source, selection, since=None if mark is None else mark.offset, until=until, target=target)
    if mark is None:
        return plan
    start = check_mark(store, mark, plan.log_end)
    if start == mark.offset:
        return plan
    detail = f"expired before it was read: the log begins at {start} now"
    lost = Damage(mark.offset, start, DamageKind.MISSING, detail)
    return replace(plan, damage=(lost, *plan.damage))
