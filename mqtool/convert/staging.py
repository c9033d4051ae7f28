"""What conversions share: the new directory in which they build a store, and their result."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field

from mqtool.errors import StoreLockedError, UsageError
from mqtool.jobs.atomic import staged_directory
from mqtool.rebuild.placement import Listing
from mqtool.rebuild.sink import Result
from mqtool.records.damage import Damage
from mqtool.store.lock import lock_holder
from mqtool.store.paths import is_inside


class ConversionResult(Struct):
    """Result of a conversion."""

    # Number of records in the new log, including those in copied ordinary segments; None where the log was copied.
    records: int | None = None
    queues: int = 0  # and units: numbers of queues and units written
    units: int = 0
    start: int = 0  # and end: physical offsets of the new log
    end: int = 0
    # Ranges of the old log without a valid record; filled only where the log is read.
    damage: Listing[Damage] = field(default_factory=Listing)
    unresolved: int = 0  # number of references to records that are no longer in the log; they keep their old value
    left_behind: list[str] = field(default_factory=list)  # names in the store's root that were not copied
    # Texts about units that are missing in the old queues or differ from the log.
    differences: Listing[str] = field(default_factory=Listing)
    rebuilt: Result = field(default_factory=Result)  # result of rebuilding ConsumeQueues and index

    @property
    def is_complete(self) -> bool:
        """Whether every record is in the new log and its queue, and the old queues agree with the log."""
        return not self.damage and not self.differences and self.rebuilt.is_complete


@contextmanager
def staging_directory(store: Path, target: Path) -> Iterator[Path]:
    """Yields a staging directory, which is renamed to the target on success and deleted on failure.

    Its content is on disk before the rename. No broker may have the source open meanwhile: what it stores would be
    missing in the target, and what is copied first would not fit what is copied last.

    Raises UsageError if the target is not new or empty, or is inside the store; StoreLockedError if a broker has the
    source open; RefusedError if files next to the target were not left by an interrupted run; StoreError if a file
    cannot be written.
    """
    if is_inside(target, store):
        raise UsageError(f"{target}: expected a directory outside of {store}: mqtool writes nothing into a store")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target}: expected a new or empty directory")
    if not target.name:
        raise UsageError(f"{target}: expected a name; the result is renamed to it")
    _check_closed(store)
    with staged_directory(target, into_empty=True) as work:
        yield work / "store"
        _check_closed(store)


def _check_closed(store: Path) -> None:
    if lock_holder(store) is not None:
        raise StoreLockedError(
            "a broker or another mqtool has the store open, and messages that it stores would be missing from the new "
            "one; stop it, or convert a copy (mqtool backup, mqtool restore)",
            store,
        )
