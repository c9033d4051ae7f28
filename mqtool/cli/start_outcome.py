"""Prints the predicted start of a broker: the JSON object, and the tables that show it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqtool.cli import cells, document
from mqtool.cli.cells import counted
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import TABLE_FORMATS, Format, Invocation
from mqtool.cli.output import Output
from mqtool.cli.schema import CONFIG, Column, OutputSchema, count, flag, listing, nested, text
from mqtool.cli.terminal import Style
from mqtool.commands import Opened, command
from mqtool.errors import PermissionDeniedError, StoreError, UnreadableError
from mqtool.formats import file_names
from mqtool.formats.release import release_of
from mqtool.words import size

if TYPE_CHECKING:
    from mqtool.recovery import Outcome
    from mqtool.recovery.losses import Ranges
    from mqtool.store import Store
    from mqtool.store.paths import OwnerDenial
    from mqtool.store.waiting.held_back import WaitingMessages


def _map(name: str, doc: str) -> Column:
    return Column(name, "object", doc, items="any", nullable=True)


_FILES = (
    listing("deleted", "missing files"),
    listing("created", "new files; index/<new-N> is named by the time"),
    listing("changed", "files whose bytes change"),
)
_EFFORT = (
    count("scanned_bytes", "bytes of records that recovery and the first dispatch read"),
    count("scanned_records", "records that recovery tests"),
    count("dispatched_records", "records that are dispatched to queues and index"),
    Column("minutes", "array", "minimum and maximum: everything in memory, or read from a slow disk", items="number"),
)

_WAITING = (
    text("kind", "delay, timer, transaction or popped"),
    text("queue", "topic/queue that keeps them"),
    count("messages", "how many wait now"),
    count("lost", "how many of them are lost already, or by the start; null if that is unknown", nullable=True),
)
_WAITING_DOC = "messages that are waiting to be delivered; null if that cannot be read"

EXPLAIN_START = OutputSchema(
    "explain-start",
    "what a broker would do to a store",
    (
        text("path", "the store's root directory"),
        CONFIG,
        text("release", "of the broker, such as 4.9, 5.5 or 5.5.1"),
        text("release_evidence", "why this release: given, or the evidence for and against it"),
        nested(
            "other",
            "the start of another release, if the evidence for the release disagrees; if the store may be of "
            "4.9, also if its outcome is another one; else null",
            text("release", "which one"),
            text("verdict", "in one line"),
            nullable=True,
        ),
        text("verdict", "in one line; begins with unknown: if files that decide it cannot be read"),
        listing(
            "advice",
            "what to do before the start, and why: sizes in broker.conf that do not fit the files, messages that "
            "retention would delete unread, or the timer would skip",
        ),
        flag("clean_stop", "there is no abort file: recovered normally"),
        count("exit", "exit code of the process; null if it keeps running or hangs", nullable=True),
        text("refusal", "the broker's error message", nullable=True),
        text("hung", "where the start hangs", nullable=True),
        nested(
            "after_start",
            "physical offsets; null if the start does not get that far",
            count("min", "of the log's first byte"),
            count("max", "after its last"),
            nullable=True,
        ),
        count("scan_from", "physical offset at which recovery begins to scan", nullable=True),
        count("cut_at", "physical offset at which the scan ends the log", nullable=True),
        _map("queues", "by topic/queue: min, max and next offset; null unless it runs"),
        _map("lost", "by topic/queue: ranges of queue offsets that are provable now and not delivered after the start"),
        _map("gone", "those of lost that are lost already: no intact record is left"),
        _map(
            "unserved",
            "those of lost whose records stay in the log, but no queue leads to them, now or after the start",
        ),
        count("readable", "messages that consumers get intact", nullable=True),
        _map("repeated", "by topic/queue: ranges of queue offsets that are delivered more than once"),
        Column(
            "index_after",
            "array",
            "index files: name or new, begin and end physical offset, used slots, entry counter",
            items="any",
        ),
        count(
            "index_lost",
            "index entries of records in the log that the start deletes and does not write again; null if unknown",
            nullable=True,
        ),
        flag("abort_after", "the abort file remains after a clean shutdown; null if unknown", nullable=True),
        listing("waiting", _WAITING_DOC, *_WAITING, nullable=True),
        nested("files", "changes after the start and a clean shutdown", *_FILES),
        listing("why", "the rules that were applied"),
        listing("accepted", "what is wrong, but accepted silently"),
        listing("undecided", "what cannot be predicted from the files"),
        nested("effort", "amount of work; null if unknown", *_EFFORT, nullable=True),
        listing("next_steps", "commands to type if it would not start, or messages would be lost, as of verify"),
    ),
    single=True,
)

LOST = (text("queue", "topic/queue"), count("messages", "how many"), text("offsets", "queue offsets"))
"""Columns of `lost_row`."""

_RANGES = 8
"""Ranges of offsets in a row of a table; JSON has all."""


def print_start_outcome(
    invocation: Invocation,
    path: Path,
    config: Path | None,
    output_format: Format,
    *,
    broker: str | None,
    read_log: bool = True,
    heap_bytes: int | None = None,
) -> ExitCode:
    """Predicts a start and prints it; returns NO if the broker should not be started, or the outcome is unknown."""
    from mqtool.store.config.broker_config import UNCHECKED
    from mqtool.store.paths import owned_by_root

    try:
        outcome, other, disputed = _starts(path, broker, config, read_log=read_log, heap_bytes=heap_bytes)
    except UnreadableError as error:
        return _unknown(invocation, path, config, output_format, broker, error)
    denial, waiting, timer = _in_store(path, config, outcome)
    do_not_start = outcome.do_not_start or (other is not None and disputed and other.do_not_start)
    code = ExitCode.NO if denial or timer or do_not_start else ExitCode.OK
    lost, steps = outcome.lost, [command("verify", Opened(path, config, broker))]
    advice = [] if do_not_start else _afterwards(path, config, outcome)
    read_first = "read the advice below first: " if advice else ""
    style = Style.BAD if code is ExitCode.NO else Style.DOUBTFUL if advice else Style.GOOD
    if code is ExitCode.OK:
        steps = []
    elif read_log:
        steps, corrected, already_lost = _checked(path, config, broker)
        advice += corrected
        lost = already_lost if lost is None else lost
    advice += owned_by_root(path)
    verdict = outcome.verdict
    if timer and outcome.runs:
        verdict = f"{verdict}; {timer}" if outcome.lost else f"starts; what it loses is unknown: {timer}"
    if do_not_start:
        verdict = f"do not start the broker: {verdict}"
    verdict = f"{read_first}{verdict}"
    if config is None and outcome.runs:
        verdict += f"; {UNCHECKED}"
    if denial is not None:
        verdict = f"{_cannot_use(denial)}{verdict}"
        steps = [shlex.join(denial.words)]
    rows = None if waiting is None else _waiting_rows(waiting, lost, has_timers=not timer)
    output = Output(invocation, EXPLAIN_START, output_format)
    if output_format in TABLE_FORMATS:
        wide = output_format is Format.WIDE
        facts = _facts(path, config, outcome, other)
        sections = _sections(outcome, rows, wide=wide)
        return output.page(_page(verdict, style, facts, steps, sections, advice, wide=wide), code)
    prediction = {
        "path": str(path),
        "config": config and str(config),
        "verdict": verdict,
        **outcome.as_dict(),
        "other": other and {"release": other.release, "verdict": other.verdict},
        "waiting": rows,
        "advice": advice,
        "next_steps": steps,
    }
    return output.document(prediction, code)


def _starts(
    path: Path, broker: str | None, config: Path | None, *, read_log: bool, heap_bytes: int | None
) -> tuple[Outcome, Outcome | None, bool]:
    """Returns the start, that of the other release where it matters, and whether the evidence disagrees."""
    from mqtool.recovery import predict
    from mqtool.recovery.predict import detect_version, other_start

    def start(release: str | None, read: bool) -> Outcome:
        return predict(path, release, config, read_log=read and read_log, heap_bytes=heap_bytes)

    outcome = start(broker, True)
    if broker is not None:
        return outcome, None, False
    version = detect_version(path, config)
    other = other_start(outcome, version, lambda release, read: start(str(release), read))
    return outcome, other, bool(version.contrary)


def _in_store(
    path: Path, config: Path | None, outcome: Outcome
) -> tuple[OwnerDenial | None, list[WaitingMessages] | None, str]:
    """Returns what the broker may not use, although root may, and the waiting messages.

    The first such file or directory, None if there is none; None for the messages if they cannot be read.
    The text states why timer messages are not counted among the losses: the timer's files are damaged, or cannot be
    read. It is "" if they are counted, and for a release without a timer.
    """
    from mqtool.store import open_readable
    from mqtool.store.waiting.held_back import waiting_messages
    from mqtool.verify.next_start import uncounted_timers
    from mqtool.verify.services import timer_damage

    denial, unknown = None, ""
    try:
        with open_readable(path, config) as store:
            denial = _denial(store)
            damage = timer_damage(store) if release_of(outcome.release) >= (5, 0) else ""
            unknown = uncounted_timers(damage) if damage else ""
            return denial, waiting_messages(store), unknown
    except StoreError:
        return denial, None, unknown


def _waiting_rows(
    waiting: Iterable[WaitingMessages], lost: Mapping[str, Ranges] | None, *, has_timers: bool
) -> list[dict[str, Any]]:
    """Returns the waiting messages, with how many of them are lost; None for timers if those are not counted."""
    from mqtool.store.waiting.held_back import WaitingKind

    return [
        {
            "kind": messages.kind.value,
            "queue": messages.queue,
            "messages": len(messages.queue_offsets),
            "lost": None
            if lost is None or (messages.kind is WaitingKind.TIMER and not has_timers)
            else messages.among(lost.get(messages.queue, ())),
        }
        for messages in waiting
    ]


def _checked(
    path: Path, config: Path | None, broker: str | None
) -> tuple[list[str], tuple[str, ...], dict[str, Ranges]]:
    """Returns what `verify` would print: the next steps, what to do before them, and what is lost already."""
    from mqtool.cli.options import workers
    from mqtool.cli.verification_formats import next_steps
    from mqtool.store import open_readable
    from mqtool.store.known_losses import offsets_by_name
    from mqtool.verify import Options, corrections, cut_short, verify

    with open_readable(path, config) as store:
        jobs = workers(None, sum(segment.size for segment in store.commit_log.segments))
        verification = verify(store, Options(jobs=jobs, broker=broker))
        steps = list(next_steps(store, verification))
    hints = (*corrections(verification.findings), *cut_short(verification.findings))
    return steps, hints, offsets_by_name(verification.losses.offsets)


def _afterwards(path: Path, config: Path | None, outcome: Outcome) -> list[str]:
    """Returns which messages are lost after the start, and how to keep them.

    There is no line if the start itself deletes the oldest segments: others expire then.
    """
    from mqtool.cli.after_start import losses_after_start
    from mqtool.store import open_readable

    try:
        with open_readable(path, config) as store:
            kept = [segment.path for segment in outcome.plan.segments] if outcome.plan else []
            if kept != [segment.path for segment in store.commit_log.segments[: len(kept)]]:
                return []
            return losses_after_start(store, release_of(outcome.release), len(kept))
    except StoreError as error:
        return [f"what is lost after the start is unknown: {error}"]


def _unknown(
    invocation: Invocation,
    path: Path,
    config: Path | None,
    output_format: Format,
    broker: str | None,
    error: UnreadableError,
) -> ExitCode:
    """Prints that the start is unknown, why, and what would be needed."""
    from mqtool.recovery.outcome import GIVEN
    from mqtool.store import open_readable

    with open_readable(path, config) as store:
        version, clean_stop = store.version, store.clean_stop
        denial = _denial(store)
    release = str(version.release if broker is None else release_of(broker))
    evidence = version.assumption if broker is None else GIVEN
    is_denied = isinstance(error, PermissionDeniedError)
    as_root = "sudo " if is_denied else ""
    needed = f"what a start of {release} does depends on the contents of {error.path}: " + (
        "`sudo` reads it; if the broker's user may not read it either, the broker does not start"
        if is_denied
        else "copy what is readable to another disk, or take the file from a replica"
    )
    step = as_root + command("verify", Opened(path, config, broker))
    rest = {"undecided": [needed], "next_steps": [step]}
    verdict = f"unknown: {error}"
    if denial is not None:
        verdict = f"{_cannot_use(denial)}unknown"
    output = Output(invocation, EXPLAIN_START, output_format)
    if output_format in TABLE_FORMATS:
        facts = _store(path, clean_stop, config, release, evidence)
        return output.page(
            _page(verdict, Style.DOUBTFUL, facts, rest["next_steps"], {_UNDECIDED: rest["undecided"]}, wide=True),
            ExitCode.NO,
        )
    prediction = {
        "path": str(path),
        "release": release,
        "release_evidence": evidence,
        "verdict": verdict,
        "clean_stop": clean_stop,
        "files": {"deleted": [], "created": [], "changed": []},
        "index_after": [],
        "why": [],
        "accepted": [],
        "advice": [],
        **rest,
    }
    prediction |= {column.name: None for column in EXPLAIN_START.columns if column.name not in prediction}
    return output.document(prediction, ExitCode.NO)


def _denial(store: Store) -> OwnerDenial | None:
    """Returns the first file or directory that the broker's user may not use."""
    from mqtool.store.paths import denied_to_owner

    return next(denied_to_owner(store.path, *store.layout.log_dirs, own=True), None)


