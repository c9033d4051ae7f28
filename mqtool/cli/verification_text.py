"""Results of `mqtool verify` for readers: verdict first, then findings with what to do, losses, checks."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mqtool.cli import cells
from mqtool.cli.cells import counted
from mqtool.cli.colour import Style, paint
from mqtool.cli.render import Table
from mqtool.cli.schema import TABLE, Column
from mqtool.recovery.outcome import GIVEN
from mqtool.verify import CATALOGUE, Finding, Severity, State, Verification

STYLES = {
    Severity.ERROR: Style.BAD,
    Severity.WARNING: Style.DOUBTFUL,
    Severity.UNKNOWN: Style.DOUBTFUL,
    State.CORRUPT: Style.BAD,
    State.DIRTY: Style.DOUBTFUL,
    State.UNKNOWN: Style.DOUBTFUL,
    State.CLEAN: Style.GOOD,
}
"""Colours of severities and states on a terminal; what is not listed has none."""

MAX = 100
"""Findings that `--format table` prints; `wide` prints all."""
_RUNS = 8
_WORDS = {
    Severity.ERROR: "error",
    Severity.UNKNOWN: "unreadable path",
    Severity.WARNING: "warning",
    Severity.NOTE: "note",
}
"""What the findings of each severity are called in the verdict."""


def text(verification: Verification, steps: Sequence[str] = (), *, wide: bool) -> bytes:
    """Returns the complete result: the verdict, what to type first, then the details."""
    head = [*_head(verification), *(f"next: {paint(cells.escape(step), Style.COMMAND)}" for step in steps)]
    parts = [
        "\n".join(head),
        *_findings(verification.findings, wide=wide),
        *_losses(verification),
        _checks(verification),
    ]
    return "\n\n".join(part for part in parts if part).encode("utf-8", "replace") + b"\n"


def _head(verification: Verification) -> Iterator[str]:
    counts = [
        counted(verification.count(severity), word) for severity, word in _WORDS.items() if verification.count(severity)
    ]
    verdict = ", ".join(counts) or (
        "nothing is wrong" if verification.state is State.CLEAN else "nothing wrong was found"
    )
    yield f"{cells.escape(verification.store)}: {_coloured(verification.state)}: {verdict}"
    if verification.losses.bytes or verification.losses.messages:
        yield f"lost: {counted(verification.losses.messages, 'message')}, {counted(verification.losses.bytes, 'byte')}"
    start = verification.next_start
    if start and (start.do_not_start or verification.state is not State.CLEAN):
        yield cells.escape(start.headline)
        if start.other is not None:
            yield cells.escape(start.other.headline)
        if start.release_evidence != GIVEN:
            yield cells.escape(f"release {start.release} is {start.release_evidence}; --release states another")
    if verification.live:
        yield "a broker is running on it: only what is certain is reported"
    if not verification.complete:
        yield "stopped early: this is not all"
    unread = {CATALOGUE[finding.code].area for finding in verification.findings if finding.severity is Severity.UNKNOWN}
    unknown = [
        check.area.value for check in verification.checks if check.state is State.UNKNOWN or check.area in unread
    ]
    if unknown:
        yield f"unknown: {', '.join(unknown)}"


def _findings(findings: Sequence[Finding], *, wide: bool) -> Iterator[str]:
    shown = findings if wide else findings[:MAX]
    for finding in shown:
        yield "\n".join(_finding(finding, wide=wide))
    if len(findings) > len(shown):
        yield f"… {len(findings) - len(shown)} more: --format wide shows all"


def _finding(finding: Finding, *, wide: bool) -> Iterator[str]:
    place = [finding.file] if finding.file else []
    if finding.position is not None:
        place.append(f"position {finding.position}")
    if finding.physical_offset is not None:
        place.append(f"physical offset {finding.physical_offset}")
    if finding.topic is not None:
        place.append(f"topic {finding.topic}" + ("" if finding.queue_id is None else f" queue {finding.queue_id}"))
    yield f"{_coloured(finding.severity)}: {finding.code}: {cells.escape(', '.join(place))}"
    lost = [counted(finding.lost_messages, "message")] if finding.lost_messages else []
    lost += [counted(finding.lost_bytes, "byte")] if finding.lost_bytes else []
    yield "  " + cells.escape(finding.evidence) + (f"; lost {', '.join(lost)}" if lost else "")
    if wide:
        check = CATALOGUE[finding.code]
        yield f"  {check.meaning}"
        yield f"  {check.remedy}"
        if check.runbooks:
            yield f"  runbook: {', '.join(check.runbooks)}"
    if finding.next_step:
        yield f"  next: {paint(cells.escape(finding.next_step), Style.COMMAND)}"


def _coloured(word: Severity | State) -> str:
    return paint(word, STYLES[word]) if word in STYLES else word


def _losses(verification: Verification) -> Iterator[str]:
    if verification.losses.queues:
        rows = [
            {
                "topic": loss.topic,
                "queue": loss.queue_id,
                "messages": loss.messages,
                "queue offsets": _runs(loss.offsets),
                "proof": loss.proof,
            }
            for loss in verification.losses.queues
        ]
        yield "Lost messages\n" + _table(rows)
    if verification.losses.groups:
        rows = [
            {
                "group": loss.group,
                "topic": loss.topic,
                "queue": loss.queue_id,
                "consumer offset": loss.consumer_offset,
                "consumed": loss.consumed,
                "unread": loss.unread,
            }
            for loss in verification.losses.groups
        ]
        yield "What the loss means for consumer groups\n" + _table(rows)


def _runs(runs: Iterable[tuple[int, int]]) -> str:
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return ", ".join(texts[:_RUNS]) + (", …" if len(texts) > _RUNS else "")


def _checks(verification: Verification) -> str:
    rows = [
        {"check": check.area.value, "state": check.state.value, "findings": check.findings, "checked": check.detail}
        for check in verification.checks
    ]
    return "Checks\n" + _table(rows)


def _table(rows: list[dict[str, Any]]) -> str:
    columns = tuple(
        Column(name, "int64" if isinstance(value, int) else "string", "", show=TABLE) for name, value in rows[0].items()
    )
    table = Table(columns, wide=True, lookahead=len(rows) + 1)
    lines = b"".join(table.row(row) for row in rows) + table.end(ok=True)
    return lines.decode().rstrip("\n")
