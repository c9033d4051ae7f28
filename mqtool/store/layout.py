"""Where the parts of a store are, and how large its files are.

Sizes come from the files themselves or from a broker's configuration (`file_sizes`), and each states its source. The
root is used as given: nothing is searched for above or next to it. A segment with a wrong name is recognised by its
records: the physical offset that one states, minus its position in the file, is the offset that the name should have.

A broker's configuration may name places of the log, of files of controller mode, and of the DLedger log of a node. They
are found also in a copy of the store at another place. Source: MessageStoreConfig.getStorePathEpochFile,
getStorePathBrokerIdentity (5.5.0); DLedgerCommitLog (4.9.7, 5.5.0), DLedgerConfig, DLedgerMmapFileStore (dledger
0.3.1.2, 0.3.2).
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import LayoutError, NotAStoreError, StoreError, UsageError
from mqtool.formats import commit_log, dledger, file_names
from mqtool.jobs.atomic import UNFINISHED, is_marked
from mqtool.records.record_search import RECORD_CODES, records_anywhere
from mqtool.store.config.broker_config import LEDGER_DATA_KEY, BrokerConfig
from mqtool.store.file_sizes import (
    BATCH_CONSUME_QUEUE,
    COMMIT_LOG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    FileSize,
    KnownSize,
)
from mqtool.store.files import (
    MappedFile,
    MappedFileList,
    ReadFile,
    is_regular,
    list_directory,
    list_mapped_files,
    obstruction,
    recording_unlisted,
    require_directory,
    subdirectories,
)
from mqtool.store.paths import named_below
from mqtool.store.remote import is_remote

CONTROLLER_KEYS = {"storePathEpochFile": file_names.EPOCH_FILE, "storePathBrokerIdentity": file_names.BROKER_IDENTITY}
"""Broker key to the name of the file below the root, where it is by default."""


_MAGIC_AT = commit_log.FRAME.size - 4
_OFFSET_AT = commit_log.field_offset("physical_offset")
_AGREEING = 2
"""Records that must agree before a file whose name is a possible one is believed to belong elsewhere: the stated
offset of one record may be damaged."""
_INTEGER = re.compile("-?[0-9]{1,10}")
_MARKS = (
    file_names.COMMIT_LOG,
    file_names.CONSUME_QUEUE,
    file_names.BATCH_CONSUME_QUEUE,
    file_names.INDEX,
    file_names.CONFIG,
    file_names.CHECKPOINT,
    file_names.TIMER_LOG,
)
_KNOWN = {
    *_MARKS,
    file_names.CONSUME_QUEUE_EXT,
    file_names.CONSUME_QUEUE_ROCKSDB,
    file_names.COMPACTION,
    file_names.ROCKSDB_STORE,
    file_names.TIMER_WHEEL,
    file_names.ABORT,
    file_names.ABORT_BACKUP,
    file_names.ABORT_NEW,
    file_names.LOCK,
    file_names.EPOCH_FILE,
    file_names.BROKER_IDENTITY,
}


def possible_places(path: Path, root: Path, config: BrokerConfig) -> tuple[Path, ...]:
    """Returns where a configured path may be, also in a copy of the store at another place, the likeliest first."""
    *likely, same_name = config.places_in_copy(path, root)
    return (*likely, path, same_name)


def place_of(path: Path, root: Path, config: BrokerConfig) -> Path | None:
    """Returns where a configured directory is, also in a copy of the store at another place; None if it is missing."""
    directory = next((place for place in possible_places(path, root, config) if place.is_dir()), None)
    return directory if directory is None or is_remote(root) else named_below(root, directory)


def place_or_name(path: Path, root: Path, config: BrokerConfig) -> Path:
    """Returns where a configured directory is; below the root under its own name if it is missing."""
    return place_of(path, root, config) or root / path.name


def require_place(path: Path, root: Path, config: BrokerConfig, what: str) -> Path:
    """Returns where a configured directory is, see `place_of`; raises LayoutError if it is missing."""
    place = place_of(path, root, config)
    if place is None:
        tried = f"neither it nor {root / path.name} exists"
        raise LayoutError(f"{config.source} names this {what} directory, but {tried}", path)
    return place


def epoch_file(root: Path, config: BrokerConfig) -> Path:
    """Returns where a store's epoch file is, or would be; its backup has the same name with `.bak`."""
    return _place(root, config, "storePathEpochFile")