def _cannot_use(denial: OwnerDenial) -> str:
    return f"cannot use {denial.path}: {denial.evidence}; with permission: "


_UNDECIDED = "what cannot be predicted from the files"


def _page(
    verdict: str,
    style: Style,
    facts: dict[str, str],
    steps: list[str],
    sections: dict[str, Any],
    advice: Iterable[str] = (),
    *,
    wide: bool,
) -> Iterator[bytes]:
    """Yields a prediction for readers."""
    yield document.prose(verdict, style=style) + document.prose(*advice)
    yield document.labelled(facts.items())
    yield document.commands("next", steps)
    for title, rows in sections.items():
        yield document.section(title, rows, wide=wide)


def _store(path: Path, clean_stop: bool, config: Path | None, release: str, evidence: str) -> dict[str, str]:
    """Returns what is started, in words."""
    stop = "shut down cleanly" if clean_stop else "not shut down cleanly (abort exists)"
    named = {} if config is None else {"config": str(config)}
    return {"store": f"{path}, {stop}", **named, "broker": f"RocketMQ {release}, {evidence}"}


def _facts(path: Path, config: Path | None, outcome: Outcome, other: Outcome | None) -> dict[str, str]:
    """Returns the start in words."""
    facts = _store(path, outcome.clean_stop, config, outcome.release, outcome.release_evidence)
    bounds, effort, plan = outcome.after_start, outcome.effort, outcome.plan
    if other is not None:
        facts["or"] = f"RocketMQ {other.release}: {other.verdict}"
    if bounds is not None:
        facts["log"] = f"{size(bounds[1] - bounds[0])} afterwards: physical offsets {bounds[0]} to {bounds[1]}"
    if plan is not None and plan.scan_from is not None:
        read = f"{counted(effort.scanned_records, 'record')} ({size(effort.scanned_bytes)}) from {plan.scan_from} on"
        facts["recovery"] = f"reads {read}; dispatches {effort.dispatched_records} to queues and index"
    if new := sum(summary[0] == "new" for summary in outcome.index_after):
        facts["index"] = f"{counted(len(outcome.index_after), 'file')} afterwards, {new} of them new"
    if outcome.index_lost:
        facts["keys"] = f"{outcome.index_lost} entries are deleted permanently: these keys then find no message"
    if bounds is not None:
        facts["time"] = _duration(effort.min_minutes, effort.max_minutes)
    return facts


