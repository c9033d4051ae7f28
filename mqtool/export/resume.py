"""Going on from a watermark: what is new, and what was lost before it could be read."""

from dataclasses import replace

from mqtool.export.plan import StorePlan, plan_store
from mqtool.export.sources import Source
from mqtool.export.state import Mark, check_mark
from mqtool.records.damage import Damage, DamageKind
from mqtool.store import Store
from mqtool.store.selection import Selection


def plan_since(
    store: Store,
    source: Source,
    selection: Selection,
    mark: Mark | None,
    *,
    until: int | None = None,
    target: int | None = None,
) -> StorePlan:
    """Plans what a store holds beyond a watermark; see `plan_store`.

    What expired unread is the plan's first damage.

    Args:
        mark: of what was read before; None for nothing.

    Raises:
        ExportError: the log went backwards, or is another one.
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
