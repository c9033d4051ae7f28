"""Undoes what was exported from a part of the log that no longer exists, because the log was truncated.

Each commit contains the watermark that it reached. The newest watermark that still matches the log is where export
and log agree. The store's files from later commits are undone, and the log is exported again from there. Watermarks
of commits that were undone do not count, even if the log matches them again: their rows are no longer in the export.
"""

from mqtool.errors import ExportError
from mqtool.export.bound import log_end
from mqtool.export.commit import Manifest, all_manifests
from mqtool.export.parquet import FileEntry
from mqtool.export.state import Mark, check_mark
from mqtool.export.target import Target
from mqtool.store import Store
from mqtool.store.cuts import Cuts


class ExportHistory:
    """The commits of an export."""

    def __init__(self, target: Target) -> None:
        """Reads nothing yet.

        Args:
            target: the export.
        """
        self._target = target
        self._manifests: list[Manifest] | None = None

    def matching_mark(self, store: Store, broker: str) -> tuple[Mark | None, list[FileEntry]]:
        """Returns the newest watermark that matches the log, and the files that were written after it.

        Args:
            store: whose log was truncated.
            broker: its name in the export.

        Raises:
            ExportError: what would be undone cannot be exported again, because the log now begins after it.
        """
        if self._manifests is None:
            self._manifests = all_manifests(self._target)
        end = log_end(store, Cuts(store))
        manifests = [manifest for manifest in self._manifests if broker in manifest.stores]
        for manifest in reversed(_not_undone(manifests, broker)):
            mark = manifest.state.marks.get(broker)
            if mark is not None and self._holds(store, mark, end):
                self._require_in_log(store, mark.offset)
                return mark, self._since(manifest.state.sequence, broker)
        self._require_in_log(store, min((int(earlier.stores[broker]["start"]) for earlier in manifests), default=0))
        return None, self._since(0, broker)

    def _require_in_log(self, store: Store, offset: int) -> None:
        first = store.commit_log.min_offset
        if first > offset:
            raise ExportError(
                f"the log agrees with the export up to physical offset {offset} and begins at {first} now: the "
                "removed rows could not be exported again; export into a new directory, with a new state",
                store.path,
            )

    def _holds(self, store: Store, mark: Mark, end: int) -> bool:
        try:
            check_mark(store, mark, end)
        except ExportError:
            return False
        return True

    def _since(self, sequence: int, broker: str) -> list[FileEntry]:
        """Returns the files of a store from the commits after a sequence number, except those undone since."""
        later = [manifest for manifest in self._manifests or () if manifest.state.sequence > sequence]
        removed = {path for manifest in later for path in manifest.removed}
        return [e for manifest in later for e in manifest.files if e.broker == broker and e.path not in removed]


def _not_undone(manifests: list[Manifest], broker: str) -> list[Manifest]:
    """Returns the commits whose rows are still in the export; a commit that starts before their end undoes them.

    Files that a commit removes would not show this, because a commit may cover a range of the log without rows.

    Args:
        manifests: commits that cover the store, oldest first.
        broker: its name in the export.
    """
    remaining: list[Manifest] = []
    for manifest in manifests:
        while remaining and int(remaining[-1].stores[broker]["end"]) > int(manifest.stores[broker]["start"]):
            remaining.pop()
        remaining.append(manifest)
    return remaining
