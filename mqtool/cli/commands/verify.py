"""`mqtool verify`: reports what is wrong with a store, and what to do."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqtool.cli import options
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import note
from mqtool.cli.options import (
    LOCAL,
    OUTPUT,
    WORK,
    OnSpark,
    ProgressMode,
    check_result_file,
    on_spark,
    option,
    spark_session,
    workers,
)
from mqtool.cli.progress import share_of, show_progress
from mqtool.cli.ranges import parse_rate
from mqtool.cli.render import Csv, encode
from mqtool.cli.schema import (
    CONFIG,
    TABLE,
    WIDE,
    Column,
    OutputSchema,
    count,
    flag,
    listing,
    nested,
    prints,
    row_of,
    text,
)
from mqtool.cli.selection import require_selected
from mqtool.cli.sibling_rows import VERIFY_KIND
from mqtool.errors import UsageError
from mqtool.siblings.registry import recognise
from mqtool.values import asdict

if TYPE_CHECKING:
    from mqtool.jobs.progress import OnProgress
    from mqtool.store import Store
    from mqtool.verify import Finding, NextStart, Verification


HELP = """
mqtool verify /data/store

Check everything: the CommitLog record by record, every queue and index entry against it in both directions,
checkpoint, configuration, timer, controller files. Reports what is damaged, which messages are lost for which consumer
groups, and which command to run next; `mqtool help checks` explains the codes. --config also checks the configuration
against the files. While a broker is writing to the store, only what is certain is reported.

