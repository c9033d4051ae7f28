"""Reversible changes to a store: write a plan, review it, apply it, then undo or finalize it.

```
plan = make_plan(root, RebuildQueues(("Orders",), 3))     # reads only; plan.to_json() is the file to review
done = apply(plan, backup_acknowledged=True)              # or refuses with RefusedError and has changed nothing
undo(root)                                                # the first state, byte for byte
finalize(root)                                            # or: discard the undo data, free the space
```

The store is only ever written to by `apply`, `undo` and `finalize`, under the broker's own lock, and what they do is
in the journal before it happens: a call that was killed is finished by the same call, or undone by `undo`.
Tests put another `RepairFiles` in place. `changes_of` turns findings of `mqtool.verify` into changes.
Docs page: docs/repair.md.
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
    Recover,
    Redact,
    RenameSegments,
    SetAside,
    Trim,
    Truncate,
    Undelete,
)
from mqtool.repair.files import RepairFiles
from mqtool.repair.from_findings import RepairProposal, changes_of
from mqtool.repair.plan import Fingerprint, Plan, Read, Step
from mqtool.repair.plan_builder import make_plan
from mqtool.repair.plan_executor import ApplyResult, apply
from mqtool.repair.undo_executor import UndoResult, finalize, undo

__all__ = [
    "ApplyResult",
    "Change",
    "Fingerprint",
    "MoveOffsets",
    "Pad",
    "Plan",
    "Purge",
    "Read",
    "RebuildIndex",
    "RebuildMetadata",
    "RebuildQueues",
    "RebuildTimer",
    "Recover",
    "Redact",
    "RenameSegments",
    "RepairFiles",
    "RepairProposal",
    "SetAside",
    "Step",
    "Trim",
    "Truncate",
    "Undelete",
    "UndoResult",
    "apply",
    "changes_of",
    "finalize",
    "make_plan",
    "undo",
]
