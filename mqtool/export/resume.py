"""Continues from a watermark: what is new, and what was lost before it could be read."""

from msgspec.structs import replace

from mqtool.export.plan import StorePlan, plan_store
from mqtool.export.sources import Source
from mqtool.export.state import Mark, check_mark
from mqtool.records.damage import Damage, DamageKind
from mqtool.store import Store
from mqtool.store.log.selection import Selection


def plan_since(
    store: Store,
    source: Source,
    selection: Selection,
    mark: Mark | None,
    *,
    until: int | None = None,
    target: int | None = None,
) -> StorePlan:
    """Plans what a store contains after a watermark; see `plan_store`.

    A range that expired before it was read is the first damage of the plan.

    Args:
        mark: up to which everything was read; None if nothing was.

    Raises:
        ExportError: the log was truncated, or is another log.
    """
    plan = plan_store(store, source, selection, since=None if mark is None else mark.offset, until=until, target=target)
    if mark is None:
        return plan
    start = check_mark(store, mark, plan.log_end)
    if start == mark.offset:
        return plan
    detail = f"expired before it was read: the log begins at {start} now"
    lost = Damage(mark.offset, start, DamageKind.MISSING, detail)
    return replace(plan, damage=(lost, *plan.damage))