impact: read-only; writes --state and --output where they are given
"""


FINDING_COLUMNS = (
    text("code", "stable, see `mqtool help checks`"),
    text("severity", "error, warning, note, or unknown if it could not be read"),
    text("file", "path below the store; as it is if it lies elsewhere"),
    count("position", "byte in that file", nullable=True),
    count("physical_offset", "byte address in the CommitLog", nullable=True),
    text("topic", "whose messages", nullable=True),
    Column("queue_id", "integer", "whose messages", show=TABLE, nullable=True),
    count("lost_bytes", "bytes of the CommitLog that hold no valid record"),
    count("lost_messages", "messages proved to be lost"),
    text("evidence", "expected and found"),
    text("next_step", "the command to type"),
    text("runbooks", "runbooks that cover it, the first one to try; empty if there is none"),
)

_CHECK_COLUMNS = (
    text("check", "what was checked"),
    text("state", "clean, dirty (warnings only), corrupt, or unknown (could not be checked)"),
    count("findings", "how many"),
    text("detail", "how much was checked, or why it could not be checked"),
)

_RANGE_COLUMNS = (
    count("start", "physical offset of the first byte"),
    count("end", "physical offset after the last byte"),
    text("kind", "as `damage` of dump: bad-crc, zeros, missing, …; cut-off: after the end of the log"),
    text("file", "of the first byte; empty where there is none"),
    count("position", "of the first byte in that file"),
    count("messages", "proved to have been there"),
)

_QUEUE_COLUMNS = (
    text("topic", "name"),
    Column("queue_id", "integer", "of the topic", show=TABLE),
    Column("offsets", "array", "first and last queue offset of each run, both included", items="any", show=TABLE),
    count("messages", "how many"),
    text(
        "proof",
        "units: the queue points at them; offsets: their queue offsets are missing; known: recorded by a repair",
    ),
)

_GROUP_COLUMNS = (
    text("group", "consumer group"),
    text("topic", "name"),
    Column("queue_id", "integer", "of the topic", show=TABLE),
    count("consumer_offset", "next queue offset that it will read"),
    count("consumed", "lost messages that it had consumed"),
    count("unread", "lost messages that it will never see"),
)

_START = (
    text("headline", "in one sentence"),
    text("release", "whose start, such as 4.9, 5.5 or 5.5.1"),
    text("release_evidence", "why this release: given, or the evidence for and against it"),
    text("verdict", "as of explain-start, or why it is unknown"),
    count("already_lost", "messages without an intact record; null if unknown", nullable=True),
    count("lost_by_start", "messages that the start loses; null if unknown, or if it does not start", nullable=True),
    count("lost_waiting", "those of lost_by_start that wait for delivery; null if unknown", nullable=True),
    count("not_served", "messages whose records stay in the log, but no queue leads to them", nullable=True),
    flag(
        "do_not_start",
        "the start fails, or messages are lost by it or not served after it; null if unknown",
        nullable=True,
    ),
)
_START_COLUMNS = (
    *_START,
    nested(
        "other",
        "the start of the other known release, if the evidence for the release disagrees; if the store may be of "
        "4.9, also if its outcome is another one; else null",
        *_START,
        nullable=True,
    ),
)

_VERDICT_COLUMNS = (
    text("store", "as given"),
    CONFIG,
    text(
        "status",
        "clean, dirty (warnings only), corrupt, or unknown (nothing found, but not everything could be checked)",
    ),
    Column("complete", "boolean", "false if it was stopped early; --state resumes", show=TABLE),
    Column("live", "boolean", "a broker held the lock: only what is certain is reported", show=TABLE),
    count("errors", "findings of this severity"),
    count("unknown", "findings of this severity"),
    count("warnings", "findings of this severity"),
    count("notes", "findings of this severity"),
    count("lost_bytes", "in all"),
    count("lost_messages", "in all"),
    count("known_lost", "further messages that an earlier repair could not save, according to its record"),
    nested(
        "next_start",
        "what the next start of a broker does; null if the check was stopped early, or for a store in object storage",
        *_START_COLUMNS,
        nullable=True,
    ),
    count("records", "valid records that were read"),
    count("log_bytes", "bytes of the CommitLog that were read"),
    count("units", "of all queues"),
    count("entries", "of all index files"),
    Column("seconds", "number", "by the clock", show=TABLE),
)


VERIFY = OutputSchema(
    "verify",
    "the complete result",
    (
        *_VERDICT_COLUMNS,
        listing("checks", "how each check ended", *_CHECK_COLUMNS),
        listing("findings", "what is broken, in a stable order", *FINDING_COLUMNS),
        listing("lost_ranges", "bytes of the CommitLog without a valid record", *_RANGE_COLUMNS),
        listing("lost_messages_of_queues", "lost messages, by queue", *_QUEUE_COLUMNS),
        listing("lost_messages_of_groups", "effect on consumer groups", *_GROUP_COLUMNS),
        Column("next_steps", "array", "commands to type, the best first", show=TABLE),
    ),
    single=True,
)


def _line(name: str, doc: str, fields: tuple[Column, ...]) -> OutputSchema:
    return OutputSchema(f"verify.{name}", doc, (nested(name, doc, *fields, show=WIDE),))


FINDING = _line("finding", "one finding", FINDING_COLUMNS)
CHECK = _line("check", "how one check ended", _CHECK_COLUMNS)
LOST_RANGE = _line("lost_range", "a range without a valid record", _RANGE_COLUMNS)
LOST_MESSAGES = _line("lost_messages", "lost messages of a queue", _QUEUE_COLUMNS)
GROUP_LOSS = _line("group_loss", "effect of a loss on a consumer group", _GROUP_COLUMNS)
VERDICT = _line("verdict", "the last line", _VERDICT_COLUMNS)
LINES = (FINDING, CHECK, LOST_RANGE, LOST_MESSAGES, GROUP_LOSS, VERDICT)
"""Kinds of lines of `--format jsonl`."""

FINDING_ROWS = OutputSchema("verify.findings", "a finding", FINDING_COLUMNS)
"""Rows of `--format csv`."""


class VerifyFormat(StrEnum):
    """Values of `--format`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    JUNIT = "junit"
    PROMETHEUS = "prometheus"
    NAGIOS = "nagios"
    HELP = "help"


class FailOn(StrEnum):
    """Values of `--fail-on`."""

    WARNING = "warning"
    ERROR = "error"
    NEVER = "never"


