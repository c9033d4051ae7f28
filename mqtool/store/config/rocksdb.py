"""RocksDB databases in a store, opened without leaving a trace, the configuration tables in them, and tables to change.

The library writes into a database's directory even when it only reads. So it gets a directory of links to the files,
which is elsewhere and is deleted when the database is closed.

The library is native code that never returns from some damaged files (for instance a MANIFEST with a changed byte in
a record) and could crash on others. Nothing in this process can interrupt it. So a separate process opens each database
first, with a limit on its processor time.
"""

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mqtool.commands import with_extra
from mqtool.errors import StoreError, UnavailableError, UnreadableError
from mqtool.formats import config_json, file_names
from mqtool.store.files import Closing, ReadFile, is_regular, list_directory
from mqtool.store.remote import is_remote

CURRENT = "CURRENT"
"""A file that every RocksDB has in its directory."""
_NOT_READ = ("LOG", "LOCK")
"""How the names of its files begin that are not read: LOG, LOG.old.TIME, LOCK."""

TABLES = {
    file_names.TOPICS: ("topics", "topicConfigTable"),
    file_names.SUBSCRIPTION_GROUPS: ("subscriptionGroups", "subscriptionGroupTable"),
    file_names.CONSUMER_OFFSETS: ("consumerOffsets", "offsetTable"),
}
"""Configuration file to the database that a broker keeps instead (below config/), and the name of its table."""

TRIAL = """
import json, resource, sys
links, paths, seconds = sys.argv[1:]
sys.path[:] = json.loads(paths)
import rocksdict
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
try:
    families = rocksdict.Rdict.list_cf(links)
    options = rocksdict.Options(raw_mode=True)
    rocksdict.Rdict(
        links,
        options,
        column_families=dict.fromkeys(families, options),
        access_type=rocksdict.AccessType.read_only(),
    ).close()
except Exception:
    pass  # the process that reads it meets the same error, and reports it
"""
"""What the process of its own runs: it opens a database as `Database` does."""
_TRIAL_SECONDS = 4
"""Of processor time, for opening a small database; it takes some hundredths of one."""
_TRIAL_RATE = 8 << 20
"""Bytes of write-ahead logs that are read in a second, at the least: opening replays them."""
TRIAL_PATIENCE = 8
"""How many times longer the trial may take by the clock, on a machine that is busy."""

_tried: dict[tuple[Path, tuple[tuple[str, int, int], ...]], str] = {}
"""Why a database, with these names, sizes and times of its files, must not be opened; empty if it may."""

_VERSION_FAMILY, _VERSION_KEY = "kvDataVersion", b"kvDataVersionKey"

_FORMAT_VERSION = 5

_OWN_FILE = "rocksdict-config.json"
"""A file that the library leaves in the directory; no broker writes it."""


def is_database(path: Path) -> bool:
    """Whether a directory holds a RocksDB."""
    return any(entry.name == CURRENT for entry in list_directory(path))


def has_data(path: Path) -> bool:
    """Whether the RocksDB in a directory may have data: a table, or a log that is not empty. A new one has neither."""
    return any(
        entry.name.endswith(".sst") or (entry.name.endswith(".log") and entry.stat().st_size > 0)
        for entry in list_directory(path)
    )


