"""Backups of a store: taken beside a living broker, incremental, verified; brought back into a new directory.

```
made = backup(root, destination)          # again and again: what has not changed is not stored again
found = restore(destination, new_root)    # the newest snapshot, or one by name; refused if anything is damaged
```

A destination holds pieces of files by the SHA-256 of their bytes and one manifest for each snapshot; docs/backup.md
describes both. A snapshot exists when its manifest does, which is written last.
"""

from mqtool.repair.backup.create import Backed, backup
from mqtool.repair.backup.restore import Restored, restore
from mqtool.repair.backup.snapshots import Snapshot, snapshots

__all__ = ["Backed", "Restored", "Snapshot", "backup", "restore", "snapshots"]
