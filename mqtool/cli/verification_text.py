"""Results of `mqtool verify` for readers: verdict first, then findings with what to do, losses, checks."""

from collections.abc import Iterable, Iterator, Sequence

from mqtool.cli import document
from mqtool.cli.cells import counted
from mqtool.cli.colour import Style, paint
from mqtool.recovery.outcome import GIVEN
from mqtool.store.config.broker_config import UNCHECKED
from mqtool.verify import CATALOGUE, Finding, Severity, State, Verification, corrections
from mqtool.words import size

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
_REPAIRED = " after repair"
_WORDS = {
    Severity.ERROR: "error",
    Severity.UNKNOWN: "unreadable path",
    Severity.WARNING: "warning",
    Severity.NOTE: "note",
}
"""What the findings of each severity are called in the verdict."""


def text(verification: Verification, steps: Sequence[str] = (), start: Sequence[str] = (), *, wide: bool) -> bytes:
    """Returns the complete result: the verdict, what to type first, then the details.

    Args:
        verification: the result.
        steps: commands to type.
        start: lines about the next start of a store of another kind.
        wide: print all findings, and what each of them means.
    """
    verdict, *more = [*_head(verification), *start]
    state = verification.state
    head = _coloured(document.prose(verdict), " ", state) + document.prose(*more)
    blocks = [
        head + document.commands("next", steps),
        *_findings(verification.findings, wide=wide, has_step=bool(steps)),
        *_losses(verification),
        _checks(verification),
    ]
    return document.joined(blocks)


def _head(verification: Verification) -> Iterator[str]:
    counts = [
        counted(verification.count(severity), word) for severity, word in _WORDS.items() if verification.count(severity)
    ]
    verdict = ", ".join(counts) or (
        "nothing is wrong" if verification.state is State.CLEAN else "nothing wrong was found"
    )
    known = f"; {counted(verification.known_lost, 'message')} known lost" if verification.known_lost else ""
    if known and verification.state is State.CLEAN:
        yield f"{verification.store}: {verification.state}{_REPAIRED}{known}: {verdict}"
    else:
        yield f"{verification.store}: {verification.state_words}: {verdict}{known}"
    if verification.losses.messages:
        yield f"lost: {counted(verification.losses.messages, 'message')}, {size(verification.losses.bytes)}"
    elif verification.losses.bytes:
        yield f"damaged: {size(verification.losses.bytes)} of the log; no message is known to be lost already"
    start = verification.next_start
    if start and (start.do_not_start or verification.state is not State.CLEAN):
        yield verification.start_words or ""
        if start.other is not None:
            yield start.other.headline
        if start.release_evidence != GIVEN:
            yield f"release {start.release} is {start.release_evidence}; --release states another"
    if verification.config is not None:
        yield from corrections(verification.findings) or [f"broker.conf: {verification.config}"]
    elif start:
        yield UNCHECKED
    if verification.live:
        yield "a broker is running on it: only what is certain is reported"
    if not verification.complete:
        yield "stopped early: this is not all"
    unread = {
        CATALOGUE[finding.code].area
        for finding in verification.findings
        if finding.severity is Severity.UNKNOWN and finding.code in CATALOGUE
    }
    unknown = [
        check.area.value for check in verification.checks if check.state is State.UNKNOWN or check.area in unread
    ]
    if unknown:
        yield f"unknown: {', '.join(unknown)}"


def _findings(findings: Sequence[Finding], *, wide: bool, has_step: bool) -> Iterator[bytes]:
    """Yields the findings; with the command of each only if there is no command for all of them."""
    shown = findings if wide else findings[:MAX]
    yield from (_finding(finding, wide=wide, has_step=has_step) for finding in shown)
    if len(findings) > len(shown):
        yield document.prose(f"… {len(findings) - len(shown)} more: --format wide shows all")


def _finding(finding: Finding, *, wide: bool, has_step: bool) -> bytes:
    place = [finding.file] if finding.file else []
    if finding.position is not None:
        place.append(f"position {finding.position}")
    if finding.physical_offset is not None:
        place.append(f"physical offset {finding.physical_offset}")
    if finding.topic is not None:
        place.append(f"topic {finding.topic}" + ("" if finding.queue_id is None else f" queue {finding.queue_id}"))
    lost = [counted(finding.lost_messages, "message")] if finding.lost_messages else []
    lost += [size(finding.lost_bytes)] if finding.lost_bytes else []
    lines = [finding.evidence + (f"; lost {', '.join(lost)}" if lost else "")]
    if wide and finding.code in CATALOGUE:
        check = CATALOGUE[finding.code]
        lines += [check.meaning, check.remedy]
        lines += [f"runbook: {', '.join(check.runbooks)}"] if check.runbooks else []
    headline = document.prose(f"{finding.severity}: {finding.code}: {', '.join(place)}")
    return (
        _coloured(headline, "", finding.severity)
        + document.prose(*(f"  {line}" for line in lines))
        + document.commands("  next", [finding.next_step] if finding.next_step and not has_step else [])
    )


def _coloured(text: bytes, before: str, word: Severity | State) -> bytes:
    """Returns text with the first such word in its colour."""
    if word not in STYLES:
        return text
    for after in (":", _REPAIRED):
        text = text.replace(
            f"{before}{word}{after}".encode(), f"{before}{paint(word, STYLES[word])}{after}".encode(), 1
        )
    return text


def _losses(verification: Verification) -> Iterator[bytes]:
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
        yield document.section("lost messages", rows, wide=True)
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
        yield document.section("what the loss means for consumer groups", rows, wide=True)


def _runs(runs: Iterable[tuple[int, int]]) -> str:
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return ", ".join(texts[:_RUNS]) + (", …" if len(texts) > _RUNS else "")


def _checks(verification: Verification) -> bytes:
    rows = [
        {"check": check.area.value, "state": check.state.value, "findings": check.findings, "checked": check.detail}
        for check in verification.checks
    ]
    return document.section("checks", rows, wide=True)
