"""The commands to type after `mqtool verify`, beginning with the one plan that covers the findings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mqtool.commands import Opened, command, new_directory
from mqtool.errors import MqtoolError, RefusedError
from mqtool.recovery.outcome import GIVEN
from mqtool.store import Store, open_store
from mqtool.verify import Finding, Severity, Verification, corrections
from mqtool.verify.finding_collector import PERMISSIONS

if TYPE_CHECKING:
    from pathlib import Path

    from mqtool.repair.from_findings import RepairProposal
    from mqtool.repair.runbooks.model import Runbook

_COPYING = ("RB-05", "RB-13")
"""Runbooks of damage inside the log and of missing segments: both make a new store, with all that is derived."""


TRIED_LOG = 4 << 30
"""Bytes of the CommitLog up to which a plan is tried out; beyond, the order of the steps goes by the codes alone."""
TRIED_FINDINGS = 5_000
"""Findings up to which a plan is tried out: each may be a file of the preview, which is made three times."""


def next_steps(store: Store, verification: Verification, *, may_try: bool = True) -> tuple[str, ...]:
    """Returns commands to type, the best first.

    There are none while a broker is running, before the check is complete, and before broker.conf is corrected.

    Args:
        store: the one that was verified.
        verification: its verification.
        may_try: build the result of a plan aside and predict the broker's start with it. Then the plan is named only
            if it loses nothing that the store still has, and runbooks only for what it leaves. Nothing is built if
            there is nothing to plan, no start can be predicted, the log is longer than `TRIED_LOG`, or there are more
            findings than `TRIED_FINDINGS`.
    """
    if (
        verification.live
        or not verification.complete
        or not any(finding.severity is not Severity.NOTE for finding in verification.findings)
        or corrections(verification.findings)
    ):
        return ()
    from mqtool.repair.journal import ending_command  # a clean store does without

    ending, undo = "", command("undo", store.path, "--yes")
    with contextlib.suppress(RefusedError):
        ending = ending_command(store.path)
    if ending == "undo":
        return (undo,)
    for finding in verification.findings:
        if finding.code in PERMISSIONS:  # what is wrong is unknown before all of it is read
            return (finding.next_step,)
    steps = _steps(store, verification, may_try=may_try)
    if not ending or _new_store(store, verification) in steps:
        return steps
    return (command("discard-undo", store.path, "--dry-run"), undo)


def next_steps_of(root: Path, config: str | Path | None, verification: Verification) -> list[str]:
    """Opens a store that was verified, and returns its `next_steps`."""
    with open_store(root, config) as store:
        return list(next_steps(store, verification))


def _steps(store: Store, verification: Verification, *, may_try: bool) -> tuple[str, ...]:
    from mqtool.repair.from_findings import RepairProposal, changes_of, try_out

    proposal = changes_of(store, verification.findings, verification.losses.offsets)
    if proposal.changes and may_try and verification.next_start is not None and _is_small(store, verification):
        try:
            return _steps_for(store, try_out(store, proposal, verification.findings), verification)
        except MqtoolError:  # `mqtool plan` ends with the same error
            proposal = RepairProposal(
                (), tuple(finding for finding in verification.findings if finding.severity is not Severity.NOTE)
            )
        except OSError:  # no space for what the plan would change
            pass
    return _by_codes(store, proposal, verification)


def _is_small(store: Store, verification: Verification) -> bool:
    """Whether trying a plan takes about as long as `verify` itself."""
    size = sum(segment.size for segment in store.commit_log.segments)
    return size <= TRIED_LOG and len(verification.findings) <= TRIED_FINDINGS


def _steps_for(store: Store, tried: RepairProposal | RefusedError, verification: Verification) -> tuple[str, ...]:
    """Returns the step if the plan was tried: the repair in place, or a new store where that would lose messages."""
    if isinstance(tried, RefusedError):
        return (_new_store(store, verification),)
    return (_repair(store, verification),) if tried.changes else _by_codes(store, tried, verification)


def _opened(store: Store, verification: Verification) -> Opened:
    start = verification.next_start
    release = start.release if start is not None and start.release_evidence == GIVEN else None
    return Opened(store.path, store.config.file, release)


def _repair(store: Store, verification: Verification) -> str:
    return command("repair", _opened(store, verification))


def _new_store(store: Store, verification: Verification) -> str:
    """Returns the command that copies every intact record to a new store."""
    return command("repair", _opened(store, verification), "-o", new_directory(store.path))


def _by_codes(store: Store, proposal: RepairProposal, verification: Verification) -> tuple[str, ...]:
    """Returns the step if no plan was tried: `mqtool repair` tries one, or states why there is none."""
    if proposal.changes:
        return (_repair(store, verification),)
    ways = _needed(finding for finding in verification.findings if finding.severity.is_serious)
    named = _opened(store, verification)
    if not ways:
        return (command("explain-start", named),)
    return (
        _new_store(store, verification) if ways[0].id in _COPYING else command("runbook", "run", ways[0].id, named),
    )


def _needed(findings: Iterable[Finding]) -> tuple[Runbook, ...]:
    from mqtool.repair.runbooks import runbooks_for

    return runbooks_for(findings)
