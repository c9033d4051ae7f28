"""Incremental, verified backups of a store, taken while its broker may be running, and their restore.

```
backup(root, destination)             # repeat it: unchanged pieces are not stored again
restore(destination, new_root)        # the newest snapshot, or one by name; refused if anything is damaged
```

A destination contains pieces of files, named by the SHA-256 of their bytes, and one manifest for each snapshot;
docs/backup.md describes both. The manifest is written last: a snapshot exists if its manifest does.
"""

from mqtool.repair.backup.create import backup
from mqtool.repair.backup.snapshots import restore, snapshots

__all__ = ["backup", "restore", "snapshots"]
