"""What `mqtool explain-start` does once its options are read."""

from pathlib import Path
from typing import Any

from mqtool.cli import siblings
from mqtool.cli.exits import ExitCode
from mqtool.cli.explain_start_schema import EXPLAIN_START, VIEW
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.output import Output
from mqtool.commands import command, opened
from mqtool.recovery import Outcome, predict
from mqtool.siblings.registry import recognise

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
    outcome = predict(path, broker, config, read_log=read_log, heap_bytes=heap_bytes)
    code = ExitCode.OK if outcome.runs and not outcome.lost else ExitCode.NO
    steps = [] if code is ExitCode.OK else [command("verify", opened(path, config))]
    if output_format in (Format.TABLE, Format.WIDE):
        view = {**_view(path, outcome, wide=output_format is Format.WIDE), "next_steps": steps}
        return Output(invocation, VIEW, output_format).document(view, code)
    found = {"path": str(path), "verdict": outcome.verdict, **outcome.as_dict(), "next_steps": steps}
    return Output(invocation, EXPLAIN_START, output_format).document(found, code)


def _view(path: Path, outcome: Outcome, *, wide: bool) -> dict[str, Any]:
    stop = "closed in order" if outcome.clean_stop else "not closed in order (abort is there)"
    bounds, effort = outcome.after_start, outcome.effort
    new = sum(summary[0] == "new" for summary in outcome.index_after)
    return {
        "verdict": outcome.verdict,
        "store": f"{path}, {stop}",
        "broker": f"RocketMQ {outcome.release}, {outcome.release_evidence}",
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
