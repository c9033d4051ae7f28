"""Salvage: copies every provable record of a damaged store, or of several copies of it, to a new store.

```
result = salvage(root, target)                                   # records at their old physical offsets
result = salvage(root, target, SalvageOptions(copies=(slave,)))         # what the master lost, from its slave
result = salvage(root, target, SalvageOptions(compact=True, map_file=path))   # moved together, with a map of offsets
```

The old stores are only read. The new one appears under its name once it is complete.
Docs page: docs/salvage.md.
"""

from mqtool.repair.salvage.new_store import SalvageOptions, check_salvage, salvage

__all__ = ["SalvageOptions", "check_salvage", "salvage"]
