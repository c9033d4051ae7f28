"""Opens what a path leads to: a store, CommitLog files, or files of another kind."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from mqtool.choices import FileKind
from mqtool.errors import NotAStoreError
from mqtool.formats import dledger, file_names
from mqtool.store.files import list_directory
from mqtool.store.known_file import PLACES, QUEUE_PLACES, KnownFile, is_directory, recognise, recognise_all
from mqtool.store.log.log_file import logs_of
from mqtool.store.store import Store, open_store


class Target(Struct, frozen=True):
    """What a path leads to: either stores or files."""

    # Whose records are to be read, each by its own physical offsets; they may have segments only.
    stores: Sequence[Store] = ()
    files: Sequence[KnownFile] = ()  # of one kind other than COMMIT_LOG, in order


def open_target(path: Path, kind: FileKind | None = None, config: Path | None = None) -> Target:
    """Opens a store, a part of one, or a single file. The caller closes the stores.

    Args:
        path: a store, a part of one (commitlog, one queue, index, …) or a single file.
        kind: what to read there: the part of a store, or the kind of an unknown file.
        config: a broker.conf.

    Raises:
        NotAStoreError, UnsupportedFormatError, StoreError, ConfigFileError: it cannot be read.
    """
    if not is_directory(path):
        return _target_of(path, [recognise(path, kind)])
    if is_part(path):
        files = recognise_all(path, kind)
        if not files:
            raise NotAStoreError(_nothing_found(path, kind), path)
        return _target_of(path, files)
    if path.absolute().name.startswith(file_names.DLEDGER_PREFIX):
        return open_target(path / (dledger.INDEX if kind is FileKind.DLEDGER_INDEX else dledger.DATA), kind, config)
    store = open_store(path, config)
    if kind is None or kind is FileKind.COMMIT_LOG:
        return Target(stores=[store])
    store.close()
    files = recognise_all(path, kind)
    if not files:
        raise NotAStoreError(_nothing_found(path, kind), path)
    return Target(files=files)


def _target_of(path: Path, files: list[KnownFile]) -> Target:
    return Target(stores=logs_of(path, files)) if files[0].kind is FileKind.COMMIT_LOG else Target(files=files)


def _nothing_found(path: Path, kind: FileKind | None) -> str:
    if not list_directory(path):
        return "the directory is empty"
    return f"holds no file of kind {kind}" if kind else "holds no file of a message store"


def is_part(path: Path) -> bool:
    """Whether a directory is part of a store rather than its root, by its name and its direct content."""
    if is_directory(path / file_names.COMMIT_LOG):
        return False
    full_path = path.absolute()
    parts = (*PLACES, *QUEUE_PLACES, file_names.CONFIG)
    if full_path.name in parts or full_path.parent.name in QUEUE_PLACES or full_path.parent.parent.name in QUEUE_PLACES:
        return True
    names = [entry.name for entry in list_directory(path)]
    return any(file_names.parse_mapped_file_name(n) is not None or file_names.is_index_file_name(n) for n in names)
