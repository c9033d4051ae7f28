"""`mqtool salvage`: copies every provable record of a damaged store to a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli import options
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import ProgressMode, option
from mqtool.cli.output import Output
from mqtool.cli.progress import share_of, show_progress
from mqtool.cli.schema import CONFIG, NEXT_STEPS, TABLE, WIDE, Column, OutputSchema, count, listing, prints, size, text
from mqtool.cli.sibling_rows import SALVAGE_KIND
from mqtool.errors import UsageError
from mqtool.siblings.registry import recognise

HELP = """
mqtool salvage /data/damaged -o /data/salvaged --with /backup/slave

Copy every valid record of a damaged store to a new store, and report what is lost by topic, queue and consumer group.
Records stay at their physical offsets, holes between them are filled so that a broker skips them, and messages keep
their queue offsets; --compact closes the gaps instead and writes a map of old to new offsets. Records that the first
store lost are taken from copies of it (--with, repeatable): a slave, an older backup. Queues and index are rebuilt,
config/ is copied where it is readable. The new store appears only when it is complete. Exit code 1 if anything is
known to be lost, or if a broker would not start on the new store. --without-topic omits the messages of a topic,
which frees their space. In EQueue and EventStore chunks, records between damaged ranges are found from either end; -o
then names a new store, or a Parquet file of the records.

impact: writes what -o names, next to it while it is incomplete, and the --map file; the old stores are only read
"""


SALVAGE = OutputSchema(
    "salvage",
    "result of a salvage",
    (
        text("store", "root of the damaged store"),
        CONFIG,
        text("target", "root of the new one"),
        Column("copies", "array", "further copies that were read", show=TABLE),
        Column("compact", "boolean", "gaps between records were closed", show=TABLE),
        Column("complete", "boolean", "nothing is known to be lost", show=TABLE),
        count("records", "in the new store"),
        size("bytes", "of these records"),
        count("purged_records", "of topics that were left out on request"),
        size("purged_bytes", "of these records"),
        Column("records_by_copy", "array", "how many are from each copy, `store` first", items="integer", show=TABLE),
        count("lost_messages", "messages proved to have existed, and lost"),
        size("lost_bytes", "bytes of the old log without a provable record"),
        count(
            "conflicts",
            "records that differ between copies where no checksum decides; those of the first copy were used",
        ),
        Column(
            "unplaced",
            "array",
            "physical offsets of provable records that could not be kept in place",
            items="integer",
            show=WIDE,
        ),
        text("verify", "state that `mqtool verify` gives the new store"),
        text("map_file", "old and new offsets of a compacted store", nullable=True),
        listing(
            "queues",
            "what is present and what is lost",
            text("topic", "topic"),
            Column("queue_id", "integer", "queue", show=TABLE),
            count("min_offset", "first queue offset"),
            count("max_offset", "one past the last"),
            count("salvaged", "messages in the new store"),
            count("lost", "lost messages"),
            text("lost_offsets", "their queue offsets"),
        ),
        listing(
            "holes",
            "ranges of the old log without a provable record",
            count("start", "physical offset"),
            count("end", "one past the last byte"),
            text("filled", "filler: records no queue leads to; BLANK: the rest of the segment; empty: left out"),
        ),
        listing(
            "groups",
            "effect on consumer groups",
            text("group", "consumer group"),
            text("topic", "topic"),
            Column("queue_id", "integer", "queue", show=TABLE),
            count("consumer_offset", "next it will read"),
            count("consumed", "lost messages that it had read"),
            count("unread", "lost messages that it had not read"),
        ),
        listing(
            "config_files",
            "files of config/, and the checkpoint",
            text("file", "name"),
            text("source", "copied, or rebuilt"),
            show=WIDE,
        ),
        Column("index_files", "array", "names", show=WIDE),
        Column("notes", "array", "worth knowing", show=TABLE),
        NEXT_STEPS,
    ),
    single=True,
)


@prints(SALVAGE, SALVAGE_KIND)
def salvage(
    ctx: typer.Context,
    store: options.StoreArgument,
    *,
    target: Annotated[Path, options.output_option("Root of the new store; must not exist.")],
    copies: Annotated[list[Path] | None, options.copies_option()] = None,
    compact: Annotated[
        bool, option("--compact", help="Close the gaps between records; physical offsets change.")
    ] = False,
    without_topic: Annotated[
        list[str] | None,
        option(
            "--without-topic", metavar="GLOB", help="With --compact: leave out the messages of a topic; repeatable."
        ),
    ] = None,
    map_file: Annotated[
        Path | None,
        option("--map", metavar="FILE", help="CSV file for old and new offsets. Default: that of -o with .map.csv."),
    ] = None,
    skip_unreadable: Annotated[
        bool,
        option(
            "--skip-unreadable",
            help="Leave out what this user may not read; what is lost is then unknown, exit code 1.",
        ),
    ] = False,
    output_format: options.FormatOption = Format.TABLE,
    config: options.FoundConfigOption = None,
    progress: options.ProgressOption = ProgressMode.AUTO,
) -> ExitCode:
    """Salvages and reports; ends with 1 if anything is known to be lost."""
    from mqtool.repair.salvage import SalvageOptions
    from mqtool.repair.salvage import salvage as salvage_store
    from mqtool.store.log.readable_parts import UnreadableParts
    from mqtool.store.store import open_store

    if compact and map_file is None and target.name:
        map_file = target.with_name(f"{target.name}.map.csv")
    kind = recognise(store)
    if kind is not None:
        if copies or compact or map_file or without_topic or skip_unreadable:
            raise UsageError(
                "leave --with, --compact, --without-topic, --map and --skip-unreadable out: a store of kind "
                f"{kind.name} has none"
            )
        from mqtool.cli import siblings

        return siblings.salvage(ctx.obj, kind, store, target, output_format)
    with open_store(store, config) as opened:
        opened.commit_log.unreadable = UnreadableParts()
        total = opened.commit_log.bytes_in_use
    chosen = SalvageOptions(tuple(copies or ()), compact, tuple(without_topic or ()), map_file, config, skip_unreadable)
    stated = options.stated_release(store, config, has_option=False)
    with stated, show_progress(progress, "salvage", 0, total) as bar:
        result = salvage_store(store, target, chosen, share_of(bar, total))
    document = result.as_dict() | {"config": config and str(config)}
    code = ExitCode.OK if result.is_complete else ExitCode.NO
    return Output(ctx.obj, SALVAGE, output_format).document(document, code)
