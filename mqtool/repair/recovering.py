"""Recovers a store as a broker does: the engine works on a scratch copy, and the files that differ are the change."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from mqtool.engine import Compat, RecoveryMode
from mqtool.engine.options import StoreOptions
from mqtool.engine.start.detect import options_for
from mqtool.engine.store import open_store
from mqtool.errors import StoreError
from mqtool.formats import file_names
from mqtool.repair.changes import Recover
from mqtool.repair.scratch import ScratchFiles, link_tree
from mqtool.repair.staged_files import StagedFiles, check_queues
from mqtool.store.store import Store


class _FixedClock:
    """The time at which the plan was made, so that `apply` builds the same bytes."""

    def __init__(self, time: int) -> None:
        self._time = time

    def now(self) -> int:
        return self._time

    def sleep(self, seconds: float) -> None:
        pass


def recover(store: Store, change: Recover, out: Path, staged: StagedFiles) -> None:
    """Opens and closes a scratch copy with the engine, and takes every file that differs afterwards.

    Raises:
        LayoutError: the broker would refuse the store; in its words.
        RefusedError: a directory of the store is a symbolic link.
        StoreError: a file cannot be read or written.
    """
    check_queues(store)
    mode = RecoveryMode(change.mode)
    options = options_for(store.path, store.config, Compat(change.release), recovery=mode)
    files = ScratchFiles(out)
    link_tree(store.path, out)
    with _named_as(store.path, out):
        options = _moved(options, store.path, out)
        open_store(out, options, background=False, clock=_FixedClock(change.time), files=files).close()
    _collect(store.path, out, files, staged)
    staged.read_log(store, full=False)
    staged.read_settings(store)


def _moved(options: StoreOptions, root: Path, scratch: Path) -> StoreOptions:
    """Returns options with the directories of the scratch copy; `check_layout` has refused other layouts."""

    def below(paths: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(scratch / path.relative_to(root) for path in paths)

    return replace(
        options, commit_log_dirs=below(options.commit_log_dirs), read_only_dirs=below(options.read_only_dirs)
    )


@contextmanager
def _named_as(root: Path, scratch: Path) -> Iterator[None]:
    """Replaces paths of the scratch copy in errors by those of the store."""
    try:
        yield
    except StoreError as error:
        if error.path.is_relative_to(scratch):
            error.path = root / error.path.relative_to(scratch)
        error.args = tuple(str(word).replace(str(scratch), str(root)) for word in error.args)
        raise


def _collect(root: Path, scratch: Path, files: ScratchFiles, staged: StagedFiles) -> None:
    present = set()
    for path in sorted(scratch.rglob("*")):
        name = path.relative_to(scratch).as_posix()
        if path.is_symlink():
            if path.readlink() == root / name:
                present.add(name)
                continue
            files.own(path)  # a file that was moved to the engine's quarantine
        if path.is_file() and name != file_names.LOCK:
            present.add(name)
            staged.put(name, path)
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if path.is_file() and name not in present and not _is_ours(name):
            staged.remove(path)


def _is_ours(name: str) -> bool:
    return name == file_names.LOCK or name.partition("/")[0] == file_names.ASIDE
