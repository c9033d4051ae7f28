"""Tables of configuration as a broker reads them on startup: a JSON file, its `.bak`, or a RocksDB.

Source: ConfigManager.load, RocksDBConfigManager (4.9.7, 5.5.0).
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mqtool.errors import FormatError, StoreError, UnavailableError
from mqtool.formats import file_names
from mqtool.store import rocksdb
from mqtool.store.files import read_file, recording_unlisted

T = TypeVar("T")
Parse = Callable[[bytes], T]


def from_file(directory: Path, name: str, parse: Parse[T], problems: list[str]) -> tuple[Path, T] | None:
    """Returns path and content of the file, or of its `.bak` if the file is missing or unreadable.

    Args:
        directory: the store's config/.
        name: of the file.
        parse: parses its bytes.
        problems: takes what cannot be read, in words.
    """
    for path in (directory / name, directory / (name + file_names.BACKUP_SUFFIX)):
        try:
            if path.exists():
                return path, parse(read_file(path))
        except (FormatError, StoreError, OSError) as error:  # OSError: the directory may not be searched
            problems.append(f"{path.name}: {error}")
    return None


def from_database(directory: Path, name: str, parse: Parse[T], problems: list[str]) -> T | None:
    """Returns the content of the RocksDB that a broker keeps instead of a file; arguments as in `from_file`."""
    try:
        with recording_unlisted(None):
            kept = rocksdb.table(directory, name)
        return None if kept is None else parse(kept)
    except (FormatError, StoreError, UnavailableError, OSError) as error:
        problems.append(f"{name}: {error}")
    return None