VerifyFormatOption = Annotated[
    VerifyFormat,
    options.format_option("Output format; csv has the findings only, help prints the JSON Schema."),
]
FailOnOption = Annotated[
    FailOn,
    option(
        "--fail-on", panel=OUTPUT, help="error: exit 1 for errors; warning: also 3 for warnings and unknown checks."
    ),
]
OutfileOption = Annotated[
    Path | None,
    options.output_option("Write to a file, atomically, instead of stdout."),
]
StateOption = Annotated[Path | None, options.continuing_state_option(WORK)]
MaxTimeOption = Annotated[
    float | None,
    option(
        "--max-time",
        metavar="SECONDS",
        panel=WORK,
        min=0,
        help="Start no new part after SECONDS; exit 5 if parts are left.",
    ),
]


@prints(VERIFY, *LINES, VERIFY_KIND)
def verify(
    ctx: typer.Context,
    store: options.StoreArgument,
    *,
    topic: options.TopicOption = None,
    jobs: options.JobsOption = None,
    throttle: options.ThrottleOption = None,
    state: StateOption = None,
    max_time: MaxTimeOption = None,
    started: options.StartedReleaseOption = None,
    spark: options.SparkOption = False,
    master: options.MasterOption = LOCAL,
    conf: options.ConfOption = None,
    output_format: VerifyFormatOption = VerifyFormat.TABLE,
    outfile: OutfileOption = None,
    fail_on: FailOnOption = FailOn.ERROR,
    config: options.FoundConfigOption = None,
    progress: options.ProgressOption = ProgressMode.AUTO,
) -> ExitCode:
    """Checks a store and prints the result; the exit code follows --fail-on."""
    from mqtool.cli.verification_formats import next_steps
    from mqtool.jobs.atomic import replace_file
    from mqtool.recovery.proof import read_once
    from mqtool.store import open_readable
    from mqtool.verify import Options
    from mqtool.verify import verify as check

    where = on_spark(spark, master, conf)
    kind = recognise(store)
    if kind is not None:
        if outfile or any((topic, jobs, throttle, state, max_time, where, started)):
            raise UsageError(
                f"a store of kind {kind.name} is checked completely, in one process, to stdout; leave such options out"
            )
        from mqtool.cli import siblings

        return siblings.verify(ctx.obj, kind, store, output_format.value, fail_on.value)
    for written in (outfile, state):
        if written is not None:
            check_result_file(store, written)
    limit = parse_rate(throttle)
    if where is not None and any((jobs, throttle, state, max_time)):
        raise UsageError("--jobs, --throttle, --state and --max-time do not apply to --spark; leave them out")
    topics, release = tuple(topic) if topic else None, started and started.value
    with open_readable(store, config) as opened, read_once():
        require_selected([opened], topics)
        size = sum(segment.size for segment in opened.commit_log.segments)
        with show_progress(progress, "verify", 0, size) as bar:
            on_progress = share_of(bar, size)
            if where is None:
                options = Options(topics, workers(jobs, size), limit, state, max_time, broker=release)
                verification = check(opened, options, on_progress)
            else:
                verification = _on_spark(opened, where, topics, release, on_progress)
            bar.update(size)
        steps = next_steps(opened, verification, may_try=not (throttle or max_time))
    code = exit_code(verification, fail_on)
    data = render(verification, output_format, code, steps)
    if outfile is not None:
        replace_file(outfile, data)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    if not verification.complete:
        note("stopped early; run again with the same --state to continue" if state else "stopped early")
    return code


def _on_spark(
    store: Store, where: OnSpark, topics: tuple[str, ...] | None, release: str | None, on_progress: OnProgress
) -> Verification:
    with spark_session(where) as session:
        from mqtool.spark.verify import verify_on  # loads pyspark, which the session has found to be there

        return verify_on(session, store, topics, on_progress, broker=release)