def broker_identity(root: Path, config: BrokerConfig) -> Path:
    """Returns where a store's broker identity is, or would be."""
    return _place(root, config, "storePathBrokerIdentity")


def has_epochs(root: Path, config: BrokerConfig) -> bool:
    """Whether there is an epoch file or its backup: the store belongs to a broker in controller mode."""
    return _exists(epoch_file(root, config))


def files_outside(root: Path, config: BrokerConfig) -> list[tuple[str, Path]]:
    """Returns key and path of each existing file of controller mode that is not below the root."""
    places = [(key, _place(root, config, key)) for key in CONTROLLER_KEYS]
    return [(key, path) for key, path in places if _exists(path) and not path.is_relative_to(root)]


def _place(root: Path, config: BrokerConfig, key: str) -> Path:
    """Returns the configured place, also in a copy of the store at another place, or the default one."""
    configured = next(iter(config.paths(key)), None)
    if configured is None:
        return root / CONTROLLER_KEYS[key]
    places = possible_places(configured, root, config)
    return next((path for path in places if _exists(path)), places[0])


def _exists(path: Path) -> bool:
    return path.exists() or path.with_name(path.name + file_names.BACKUP_SUFFIX).exists()


class LedgerPlace(Struct, frozen=True):
    """The place of a node's DLedger log. Its directories need not exist."""

    directory: Path  # dledger-<node>, with the index and the small files
    data: tuple[Path, ...]  # directories of its data files; several with a multi-path log


def ledger_directories(root: Path) -> tuple[Path, ...]:
    """Returns the directories `dledger-*` of a store, by name."""
    names = (entry.name for entry in subdirectories(root))
    return tuple(root / name for name in names if name.startswith(file_names.DLEDGER_PREFIX))


def ledger_place(root: Path, config: BrokerConfig) -> LedgerPlace | None:
    """Returns the place of the DLedger log that contains a broker's messages; None without a log or a known node.

    Raises UsageError if the name of the node cannot be one; LayoutError if there are several logs, and the
    configuration does not say which is in use.
    """
    is_enabled = config.flag("enableDLegerCommitLog")
    directories = ledger_directories(root)
    if is_enabled is False or (is_enabled is None and not directories):
        return None
    own = config.text("dLegerSelfId")
    if own is not None and not file_names.is_directory_name(own):
        raise UsageError(f"dLegerSelfId: expected the name of a node, such as n0, found {own[:80]!r}")
    if own is None and len(directories) > 1:
        names = ", ".join(path.name for path in directories)
        raise LayoutError(
            f"is one of several DLedger logs ({names}); set dLegerSelfId in broker.conf to choose one", directories[0]
        )
    if own is None and not directories:
        return None
    directory = directories[0] if own is None else root / f"{file_names.DLEDGER_PREFIX}{own}"
    named = tuple(place_or_name(path, root, config) for path in config.paths(LEDGER_DATA_KEY))
    return LedgerPlace(directory, named or (directory / dledger.DATA,))


def misplaced(
    listed: MappedFileList, size: int | None, elsewhere: Iterable[Path] = ()
) -> tuple[tuple[MappedFile, ...], tuple[MappedFile, ...]]:
    """Returns the files whose records state other physical offsets than their names, with the right base.

    First those whose place is free, then those whose place another file has or claims too. `elsewhere` are files next
    to these directories that may be segments; `size` is that of a segment, None if unknown.
    """
    files = [file for path in (*listed.strays, *elsewhere) if (file := _stray(path, size)) is not None]
    files += [file for named in listed.files if (file := _named(named, size)) is not None]
    moved = {file.path for file in files}
    taken = [file for file in listed.files if file.path not in moved]
    bases = [file.base for file in taken]
    ends = list(accumulate((file.end for file in taken), max, initial=-1))
    claims = Counter(file.base for file in files)
    free = [file for file in files if ends[bisect_left(bases, file.end)] <= file.base and claims[file.base] == 1]
    return tuple(free), tuple(file for file in files if file not in free)


