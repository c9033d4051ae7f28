"""`mqtool story`: the life of one message."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mqtool import commands
from mqtool.cli import cells, options
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, note
from mqtool.cli.options import check_result_file, format_option
from mqtool.cli.output import Output
from mqtool.cli.schema import DATA, TABLE, WIDE, Column, OutputSchema, count, flag, moment, prints, row_of, text
from mqtool.errors import UsageError

if TYPE_CHECKING:
    from mqtool.story import MessageHistory

HELP = """
mqtool story /data/store order-4711

Show the life of a message across its records: sent, half, committed or rolled back, parked in a delay level or the
timer, recalled, delivered, popped, acknowledged, retried, dead, and which groups are past it. Takes a key, a unique
key, an offset message id, a physical offset or TOPIC/QUEUE@OFFSET. Each step comes with the record, the file or the
position that proves it; what the store does not show is a step `not-provable` with the reason. Records are found by the
index. -o writes one HTML page; --format otlp prints OpenTelemetry spans. Exit code 1 if nothing is found.

impact: writes --output atomically; the store is only read
"""

STORY = OutputSchema(
    "story",
    "a step in the life of a message, in the order of time",
    (
        Column("at", "int64", "when, ms since epoch; null if unknown", show=TABLE, time=True, nullable=True),
        text("step", "sent, half, committed, delayed, timed, delivered, retry, dead, waits, not-provable, …"),
        text("what", "the same in a sentence"),
        text("proof", "what proves it; for a step that is not provable, the reason"),
        flag("proved", "whether something in the store proves it"),
        text("message", "UNIQ_KEY of the message; null if it has none", show=WIDE, nullable=True),
        text("group", "consumer or producer group", show=WIDE, nullable=True),
        text("topic", "of the record", show=WIDE, nullable=True),
        Column("queue_id", "integer", "of the record", nullable=True),
        count("queue_offset", "of the record", show=WIDE, nullable=True),
        count("physical_offset", "of the record", show=WIDE, nullable=True),
        moment("due", "when it is delivered", show=WIDE),
        count("tries", "earlier attempts of the group, or checks with the producer", show=WIDE),
        moment("until", "when it ended", show=DATA),
    ),
)


class StoryFormat(StrEnum):
    """Values of `--format`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    OTLP = "otlp"
    HELP = "help"


StoryFormatOption = Annotated[
    StoryFormat,
    format_option("Output format; otlp: OpenTelemetry spans as JSON; help prints the JSON Schema of the output."),
]


@prints(STORY)
def story(
    ctx: typer.Context,
    store: options.StoreArgument,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Key, id, offset, or place in a queue.")],
    *,
    output: Annotated[
        Path | None,
        options.output_option("File for an HTML page; an existing one is replaced."),
    ] = None,
    output_format: StoryFormatOption = StoryFormat.TABLE,
    config: options.FoundConfigOption = None,
    _zone: options.ZoneOption = cells.DEFAULT_ZONE,
) -> ExitCode:
    """Prints the steps, and writes the page."""
    from mqtool.store import open_readable
    from mqtool.story import histories_of

    if output is not None:
        if not output.parent.is_dir():
            raise UsageError(f"{output}: directory {output.parent} does not exist; name a file in an existing one")
        check_result_file(store, output)
    with open_readable(store, config) as opened:
        limits = [*opened.unlisted_parts(), *opened.skip_unreadable()]
        histories, notes = histories_of(opened, address)
        has_all_queues = not opened.unread_queues
    limits += notes
    for limit in dict.fromkeys([*limits, *(line for history in histories for line in history.notes)]):
        note(limit)
    if not histories and has_all_queues and not notes:
        oldest = commands.command("info", commands.Opened(store, config))
        note(
            "no record has this address, id or key; check the spelling (case matters), and with "
            f"`{oldest}` whether retention has deleted the message"
        )
    if output is not None:
        _write_page(output, str(store), address, histories, limits)
    code = ExitCode.OK if histories else ExitCode.NO
    if output_format is StoryFormat.OTLP:
        return _print_spans(histories, code)
    printed = Output(ctx.obj, STORY, Format(output_format.value))
    for history in histories:
        key = history.unique_key
        printed.rows(
            row_of(STORY.columns, step, step=step.kind, what=step.text, proved=step.is_proved, message=key)
            for step in history.steps
        )
    return printed.finish(code)


def _write_page(path: Path, store: str, address: str, histories: list[MessageHistory], notes: list[str]) -> None:
    from mqtool.jobs.atomic import replace_file
    from mqtool.report.page import story as make_page

    replace_file(path, make_page(store, address, histories, notes).encode("utf-8", "replace"))


def _print_spans(histories: list[MessageHistory], code: ExitCode) -> ExitCode:
    from mqtool.cli.render import encode
    from mqtool.story.otlp import spans

    sys.stdout.buffer.write(encode(spans(histories), indent=True) + b"\n")
    sys.stdout.buffer.flush()
    return code
