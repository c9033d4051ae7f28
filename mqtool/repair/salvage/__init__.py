"""Salvage: every provable record of a damaged store, or of several copies of it, in a new store.

```
found = salvage(root, target)                                   # records at their old physical offsets
found = salvage(root, target, Options(copies=(slave,)))         # what the master lost, from its slave
found = salvage(root, target, Options(compact=True, map_file=path))   # moved together, with a map of offsets
```

The old stores are only read. The new one appears under its name when it is whole, never before.
Docs page: docs/salvage.md.
"""

from mqtool.repair.salvage.report import LostRange, QueueRow, Salvaged
from mqtool.repair.salvage.run import Options, salvage

__all__ = ["LostRange", "Options", "QueueRow", "Salvaged", "salvage"]
