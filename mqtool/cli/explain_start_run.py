"""What `mqtool explain-start` does once its options are read."""

from pathlib import Path
from typing import Any

from mqtool.cli import siblings
from mqtool.cli.exits import ExitCode
from mqtool.cli.explain_start_schema import EXPLAIN_START, VIEW
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.output import Output
from mqtool.commands import command, opened
from mqtool.errors import UnreadableError
from mqtool.formats.release import release_of
from mqtool.recovery import Outcome, predict
from mqtool.recovery.outcome import GIVEN
from mqtool.recovery.predict import evidence_of
from mqtool.siblings.registry import recognise
from mqtool.store import open_readable

_RANGES = 8
"""Ranges of offsets in a row of a table; JSON has all."""


def run(
    invocation: Invocation,
    path: Path,
    config: Path | None,
    output_format: Format,
    *,
    broker: str | None,
    read_log: bool,
    heap_bytes: int | None,
) -> ExitCode:
    """Predicts and prints."""
    kind = recognise(path)
    if kind is not None:
        return siblings.explain_start(invocation, kind, path, output_format)
    try:
        outcome = predict(path, broker, config, read_log=read_log, heap_bytes=heap_bytes)
    except UnreadableError as error:
        return _unknown(invocation, path, config, output_format, broker, error)
    code = ExitCode.OK if outcome.runs and not outcome.lost else ExitCode.NO
    steps = [] if code is ExitCode.OK else [command("verify", opened(path, config))]
    if output_format in (Format.TABLE, Format.WIDE):
        view = {**_view(path, outcome, wide=output_format is Format.WIDE), "next_steps": steps}
        return Output(invocation, VIEW, output_format).document(view, code)
    found = {"path": str(path), "verdict": outcome.verdict, **outcome.as_dict(), "next_steps": steps}
    return Output(invocation, EXPLAIN_START, output_format).document(found, code)


def _unknown(
    invocation: Invocation,
    path: Path,
    config: Path | None,
    output_format: Format,
    broker: str | None,
    error: UnreadableError,
) -> ExitCode:
    """Prints that the start is unknown, because of what, and what would be needed."""
    with open_readable(path, config) as store:
        found, clean_stop = store.version, store.clean_stop
    release = str(found.release if broker is None else release_of(broker))
    evidence = evidence_of(found) if broker is None else GIVEN
    needed = (
        f"what a start of {release} does depends on what is in {error.path}: run this as a user who may read it; "
        "if the disk fails, copy what can be read to another one, or take the file from a replica"
    )
    rest = {"undecided": [needed], "next_steps": [command("verify", opened(path, config))]}
    verdict = f"unknown: {error}"
    if output_format in (Format.TABLE, Format.WIDE):
        view = {"verdict": verdict, "store": f"{path}, {_stop(clean_stop)}", "broker": _broker(release, evidence)}
        return Output(invocation, VIEW, output_format).document({**view, **rest}, ExitCode.NO)
    document = {
        "path": str(path),
        "release": release,
        "release_evidence": evidence,
        "verdict": verdict,
        "clean_stop": clean_stop,
        "files": {"deleted": [], "created": [], "changed": []},
        "index_after": [],
        "why": [],
        "accepted": [],
        **rest,
    }
    document |= {column.name: None for column in EXPLAIN_START.columns if column.name not in document}
    return Output(invocation, EXPLAIN_START, output_format).document(document, ExitCode.NO)


def _stop(clean_stop: bool) -> str:
    return "closed in order" if clean_stop else "not closed in order (abort is there)"


def _broker(release: str, evidence: str) -> str:
    return f"RocketMQ {release}, {evidence}"


def _view(path: Path, outcome: Outcome, *, wide: bool) -> dict[str, Any]:
    bounds, effort = outcome.after_start, outcome.effort
    new = sum(summary[0] == "new" for summary in outcome.index_after)
    return {
        "verdict": outcome.verdict,
        "store": f"{path}, {_stop(outcome.clean_stop)}",
        "broker": _broker(outcome.release, outcome.release_evidence),
        "log": None if bounds is None else f"{bounds[0]} to {bounds[1]}",
        "scan": _scan(outcome),
        "index": f"{len(outcome.index_after)} file(s), {new} of them new",
        "time": f"{effort.least_minutes} to {effort.most_minutes} minutes" if bounds else None,
        "lost": [_lost(name, ranges, wide=wide) for name, ranges in (outcome.lost or {}).items()],
        "deleted": outcome.files.deleted,
        "created": outcome.files.created,
        "changed": outcome.files.changed,
        "why": outcome.why,
        "accepted": outcome.accepted,
        "undecided": outcome.undecided,
        "queues": [
            {"queue": name, "min": queue.min_offset, "max": queue.max_offset, "next": queue.next_offset}
            for name, queue in (outcome.queues or {}).items()
        ],
    }


def _scan(outcome: Outcome) -> str | None:
    plan = outcome.plan
    if plan is None or plan.scan_from is None:
        return None
    effort = outcome.effort
    size = f"{effort.scanned_records} records, {effort.scanned_bytes} bytes"
    return f"from {plan.scan_from}, the log ends at {plan.cut_at}: {size}; {effort.dispatched_records} dispatched"


def _lost(name: str, ranges: tuple[tuple[int, int], ...], *, wide: bool) -> dict[str, Any]:
    shown = ranges if wide else ranges[:_RANGES]
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in shown]
    if len(shown) < len(ranges):
        texts.append(f"and {len(ranges) - len(shown)} more ranges")
    return {"queue": name, "messages": sum(last - first + 1 for first, last in ranges), "offsets": ", ".join(texts)}
