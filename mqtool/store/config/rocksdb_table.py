"""A small RocksDB table that is changed one key at a time, as the broker's ConfigRocksDBStorage keeps users.

Source: ConfigRocksDBStorage, ConfigHelper (5.5.0).
"""

import contextlib
from pathlib import Path
from typing import Any

from mqtool.errors import StoreError
from mqtool.store.config.rocksdb import Database, is_database, rocksdict

_FORMAT_VERSION = 5
_OWN_FILE = "rocksdict-config.json"
"""A file that the library leaves in the directory; no broker writes it."""


def rows(path: Path) -> dict[bytes, bytes]:
    """Returns all keys and values of a table, and leaves no trace; none if there is no database.

    Raises:
        UnavailableError: rocksdict is not installed.
        StoreError: it cannot be read.
    """
    rocksdict()
    if not path.is_dir() or not is_database(path):
        return {}
    with Database(path) as database:
        return dict(database.items("default"))


class Table:
    """A table open for writing; what `put` and `delete` return from is on the disk."""

    def __init__(self, path: Path) -> None:
        """Opens it, or creates it.

        Raises:
            UnavailableError: rocksdict is not installed.
            StoreError: it cannot be opened, or another process has it open.
        """
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
