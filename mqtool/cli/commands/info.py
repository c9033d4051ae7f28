"""`mqtool info`: describes a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqtool import words
from mqtool.cli import cells, document, options
from mqtool.cli.damage import DamageReport
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import TABLE_FORMATS, Format
from mqtool.cli.message_rows import DAMAGE, damage_row
from mqtool.cli.options import ProgressMode, option
from mqtool.cli.output import Output
from mqtool.cli.progress import share_of, show_progress
from mqtool.cli.schema import TABLE, Column, OutputSchema, count, listing, moment, nested, prints, size, text
from mqtool.cli.sibling_rows import KIND_INFO
from mqtool.cli.terminal import Style
from mqtool.formats.topics import is_for_consumers
from mqtool.siblings.registry import recognise

if TYPE_CHECKING:
    from mqtool.store import Store


HELP = """
mqtool info /data/store

Describe a store in a dozen lines: release, clean or unclean shutdown, the log, lag, oddities, and the topics that take
most space. --all adds how sizes and release were detected, all topics, groups and index files, checkpoint and timer.
Reads names, headers and a few records; --deep reads every record, counts exactly and lists damage (exit code 1).

impact: read-only
"""


_COMMIT_LOG = (
    count("min_offset", "physical offset of the first byte"),
    count("max_offset", "physical offset after the last record"),
    count("files", "segments"),
    Column("directories", "array", "where they are", show=TABLE),
    moment("first_timestamp", "store time of the first record"),
    moment("last_timestamp", "store time of the newest record that a queue names"),
    nested(
        "tail",
        "what follows the last record",
        text(
            "kind",
            "clean, torn (an incomplete record), stale (old records left by a truncation), garbage or unreadable",
        ),
        count("length", "bytes up to the last that is not zero"),
        text("detail", "in words"),
    ),
)

_TOPIC_SCAN = (
    text("topic", "name"),
    count("messages", "records read"),
    size("size", "their bytes"),
    moment("first_timestamp", "oldest store time", show="wide"),
    moment("last_timestamp", "newest store time"),
)

_DEEP = (
    count("messages", "valid records in the log"),
    size("size", "their bytes"),
    count("damaged_ranges", "ranges without a valid record"),
    size("damaged_bytes", "bytes in them"),
    listing("topics", "by topic, according to the records", *_TOPIC_SCAN),
    listing("damage", "the first 1000 ranges", *DAMAGE.columns[0].fields, show="wide"),
)

INFO = OutputSchema(
    "info",
    "what a store is",
    (
        text("path", "the store's root directory"),
        text("version", "oldest release that may have written it: 4.9, 5, 5.1 to 5.5; null if unknown", nullable=True),
        text("release", "the releases that may have written it, as far as the files prove it"),
        text("version_evidence", "why"),
        Column("clean_stop", "boolean", "there is no abort file", show=TABLE),
        Column("oddities", "array", "notable facts, in words", show=TABLE),
        nested("commit_log", "the CommitLog", *_COMMIT_LOG),
        listing(
            "layout",
            "sizes",
            text("name", "of what"),
            count("value", "bytes of a file, or a number", nullable=True),
            text("evidence", "where it is known from"),
        ),
        listing(
            "topics",
            "topics with queues or configuration",
            text("topic", "name"),
            count("messages", "messages in its queues that the log still has"),
            count("queues", "on disk"),
            size("size", "bytes of their records according to the queues; null in very large stores", nullable=True),
            moment("first_timestamp", "store time of its first message", show="wide"),
            moment("last_timestamp", "store time of its last message"),
            Column("configured", "boolean", "it is in topics.json", show="wide"),
            count("perm", "4 read, 2 write, 1 inherit", nullable=True, show="wide"),
            count("read_queues", "readQueueNums", nullable=True, show="wide"),
            count("write_queues", "writeQueueNums", nullable=True, show="wide"),
        ),
        listing(
            "queues",
            "queues on disk",
            text("topic", "name"),
            count("queue_id", "of the topic"),
            text("kind", "SimpleCQ or BatchCQ", show="wide"),
            count("min_offset", "queue offset of the first message that the log still has"),
            count("max_offset", "queue offset after the last message"),
            count("max_physical_offset", "after the newest record that it names (BatchCQ: its start)", show="wide"),
            count("files", "on disk", show="wide"),
            show="wide",
        ),
        listing(
            "groups",
            "consumer groups with configuration or offsets",
            text("group", "name"),
            Column("configured", "boolean", "it is in subscriptionGroup.json", show="wide"),
            count("topics", "that it has offsets for"),
            count("queues", "that it has offsets for"),
            count("lag", "messages not yet read"),
        ),
        listing(
            "lags",
            "consumer offsets",
            text("group", "name"),
            text("topic", "name"),
            count("queue_id", "of the topic"),
            count("consumer_offset", "next queue offset it will read"),
            count("min_offset", "of the queue; null if it is missing", nullable=True, show="wide"),
            count("max_offset", "of the queue; null if it is missing", nullable=True),
            count("lag", "messages not yet read; null if the queue is missing", nullable=True),
            show="wide",
        ),
        listing(
            "index_files",
            "index files, oldest first",
            text("file", "name"),
            count("entries", "that are there"),
            count("max_entries", "places for entries, place 0 unused; null if unknown", nullable=True, show="wide"),
            count("slots", "hash slots; null if unknown", nullable=True, show="wide"),
            moment("begin_timestamp", "store time of the first entry's record"),
            moment("end_timestamp", "store time of the last entry's record"),
            count("begin_physical_offset", "of the first entry's record", show="wide"),
            count("end_physical_offset", "of the last entry's record", show="wide"),
        ),
        nested(
            "checkpoint",
            "null if there is none that can be read",
            moment("physic_msg_timestamp", "store time up to which the CommitLog is flushed"),
            moment("logics_msg_timestamp", "store time up to which the queues are flushed"),
            moment("index_msg_timestamp", "end time of the last full index file"),
            count("master_flushed_offset", "that the master had flushed; since 5.0"),
            count("confirm_physical_offset", "since 5.1.1"),
            count("logics_physical_offset", "up to which the queues are flushed; since 5.5"),
            nullable=True,
        ),
        nested(
            "timer",
            "timer messages of 5.x; null if there are none",
            count("log_files", "files of the timer log"),
            count("waiting", "messages in slots that are not due; null without a wheel", nullable=True),
            moment("last_read_time", "slots before it are delivered"),
            count("last_queue_offset", "of rmq_sys_wheel_timer, up to which messages are in the wheel", nullable=True),
            nullable=True,
        ),
        listing(
            "delay_offsets",
            "delivered position of each delay level",
            count("level", "queue id + 1"),
            count("offset", "next queue offset"),
            show="wide",
        ),
        nested("deep", "result of reading every record: --deep", *_DEEP, optional=True),
    ),
    single=True,
)


_LISTED = 1000
"""Damaged ranges in the output; the counts have all."""
_SHOWN = 4
"""Topics and oddities that are printed without --all."""


@prints(INFO, KIND_INFO)
def info(
    ctx: typer.Context,
    store: options.StoreArgument,
    *,
    deep: Annotated[bool, option("--deep", help="Read every record.")] = False,
    everything: Annotated[bool, option("--all", help="Print all topics, groups, index files and sizes.")] = False,
    output_format: options.FormatOption = Format.TABLE,
    config: options.FoundConfigOption = None,
    progress: options.ProgressOption = ProgressMode.AUTO,
    _zone: options.ZoneOption = cells.DEFAULT_ZONE,
) -> ExitCode:
    """Describes a store."""
    from mqtool.store import open_readable
    from mqtool.store.describe import describe, oddities

    kind = recognise(store)
    if kind is not None:
        from mqtool.cli import siblings

        return siblings.info(ctx.obj, kind, store, output_format, deep=deep)
    report = DamageReport(lines=output_format in TABLE_FORMATS)
    with open_readable(store, config) as opened:
        unknown = [*opened.skip_unreadable(), *opened.skip_unreadable_queues()]
        description = {**describe(opened), "oddities": [*unknown, *oddities(opened)]}
        description["oddities"] = [*opened.unlisted_parts(), *description["oddities"]]
        if deep:
            report.unknown(opened.unlisted_parts(of_log=True))
            description["deep"] = _deep(opened, progress, report)
        output, code = Output(ctx.obj, INFO, output_format), report.code()
        if output_format is not Format.TABLE:
            return output.document(description, code)
        if everything:
            return output.page(document.blocks(INFO.columns, description, wide=False, has_all_rows=True), code)
        scan = document.blocks(INFO.columns[-1:], description, wide=False)
        return output.page([*_overview(description), *scan], code)


def _overview(description: dict[str, Any]) -> Iterator[bytes]:
    """Yields a description in a dozen lines."""
    log, groups, odd = description["commit_log"], description["groups"], description["oddities"]
    release = f"RocketMQ {description['release']}" if description["version"] else "of an unknown release"
    clean = ["shut down cleanly"] if description["clean_stop"] else []
    ends = [log["first_timestamp"], log["last_timestamp"]]
    times = [" to ".join(cells.moment(end, exact=False) for end in ends)] if None not in ends else []
    segments = cells.counted(log["files"], "segment")
    facts = {
        "store": ", ".join([description["path"], release, *clean]),
        "log": ", ".join([f"{words.size(log['max_offset'] - log['min_offset'])} in {segments}", *times]),
    }
    if groups:
        last = max(groups, key=lambda group: group["lag"])
        behind = cells.counted(sum(group["lag"] for group in groups), "message")
        facts["groups"] = f"{len(groups)}, {behind} not read" + (f", most by {last['group']}" if last["lag"] else "")
    yield document.labelled(facts.items())
    more = [f"and {len(odd) - _SHOWN} more: --all"] if len(odd) > _SHOWN else []
    yield document.prose(*odd[:_SHOWN], *more, style=Style.DOUBTFUL)
    (columns,) = (column.fields[:4] for column in INFO.columns if column.name == "topics")
    yield document.section("topics", _biggest(description["topics"]), columns, wide=False)


def _biggest(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows of the biggest topics, with the others, and those of the broker itself, as a row each."""
    by_size = sorted(topics, key=lambda topic: (topic["size"] or 0, topic["messages"]), reverse=True)
    own = [topic for topic in by_size if is_for_consumers(topic["topic"])]
    system = [topic for topic in by_size if not is_for_consumers(topic["topic"])]
    biggest = [topic for topic in own[:_SHOWN] if topic["messages"]]
    rest = {f"{len(own) - len(biggest)} more: --all": own[len(biggest) :], f"{len(system)} system topics": system}
    return [*biggest, *(_together(name, topics) for name, topics in rest.items() if topics)]