def exit_code(verification: Verification, fail_on: FailOn) -> ExitCode:
    """Returns the exit code of the process."""
    from mqtool.verify import Severity, State

    if not verification.complete:
        return ExitCode.STOPPED_EARLY
    if fail_on is FailOn.NEVER:
        return ExitCode.OK
    if verification.serious:
        return ExitCode.NO
    doubtful = verification.count(Severity.WARNING) or any(
        check.state is State.UNKNOWN for check in verification.checks
    )
    return ExitCode.WARNINGS if fail_on is FailOn.WARNING and doubtful else ExitCode.OK


def render(
    verification: Verification, output_format: VerifyFormat, code: ExitCode, steps: tuple[str, ...] = ()
) -> bytes:
    """Returns the result in a format."""
    from mqtool.cli import verification_formats

    match output_format:
        case VerifyFormat.JSON:
            answer = {**VERIFY.head(), "ok": code is ExitCode.OK, **document(verification, steps)}
            return encode(answer, indent=True) + b"\n"
        case VerifyFormat.JSONL:
            return b"".join(encode(line) + b"\n" for line in lines(verification))
        case VerifyFormat.CSV:
            csv = Csv(FINDING_ROWS)
            return csv.begin() + b"".join(csv.row(finding_row(finding)) for finding in verification.findings)
        case VerifyFormat.JUNIT:
            return verification_formats.junit(verification)
        case VerifyFormat.PROMETHEUS:
            return verification_formats.prometheus(verification, time.time())
        case VerifyFormat.NAGIOS:
            return verification_formats.nagios(verification)
    return verification_formats.text(verification, steps, wide=output_format is VerifyFormat.WIDE)


def finding_row(finding: Finding) -> dict[str, Any]:
    """Returns a finding as JSON."""
    from mqtool.verify import CATALOGUE

    return {**asdict(finding), "runbooks": " ".join(CATALOGUE[finding.code].runbooks)}


def verdict_row(verification: Verification) -> dict[str, Any]:
    """Returns the verdict as JSON."""
    from mqtool.verify import Severity

    return {
        "store": verification.store,
        "config": verification.config and str(verification.config),
        "status": verification.state.value,
        "complete": verification.complete,
        "live": verification.live,
        "errors": verification.count(Severity.ERROR),
        "unknown": verification.count(Severity.UNKNOWN),
        "warnings": verification.count(Severity.WARNING),
        "notes": verification.count(Severity.NOTE),
        "lost_bytes": verification.losses.bytes,
        "lost_messages": verification.losses.messages,
        "known_lost": verification.known_lost,
        "next_start": verification.next_start
        and {
            **_start_row(verification.next_start),
            "other": verification.next_start.other and _start_row(verification.next_start.other),
        },
        **asdict(verification.statistics),
    }


def _start_row(start: NextStart) -> dict[str, Any]:
    from mqtool.recovery.losses import loss_numbers

    return row_of(_START, start, **loss_numbers(start.losses))


def document(verification: Verification, steps: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns the result as one object."""
    rows = _rows(verification)
    return {
        **verdict_row(verification),
        "checks": rows["check"],
        "findings": rows["finding"],
        "lost_ranges": rows["lost_range"],
        "lost_messages_of_queues": rows["lost_messages"],
        "lost_messages_of_groups": rows["group_loss"],
        "next_steps": list(steps),
    }


def lines(verification: Verification) -> list[dict[str, Any]]:
    """Returns the result line by line, the verdict last."""
    parts = [{kind: row} for kind, rows in _rows(verification).items() for row in rows]
    return [*parts, {"verdict": verdict_row(verification)}]


def _rows(verification: Verification) -> dict[str, list[dict[str, Any]]]:
    losses = verification.losses
    return {
        "finding": [finding_row(finding) for finding in verification.findings],
        "check": [row_of(_CHECK_COLUMNS, check, check=check.area) for check in verification.checks],
        "lost_range": [asdict(part) for part in losses.ranges],
        "lost_messages": [row_of(_QUEUE_COLUMNS, loss) for loss in (*losses.queues, *verification.known)],
        "group_loss": [asdict(loss) for loss in losses.groups],
    }
