"""`mqtool diff`: shows the differences between two stores."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqtool import words
from mqtool.cli.cells import counted
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import FormatOption, ProgressMode, ProgressOption, option
from mqtool.cli.output import Output
from mqtool.cli.progress import share_of, show_progress
from mqtool.cli.schema import (
    DATA,
    TABLE,
    WIDE,
    Column,
    OutputSchema,
    count,
    listing,
    nested,
    prints,
    row_of,
    size,
    text,
)
from mqtool.values import asdict

if TYPE_CHECKING:
    from mqtool.diff import Difference, LogDifference, QueueDifference, Region


HELP = """
mqtool diff /data/master /data/slave

Compare two stores: master and slave, before and after, copy and original. Shows up to which physical offset their
CommitLogs agree and where they diverge, which bytes and messages only one side has, which records differ in place and
on which side they are damaged; each queue's bounds and messages; consumer offsets. Stale or torn bytes after the end
of a log are reported and do not count as a difference. Exit code 1 if the stores differ, 0 if they are equal.

impact: read-only
"""


_REGION = (
    count("start", "physical offset of the first byte, of a complete record if there is one"),
    count("end", "physical offset after the last byte"),
    size("bytes", "how many of these bytes differ", label="different"),
    count("messages_a", "valid records of A in it that belong into a queue"),
    count("messages_b", "the same for B"),
    size("damaged_a", "bytes of A in it without a valid record"),
    size("damaged_b", "bytes of B in it without a valid record"),
    text("detail", "what is wrong with the damaged side"),
)

_ALONE = (
    text("side", "a or b: who has it"),
    text(
        "kind", "front (the other starts later), end (the other ends earlier), gap (a segment is missing in the other)"
    ),
    count("start", "physical offset of the first byte"),
    count("end", "physical offset after the last byte"),
    count("messages", "valid records that start in it and belong into a queue"),
)

_TAIL = (
    text("side", "a or b"),
    text("kind", "clean (nothing), torn (an incomplete record), stale (old records left by a truncation), garbage"),
    count("start", "physical offset after the last record"),
    size("length", "bytes up to the last that is not zero"),
    size(
        "same",
        "how many of these bytes, from the first on, are the same on the other side",
        label="same in the other",
    ),
    text("detail", "in words"),
)

_LOG = (
    count("min_a", "first physical offset of A", nullable=True, label="a begins at"),
    count("max_a", "physical offset after the last record of A", nullable=True, label="a ends at"),
    count("min_b", "first physical offset of B", nullable=True, label="b begins at"),
    count("max_b", "physical offset after the last record of B", nullable=True, label="b ends at"),
    count("common_start", "physical offset from which both have the same bytes", nullable=True, label="the same from"),
    count("common_end", "up to here", nullable=True, label="the same up to"),
    count("diverges_at", "first record that differs, or where one side ends; null if there is none", nullable=True),
    count("first_byte", "first byte that differs in the range that both have", show=WIDE, nullable=True),
    size("same_bytes", "that both have", label="equal"),
    size("different_bytes", "bytes that both have and that differ", label="different"),
    Column(
        "filler_bytes",
        "int64",
        "bytes that differ after a BLANK, where the content is undefined; not a difference",
        WIDE,
        is_size=True,
    ),
    count("messages_a", "messages of A in the regions", label="messages of a in the regions"),
    count("messages_b", "messages of B in the regions", label="messages of b in the regions"),
    count("region_count", "regions in all", label="regions that differ"),
    listing("regions", "ranges that both have and that differ; the first 1000", *_REGION),
    listing("alone", "ranges that only one side has", *_ALONE),
    listing("tails", "what follows the last record; not a difference", *_TAIL),
)

_QUEUE = (
    text("topic", "name"),
    Column("queue_id", "integer", "of the topic", show=TABLE),
    count("min_a", "min offset of A; null if the queue is missing", nullable=True),
    count("max_a", "max offset of A", nullable=True),
    count("min_b", "min offset of B", nullable=True),
    count("max_b", "max offset of B", nullable=True),
    count("messages_a", "messages that only A has"),
    count("messages_b", "messages that only B has"),
    count("different", "units that both have and that differ"),
    count("first_different", "queue offset of the first of them", nullable=True),
    Column("only_a", "array", "first and last queue offset of each run, both included", items="any", show=DATA),
    Column("only_b", "array", "the same for B", items="any", show=DATA),
)

_OFFSET = (
    text("group", "consumer group"),
    text("topic", "name"),
    Column("queue_id", "integer", "of the topic", show=TABLE),
    count("offset_a", "next queue offset that it will read by A; null if there is none", nullable=True),
    count("offset_b", "by B", nullable=True),
    count("ahead", "messages that B is ahead of A", nullable=True),
)

DIFF = OutputSchema(
    "diff",
    "differences between two stores",
    (
        Column("verdict", "string", "in one line", TABLE, is_verdict=True),
        text("a", "one store, as given"),
        text("b", "the other"),
        Column("equal", "boolean", "nothing differs, and everything could be compared", show=TABLE),
        nested("log", "the CommitLogs; null if not asked for", *_LOG, nullable=True),
        count("queues_compared", "how many"),
        listing("queues", "queues that differ", *_QUEUE),
        count("offsets_compared", "consumer offsets: how many"),
        listing("offsets", "consumer offsets that differ", *_OFFSET),
        Column("not_compared", "array", "what could not be read, as text", show=TABLE),
    ),
    single=True,
)


class Part(StrEnum):
    """Values of `--part`."""

    LOG = "log"
    QUEUES = "queues"
    OFFSETS = "offsets"


def _store(metavar: str, text: str) -> object:
    return typer.Argument(metavar=metavar, help=text, show_default=False)


@prints(DIFF)
def diff(
    ctx: typer.Context,
    a: Annotated[Path, _store("A", "Root directory of one store.")],
    b: Annotated[Path, _store("B", "Root directory of the other.")],
    *,
    part: Annotated[
        list[Part] | None, option("--part", help="Compare only this: log, queues, offsets; may be repeated.")
    ] = None,
    config_a: Annotated[
        Path | None,
        option("--config-a", metavar="FILE", help="broker.conf of A; overrides what is detected from the files."),
    ] = None,
    config_b: Annotated[
        Path | None,
        option("--config-b", metavar="FILE", help="broker.conf of B; overrides what is detected from the files."),
    ] = None,
    output_format: FormatOption = Format.TABLE,
    progress: ProgressOption = ProgressMode.AUTO,
) -> ExitCode:
    """Compares and prints; ends with 1 if the stores differ."""
    from mqtool.diff import compare
    from mqtool.diff.stores import PARTS
    from mqtool.store import open_store

    with open_store(a, config_a) as left, open_store(b, config_b) as right:
        size = min(sum(segment.size for segment in store.commit_log.segments) for store in (left, right))
        with show_progress(progress, "diff", 0, size) as bar:
            difference = compare(left, right, tuple(item.value for item in part or ()) or PARTS, share_of(bar, size))
    document = {
        "verdict": _verdict(difference),
        "a": str(a),
        "b": str(b),
        "equal": difference.equal,
        "log": None if difference.log is None else _log(difference.log),
        "queues_compared": difference.queues_compared,
        "queues": [_queue(item) for item in difference.queues],
        "offsets_compared": difference.offsets_compared,
        "offsets": [{**asdict(item), "ahead": _ahead(item.offset_a, item.offset_b)} for item in difference.offsets],
        "not_compared": list(difference.not_compared),
    }
    return Output(ctx.obj, DIFF, output_format).document(document, ExitCode.OK if difference.equal else ExitCode.NO)


def _verdict(difference: Difference) -> str:
    if difference.equal:
        return "equal"
    parts = []
    if difference.log is not None and not difference.log.equal:
        parts.append(_of_log(difference.log))
    if difference.queues:
        parts.append(f"{counted(len(difference.queues), 'queue')} of {difference.queues_compared}")
    if difference.offsets:
        parts.append(f"{counted(len(difference.offsets), 'consumer offset')} of {difference.offsets_compared}")
    verdict = f"different: {'; '.join(parts)}" if parts else "no difference found"
    return f"{verdict}; some parts could not be compared" if difference.not_compared else verdict


def _of_log(log: LogDifference) -> str:
    if log.common is None:
        return "the logs have no byte in common"
    parts = [] if log.diverges_at is None else [f"the logs diverge at physical offset {log.diverges_at}"]
    if log.region_count:
        parts.append(f"{words.size(log.different_bytes)} differ")
    for side in ("a", "b"):
        mine = [part for part in log.alone if part.side == side]
        if mine:
            messages = counted(sum(part.messages for part in mine), "message")
            parts.append(f"{side} has {messages}, {words.size(sum(part.end - part.start for part in mine))} alone")
    return ", ".join(parts)


def _log(log: LogDifference) -> dict[str, Any]:
    ends = (log.a, log.b, log.common)
    bounds = [bound for interval in ends for bound in (interval or (None, None))]
    names = ("min_a", "max_a", "min_b", "max_b", "common_start", "common_end")
    tails = [{"side": side, **asdict(tail)} for side, tail in (("a", log.tail_a), ("b", log.tail_b)) if tail]
    parts = {"regions": list(map(_region, log.regions)), "alone": list(map(asdict, log.alone)), "tails": tails}
    return row_of(_LOG, log, **dict(zip(names, bounds, strict=True)), **parts)


def _region(region: Region) -> dict[str, Any]:
    details = [f"{side}: {content.detail}" for side, content in (("a", region.a), ("b", region.b)) if content.detail]
    return {
        "start": region.start,
        "end": region.end,
        "bytes": region.bytes,
        "messages_a": region.a.messages,
        "messages_b": region.b.messages,
        "damaged_a": region.a.damaged_bytes,
        "damaged_b": region.b.damaged_bytes,
        "detail": "; ".join(details),
    }


def _queue(queue: QueueDifference) -> dict[str, Any]:
    (min_a, max_a), (min_b, max_b) = queue.bounds_a or (None, None), queue.bounds_b or (None, None)
    return row_of(_QUEUE, queue, min_a=min_a, max_a=max_a, min_b=min_b, max_b=max_b)


def _ahead(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else b - a
