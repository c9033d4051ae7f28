"""Runbooks: known problems of a store as code. Each detects, explains, plans, checks gates, applies, verifies, undoes.

```
book = RUNBOOKS["RB-03"]
protocol = run(book, root)                                       # checks and plans; changes nothing
protocol = run(book, root, Request(apply=True, backup_acknowledged=True))
print(protocol.markdown())                                       # to paste into a ticket
```

Every change is a plan of `mqtool.repair` or a new directory, so it can be undone. Docs pages: docs/runbooks/.
"""

from mqtool.repair.runbooks.catalogue import (
    ORDER,
    RUNBOOKS,
    by_code,
    by_line,
    by_name,
    by_store,
    runbook_of,
    runbooks_for,
)
from mqtool.repair.runbooks.model import Case, Request
from mqtool.repair.runbooks.runner import Protocol, run

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
