"""`mqtool rebuild`: rebuilds derived files from the CommitLog."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from mqtool.cli import options, ranges
from mqtool.cli.changes import refuse_half_changed
from mqtool.cli.damage import DAMAGED_RANGES, damaged_ranges, note_damaged_ranges
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation, note
from mqtool.cli.options import LOCAL, OnSpark, ProgressMode, RebuildTarget, on_spark, option, spark_session
from mqtool.cli.output import Output
from mqtool.cli.progress import share_of, show_progress
from mqtool.cli.schema import DATA, TABLE, WIDE, Column, OutputSchema, count, listing, prints, row_of, size
from mqtool.cli.selection import require_selected
from mqtool.cli.sibling_rows import REBUILD_KIND
from mqtool.errors import UsageError
from mqtool.formats import file_names
from mqtool.siblings.registry import recognise
from mqtool.values import asdict

if TYPE_CHECKING:
    from mqtool.jobs.progress import OnProgress
    from mqtool.rebuild.metadata import Guess, LogSurvey
    from mqtool.rebuild.parts import RebuildScope
    from mqtool.rebuild.placement import Listing
    from mqtool.rebuild.settings import RebuildSettings
    from mqtool.rebuild.sink import Result
    from mqtool.rebuild.timer import TimerResult
    from mqtool.records.damage import Damage
    from mqtool.store.queues.filter_bit_maps import FilterBitMaps
    from mqtool.store.store import Store


HELP = """
mqtool rebuild consumequeue /data/store --output rebuilt

Rebuild derived files from the CommitLog alone: queues, index, configuration, timer wheel and log. The bytes are those
that the broker writes; docs/rebuild.md lists the exceptions. Rebuilds everything, or some topics, one queue, a range of
physical offsets, one index file. Damaged ranges are skipped and reported, and messages keep their queue offsets; the
exit code is then 1. With --state FILE, an interrupted run can be continued with --resume. --spark does it in tasks on
Spark, on this machine or on a cluster that has the store and the directory of --output under the same paths.

