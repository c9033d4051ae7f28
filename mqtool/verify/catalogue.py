"""Every finding code of `verify`: its meaning and remedy, as docs/checks.md states them.

Codes are stable: they are never renamed or reused.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from msgspec import Struct

from mqtool import guide
from mqtool.errors import UnavailableError
from mqtool.verify.findings import Area, Severity


class Check(Struct, frozen=True):
    """One finding code."""

    code: str  # stable name
    area: Area  # which check reports it
    severity: Severity  # the default; `meaning` states when the check reports another one
    meaning: str  # what is wrong, and how the broker reacts to it
    remedy: str  # what to do, as text
    # The command to run, or nothing; `FindingCollector` fills in `{store}`, `{path}`, `{name}`, `{topic}`,
    # `{queue_id}`, `{group}`, `{offsets}`, `{plan}` and `{words}`.
    next_step: str
    runbooks: tuple[str, ...] = ()  # ids of its runbooks, most likely first
    no_runbook: str = ""  # if there is none, the reason


_ENTRY = re.compile(
    rf"""`(?P<code>[a-z\d-]+)`

\*(?P<severity>{"|".join(Severity)})\*: (?P<meaning>.+)

\*\*Remedy:\*\* (?P<remedy>.+)
(?:
\*\*Next:\*\* `(?P<next_step>[^`]+)`
)?
\*\*(?:Runbook:\*\* (?P<runbooks>(?:(?:, )?\[(RB-\d\d)\]\(runbooks/\7\.md\))+)|No runbook:\*\* (?P<no_runbook>.+))\s*"""
)
_EXPECTED = (
    "a heading with the code, *SEVERITY*: MEANING, **Remedy:** TEXT, **Next:** `COMMAND` if there is one, and "
    "**Runbook:** LINKS or **No runbook:** REASON, each a line of its own with an empty line before it"
)


def checks_of(page: str) -> Iterator[Check]:
    """Yields what docs/checks.md states; raises UnavailableError at the first entry that has another form."""
    for part in page.split("\n## ")[1:]:
        area, *entries = part.split("\n### ")
        if area.strip() not in list(Area):
            raise _error(page, f"\n## {area}", f"one of {', '.join(Area)}")
        for entry in entries:
            match = _ENTRY.fullmatch(entry)
            if match is None:
                raise _error(page, f"\n### {entry}", _EXPECTED)
            values = match.groupdict("")
            runbooks = tuple(re.findall(r"\[(RB-\d\d)\]", values.pop("runbooks")))
            severity = Severity(values.pop("severity"))
            yield Check(area=Area(area.strip()), severity=severity, runbooks=runbooks, **values)


def _error(page: str, text: str, expected: str) -> UnavailableError:
    number = page[: page.index(text)].count("\n") + 2
    return UnavailableError(f"docs/checks.md, line {number}: expected {expected}; found {text.splitlines()[1]!r}")


class Catalogue(Mapping[str, Check]):
    """The checks by code, in the order of the page, which is read when the first of them is asked for."""

    @cached_property
    def _checks(self) -> dict[str, Check]:
        return {check.code: check for check in checks_of(guide.text_of("checks.md"))}

    def __getitem__(self, code: str) -> Check:
        return self._checks[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._checks)

    def __len__(self) -> int:
        return len(self._checks)


CATALOGUE = Catalogue()
"""Every check by its code."""