def _together(name: str, topics: list[dict[str, Any]]) -> dict[str, Any]:
    sizes = [topic["size"] for topic in topics]
    row = {key: sum(topic[key] for topic in topics) for key in ("messages", "queues")}
    return {"topic": name, **row, "size": None if None in sizes else sum(sizes)}


def _deep(store: Store, mode: ProgressMode, report: DamageReport) -> dict[str, Any]:
    from mqtool.store.describe import deep_scan

    log = store.commit_log
    size = log.max_offset - log.min_offset
    with show_progress(mode, "info --deep", 0, size) as bar:
        scan = deep_scan(store, share_of(bar, size))
        bar.update(size)
    for damage in scan.damage:
        report.damage(damage)
    if log.tail.kind == "garbage":
        report.tail(log.tail)
    topics = [
        {"topic": topic, "messages": count, "size": size, "first_timestamp": first, "last_timestamp": last}
        for topic, (count, size, first, last) in sorted(scan.topics.items())
    ]
    return {
        "messages": sum(row["messages"] for row in topics),
        "size": sum(row["size"] for row in topics),
        "damaged_ranges": len(scan.damage),
        "damaged_bytes": sum(damage.end - damage.start for damage in scan.damage),
        "topics": topics,
        "damage": [damage_row(damage)["damage"] for damage in scan.damage[:_LISTED]],
    }
