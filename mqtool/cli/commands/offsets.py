"""`mqtool offsets`: shows positions of consumer groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqtool import commands
from mqtool.cli import cells, document, options
from mqtool.cli.cells import counted
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, note
from mqtool.cli.options import option
from mqtool.cli.output import Output
from mqtool.cli.schema import TABLE, WIDE, Column, OutputSchema, count, prints, text
from mqtool.values import asdict

if TYPE_CHECKING:
    from mqtool.store.groups.positions import Position

HELP = """
mqtool offsets /data/store --group billing --topic Orders

Show the position of each group in each queue, with the queue's bounds, the messages after the position and the time of
the next one. Positions come from every file and RocksDB that keeps them; those that a broker would not read when it
starts on the store are marked. Kinds: committed (what the group has consumed), pulled (the end of the last pull, 5.x),
broadcast (a client's own file, given with --broadcast). `popped` counts messages that POP has delivered and that are
not acknowledged; they are delivered again whatever the position. --compare also shows the positions of another store,
for example of the other replica. Exit code 1 if there is no position, or the bounds of a queue cannot be read.
`mqtool plan offsets` plans changes of positions.

impact: read-only
"""

OFFSETS = OutputSchema(
    "offsets",
    "the position of a consumer group in a queue",
    (
        text("kind", "committed, pulled or broadcast", show=WIDE),
        text("group", "consumer group; empty in the file of a client", show=WIDE),
        text("topic", "topic", show=WIDE),
        count("queue_id", "queue of the topic", label="queue"),
        count("offset", "next queue offset that the group gets; null if only the other store has one", nullable=True),
        count("min_offset", "minimum offset of the queue; null if it is missing", nullable=True, label="min"),
        count("max_offset", "maximum offset of the queue; null if it is missing", nullable=True, label="max"),
        count("lag", "messages after the position; null if the queue is missing", nullable=True),
        Column(
            "next_time",
            "int64",
            "store time of the next message, ms since epoch; null if there is none",
            show=TABLE,
            time=True,
            nullable=True,
            label="next message",
        ),
        count(
            "in_flight",
            "messages that the group popped and did not acknowledge; null if POP's database cannot be read",
            nullable=True,
            label="popped",
        ),
        text("source", "file or database below the store, or the file of a client", show=WIDE),
        Column("read", "boolean", "a broker that starts on the store reads this source"),
        count("other_offset", "position in the store of --compare", nullable=True, label="other"),
        count("other_min_offset", "minimum offset of the queue there", show=WIDE, nullable=True),
        count("other_max_offset", "maximum offset of the queue there", show=WIDE, nullable=True),
        count("difference", "messages that the other store is ahead of this one", nullable=True),
    ),
)
_COMPARED = ("other_offset", "other_min_offset", "other_max_offset", "difference")
GroupOption = Annotated[list[str] | None, options.group_option()]
CompareOption = Annotated[
    Path | None, option("--compare", metavar="OTHER", help="Another store, for instance the other replica.")
]
BroadcastOption = Annotated[
    list[Path] | None,
    option("--broadcast", metavar="FILE", help="offsets.json of a client of a broadcasting group; may be repeated."),
]


@prints(OFFSETS)
def offsets(
    ctx: typer.Context,
    store: options.StoreArgument,
    *,
    group: GroupOption = None,
    topic: options.TopicOption = None,
    compare: CompareOption = None,
    broadcast: BroadcastOption = None,
    config: options.FoundConfigOption = None,
    output_format: options.FormatOption = Format.TABLE,
    _zone: options.ZoneOption = cells.DEFAULT_ZONE,
) -> ExitCode:
    """Prints the positions; ends with 1 if there are none, or a queue cannot be read."""
    from mqtool.store.groups.positions import positions_of
    from mqtool.store.store import open_store

    output = Output(ctx.obj, OFFSETS, output_format)
    with open_store(store, config) as opened:
        tables = opened.metadata.offset_tables
        unread = opened.skip_unreadable_queues()
        for words in (*unread, *tables.problems, *([tables.evidence] if tables.evidence else [])):
            note(words)
        positions = list(positions_of(opened, group, topic, broadcast or ()))
        rows = list(map(_row, positions))
        if compare is not None:
            with open_store(compare) as other:
                for words in (more := other.skip_unreadable_queues()):
                    note(words)
                unread += more
                rows = list(_compared(positions, list(positions_of(other, group, topic))))
    if not rows:
        every = commands.command("offsets", commands.Opened(store, config))
        note(f"no position found for this selection; `{every}` lists all" if group or topic else "no position found")
    code = ExitCode.OK if rows and not unread else ExitCode.NO
    if output_format is Format.TABLE:
        return output.page(_tables(rows), code)
    output.rows(rows)
    return output.finish(code)


def _tables(rows: Sequence[dict[str, Any]]) -> Iterator[bytes]:
    """Yields a table for the positions of each group in each topic, without columns that say nothing."""
    by_table = itemgetter("group", "topic", "kind", "source", "read")
    for (group, topic, kind, source, is_read), some in groupby(rows, by_table):
        queues = list(some)
        lags = [row["lag"] for row in queues if row["lag"] is not None]
        words = [f"group {group}"] if group else []
        words += [f"topic {topic}", *([f"{counted(sum(lags), 'message')} not read"] if lags else [])]
        if kind != "committed" or not is_read:
            known = any(row["offset"] is not None for row in queues)
            words += [
                kind,
                source,
                *([] if is_read else ["not read by a broker" if known else "only in the other store"]),
            ]
        columns = tuple(
            column
            for column in OFFSETS.columns
            if any(row[column.name] != (0 if column.name == "in_flight" else None) for row in queues)
        )
        yield document.section(", ".join(words), queues, columns, wide=False, has_all_rows=True)


def _row(position: Position) -> dict[str, Any]:
    row = asdict(position)
    row["kind"] = position.kind.value
    row["read"] = row.pop("is_read")
    return row | dict.fromkeys(_COMPARED)


def _compared(rows: list[Position], others: list[Position]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a store next to those of another for the same group and queue, then the other's rest."""
    positions = {
        (position.kind, position.group, position.topic, position.queue_id): position
        for position in others
        if position.is_read
    }
    for position in rows:
        other = (
            positions.pop((position.kind, position.group, position.topic, position.queue_id), None)
            if position.is_read
            else None
        )
        yield _row(position) | _other(other, position.offset)
    for other in positions.values():
        unknown = dict.fromkeys(("offset", "min_offset", "max_offset", "lag", "next_time", "in_flight"))
        yield _row(other) | unknown | {"read": False} | _other(other, None)


def _other(other: Position | None, offset: int | None) -> dict[str, Any]:
    if other is None:
        return {}
    difference = None if offset is None else other.offset - offset
    return dict(zip(_COMPARED, (other.offset, other.min_offset, other.max_offset, difference), strict=True))