impact: writes below --output and the --state file, and nothing else; with --spark in a directory next to --output until
all is complete. The store is only read
"""


NOTES = listing(
    "notes",
    "units in an unusual place",
    Column("kind", "string", "hole, restarted, misnumbered, foreign or shifted: see docs/rebuild.md", show=TABLE),
    Column("topic", "string", "topic", show=TABLE),
    Column("queue_id", "integer", "queue", show=TABLE),
    count("first", "queue offset"),
    count("last", "queue offset, inclusive"),
    count("physical_offset", "of the record at which it was seen"),
)

REBUILD = OutputSchema(
    "rebuild",
    "result of a rebuild",
    (
        Column("what", "string", "consumequeue, index, metadata, timer or all", show=TABLE),
        Column("store", "string", "root of the store", show=TABLE),
        Column("out", "string", "directory with the result", show=TABLE),
        Column("release", "string", "release whose rules were followed, and why", show=TABLE),
        Column("complete", "boolean", "every record was intact and has its place", show=TABLE),
        count("records", "read from the log"),
        count("next_offset", "physical offset up to which the log was read"),
        count("queues", "written"),
        count("units", "given to queues"),
        count("keys", "keys put into the index"),
        size("damaged_bytes", "bytes of the log without a record"),
        count("damage_count", "damaged ranges; at most 10,000 are listed", show=WIDE),
        count("notes_count", "notes; at most 10,000 are listed", show=WIDE),
        Column("seconds", "number", "how long it took", show=TABLE),
        Column("records_per_second", "number", "records divided by seconds", show=TABLE),
        Column("index_files", "array", "names of the files, oldest first", show=DATA),
        listing(
            "settings",
            "sizes and rules, and where each is known from",
            Column("name", "string", "setting", show=TABLE),
            Column("value", "string", "value", show=TABLE),
            Column("evidence", "string", "known from", show=TABLE),
            show=WIDE,
        ),
        DAMAGED_RANGES,
        NOTES,
        listing(
            "oddities",
            "records that no broker could dispatch as they are",
            count("physical_offset", "of the record"),
            Column("detail", "string", "what is odd", show=TABLE),
        ),
        listing(
            "unwritable",
            "queues whose topic cannot be the name of a directory",
            Column("topic", "string", "topic", show=TABLE),
            Column("queue_id", "integer", "queue", show=TABLE),
        ),
        Column("files", "array", "configuration files written, below `out`", show=DATA),
        listing(
            "guesses",
            "configuration entries that had to be derived",
            Column("file", "string", "file that contains the value", show=TABLE),
            Column("item", "string", "topic, group, queue or level", show=TABLE),
            Column("value", "string", "what was written", show=TABLE),
            Column("reason", "string", "why that", show=TABLE),
        ),
        Column("unconfigured_topics", "array", "topics with records but without a configuration", show=TABLE),
        Column("problems", "array", "configuration that could not be applied, in words", show=TABLE),
    ),
    single=True,
)

RUN = "Run"


WhatArgument = Annotated[
    RebuildTarget,
    typer.Argument(
        metavar="WHAT",
        help="consumequeue, index, metadata (config/*.json, checkpoint), timer, or all but the timer.",
        show_default=False,
    ),
]
OutOption = Annotated[Path, options.output_option("New or empty directory for the rebuilt files.")]
FileOption = Annotated[
    str | None, option("--file", metavar="NAME", help="Rebuild only this index file; the one before it must be intact.")
]
JobsOption = Annotated[int | None, options.jobs_option(panel=RUN)]
StateOption = Annotated[
    Path | None, option("--state", metavar="FILE", panel=RUN, help="Checkpoint file for resuming; deleted on success.")
]
ResumeOption = Annotated[
    bool, option("--resume", panel=RUN, help="Continue from --state; start at the beginning if it is empty.")
]
ReleaseOption = Annotated[
    str | None,
    option("--release", metavar="X.Y", help="Release whose on-disk format to write, e.g. 4.9 or 5.5."),
]


_MAX_JOBS = 8
"""More processes than this wait for the one that writes."""


class _Options(Struct, frozen=True):
    what: RebuildTarget
    store: Path
    out: Path
    topics: list[str]
    queue_id: int | None
    offset: str | None
    file: str | None
    jobs: int | None
    state: Path | None
    resume: bool
    where: OnSpark | None

    def check(self) -> None:
        """Raises UsageError for options that contradict each other."""
        if self.resume and self.state is None:
            raise UsageError("--resume continues from a state file; add --state FILE")
        if self.file is not None and self.what is not RebuildTarget.INDEX:
            raise UsageError(f"--file selects an index file and does not apply to {self.what}; use rebuild index")
        narrowed = self.topics or self.queue_id is not None
        if narrowed and self.what is not RebuildTarget.CONSUMEQUEUE:
            raise UsageError(
                f"--topic and --queue select queues and do not apply to {self.what}; use rebuild consumequeue"
            )
        if self.offset is not None and (
            self.what in (RebuildTarget.METADATA, RebuildTarget.ALL) or self.file is not None
        ):
            raise UsageError(
                "--offset applies to consumequeue and index, not to metadata or a single file; leave it out"
            )
        if self.what is RebuildTarget.TIMER and (self.offset is not None or self.jobs is not None):
            raise UsageError("--offset and --jobs do not apply to the timer; leave them out")
        if self.state is not None and (
            self.what in (RebuildTarget.METADATA, RebuildTarget.TIMER) or self.file is not None
        ):
            raise UsageError("--state applies only to rebuilding all queues or the complete index; leave it out")
        if self.where is None:
            return
        if self.what in (RebuildTarget.METADATA, RebuildTarget.TIMER) or self.file is not None:
            raise UsageError("--spark rebuilds all queues, the complete index or all; leave it out")
        if self.jobs is not None or self.state is not None:
            raise UsageError("--jobs and --state do not apply to --spark; leave them out")

    def scope(self, store: Store) -> RebuildScope:
        """Returns the scope of the rebuild."""
        from mqtool.rebuild.parts import RebuildScope

        start = end = None
        if self.offset is not None:
            chosen = ranges.parse_range(self.offset)
            if any(chosen.times()):
                raise UsageError(f"{self.offset!r}: expected physical offsets, not times, e.g. 0:4096")
            start, end = chosen.offsets(store.commit_log.min_offset, store.commit_log.max_offset)
        queues, index = (
            self.what in (RebuildTarget.CONSUMEQUEUE, RebuildTarget.ALL),
            self.what in (RebuildTarget.INDEX, RebuildTarget.ALL),
        )
        return RebuildScope(queues, index, tuple(self.topics), self.queue_id, start, end)


@prints(REBUILD, REBUILD_KIND)
def rebuild(
    ctx: typer.Context,
    what: WhatArgument,
    store: options.StoreArgument,
    *,
    out: OutOption,
    topic: options.TopicOption = None,
    queue: options.QueueOption = None,
    offset: options.RangeOption = None,
    file: FileOption = None,
    release: ReleaseOption = None,
    jobs: JobsOption = None,
    state: StateOption = None,
    resume: ResumeOption = False,
    spark: options.SparkOption = False,
    master: options.MasterOption = LOCAL,
    conf: options.ConfOption = None,
    output_format: options.FormatOption = Format.TABLE,
    config: options.ConfigOption = None,
    progress: options.ProgressOption = ProgressMode.AUTO,
) -> ExitCode:
    """Rebuilds and reports; ends with 1 if a record is missing or has no place."""
    from mqtool.rebuild.job import check
    from mqtool.rebuild.metadata import compose, survey_log, write
    from mqtool.rebuild.settings import settings_of
    from mqtool.rebuild.timer import rebuild_timer
    from mqtool.store.store import open_store

    where = on_spark(spark, master, conf)
    kind = recognise(store)
    if kind is not None:
        if where is not None:
            raise UsageError(f"a store of kind {kind.name} is rebuilt in one process; leave out --spark")
        from mqtool.cli import siblings

        return siblings.rebuild(ctx.obj, kind, store, out, what, output_format)
    options = _Options(what, store, out, topic or [], queue, offset, file, jobs, state, resume, where)
    options.check()
    refuse_half_changed(store)
    began = time.monotonic()
    path = store.absolute() if where is not None and store.exists() else store  # executors work in other directories
    with open_store(path, config, needs_log=True) as source:
        settings = settings_of(source, release)
        require_selected([source], topic, queue)
        check(source, out, resume=resume)
        report = _Report(options, settings)
        size = source.commit_log.bytes_in_use
        with _target(options) as target, show_progress(progress, "rebuild", 0, size) as bar:
            on_progress = share_of(bar, size)
            if what is RebuildTarget.TIMER:
                report.timer = rebuild_timer(source, target, on_progress)
            elif what is not RebuildTarget.METADATA:
                report.result = _derived(source, target, options, report, on_progress)
            if what in (RebuildTarget.METADATA, RebuildTarget.ALL):
                surveyor = report.surveyor
                report.survey = (
                    surveyor.finish() if surveyor.is_complete else survey_log(source, settings.rules, on_progress)
                )
                report.composed = compose(source, report.survey)
                write(report.composed, target)
    return report.print(ctx.obj, output_format, time.monotonic() - began)


@contextmanager
def _target(options: _Options) -> Iterator[Path]:
    """Yields the directory to write into; an error removes what was written, unless the run can be continued."""
    from mqtool.jobs.atomic import staged_directory
    from mqtool.rebuild.job import removed_on_error

    if options.where is not None:
        with staged_directory(options.out.absolute(), into_empty=True) as work:
            yield work / "store"
    elif options.state is None:
        with removed_on_error(options.out):
            yield options.out
    else:
        yield options.out


def _derived(store: Store, target: Path, options: _Options, report: _Report, on_progress: OnProgress) -> Result:
    from mqtool.jobs.pool import available
    from mqtool.rebuild.job import Options, rebuild_index_file
    from mqtool.rebuild.job import rebuild as rebuild_files
    from mqtool.store.queues.filter_bit_maps import bit_maps_of

    settings = report.settings
    if options.file is not None:
        return rebuild_index_file(store, target, settings, options.file, on_progress)
    if settings.has_extension:
        report.bit_maps = bit_maps_of(store)
    surveyor = report.surveyor if options.what is RebuildTarget.ALL else None
    more: dict[str, Any] = {"bit_maps": report.bit_maps, "surveyor": surveyor, "on_progress": on_progress}
    if options.where is not None:
        with spark_session(options.where) as session:
            from mqtool.rebuild.tasks import rebuild_in_tasks
            from mqtool.spark.rebuild import runner  # loads pyspark, which the session has found to be there

            scope = options.scope(store)
            return rebuild_in_tasks(store, target.parent, settings, scope, runner(session), **more)
    how = Options(options.jobs or min(available(), _MAX_JOBS), options.state, options.resume)
    return rebuild_files(store, target, settings, options.scope(store), how, **more)


class _Report:
    """Collects the output."""

    def __init__(self, options: _Options, settings: RebuildSettings) -> None:
        from mqtool.rebuild.metadata import ComposedFiles, Surveyor
        from mqtool.rebuild.sink import Result

        self._options = options
        self.settings = settings
        self.result = Result()
        self.surveyor = Surveyor()
        self.survey: LogSurvey | None = None
        self.composed = ComposedFiles()
        self.bit_maps: FilterBitMaps | None = None
        self.timer: TimerResult | None = None

    def print(self, invocation: Invocation, output_format: Format, seconds: float) -> ExitCode:
        """Prints the output; the exit code shows whether the rebuild is complete."""
        document = self._document(seconds)
        note_damaged_ranges(document["damage"])
        if document["damage_count"] > 10:
            note(f"damage: {document['damage_count'] - 10} more ranges")
        code = ExitCode.OK if document["complete"] else ExitCode.NO
        return Output(invocation, REBUILD, output_format).document(document, code)

    def _document(self, seconds: float) -> dict[str, Any]:
        result, options = self.result, self._options
        damage, records = self._damage_and_records()
        settings = _settings(self.settings)
        return {
            "what": options.what.value,
            "store": str(options.store),
            "out": str(options.out),
            "release": f"{settings[0]['value']}; {settings[0]['evidence']}",
            "complete": result.is_complete and not damage and not (self.timer and self.timer.problems),
            "records": records,
            "next_offset": result.next_offset,
            "queues": result.queues,
            "units": self.timer.units if self.timer else result.units,
            "keys": result.keys,
            "damaged_bytes": result.damaged_bytes or sum(item.end - item.start for item in damage.items),
            "damage_count": damage.count,
            "notes_count": result.notes.count,
            "seconds": round(seconds, 3),
            "records_per_second": round(records / seconds) if seconds else 0,
            "index_files": result.index_files,
            "settings": settings,
            "damage": damaged_ranges(damage.items),
            "notes": [row_of(NOTES.fields, item, **asdict(queue)) for queue, item in result.notes.items],
            "oddities": [asdict(item) for item in result.oddities.items],
            "unwritable": [asdict(item) for item in result.unwritable.items],
            "files": sorted([*self.composed.files, *(self.timer.files if self.timer else ())]),
            "guesses": [asdict(item) for item in (*self.composed.guesses, *_timer_guesses(self.timer))],
            "unconfigured_topics": self.composed.unconfigured,
            "problems": [
                *(self.bit_maps.problems if self.bit_maps else ()),
                *(self.timer.problems.items if self.timer else ()),
            ],
        }

    def _damage_and_records(self) -> tuple[Listing[Damage], int]:
        """Returns the damaged ranges and the number of records of what was read: log, survey for metadata, or timer."""
        if self.timer is not None:
            return self.timer.damage, self.timer.parked
        if self.survey is not None and self._options.what is RebuildTarget.METADATA:
            return self.survey.damage, self.survey.records
        return self.result.damage, self.result.records


def _timer_guesses(timer: TimerResult | None) -> Iterator[Guess]:
    """Yields the values of a timer that no record states."""
    from mqtool.rebuild.metadata import Guess

    if timer is not None and timer.guessed:
        reason = (
            "no record states when the broker read a message that still waits; the second in which it was "
            "stored is used"
        )
        yield Guess(file_names.TIMER_LOG, "write times", f"{timer.guessed} of {timer.units} units", reason)
    if timer is not None and timer.read_time_from != file_names.TIMER_CHECKPOINT:
        yield Guess(
            f"{file_names.CONFIG}/{file_names.TIMER_CHECKPOINT}",
            "last_read_time_ms",
            str(timer.last_read_time_ms),
            timer.read_time_from,
        )


def _settings(settings: RebuildSettings) -> list[dict[str, str]]:
    rules = settings.rules
    release = "before 5.0" if rules.lmq_everywhere else "5.4 or newer" if rules.index_tags else "5.0 to 5.3"
    values = {
        "broker_version": release,
        "consume_queue_size": settings.consume_queue_size,
        "batch_consume_queue_size": settings.batch_consume_queue_size,
        "consume_queue_ext_size": settings.consume_queue_ext_size,
        "has_extension": settings.has_extension,
        "index_slots": settings.index_slots,
        "index_entries": settings.index_entries,
        "multi_dispatch": rules.multi_dispatch,
        "delay_levels": len(rules.delay_levels),
    }
    return [{"name": name, "value": str(value), "evidence": settings.evidence[name]} for name, value in values.items()]