def in_place(listed: MappedFileList, moved: tuple[MappedFile, ...]) -> tuple[MappedFile, ...]:
    """Returns the segments of a log with misplaced ones where their records belong."""
    paths = {file.path for file in moved}
    kept = (file for file in listed.files if file.path not in paths)
    return tuple(sorted((*kept, *moved), key=lambda file: (file.base, file.path)))


def without_misnamed(files: tuple[MappedFile, ...], size: int | None) -> tuple[MappedFile, ...]:
    """Returns segments, by base, without those that are named into the middle of another one.

    Their records, if there are any, state other offsets. A broker finds the other file for every offset in it, because
    it computes the number of a file from the offset (MappedFileQueue.findMappedFileByOffset).
    """
    if size is None:
        return files
    named = [file for file in files if file.base % size == 0]
    bases, ends = [file.base for file in named], [file.end for file in named]

    def is_inside(base: int) -> bool:
        number = bisect_right(bases, base) - 1
        return number >= 0 and base < ends[number]

    return tuple(file for file in files if file.base % size == 0 or not is_inside(file.base))


def _stray(path: Path, size: int | None) -> MappedFile | None:
    try:
        if not path.is_file() or not commit_log.MIN_RECORD_SIZE <= path.stat().st_size <= (size or 1 << 62):
            return None
        with ReadFile(path) as file:
            base = _base(file, size, 1)
            return None if base is None else MappedFile(path, base, file.size)
    except (OSError, StoreError):  # deleted meanwhile, or unreadable: then it is a stray and no more
        return None


def _named(named: MappedFile, size: int | None) -> MappedFile | None:
    if is_remote(named.path) or size is None or named.size != size:
        return None
    try:
        with ReadFile(named.path) as file:
            head = file.read(0, _OFFSET_AT + 8)
            if head[_MAGIC_AT : commit_log.FRAME.size] not in RECORD_CODES:
                return None
            if head[_OFFSET_AT:] == named.base.to_bytes(8, "big"):
                return None
            possible = named.base % size == 0
            base = _base(file, size, _AGREEING if possible else 1)
    except StoreError:
        return None
    return None if base in (None, named.base) else replace(named, base=base)


def _base(file: ReadFile, size: int | None, needed: int) -> int | None:
    """Returns the base of a file according to its first records; None if they do not show it."""
    bases: list[int] = []
    for position, record in records_anywhere(file):
        bases.append(record.physical_offset - position)
        if len(bases) >= needed:
            break
    base = bases[0] if bases else -1
    fits = len(bases) >= needed and len(set(bases)) == 1 and base >= 0 and (size is None or base % size == 0)
    return base if fits else None


