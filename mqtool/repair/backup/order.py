"""The order of copying that keeps a backup recoverable although the broker keeps writing.

References are copied before what they refer to, so that nothing in the copy points past the end of its log:

1. The checkpoint: the older it is, the earlier recovery starts scanning, and dispatching twice does no harm.
2. Progress of consumers, delays, timers and pops, in files or in a RocksDB: one that is too old delivers twice, one
   that is too new loses messages. `config/timercheck` and `rocksdbstore` state how far the timer has delivered.
   `kvStore` is copied after the offsets of groups, which pass over popped messages: it has their records. A message
   that is delivered again is written to the log before its record is deleted.
3. Index, queues and everything else: recovery dispatches what is missing in them from the checkpoint on (R8 of
   docs/recovery.md).
4. The end of the log is fixed. Records appended later are not part of the backup.
5. The log, up to the fixed end.
6. Topics and groups: a table that is too new does no harm, one that is too old would hide a topic.

A RocksDB is copied as one state: its manifest names the files that belong together, so it is copied again if the
manifest or the set of files changes meanwhile.

Sources: DefaultMessageStore.recover, CommitLog.recoverAbnormally, ConsumeQueue.truncateDirtyLogicFiles (4.9.7,
5.5.0); TimerMessageStore.recover, TimerMessageRocksDBStore, PopConsumerService.revive (5.5.0).
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from mqtool.errors import RefusedError, StoreError
from mqtool.formats import file_names
from mqtool.store.config.config_tables import OFFSET_DATABASE, SINGLE_DATABASE
from mqtool.store.waiting.popped import POP_DATABASE

_PROGRESS = (
    file_names.CONSUMER_OFFSETS,
    file_names.LMQ_CONSUMER_OFFSETS,
    file_names.DELAY_OFFSETS,
    file_names.TIMER_CHECKPOINT,
)
_PROGRESS_DATABASES = (
    f"{file_names.CONFIG}/{OFFSET_DATABASE}/",
    f"{file_names.CONFIG}/{SINGLE_DATABASE}/",
    f"{POP_DATABASE}/",
    f"{file_names.ROCKSDB_STORE}/",
)
"""RocksDBs with progress, in copying order. `config/metadata` has topics and groups too: a topic that is created during
the copy may be missing in it, which does less harm than a position past the end of its queue."""
_LAST = (file_names.TOPICS, file_names.SUBSCRIPTION_GROUPS)
_LEFT_OUT = (file_names.LOCK, file_names.ASIDE)
_SECRET = f"{file_names.CONFIG}/{file_names.USERS}/"


class Listing(Struct, frozen=True):
    """The files of a store, grouped by when they are copied. Paths are relative to the root."""

    first: tuple[str, ...]  # checkpoint and progress
    derived: tuple[str, ...]  # files with references to the log, and everything else
    log: tuple[str, ...]  # segments of the CommitLog, after its end is fixed
    last: tuple[str, ...]  # after the log
    directories: tuple[str, ...]  # directories without a file


def list_files(
    root: Path, log_directories: Iterable[str] = (file_names.COMMIT_LOG,), *, redact: bool = False
) -> Listing:
    """Lists the files of a store in copying order.

    Args:
        root: root of the store.
        log_directories: of the CommitLog, relative to the root.
        redact: leave out users, whose passwords are stored in plain text.

    Raises:
        RefusedError: the tree contains a symbolic link, a socket or another special file.
        StoreError: a directory cannot be read.
    """
    logs = tuple(f"{directory}/" for directory in log_directories)
    phases: dict[int, list[str]] = {phase: [] for phase in range(4)}
    directories: list[str] = []
    for name, is_directory in _walk(root, ""):
        if redact and f"{name}/".startswith(_SECRET):
            continue
        if is_directory:
            directories.append(name)
        else:
            phases[_phase(name, logs)].append(name)
    used = {parent for names in phases.values() for name in names for parent in _parents(name)}
    empty = tuple(name for name in directories if name not in used)
    first = sorted(phases[0], key=lambda name: (name != file_names.CHECKPOINT, name))
    derived, log, last = (tuple(sorted(phases[phase])) for phase in (1, 2, 3))
    return Listing(tuple(first), derived, log, last, empty)


class DatabaseState(Struct, frozen=True):
    """A state of an open RocksDB. Only its newest write-ahead log can grow without changing the state."""

    names: tuple[str, ...]  # files below the root in copying order: manifest and tables before the write-ahead logs
    current: bytes  # content of CURRENT, which names the manifest
    manifests: tuple[int, ...]  # content of each manifest; every flush and compaction appends to it


_CURRENT = "CURRENT"
_MANIFEST = "MANIFEST-"
_WAL = ".log"
_OWN_LOG = "LOG"
"""RocksDB's text log; it says nothing about the data."""


def databases_of(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the directories of all RocksDBs among the files of a store."""
    return tuple(sorted({name.rpartition("/")[0] for name in names if name.rpartition("/")[2] == _CURRENT}))


def state_of(root: Path, directory: str) -> DatabaseState:
    """Returns the current state of a RocksDB.

    Raises:
        OSError: a file cannot be read, or was removed meanwhile.
    """
    with os.scandir(root / directory) as entries:
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    own = sorted(name for name in names if not name.startswith(_OWN_LOG) or name == "LOCK")
    own.sort(key=lambda name: (name.endswith(_WAL), name))
    manifests = [root / directory / name for name in own if name.startswith(_MANIFEST)]
    return DatabaseState(
        tuple(f"{directory}/{name}" for name in own),
        (root / directory / _CURRENT).read_bytes(),
        tuple(path.stat().st_size for path in manifests),
    )


def _phase(name: str, logs: tuple[str, ...]) -> int:
    top, _, rest = name.partition("/")
    base = rest.removesuffix(file_names.BACKUP_SUFFIX)
    has_progress = (top == file_names.CONFIG and base in _PROGRESS) or name.startswith(_PROGRESS_DATABASES)
    if name == file_names.CHECKPOINT or has_progress:
        return 0
    if name.startswith(logs) or top.startswith(file_names.DLEDGER_PREFIX):
        return 2
    return 3 if top == file_names.CONFIG and base in _LAST else 1


def _walk(root: Path, below: str) -> Iterator[tuple[str, bool]]:
    try:
        entries = sorted(os.scandir(root / below), key=lambda entry: entry.name)
    except FileNotFoundError:  # retention removes queues
        return
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", root / below) from error
    for entry in entries:
        name = f"{below}/{entry.name}" if below else entry.name
        if name in _LEFT_OUT:
            continue
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(mode):
            yield name, True
            yield from _walk(root, name)
        elif stat.S_ISREG(mode):
            yield name, False
        else:
            raise RefusedError(
                "path",
                "neither a file nor a directory: a backup follows no links; back up what they lead to",
                root / name,
            )


def _parents(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name
