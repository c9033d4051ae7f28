"""`mqtool replay`: stores messages of a store, of JSON Lines or of an export again, or sends them to a broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqtool.choices import Compat
from mqtool.cli import cells, options
from mqtool.cli.changes import DryRunOption, refuse_half_changed
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, note
from mqtool.cli.options import WORK, Duplicates, Flush, option
from mqtool.cli.output import Output
from mqtool.cli.schema import TABLE, Column, OutputSchema, count, listing, prints, size
from mqtool.cli.selection import Filters, require_selected
from mqtool.errors import UnsupportedFormatError, UsageError
from mqtool.siblings.registry import recognise

if TYPE_CHECKING:
    from mqtool.replay.originals import Resend, Source
    from mqtool.replay.to_broker import SendRequest
    from mqtool.replay.to_store import Report
    from mqtool.store.log.selection import Selection

HELP = """
mqtool replay /data/store --into /data/rescue --topic Orders --ids ids.jsonl --state replay.state

Store messages again, in their original order. SOURCE is a store, JSON Lines in the format of `dump`, or Parquet in the
format of `export`. Messages that consumers could see are replayed, with their keys, tags, properties, queue and born
host, and get new offsets. --ids writes old and new places, a line for each message. --state makes it resumable: run the
same command again after an interruption; no message is missing or stored twice. A missing target is created; an
existing one keeps its layout and release. Exit code 1 if a message was rejected or the source is damaged.
--config belongs to the target, --source-config to the source.

--dead-letters GROUP sends the dead letters of a group back to the topics that they were sent to, --half the half
messages that ran out of checks; --topic then selects by that topic. --to-topic NAME sends all messages to one topic.

--namesrv HOST:PORT takes the place of --into: messages are sent to the running brokers of a name server, at least once
after a crash.

