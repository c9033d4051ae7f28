"""The new directory in which a conversion builds a store."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mqtool.errors import StoreLockedError, UsageError
from mqtool.jobs.atomic import staged_directory
from mqtool.store.lock import lock_holder
from mqtool.store.named_files import is_inside


@contextmanager
def staging_directory(store: Path, target: Path) -> Iterator[Path]:
    """Yields a staging directory, which is renamed to the target on success and deleted on failure.

    Its content is on disk before the rename. No broker may have the source open meanwhile: what it stores would be
    missing in the target, and what is copied first would not fit what is copied last.

    Args:
        store: the source's root; the target must lie outside of it.
        target: new, or an empty directory.

    Raises:
        UsageError: it is not empty, or is inside the store.
        StoreLockedError: a broker has the source open.
        RefusedError: files next to it were not left by an interrupted run.
        StoreError: a file cannot be written.
    """
    if is_inside(target, store):
        raise UsageError(f"{target}: expected a directory outside of {store}: nothing is written into a store")
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
            "a broker or another mqtool has the store open, and what it stores would be missing in the new one; "
            "stop it, or convert a copy (mqtool backup, mqtool restore)",
            store,
        )
