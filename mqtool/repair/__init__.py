"""Reversible changes to a store: write a plan, review it, apply it, then undo it or discard its undo data.

```
plan = make_plan(root, RebuildQueues(("Orders",), 3))     # reads only; plan.to_json() is the file to review
done = apply(plan, backup_acknowledged=True)              # or refuses with RefusedError and has changed nothing
undo(root)                                                # the first state, byte for byte
discard_undo(root)                                        # or: free the space; no undo any more
```

Only `apply`, `undo` and `discard_undo` write to the store, under the broker's own lock, and what they do is in the
journal before it happens: a call that was killed is finished by the same call, or undone by `undo`.
`from_findings.changes_of` turns findings of `mqtool.verify` into changes. Docs page: docs/repair.md.
"""

from mqtool.repair.changes import (
    Change,
    MoveOffsets,
    Pad,
    Purge,
    RebuildIndex,
    RebuildMetadata,
    RebuildQueues,
    RebuildTimer,
    RecordLosses,
    Recover,
    Redact,
    RenameSegments,
    SetAside,
    Trim,
    Truncate,
    Undelete,
)
from mqtool.repair.plan import Plan, Step
from mqtool.repair.plan_builder import make_plan
from mqtool.repair.plan_executor import ApplyResult, apply
from mqtool.repair.undo_executor import UndoResult, discard_undo, undo

__all__ = [
    "ApplyResult",
    "Change",
    "MoveOffsets",
    "Pad",
    "Plan",
    "Purge",
    "RebuildIndex",
    "RebuildMetadata",
    "RebuildQueues",
    "RebuildTimer",
    "RecordLosses",
    "Recover",
    "Redact",
    "RenameSegments",
    "SetAside",
    "Step",
    "Trim",
    "Truncate",
    "Undelete",
    "UndoResult",
    "apply",
    "discard_undo",
    "make_plan",
    "undo",
]
