"""The answer of `mqtool verify` for people: verdict first, then findings with what to do, losses, checks."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mqtool.cli import cells
from mqtool.cli.render import Table
from mqtool.cli.schema import TABLE, Column
from mqtool.verify import CATALOGUE, Finding, Severity, State, Verification

MOST = 100
"""Findings that `--format table` prints; `wide` prints all."""
_RUNS = 8


def text(found: Verification, *, wide: bool) -> bytes:
    """Returns the whole answer."""
    parts = ["\n".join(_head(found)), *_findings(found.findings, wide=wide), *_losses(found), _checks(found)]
    return "\n\n".join(part for part in parts if part).encode("utf-8", "replace") + b"\n"


def counted(number: int, word: str) -> str:
    """Returns "1 message", "2 messages"."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def _head(found: Verification) -> Iterator[str]:
    kinds = ((Severity.ERROR, "error"), (Severity.WARNING, "warning"), (Severity.NOTE, "note"))
    counts = [counted(found.count(severity), word) for severity, word in kinds if found.count(severity)]
    verdict = ", ".join(counts) or ("nothing is wrong" if found.state is State.CLEAN else "nothing wrong was found")
    yield f"{cells.escape(found.store)}: {found.state}: {verdict}"
    if found.losses.bytes or found.losses.messages:
        yield f"lost: {counted(found.losses.messages, 'message')}, {counted(found.losses.bytes, 'byte')}"
    if found.live:
        yield "a broker is running on it: only what is certain is reported"
    if not found.complete:
        yield "stopped early: this is not all"
    unknown = [check.area.value for check in found.checks if check.state is State.UNKNOWN]
    if unknown:
        yield f"unknown: {', '.join(unknown)}"


def _findings(findings: Sequence[Finding], *, wide: bool) -> Iterator[str]:
    shown = findings if wide else findings[:MOST]
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
    yield f"{finding.severity}: {finding.code}: {cells.escape(', '.join(place))}"
    lost = [counted(finding.lost_messages, "message")] if finding.lost_messages else []
    lost += [counted(finding.lost_bytes, "byte")] if finding.lost_bytes else []
    yield "  " + cells.escape(finding.evidence) + (f"; lost {', '.join(lost)}" if lost else "")
    if wide:
        check = CATALOGUE[finding.code]
        yield f"  {check.meaning}"
        yield f"  {check.remedy}"
    yield f"  next: {cells.escape(finding.next_step)}"


def _losses(found: Verification) -> Iterator[str]:
    if found.losses.queues:
        rows = [
            {
                "topic": loss.topic,
                "queue": loss.queue_id,
                "messages": loss.messages,
                "queue offsets": _runs(loss.offsets),
                "proof": loss.proof,
            }
            for loss in found.losses.queues
        ]
        yield "Lost messages\n" + _table(rows)
    if found.losses.groups:
        rows = [
            {
                "group": loss.group,
                "topic": loss.topic,
                "queue": loss.queue_id,
                "consumer offset": loss.consumer_offset,
                "consumed": loss.consumed,
                "unread": loss.unread,
            }
            for loss in found.losses.groups
        ]
        yield "What the loss means for consumer groups\n" + _table(rows)


def _runs(runs: Iterable[tuple[int, int]]) -> str:
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return ", ".join(texts[:_RUNS]) + (", …" if len(texts) > _RUNS else "")


def _checks(found: Verification) -> str:
    rows = [
        {"check": one.area.value, "state": one.state.value, "findings": one.findings, "looked at": one.detail}
        for one in found.checks
    ]
    return "Checks\n" + _table(rows)


def _table(rows: list[dict[str, Any]]) -> str:
    columns = tuple(
        Column(name, "int64" if isinstance(value, int) else "string", "", show=TABLE) for name, value in rows[0].items()
    )
    table = Table(columns, wide=True, lookahead=len(rows) + 1)
    lines = b"".join(table.row(row) for row in rows) + table.end(ok=True)
    return lines.decode().rstrip("\n")
