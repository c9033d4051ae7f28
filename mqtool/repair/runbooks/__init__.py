"""Runbooks: known problems of a store as code. Each detects, explains, plans, checks gates, applies, verifies, undoes.

```
book = RUNBOOKS["RB-03"]
protocol = run(book, root)                                       # checks and plans; changes nothing
protocol = run(book, root, Request(apply=True, backup_acknowledged=True))
print(protocol.markdown())                                       # to paste into a ticket
```

Every change is a plan of `mqtool.repair` or a new directory, so it can be undone. Docs pages: docs/runbooks/.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

from mqtool import guide
from mqtool.errors import UsageError
from mqtool.repair.runbooks.copy_runbooks import COPY_RUNBOOKS
from mqtool.repair.runbooks.model import Case, Request, Runbook
from mqtool.repair.runbooks.runner import Protocol, run
from mqtool.repair.runbooks.store_runbooks import STORE_RUNBOOKS
from mqtool.verify import CATALOGUE, Finding

__all__ = [
    "ORDER",
    "RUNBOOKS",
    "Case",
    "Protocol",
    "Request",
    "by_code",
    "by_line",
    "by_name",
    "by_store",
    "run",
    "runbook_of",
    "runbooks_for",
]

RUNBOOKS: dict[str, Runbook] = {
    runbook.id: runbook for runbook in sorted((*STORE_RUNBOOKS, *COPY_RUNBOOKS), key=lambda runbook: runbook.id)
}

ORDER = (
    *("RB-18", "RB-11"),  # nobody else writes, and there is room
    *("RB-01", "RB-20", "RB-13", "RB-05", "RB-14", "RB-04"),  # the log, which all else is made from
    *("RB-15", "RB-19", "RB-10"),  # other layouts, topics
    *("RB-07", "RB-03", "RB-02", "RB-06", "RB-17"),  # what is derived from the log
    "RB-09",  # tables and checkpoint, which refer to all of this
    *("RB-08", "RB-12", "RB-16", "RB-21", "RB-22"),  # the start, and jobs that need a healthy store
)
"""Ids in the order in which runbooks are run where a store needs several."""
_JOBS = frozenset({"RB-12", "RB-14", "RB-15", "RB-16", "RB-19", "RB-21", "RB-22"})
"""Not troubles that a store shows by itself: these match by their codes only."""


def runbooks_for(findings: Iterable[Finding]) -> tuple[Runbook, ...]:
    """Returns the runbooks named first by findings, in the order in which to run them."""
    codes = {finding.code for finding in findings}
    return tuple(RUNBOOKS[name] for name in ORDER if any(CATALOGUE[code].runbooks[:1] == (name,) for code in codes))


class Match(Struct, frozen=True):
    """A runbook that fits."""

    runbook: Runbook  # the runbook
    why: str  # finding codes, or words of its symptom


def runbook_of(text: str) -> Runbook:
    """Returns the runbook with an id (`RB-03`, `rb3`, `3`) or a title; raises UsageError if there is none."""
    number = re.fullmatch(r"(?:rb)?[-_ ]?0*(\d{1,2})", text.strip(), re.IGNORECASE)
    identity = f"RB-{int(number[1]):02}" if number else ""
    for runbook in RUNBOOKS.values():
        if runbook.id == identity or guide.plain(text) == guide.plain(runbook.name):
            return runbook
    raise UsageError(f"{text!r}: expected one of {', '.join(RUNBOOKS)}; mqtool runbook list")


def by_name(text: str) -> tuple[Match, ...]:
    """Returns the runbook with an id or a name, as `runbook_of` does; empty if there is none."""
    try:
        runbook = runbook_of(text)
    except UsageError:
        return ()
    return (Match(runbook, runbook.symptom[0]),)


def by_code(code: str) -> tuple[Match, ...]:
    """Returns the runbooks for a finding code, the preferred one first."""
    return tuple(Match(RUNBOOKS[name], code) for name in CATALOGUE[code].runbooks)


def by_line(line: str) -> tuple[Match, ...]:
    """Returns the runbooks whose pages quote a line of a broker's log, or part of it, the longest match first."""
    pages = {page.topic: page for page in guide.pages()}
    in_order = (pages[f"runbooks/{name}"] for name in ORDER)
    return tuple(
        Match(RUNBOOKS[page.topic.removeprefix("runbooks/")], words) for page, words in guide.logged(in_order, line)
    )


def by_store(case: Case) -> tuple[Match, ...]:
    """Returns the runbooks whose problem a store has, in the order in which to run them."""
    matches = []
    for name in ORDER:
        runbook = RUNBOOKS[name]
        findings = case.findings(runbook.codes)
        detection = runbook.detect(case) if findings or name not in _JOBS else None
        if detection is not None and detection.present:
            codes = sorted({finding.code for finding in findings})
            matches.append(Match(runbook, ", ".join(codes) or detection.evidence[0]))
    return tuple(matches)
