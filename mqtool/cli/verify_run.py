"""What `mqtool verify` does once its options are read."""

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mqtool.cli import siblings, verify_monitoring, verify_text
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Invocation, note
from mqtool.cli.options import ProgressMode
from mqtool.cli.progress import show_progress
from mqtool.cli.ranges import parse_rate
from mqtool.cli.render import Csv, encode
from mqtool.cli.result_file import check_result_file, write_result_file
from mqtool.cli.selected import require_selected
from mqtool.cli.spark_session import OnSpark, spark_session
from mqtool.cli.verify_schema import FINDING_ROWS, VERIFY
from mqtool.cli.verify_steps import next_steps
from mqtool.cli.workers import workers
from mqtool.errors import UsageError
from mqtool.siblings.registry import recognise
from mqtool.store import Store, open_readable
from mqtool.verify import CATALOGUE, Finding, Options, Severity, State, Verification
from mqtool.verify import verify as check
from mqtool.verify.store import Progress


@dataclass(frozen=True, slots=True)
class Work:
    """Options of how the work is done, as they were typed."""

    topics: tuple[str, ...] | None
    jobs: int | None
    throttle: str | None
    state: Path | None
    max_time: float | None
    progress: ProgressMode
    spark: OnSpark | None = None
    broker: str | None = None


def run(
    invocation: Invocation,
    path: Path,
    config: Path | None,
    work: Work,
    output_format: str,
    outfile: Path | None,
    fail_on: str,
) -> ExitCode:
    """Checks a store and writes the answer."""
    kind = recognise(path)
    if kind is not None:
        if outfile or any((work.topics, work.jobs, work.throttle, work.state, work.max_time, work.spark, work.broker)):
            raise UsageError(f"a store of kind {kind.name} is checked whole, in one process, to stdout")
        return siblings.verify(invocation, kind, path, output_format, fail_on)
    del invocation  # a failure before the answer is a line by itself
    for written in (outfile, work.state):
        if written is not None:
            check_result_file(path, written)
    found, steps = verification(path, config, work)
    code = exit_code(found, fail_on)
    data = render(found, output_format, code, steps)
    if outfile is not None:
        write_result_file(outfile, data)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    if not found.complete:
        note("stopped early; run again with the same --state to go on" if work.state else "stopped early")
    return code


def verification(path: Path, config: Path | None, work: Work) -> tuple[Verification, tuple[str, ...]]:
    """Checks a store as the options say; returns the answer, and commands to type next."""
    throttle = parse_rate(work.throttle)
    if work.spark is not None and any((work.jobs, work.throttle, work.state, work.max_time)):
        raise UsageError("--jobs, --throttle, --state and --max-time are for this machine, not for --spark")
    with open_readable(path, config) as store:
        require_selected([store], work.topics)
        size = sum(segment.size for segment in store.commit_log.segments)
        options = Options(
            work.topics, workers(work.jobs, size), throttle, work.state, work.max_time, broker=work.broker
        )
        with show_progress(work.progress, "verify", 0, size) as bar:
            move: Progress = lambda done, total: bar.update(size * done // max(1, total))  # noqa: E731
            found = _on_spark(store, work, move) if work.spark else check(store, options, move)
            bar.update(size)
        return found, next_steps(store, found)


def _on_spark(store: Store, work: Work, move: Progress) -> Verification:
    assert work.spark is not None
    with spark_session(work.spark) as session:
        from mqtool.spark.verify import verify_on

        return verify_on(session, store, work.topics, move, broker=work.broker)


def exit_code(found: Verification, fail_on: str) -> ExitCode:
    """Returns what the process tells its caller."""
    if not found.complete:
        return ExitCode.STOPPED_EARLY
    if fail_on == "never":
        return ExitCode.OK
    if found.count(Severity.ERROR):
        return ExitCode.NO
    doubtful = found.count(Severity.WARNING) or any(one.state is State.UNKNOWN for one in found.checks)
    return ExitCode.WARNINGS if fail_on == "warning" and doubtful else ExitCode.OK


def render(found: Verification, output_format: str, code: ExitCode, steps: tuple[str, ...] = ()) -> bytes:
    """Returns the answer in a format."""
    match output_format:
        case "json":
            answer = {**VERIFY.head(), "ok": code is ExitCode.OK, **document(found, steps)}
            return encode(answer, indent=True) + b"\n"
        case "jsonl":
            return b"".join(encode(line) + b"\n" for line in lines(found))
        case "csv":
            csv = Csv(FINDING_ROWS)
            return csv.begin() + b"".join(csv.row(finding_row(finding)) for finding in found.findings)
        case "junit":
            return verify_monitoring.junit(found)
        case "prometheus":
            return verify_monitoring.prometheus(found, time.time())
        case "nagios":
            return verify_monitoring.nagios(found)
    return verify_text.text(found, steps, wide=output_format == "wide")


def finding_row(finding: Finding) -> dict[str, Any]:
    """Returns a finding as JSON."""
    return {**asdict(finding), "runbooks": " ".join(CATALOGUE[finding.code].runbooks)}


def verdict_row(found: Verification) -> dict[str, Any]:
    """Returns the verdict as JSON."""
    return {
        "store": found.store,
        "status": found.state.value,
        "complete": found.complete,
        "live": found.live,
        "errors": found.count(Severity.ERROR),
        "warnings": found.count(Severity.WARNING),
        "notes": found.count(Severity.NOTE),
        "lost_bytes": found.losses.bytes,
        "lost_messages": found.losses.messages,
        "next_start": found.next_start and {"headline": found.next_start.headline, **asdict(found.next_start)},
        **asdict(found.statistics),
    }


def document(found: Verification, steps: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns the whole answer as one object."""
    rows = _rows(found)
    return {
        **verdict_row(found),
        "checks": rows["check"],
        "findings": rows["finding"],
        "lost_ranges": rows["lost_range"],
        "lost_messages_of_queues": rows["lost_messages"],
        "lost_messages_of_groups": rows["group_loss"],
        "next_steps": list(steps),
    }


def lines(found: Verification) -> list[dict[str, Any]]:
    """Returns the answer line by line, the verdict last."""
    parts = [{kind: row} for kind, rows in _rows(found).items() for row in rows]
    return [*parts, {"verdict": verdict_row(found)}]


def _rows(found: Verification) -> dict[str, list[dict[str, Any]]]:
    losses = found.losses
    return {
        "finding": [finding_row(finding) for finding in found.findings],
        "check": [
            {"check": one.area.value, "state": one.state.value, "findings": one.findings, "detail": one.detail}
            for one in found.checks
        ],
        "lost_range": [asdict(part) for part in losses.ranges],
        "lost_messages": [
            {
                "topic": loss.topic,
                "queue_id": loss.queue_id,
                "offsets": loss.offsets,
                "messages": loss.messages,
                "proof": loss.proof,
            }
            for loss in losses.queues
        ],
        "group_loss": [asdict(loss) for loss in losses.groups],
    }