def _duration(shortest: float, longest: float) -> str:
    if longest < 1:
        return "less than a minute"
    return (
        f"up to {counted(math.ceil(longest), 'minute')}" if shortest < 1 else f"{shortest:.0f} to {longest:.0f} minutes"
    )


def _sections(outcome: Outcome, waiting: list[dict[str, Any]] | None, *, wide: bool) -> dict[str, Any]:
    """Returns the lists of a prediction by their titles."""
    reasons = str if wide else cells.without_classes
    return {
        **{
            title: [lost_row(name, ranges, wide=wide) for name, ranges in (by_queue or {}).items()]
            for title, by_queue in (
                ("messages lost by the start", outcome.by_start),
                ("messages not served, still in the log", outcome.unserved),
                ("messages lost already", outcome.gone),
            )
        },
        "messages waiting for delivery": [
            {**row, "lost": "unknown" if row["lost"] is None else row["lost"]} for row in waiting or ()
        ],
        "files that are deleted": [
            name if outcome.by_start or Path(name).parent.name != file_names.COMMIT_LOG else f"{name}: has no message"
            for name in outcome.files.deleted
        ],
        "files that are created": outcome.files.created,
        "files that are changed": outcome.files.changed,
        "why": list(map(reasons, outcome.why)),
        "wrong, but accepted silently": list(map(reasons, outcome.accepted)),
        _UNDECIDED: list(map(reasons, outcome.undecided)),
        "queues afterwards": [
            {"queue": name, "min": queue.min_offset, "max": queue.max_offset, "next": queue.next_offset}
            for name, queue in (outcome.queues or {}).items()
            if wide
        ],
    }


def lost_row(name: str, ranges: tuple[tuple[int, int], ...], *, wide: bool) -> dict[str, Any]:
    """Returns the lost messages of a queue as a row of a table."""
    shown = ranges if wide else ranges[:_RANGES]
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in shown]
    if len(shown) < len(ranges):
        texts.append(f"and {len(ranges) - len(shown)} more ranges")
    return {"queue": name, "messages": sum(last - first + 1 for first, last in ranges), "offsets": ", ".join(texts)}