class Database(Closing):
    """A RocksDB opened for reading; a context manager."""

    def __init__(self, path: Path) -> None:
        """Opens the database; raises UnavailableError without rocksdict, UnreadableError, StoreError."""
        import tempfile  # noqa: PLC0415 - takes a millisecond, and few stores have a database

        if is_remote(path):
            raise StoreError("is a RocksDB in object storage, which is not read; copy it here", path)
        library = rocksdict()
        self.path = path
        self._links = Path(tempfile.mkdtemp(prefix="mqtool-rocksdb-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self._links, ignore_errors=True)
        try:
            for entry in list_directory(path):
                if is_regular(entry):
                    _require_readable(path / entry.name)
                    (self._links / entry.name).symlink_to((path / entry.name).absolute())
            _try_to_open(path, self._links)
            self.families: tuple[str, ...] = tuple(library.Rdict.list_cf(str(self._links)))
            options = library.Options(raw_mode=True)
            self._database: Any = library.Rdict(
                str(self._links),
                options,
                column_families=dict.fromkeys(self.families, options),
                access_type=library.AccessType.read_only(),
            )
        except StoreError:
            self._remove()
            raise
        except Exception as error:  # the library raises nothing more precise
            self._remove()
            raise _error_of(f"cannot be opened as a RocksDB: {self._named(error)}", path) from error

    def _named(self, error: Exception) -> str:
        """Returns the library's reason, with the database's own path instead of that of the links to its files."""
        return reason_of(error).replace(str(self._links), str(self.path))

    def _damaged(self, error: Exception) -> StoreError:
        return _error_of(f"cannot be read: {self._named(error)}", self.path)

    def items(self, family: str, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yields keys and values of a column family from `start` on, none if it is missing; raises StoreError."""
        if family not in self.families:
            return
        try:
            iterator = self._database.get_column_family(family).iter()
            iterator.seek(start) if start else iterator.seek_to_first()
            while iterator.valid():
                yield bytes(iterator.key()), bytes(iterator.value())
                iterator.next()
            iterator.status()
        except Exception as error:  # the library raises nothing more precise
            raise self._damaged(error) from error

    def last_before(self, family: str, key: bytes) -> bytes | None:
        """Returns the last key of a column family that is not greater than `key`, None if there is none."""
        try:
            iterator = self._database.get_column_family(family).iter()
            iterator.seek_for_prev(key)
            return bytes(iterator.key()) if iterator.valid() else None
        except Exception as error:  # the library raises nothing more precise
            raise self._damaged(error) from error

    def close(self) -> None:
        """Closes the database; may be called again."""
        if self._remove.alive:
            self._database.close()
            self._remove()


def _require_readable(path: Path) -> None:
    """Checks that the system lets a file be read; the library's own log and its lock are not read."""
    if path.name.startswith(_NOT_READ):
        return
    try:
        ReadFile(path).close()
    except UnreadableError:
        raise
    except StoreError:  # deleted meanwhile, see `_state_of`
        pass


def _error_of(words: str, path: Path) -> StoreError:
    """Returns the error for what the library reports: the disk fails, or the database is damaged."""
    return (UnreadableError if os.strerror(errno.EIO) in words else StoreError)(words, path)


def _try_to_open(path: Path, links: Path) -> None:
    """Opens a database in a separate process, once for each state of its files; raises StoreError if that fails."""
    states = [(link.name, state) for link in sorted(links.iterdir()) if (state := _state_of(link)) is not None]
    key = (path.absolute(), tuple((name, state.st_size, state.st_mtime_ns) for name, state in states))
    if key not in _tried:
        logs = sum(state.st_size for name, state in states if name.endswith(".log"))
        _tried[key] = _trial(links, _TRIAL_SECONDS + logs // _TRIAL_RATE)
    if _tried[key]:
        reason = f"cannot be opened as a RocksDB: {_tried[key]}"
        raise StoreError(f"{reason}; restore it from a backup or another replica", path)


def _state_of(link: Path) -> os.stat_result | None:
    """Returns the state of a linked file; removes the link and returns None if the file has been deleted meanwhile.

    RocksDB deletes files in the background, also after a database is closed, but only those that nothing names any
    more. If another file is missing, it cannot be opened.
    """
    try:
        return link.stat()
    except FileNotFoundError:
        link.unlink()
        return None


def _trial(links: Path, seconds: int) -> str:
    """Return why a database must not be opened in this process; empty if it may."""
    command = [sys.executable, "-c", TRIAL, str(links), json.dumps(sys.path), str(seconds)]
    try:
        ended = subprocess.run(command, capture_output=True, check=False, timeout=seconds * TRIAL_PATIENCE)
    except subprocess.TimeoutExpired:
        return f"the library does not return from it within {seconds * TRIAL_PATIENCE} s"
    if ended.returncode == -signal.SIGXCPU:
        return f"the library does not return from it within {seconds} s of processor time"
    if ended.returncode < 0:
        return f"the library ends its process by {signal.Signals(-ended.returncode).name}"
    return ""


def rocksdict() -> Any:
    """Returns the library; raises UnavailableError if it is not installed."""
    try:
        import rocksdict as library  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnavailableError(f"RocksDB is read with rocksdict: {with_extra('rocksdb')}") from error
    return library


def reason_of(error: Exception) -> str:
    """Returns the library's words about an error in one line."""
    return " ".join(str(error).split())


def table(config: Path, name: str) -> bytes | None:
    """Returns a file of config/ as a broker would write it, from the database that it keeps instead.

    It is JSON; None if there is no such database. Raises UnavailableError, StoreError or FormatError.
    """
    directory, member = TABLES.get(name, ("", ""))
    if not directory or not is_database(config / directory):
        return None
    with Database(config / directory) as database:
        rows = {key.decode("utf-8", "replace"): config_json.parse(value) for key, value in database.items("default")}
        versions = dict(database.items(_VERSION_FAMILY))
    if member == "offsetTable":
        rows = {key: value.get(member, {}) for key, value in rows.items()}
    document: dict[str, Any] = {member: rows}
    if _VERSION_KEY in versions:
        document["dataVersion"] = config_json.parse(versions[_VERSION_KEY])
    return json.dumps(document).encode()


def rows(path: Path) -> dict[bytes, bytes]:
    """Returns all rows of a table without a trace, none without a database; raises UnavailableError or StoreError."""
    rocksdict()
    if not path.is_dir() or not is_database(path):
        return {}
    with Database(path) as database:
        return dict(database.items("default"))


class Table:
    """A table open for changes of one key at a time, as ConfigRocksDBStorage (5.5.0) keeps users; each is durable."""

    def __init__(self, path: Path) -> None:
        """Opens or creates it; raises UnavailableError without rocksdict, StoreError if another process has it open."""
        library = rocksdict()
        self._path = path
        options = library.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_allow_concurrent_memtable_write(False)  # the broker's tables are updated in place
        options.set_keep_log_file_num(2)
        options.set_compression_type(library.DBCompressionType.none())
        tables = library.BlockBasedOptions()
        tables.set_format_version(_FORMAT_VERSION)
        options.set_block_based_table_factory(tables)
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._database: Any = library.Rdict(str(path), options)
            write = library.WriteOptions()
            write.sync = True
            self._database.set_write_options(write)
        except Exception as error:  # the library raises nothing more precise
            raise StoreError(f"cannot be opened as a RocksDB: {' '.join(str(error).split())}", path) from error

    def put(self, key: bytes, value: bytes) -> None:
        """Stores a value; raises StoreError."""
        try:
            self._database[key] = value
        except Exception as error:  # the library raises nothing more precise
            raise StoreError("a value cannot be written", self._path) from error

    def delete(self, key: bytes) -> None:
        """Deletes a key, if it is there; raises StoreError."""
        try:
            del self._database[key]
        except Exception as error:  # the library raises nothing more precise
            raise StoreError("a key cannot be deleted", self._path) from error

    def close(self) -> None:
        """Closes it."""
        self._database.close()
        with contextlib.suppress(OSError):
            (self._path / _OWN_FILE).unlink(missing_ok=True)
