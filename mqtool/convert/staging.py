"""The new directory in which a conversion builds a store."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mqtool.errors import UsageError
from mqtool.jobs.atomic import staged_directory
from mqtool.store.real_path import is_inside


@contextmanager
def staging_directory(store: Path, target: Path) -> Iterator[Path]:
    """Yields a staging directory, which is renamed to the target on success and deleted on failure.

    Its content is on disk before the rename.

    Args:
        store: the source's root; the target must lie outside of it.
        target: new, or an empty directory.

    Raises:
        UsageError: it is not empty, or is inside the store.
        RefusedError: files next to it were not left by an interrupted run.
        StoreError: a file cannot be written.
    """
    if is_inside(target, store):
        raise UsageError(f"{target}: expected a directory outside of {store}: nothing is written into a store")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target}: expected a new or empty directory")
    if not target.name:
        raise UsageError(f"{target}: expected a name; the result is renamed to it")
    with staged_directory(target, into_empty=True) as work:
        yield work / "store"
