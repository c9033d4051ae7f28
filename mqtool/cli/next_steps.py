"""What to type after `mqtool verify`: the one plan that covers the findings comes first."""

from mqtool.commands import PLAN_FILE, command, opened
from mqtool.repair.from_findings import changes_of
from mqtool.repair.runbooks import needed
from mqtool.store import Store
from mqtool.verify import Severity, Verification
from mqtool.verify.findings import NOT_LISTED

_SALVAGE, _SEGMENTS = "RB-05", "RB-13"
"""Runbooks of damage inside the log and of missing segments: both make a new store, with all that is derived."""


def next_steps(store: Store, found: Verification) -> tuple[str, ...]:
    """Returns commands to type, the best first; none while a broker runs or before all was looked at."""
    if found.live or not found.complete or not any(one.severity is not Severity.NOTE for one in found.findings):
        return ()
    named = opened(store.path, store.config.file)
    if all(one.code in NOT_LISTED for one in found.findings if one.severity is not Severity.NOTE):
        return (command("verify", named),)
    mending = changes_of(store, found.findings)
    plan = (command("plan", "repair", named, "-o", PLAN_FILE),) if mending.changes else ()
    left = [one for one in mending.left if one.severity is Severity.ERROR]
    if plan and (mending.again or not left):
        return plan
    ways = needed(left)
    stuck = found.next_start is not None and found.next_start.lost_messages is None
    # A change in place is refused where what it leaves cuts the log at the next start, or keeps the broker from it.
    anew = [book for book in ways if book.id == _SALVAGE or (book.id == _SEGMENTS and stuck)]
    books = tuple(command("runbook", "run", book.id, named) for book in dict.fromkeys((*ways[:1], *anew)))
    if anew:
        return books
    return (*books, *plan) or (command("explain-start", named),)