impact: writes to the --into store, under its lock, or sends to brokers; and the --ids and --state files; with --dry-run
nothing
"""

MESSAGES = "Messages"

SourceArgument = Annotated[
    Path, typer.Argument(metavar="SOURCE", help="A store, a file of JSON Lines or Parquet, or a directory of `export`.")
]
IntoOption = Annotated[Path | None, option("--into", metavar="STORE", help="Store to append to: new, or stopped.")]
NameServerOption = Annotated[
    str | None, option("--namesrv", metavar="HOST:PORT", help="Name server whose running brokers get the messages.")
]
IdsOption = Annotated[
    Path | None, option("--ids", metavar="FILE", panel=WORK, help="New file for old and new places, as JSON Lines.")
]
StateOption = Annotated[Path | None, options.continuing_state_option(WORK)]
RateOption = Annotated[
    float | None, option("--rate", metavar="N", panel=WORK, help="Send at most N messages a second.")
]
KeepTimesOption = Annotated[
    bool, option("--keep-times", panel=MESSAGES, help="Keep the producers' born times instead of setting new ones.")
]


DeadLettersOption = Annotated[
    str | None,
    option(
        "--dead-letters", metavar="GROUP", panel=MESSAGES, help="Send the dead letters of a group back to their topics."
    ),
]
HalfOption = Annotated[
    bool, option("--half", panel=MESSAGES, help="Send half messages that ran out of checks as ordinary messages.")
]
ToTopicOption = Annotated[
    str | None, option("--to-topic", metavar="TOPIC", panel=MESSAGES, help="Topic for all messages.")
]


FlushOption = Annotated[
    Flush | None,
    option("--flush", panel=WORK, help="When messages in the --into store reach the disk: one by one, or at the end."),
]
ReleaseOption = Annotated[
    Compat | None,
    options.release_option("Release whose on-disk format to write. Default: that of the store; 5.5 for a new one."),
]


REPLAY = OutputSchema(
    "replay",
    "what a replay stored",
    (
        Column("source", "string", "source of the messages", show=TABLE),
        Column("target", "string", "target store, or name server", show=TABLE),
        Column("dry_run", "boolean", "nothing was written", show=TABLE),
        count("replayed", "messages stored by this run"),
        count("found_there", "messages that an earlier run had stored before it was interrupted"),
        count("refused", "messages that the target rejected"),
        count("not_selected", "messages that were read and not selected"),
        count("not_committed", "records that consumers could not see"),
        count("damage", "damaged ranges of the source's log"),
        size("damaged_bytes", "bytes in them"),
        count("refused_earlier", "messages that earlier runs with this state could not store"),
        count("damage_earlier", "damaged ranges that earlier runs with this state passed"),
        listing(
            "topics",
            "messages by topic",
            Column("topic", "string", "name", show=TABLE),
            count("messages", "stored, by this run or before"),
        ),
        listing(
            "reasons",
            "reasons for the first rejected messages",
            count("position", "physical offset, or row"),
            Column("reason", "string", "why", show=TABLE),
        ),
    ),
    single=True,
)


@prints(REPLAY)
def replay(
    ctx: typer.Context,
    source: SourceArgument,
    *,
    into: IntoOption = None,
    namesrv: NameServerOption = None,
    ids: IdsOption = None,
    state: StateOption = None,
    rate: RateOption = None,
    keep_times: KeepTimesOption = False,
    flush: FlushOption = None,
    release: ReleaseOption = None,
    dry_run: DryRunOption = False,
    dead_letters: DeadLettersOption = None,
    half: HalfOption = False,
    to_topic: ToTopicOption = None,
    duplicates: options.DuplicatesOption = Duplicates.REFUSE,
    offset: options.RangeOption = None,
    time: options.TimeOption = None,
    topic: options.TopicOption = None,
    queue: options.QueueOption = None,
    tag: options.TagOption = None,
    key: options.KeyOption = None,
    unique_key: options.UniqueKeyOption = None,
    user_property: options.PropertyOption = None,
    grep: options.GrepOption = None,
    limit: options.LimitOption = None,
    output_format: options.FormatOption = Format.TABLE,
    config: options.ConfigOption = None,
    source_config: options.SourceConfigOption = None,
    _zone: options.ZoneOption = cells.DEFAULT_ZONE,
) -> ExitCode:
    """Replays and reports; ends with 1 if this run or an earlier one refused a message or passed damage."""
    from msgspec.structs import replace

    from mqtool.replay.originals import Source
    from mqtool.replay.to_broker import SendRequest
    from mqtool.replay.to_store import ReplayRequest
    from mqtool.replay.to_store import replay as replay_messages
    from mqtool.store.log.selection import Selection

    output = Output(ctx.obj, REPLAY, output_format)
    filters = Filters(offset, time, topic, queue, tag, key, unique_key, user_property, grep, limit)
    if (into is None) == (namesrv is None):
        raise UsageError("expected one target: --into STORE or --namesrv HOST:PORT")
    for name, given in (("--flush", flush), ("--release", release), ("--config", config)):
        if namesrv is not None and given:
            raise UsageError(f"{name} applies only to a store; leave it out, or give --into STORE")
    refuse_half_changed(source)
    original = Source(source, Selection(), keep_times, source_config)
    if source_config is not None and not original.is_store:
        raise UsageError(f"--source-config applies only to a store; leave it out, because {source} is not one")
    resend = _resend(original, dead_letters, to_topic, half=half)
    originals = replace(original, selection=_selection(original, filters), resend=resend)
    if namesrv is not None:
        result = _send(SendRequest(originals, namesrv, ids, state, rate, dry_run))
    else:
        assert into is not None
        request = ReplayRequest(
            originals,
            into,
            ids,
            state,
            rate,
            sync=flush is Flush.SYNC,
            config=config,
            compat=release,
            dry_run=dry_run,
            duplicates=duplicates is Duplicates.APPEND,
        )
        with options.stated_release(into, config, release):
            result = replay_messages(request)
    _note_problems(result)
    code = ExitCode.OK if result.is_complete else ExitCode.NO
    return output.document(
        {"source": str(source), "target": str(into or namesrv), "dry_run": dry_run, **_counts(result)}, code
    )


def _resend(source: Source, dead_letters: str | None, to_topic: str | None, *, half: bool) -> Resend:
    """Returns which messages are sent where; raises UsageError if the options do not allow it."""
    from mqtool.formats import topics
    from mqtool.formats.file_names import is_directory_name
    from mqtool.replay.originals import Kind, Resend

    if dead_letters is not None and half:
        raise UsageError("--dead-letters and --half cannot be combined; run one after the other")
    if (dead_letters is not None or half) and not source.is_store:
        raise UsageError(f"{source.path}: --dead-letters and --half need a store as SOURCE; give its root directory")
    if to_topic is not None and not is_directory_name(to_topic):
        raise UsageError(f"--to-topic {to_topic!r}: this is not a valid topic name; use letters, digits, - _ % and |")
    if half:
        return Resend(Kind.HALF, to_topic=to_topic)
    if dead_letters is None:
        return Resend(to_topic=to_topic)
    name = topics.DEAD_LETTER_PREFIX + dead_letters
    with source.open() as store:
        known = {queue.topic for queue in store.queues()}
    if name not in known:
        groups = ", ".join(sorted(topic[5:] for topic in known if topic.startswith(topics.DEAD_LETTER_PREFIX)))
        raise UsageError(
            f"group {dead_letters!r} has no dead letters in {source.path}; groups with dead letters: {groups or 'none'}"
        )
    return Resend(Kind.DEAD_LETTERS, dead_letters, to_topic)


def _note_problems(result: Report) -> None:
    """Prints the first messages that were refused and the first damaged ranges to stderr."""
    for position, reason in result.reasons[:3]:
        note(f"rejected at {position}: {reason}")
    for damage in result.skipped.damage[:3]:
        note(str(damage))


def _counts(result: Report) -> dict[str, Any]:
    """Returns the result's fields of the document."""
    skipped = result.skipped
    return {
        "replayed": result.replayed,
        "found_there": result.already_stored,
        "refused": result.refused,
        "not_selected": skipped.not_selected,
        "not_committed": skipped.not_committed,
        "damage": len(skipped.damage),
        "damaged_bytes": sum(part.end - part.start for part in skipped.damage),
        "refused_earlier": result.earlier.refused if result.earlier else 0,
        "damage_earlier": result.earlier.damage if result.earlier else 0,
        "topics": [{"topic": name, "messages": count} for name, count in sorted(result.topics.items())],
        "reasons": [{"position": position, "reason": reason} for position, reason in result.reasons],
    }


def _selection(source: Source, filters: Filters) -> Selection:
    """Returns which messages are replayed; raises UsageError, UnsupportedFormatError."""
    from mqtool.store.log.selection import Selection

    kind = recognise(source.path)
    if kind is not None:
        raise UnsupportedFormatError(f"{source.path}: is a store of kind {kind.name}; replay needs a store of RocketMQ")
    first, end = 0, (1 << 63) - 1
    is_store = source.is_store
    if (filters.topic or filters.queue is not None) and is_store:
        with source.open() as store:
            require_selected([store], filters.topic, filters.queue)
    if filters.offset is not None:
        if not is_store:
            raise UsageError("--offset needs a store as SOURCE; select with --time or --limit")
        with source.open() as store:
            first, end = store.commit_log.min_offset, store.commit_log.max_offset
    return Selection.of(**filters.keywords(first, end), limit=filters.limit)


def _send(request: SendRequest) -> Report:
    from mqtool.replay.to_broker import replay_to
    from mqtool.server.producer import BrokerSender

    with BrokerSender(request.name_server) as sender:
        return replay_to(request, sender)