class StoreLayout(Struct, frozen=True, dict=True):
    """The parts of a store."""

    root: Path  # the store's root directory
    commit_log_dirs: tuple[Path, ...]  # one, or several with multi-path CommitLogs
    commit_log: MappedFileList  # segments of all of them by physical offset, and other files in them
    # commit_log_size, consume_queue_size, consume_queue_ext_size, batch_consume_queue_size: bytes of a file of each
    # kind; None if there is neither a file nor a configuration.
    commit_log_size: KnownSize | None
    consume_queue_size: KnownSize | None
    consume_queue_ext_size: KnownSize | None
    batch_consume_queue_size: KnownSize | None
    # Directories of DLedger mode; also that of the log in use if only its data files exist.
    dledger_dirs: tuple[Path, ...]
    oddities: tuple[str, ...]  # contradictions and foreign files, in words
    # Files of `commit_log`, or of the root, with a wrong name or in the wrong directory, at the offset where their
    # records belong.
    misplaced: tuple[MappedFile, ...] = ()
    # Such files whose place is taken by another file; `segments` leaves them out.
    displaced: tuple[MappedFile, ...] = ()
    # Place of the DLedger log in use, whose data files are part of `commit_log`; None without DLedger mode.
    ledger: LedgerPlace | None = None
    # Names of segments that lead to no readable file, such as a link to a disk that is not mounted, as long as a
    # segment. Their place is not taken by another file.
    blocked: tuple[MappedFile, ...] = ()

    @cached_property
    def segments(self) -> tuple[MappedFile, ...]:
        """Segments by physical offset, with misplaced ones where their records belong, and with blocked ones.

        Reading a blocked one is an error, as for a segment that the system does not let be read.
        """
        return in_place(self.commit_log, (*self.misplaced, *self.blocked))

    @property
    def log_segments(self) -> tuple[MappedFile, ...]:
        """The segments from which the log is read: without files that are named into the middle of another one."""
        return without_misnamed(self.segments, self.commit_log_size.value if self.commit_log_size else None)

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        """Directories of the CommitLog and of the data files of the DLedger log in use."""
        return self.commit_log_dirs + (self.ledger.data if self.ledger else ())

    def is_of_log(self, directory: Path) -> bool:
        """Whether a directory belongs to the CommitLog or to a DLedger log."""
        return directory in self.log_dirs or not set(self.dledger_dirs).isdisjoint(directory.parents)

    def place_of_copied_log(self, target: Path) -> list[str]:
        """Returns what to know before a broker starts on a new store with this log in `commitlog/`, in sentences."""
        default = self.root / file_names.COMMIT_LOG
        others = [str(path) for path in self.commit_log_dirs if path != default]
        if not others:
            return []
        note = (
            f"the log of {', '.join(others)} is in {target / file_names.COMMIT_LOG}: before a broker starts on the new "
            f"store, change storePathCommitLog in its configuration to {file_names.COMMIT_LOG}/ of that store, and "
            "remove readOnlyCommitLogStorePaths"
        )
        return [note]

    @property
    def has_unread_ledger(self) -> bool:
        """Whether there is a DLedger log and none is part of the log: it has no data files or is not in use."""
        return bool(self.dledger_dirs) and not any(file.entries for file in self.commit_log.files)


def detect(root: Path, config: BrokerConfig) -> StoreLayout:
    """Detects the layout of a store directory.

    Raises NotAStoreError if it contains no part of a store, LayoutError if a directory that the configuration names is
    missing, UsageError if a configured size is impossible.
    """
    require_directory(root)
    ledgers = ledger_directories(root)
    ledger = ledger_place(root, config)
    if ledger is not None and ledger.directory in ledgers:
        for path in config.paths(LEDGER_DATA_KEY):
            require_place(path, root, config, "DLedger log")
    directories = _commit_log_dirs(root, config, has_ledger=bool(ledgers))
    if not directories and not ledgers and not any((root / mark).exists() for mark in _MARKS):
        raise NotAStoreError(f"holds none of {', '.join(_MARKS[:5])}; {_hint(root)}", root)
    plain = list_mapped_files(*directories)
    listed = with_ledger(plain, ledger)
    if ledger is not None and ledger.directory not in ledgers and len(listed.files) > len(plain.files):
        ledgers = (*ledgers, ledger.directory)
    oddities = [f"{path.name} in {path.parent.name}/ is not a segment" for path in listed.strays]

    def size(kind: FileSize, files: Sequence[MappedFile] | None = None) -> KnownSize | None:
        return kind.decide(config, queue_files(root / kind.directory) if files is None else files, oddities)

    commit_log_size = size(COMMIT_LOG, listed.files)
    segment_size = commit_log_size.value if commit_log_size else None
    moved, displaced = misplaced(plain, segment_size, _segments_in(root, segment_size))
    blocked = _blocked(listed.strays, in_place(listed, moved), segment_size, ledger)
    return StoreLayout(
        root,
        directories,
        listed,
        commit_log_size or size(COMMIT_LOG, moved),
        size(CONSUME_QUEUE),
        size(CONSUME_QUEUE_EXT),
        size(BATCH_CONSUME_QUEUE),
        ledgers,
        tuple(oddities),
        moved,
        displaced,
        ledger,
        blocked,
    )


