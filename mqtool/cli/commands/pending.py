"""`mqtool pending`: lists messages that are waiting to be delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mqtool import commands
from mqtool.cli import cells, options
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, note
from mqtool.cli.options import option
from mqtool.cli.output import Output
from mqtool.cli.schema import DATA, WIDE, Column, OutputSchema, count, moment, prints, row_of, text
from mqtool.cli.selection import require_selected

if TYPE_CHECKING:
    from mqtool.store.waiting.pending import PendingCount, PendingMessage

HELP = """
mqtool pending /data/store

List the messages of a store that are waiting to be delivered, by topic and group: delay levels, timers, half messages
that nobody committed or rolled back, messages that were popped and not acknowledged, waiting retries, dead letters.
Each row has the number of messages, when the next is due and since when the oldest has waited. --list prints the
messages one by one. What the files do not show is a row without a number, with the reason; the exit code is 1 then.

impact: read-only
"""


_KIND = text("kind", "delay, timer, transaction, popped, retry or dead-letter")

PENDING = OutputSchema(
    "pending",
    "messages of one kind waiting for one topic and group",
    (
        _KIND,
        text("topic", "where consumers find them; null if unknown", nullable=True),
        text(
            "group", "group that they wait for; for half messages, the producer's; null for all groups", nullable=True
        ),
        count("messages", "how many; null if that cannot be determined", nullable=True),
        moment("next_due", "when the first is delivered"),
        moment("last_due", "when the last is delivered", show=WIDE),
        moment("oldest", "time since which the first has been waiting"),
        count("tries", "maximum number of checks or delivery attempts of one message"),
        text("unknown", 'why something is unknown, "" if nothing is'),
    ),
)

PENDING_MESSAGE = OutputSchema(
    "pending.message",
    "a waiting message",
    (
        _KIND,
        text("topic", "where consumers find it"),
        text(
            "group", "group that it waits for; for a half message, the producer's; null for all groups", nullable=True
        ),
        moment("due", "when it is delivered; null if that does not depend on time"),
        moment("since", "when it was sent, was popped or became a retry or dead letter"),
        count("tries", "number of checks with its producer, or of delivery attempts"),
        text("unique_key", "UNIQ_KEY", nullable=True),
        text("origin", "topic that a retry or dead letter was originally sent to", show=WIDE, nullable=True),
        text("stored_topic", "topic of the queue that keeps it", show=WIDE),
        Column("queue_id", "integer", "queue that keeps it", show=WIDE),
        count("queue_offset", "its place there", show=WIDE),
        count("physical_offset", "of its record; -1 if unknown"),
        text("unknown", 'why something is unknown, "" if nothing is', show=DATA),
    ),
)

GroupOption = Annotated[list[str] | None, options.group_option("Consumer or producer group")]


@prints(PENDING, PENDING_MESSAGE)
def pending(
    ctx: typer.Context,
    store: options.StoreArgument,
    *,
    topic: options.TopicOption = None,
    group: GroupOption = None,
    show: Annotated[bool, option("--list", help="Print every message instead of counts.")] = False,
    output_format: options.FormatOption = Format.TABLE,
    config: options.FoundConfigOption = None,
    _zone: options.ZoneOption = cells.DEFAULT_ZONE,
) -> ExitCode:
    """Prints counts or messages."""
    from mqtool.store import open_readable
    from mqtool.store.log.selection import Globs
    from mqtool.store.waiting.pending import pending_counts, pending_messages

    topics, groups = Globs(topic or ()), Globs(group or ())

    def is_selected(row: PendingMessage | PendingCount) -> bool:
        named = not topic or row.topic is None or topics.matches(row.topic)
        return named and (not group or row.topic is None or (row.group is not None and groups.matches(row.group)))

    problems: list[str] = []
    with open_readable(store, config) as opened:
        problems += [*opened.unlisted_parts(), *opened.skip_unreadable()]
        counts = [row for row in pending_counts(opened) if is_selected(row)]
        if not counts:  # messages can wait for a topic that is not there yet
            require_selected([opened], topic)
        output = Output(ctx.obj, PENDING_MESSAGE if show else PENDING, output_format)
        if show:
            is_known = any(row.messages is not None for row in counts)
            messages = pending_messages(opened) if is_known else ()
            output.rows(
                row_of(PENDING_MESSAGE.columns, item, unknown=item.problem) for item in messages if is_selected(item)
            )
        else:
            output.rows(row_of(PENDING.columns, row, unknown=row.reason) for row in counts)
    problems += [row.reason for row in counts if row.reason] if show else []
    for problem in dict.fromkeys(problems):
        note(f"unknown: {problem}")
    if not counts:
        every = commands.command("pending", commands.Opened(store, config))
        note(f"nothing waits for this selection; `{every}` lists all" if group or topic else "nothing waits")
    return output.finish(ExitCode.NO if problems or any(row.reason for row in counts) else ExitCode.OK)
