"""Results of `mqtool verify` for monitoring: JUnit, Prometheus, Nagios."""

from collections import Counter
from collections.abc import Iterator

from mqtool.cli import cells
from mqtool.cli.cells import counted
from mqtool.verify import Area, Finding, Severity, State, Verification
from mqtool.verify.finding_collector import area_of

_NAGIOS = {State.CLEAN: "OK", State.DIRTY: "WARNING", State.CORRUPT: "CRITICAL", State.UNKNOWN: "UNKNOWN"}


def junit(verification: Verification) -> bytes:
    """Returns JUnit XML: a suite per check; errors and warnings are failures, unknown checks are skipped."""
    suites = [_suite(verification, check.area) for check in verification.checks]
    head = f'<testsuites name="mqtool verify" time="{verification.statistics.seconds}">'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', head, *suites, "</testsuites>", ""]
    return "\n".join(lines).encode("utf-8", "replace")


def _suite(verification: Verification, area: Area) -> str:
    check = next(item for item in verification.checks if item.area is area)
    mine = [item for item in verification.findings if area_of(item) is area and item.severity is not Severity.NOTE]
    cases = [_case(area, finding) for finding in mine]
    skipped = check.state is State.UNKNOWN or (not mine and not verification.complete)
    if skipped:
        cases.append(
            f"    <testcase classname={_attribute(area)} name={_attribute(area)}>\n"
            f"      <skipped message={_attribute(check.detail)}/>\n    </testcase>"
        )
    elif not mine:
        cases.append(f"    <testcase classname={_attribute(area)} name={_attribute(area)}/>")
    counts = f'tests="{len(cases)}" failures="{len(mine)}" skipped="{int(skipped)}"'
    return "\n".join([f"  <testsuite name={_attribute(area)} {counts}>", *cases, "  </testsuite>"])


def _case(area: Area, finding: Finding) -> str:
    from xml.sax.saxutils import escape

    place = finding.file + ("" if finding.position is None else f" position {finding.position}")
    name = _attribute(f"{finding.code} {place}".strip())
    step = f"\nnext: {cells.escape(finding.next_step)}" if finding.next_step else ""
    body = escape(cells.escape(finding.evidence) + step)
    message = _attribute(f"{finding.severity}: {finding.evidence}")
    failure = f"<failure type={_attribute(finding.code)} message={message}>{body}</failure>"
    return f"    <testcase classname={_attribute(area)} name={name}>\n      {failure}\n    </testcase>"


def _attribute(text: str) -> str:
    from xml.sax.saxutils import quoteattr

    return quoteattr(cells.escape(str(text)))


def prometheus(verification: Verification, now: float) -> bytes:
    """Returns the text format of Prometheus, for a textfile collector.

    Args:
        verification: the answer.
        now: seconds since the epoch.
    """
    return ("\n".join(_metrics(verification, now)) + "\n").encode("utf-8", "replace")


def _metrics(verification: Verification, now: float) -> Iterator[str]:
    store = _labels(store=verification.store)
    yield from _metric("state", "1 for the state that the store is in")
    yield from (
        _sample("state", int(verification.state is state), store=verification.store, state=state.value)
        for state in State
    )
    yield from _metric("check_state", "1 for the state that each check ended in")
    yield from (
        _sample("check_state", 1, store=verification.store, check=check.area.value, state=check.state.value)
        for check in verification.checks
    )
    yield from _metric("findings", "findings by code and severity")
    counts = Counter((finding.code, finding.severity.value) for finding in verification.findings)
    yield from (
        _sample("findings", count, store=verification.store, code=code, severity=severity)
        for (code, severity), count in sorted(counts.items())
    )
    yield from _metric("lost_messages", "messages proved to be gone, by queue")
    lost: Counter[tuple[str, int]] = Counter()
    for loss in verification.losses.queues:
        lost[loss.topic, loss.queue_id] += loss.messages
    yield from (
        _sample("lost_messages", count, store=verification.store, topic=topic, queue_id=str(queue_id))
        for (topic, queue_id), count in sorted(lost.items())
    )
    statistics = verification.statistics
    for name, description, value in (
        ("lost_bytes", "bytes of the CommitLog without a valid record", verification.losses.bytes),
        ("records", "valid records that were read", statistics.records),
        ("log_bytes", "bytes of the CommitLog that were read", statistics.log_bytes),
        ("complete", "0 if the check was stopped early", int(verification.complete)),
        ("duration_seconds", "how long the check took", statistics.seconds),
        ("time_seconds", "when the check ended, since the epoch", round(now, 3)),
    ):
        yield from _metric(name, description)
        yield f"mqtool_verify_{name}{store} {value}"


def _metric(name: str, description: str) -> Iterator[str]:
    yield f"# HELP mqtool_verify_{name} {description}"
    yield f"# TYPE mqtool_verify_{name} gauge"


def _sample(name: str, value: int, **labels: str) -> str:
    return f"mqtool_verify_{name}{_labels(**labels)} {value}"


def _labels(**labels: str) -> str:
    def quoted(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{quoted(value)}"' for name, value in labels.items()) + "}"


def nagios(verification: Verification) -> bytes:
    """Returns the output of a plugin: a status line with performance data, then a line per finding."""
    errors, warnings = verification.count(Severity.ERROR), verification.count(Severity.WARNING)
    summary = f"{verification.state}, {counted(errors, 'error')}, {counted(warnings, 'warning')}"
    summary += f", {counted(verification.losses.messages, 'lost message')}"
    if verification.next_start and verification.next_start.do_not_start:
        summary += f", {_plain(verification.start_words or '')}"
    data = (
        f"errors={errors} warnings={warnings} lost_messages={verification.losses.messages} "
        f"lost_bytes={verification.losses.bytes}B "
        f"records={verification.statistics.records} time={verification.statistics.seconds}s"
    )
    status = (
        "UNKNOWN" if not verification.complete and verification.state is State.CLEAN else _NAGIOS[verification.state]
    )
    lines = [f"VERIFY {status} - {_plain(verification.store)}: {summary} | {data}"]
    lines += [
        f"{finding.severity} {finding.code} {_plain(finding.file)}: {_plain(finding.evidence)}"
        for finding in verification.findings
    ]
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _plain(text: str) -> str:
    """Replaces bars, which would begin performance data."""
    return cells.escape(text).replace("|", "/")