def _blocked(
    strays: Sequence[Path], taken: Sequence[MappedFile], size: int | None, ledger: LedgerPlace | None
) -> tuple[MappedFile, ...]:
    blocked: dict[int, MappedFile] = {}
    for path in strays:
        base = None if is_remote(path) else file_names.parse_mapped_file_name(path.name)
        if base is None or not obstruction(path):
            continue
        mapped = MappedFile(path, base, size or 1, ledger is not None and path.parent in ledger.data)
        if not any(file.base < mapped.end and mapped.base < file.end for file in taken):
            blocked.setdefault(base, mapped)
    return tuple(blocked.values())


def with_ledger(plain: MappedFileList, ledger: LedgerPlace | None) -> MappedFileList:
    """Returns the segments of a log followed by the data files of its DLedger log, which continues it."""
    if ledger is None:
        return plain
    data = list_mapped_files(*ledger.data)
    entries = tuple(replace(file, entries=True) for file in data.files)
    files = tuple(sorted((*plain.files, *entries), key=lambda file: (file.base, file.path)))
    return MappedFileList(files, (*plain.strays, *data.strays))


def _commit_log_dirs(root: Path, config: BrokerConfig, *, has_ledger: bool) -> tuple[Path, ...]:
    configured = config.commit_log_paths
    if configured and not (has_ledger and not (root / file_names.COMMIT_LOG).is_dir()):
        return tuple(dict.fromkeys(require_place(path, root, config, "CommitLog") for path in configured))
    directories = [root / file_names.COMMIT_LOG] if (root / file_names.COMMIT_LOG).is_dir() else []
    others = (entry for entry in subdirectories(root) if entry.name not in _KNOWN)
    return tuple(directories + [root / entry.name for entry in others if _holds_records(root / entry.name)])


def _segments_in(root: Path, size: int | None) -> list[Path]:
    """Returns the files of a store's root that may be segments: those with the name or the length of one."""
    if is_remote(root):
        return []
    entries = (entry for entry in list_directory(root) if entry.name not in _KNOWN and is_regular(entry))
    return [
        root / entry.name
        for entry in entries
        if file_names.parse_mapped_file_name(entry.name) is not None or entry.stat().st_size == size
    ]


def _holds_records(directory: Path) -> bool:
    """Whether a directory of unknown name contains CommitLog segments."""
    try:
        with recording_unlisted(None):
            files = list_mapped_files(directory).files
        for file in files[:1]:
            with ReadFile(file.path) as opened:
                head = opened.read(0, commit_log.FRAME.size)
            if len(head) == commit_log.FRAME.size:
                return commit_log.FRAME.unpack(head)[1] in commit_log.RECORD_MAGICS
    except StoreError:  # not ours, and not to be read
        return False
    return False


def queue_files(directory: Path) -> list[MappedFile]:
    """Lists every file of every queue below a directory."""
    files: list[MappedFile] = []
    for path in queue_directories(directory):
        files.extend(list_mapped_files(path[2]).files)
    return files


def queue_directories(directory: Path) -> list[tuple[str, int, Path]]:
    """Returns (topic, queue id, path) of every queue directory, by topic and queue id."""
    queues = [(topic.name, q) for topic in subdirectories(directory) for q in subdirectories(directory / topic.name)]
    numbered = [(name, int(q.name), directory / name / q.name) for name, q in queues if _INTEGER.fullmatch(q.name)]
    return sorted(numbered, key=lambda item: item[:2])


def _hint(root: Path) -> str:
    if is_marked(root):
        return f"it is {UNFINISHED}"
    inner = next((p for p in (root / "store", root.parent) if p != root and (p / file_names.COMMIT_LOG).is_dir()), None)
    if inner is not None:
        return f"did you mean {inner}?"
    if not any(root.iterdir()):
        return "the directory is empty"
    return "give the store's root directory"
