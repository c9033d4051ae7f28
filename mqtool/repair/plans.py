"""Plans that follow from what is wrong with a store rather than from a change that was named."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from mqtool.choices import Compat, RecoveryMode
from mqtool.commands import Opened, new_store_command
from mqtool.engine.start.detect import options_for
from mqtool.errors import (
    LayoutError,
    NothingToChangeError,
    RefusedError,
    StoreLockedError,
    UnsupportedFormatError,
    UsageError,
)
from mqtool.recovery import predict
from mqtool.repair.changes import Recover
from mqtool.repair.from_findings import RepairProposal, changes_of, is_small, remaining_after
from mqtool.repair.outlook import LOSSES, Comparison, LossesError, NotInPlaceError, Preview
from mqtool.repair.plan import Plan
from mqtool.repair.plan_builder import make_plan
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.known_losses import LostOffsets
from mqtool.store.store import Store, open_store
from mqtool.verify import Finding, Options, Severity, Verification, corrections, verify
from mqtool.verify.finding_collector import PERMISSIONS


class RepairPlan(Struct, frozen=True):
    """A plan that repairs findings."""

    plan: Plan  # the plan
    remaining: tuple[Finding, ...]  # findings that are still there after it
    # Whether another plan, made after the undo data of this one is discarded, may repair some of them.
    needs_another_run: bool
    complete: bool  # whether it repairs all that it was made for

    @property
    def is_enough(self) -> bool:
        """Whether it repairs every error, or is the first of two plans that do."""
        return self.complete and (
            self.needs_another_run or not any(finding.severity.is_serious for finding in self.remaining)
        )


def plan_repair(
    root: Path,
    findings: Iterable[Finding] | None = None,
    *,
    lost: tuple[LostOffsets, ...] | None = None,
    config: "str | Path | Mapping[str, object] | None" = None,
    release: str | None = None,
    work_dir: Path | None = None,
) -> RepairPlan:
    """Plans the changes that repair findings: those given, or those of `verify` now.

    `lost` is what `verify` proved lost, None if it is not at hand. `release` will be started, by default the one that
    wrote the store. Other arguments and errors are those of `make_plan`. Raises NothingToChangeError if no finding asks
    for a change; UsageError if the configuration does not fit the files.
    """
    with open_store(root, config) as store:
        if findings is None:
            verification = verify(store)
            findings, lost = verification.findings, verification.losses.offsets
        chosen = tuple(findings)
        if wrong := corrections(chosen):
            raise UsageError("; ".join(wrong))
        proposal = changes_of(store, chosen, lost)
    return plan_of(root, proposal, chosen, config=config, release=release, work_dir=work_dir)


def plan_of(
    root: Path,
    proposal: RepairProposal,
    findings: tuple[Finding, ...],
    *,
    config: "str | Path | Mapping[str, object] | None" = None,
    release: str | None = None,
    work_dir: Path | None = None,
    allow_unread: bool = True,
) -> RepairPlan:
    """Plans proposed changes, unless a store with every intact record has to be made instead.

    Arguments and errors are those of `plan_repair` and `make_plan`. Raises NotInPlaceError if, after the changes, a
    start would lose messages, or there would be new errors.
    """
    if not proposal.changes:
        raise NothingToChangeError(f"{root}: these findings contain nothing that a plan can repair")
    after: list[RepairProposal] = []
    opened = Opened(root, config, release)

    def look(tree: Path, keys: BrokerConfig) -> None:
        if proposal.is_verified:
            after.append(remaining_after(proposal, findings, tree, keys))

    try:
        plan = make_plan(
            root,
            proposal.changes,
            config=config,
            broker=release,
            work_dir=work_dir,
            must_repair=not proposal.needs_another_run,
            allow_unread=allow_unread,
            inspect=look,
        )
    except LossesError as error:  # of this store, or of what the first of several plans makes of it
        raise error.comparison.refusal(opened) from None
    if after and (refusal := after[0].refusal(opened)):
        raise refusal
    left = after[0] if after else proposal  # what damage kept from being made is in it, if it is an error
    return RepairPlan(plan, left.remaining, left.needs_another_run, bool(after) or plan.complete)


def plan_recovery(
    root: Path,
    release: Compat | None = None,
    mode: RecoveryMode = RecoveryMode.CAREFUL,
    *,
    accept_loss: int | None = None,
    config: Path | None = None,
    work_dir: Path | None = None,
) -> Plan:
    """Plans the recovery that a broker carries out when it starts, by default one of the release that wrote the store.

    Raises LayoutError if the broker would refuse the store, or never finish starting; RefusedError if consumers would
    lose messages that the store still has, and not as many as were accepted; otherwise as `make_plan` does.
    """
    rules = options_for(root, config, release, recovery=mode).compat.value
    expected = predict(root, rules, config)
    if expected.refusal is not None:
        raise LayoutError(f"cannot be opened: {expected.refusal}", root)
    if expected.hung is not None:
        raise LayoutError(f"a broker of {expected.release} would never finish starting: {expected.hung}", root)
    change = Recover(rules, mode.value, time.time_ns() // 1_000_000)
    plan = make_plan(root, change, config=config, work_dir=work_dir)
    forecast = plan.forecast
    if forecast is not None and not forecast.is_repaired and accept_loss != forecast.undelivered:
        raise RefusedError(
            LOSSES,
            f"{forecast.words}. A new store keeps them: {new_store_command(Opened(root, config))}. To recover anyway, "
            f"confirm the number with --accept-loss {forecast.undelivered}",
            root,
        )
    return plan


class Diagnosis(Struct, frozen=True):
    """What is wrong with a store, and the one plan that is enough."""

    verification: Verification  # of the store
    already_lost: int | None  # messages of which the store holds no intact record; None if that is unknown
    plan: RepairPlan | None  # the plan; None if there is none
    # Why there is none, or what to correct in broker.conf first; "" if none is needed: the broker's next start repairs
    # what is wrong.
    reason: str = ""
    needs_new_store: bool = False  # a plan was tried, and is not enough


def diagnose(
    root: Path,
    config: "str | Path | Mapping[str, object] | None" = None,
    release: str | None = None,
    *,
    in_place: bool = True,
) -> Diagnosis:
    """Verifies a store and plans its repair. The store is only read.

    Without `in_place` there is no plan, only the reason why a change of the store is not enough, where that is cheap.
    Raises StoreLockedError if a broker has the store open; NotAStoreError, LayoutError, StoreError,
    UnsupportedFormatError.
    """
    with open_store(root, config) as store:
        verification = verify(store, Options(broker=release))
        losses = verification.next_start.losses if verification.next_start else None
        gone = losses.gone if losses else _gone(store)
        is_tried = in_place or is_small(store, verification)
    if verification.live:
        raise StoreLockedError("a broker has the store open; stop it first", root)
    plan, reason, needs_new_store = None, "; ".join(corrections(verification.findings)), False
    denials = (f"{item.file}: {item.evidence}" for item in verification.findings if item.code in PERMISSIONS)
    reason = reason or next(denials, "")
    if is_tried and not reason and any(finding.severity is not Severity.NOTE for finding in verification.findings):
        try:
            lost = verification.losses.offsets
            plan = plan_repair(root, verification.findings, lost=lost, config=config, release=release)
        except NothingToChangeError:
            start_repairs = losses is not None and not (losses.by_start or losses.unserved)
            if not start_repairs or any(finding.severity.is_serious for finding in verification.findings):
                reason = "no change of its files repairs this"
        except NotInPlaceError as error:
            reason, needs_new_store = error.why, True
        except (RefusedError, UnsupportedFormatError) as error:
            reason = str(error)
        except OSError:  # no space for what the plan would change
            if in_place:
                raise
    if plan is None:
        reason = reason or verification.missing_config
    return Diagnosis(verification, gone, plan if in_place else None, reason, needs_new_store)


def _gone(store: Store) -> int | None:
    """Returns how many messages are lost already, where no start can be predicted; None if that is unknown."""
    losses = Preview(store).unchanged
    return losses.losses.gone if isinstance(losses, Comparison) else None
