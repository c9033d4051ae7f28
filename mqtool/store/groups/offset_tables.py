"""Where a store keeps the positions of consumer groups, and which of these places a broker reads.

A broker reads one place: `lmqConsumerOffset.json` with `enableLmq`, the RocksDB `config/consumerOffsets` with
`storeType=defaultRocksDB`, otherwise `consumerOffset.json`. If it cannot read a file, it reads the `.bak`. A broker
with RocksDB imports a `consumerOffset.json` with a newer data version. Source: BrokerController, ConfigManager.load,
LmqConsumerOffsetManager, RocksDBConsumerOffsetManager.merge (4.9.7, 5.5.0).
"""

from pathlib import Path

from msgspec import Struct

from mqtool.formats import config_files, file_names
from mqtool.formats.config_files import ConsumerOffsets
from mqtool.store.config import config_tables
from mqtool.store.config.broker_config import BrokerConfig

DATABASE = "consumerOffsets"
"""Directory of the RocksDB below config/."""
FILES = (file_names.CONSUMER_OFFSETS, file_names.LMQ_CONSUMER_OFFSETS)
"""Names of the files with positions, below config/."""


class OffsetTable(Struct, frozen=True):
    """One place with positions."""

    name: str  # of the file or database that a broker would use, below the root
    path: Path  # what was read: the file, its `.bak`, or the directory of the database
    offsets: ConsumerOffsets  # its content

    @property
    def file_name(self) -> str:
        """Last part of the name."""
        return self.name.rpartition("/")[2]

    @property
    def is_database(self) -> bool:
        """Whether it is a RocksDB."""
        return self.file_name == DATABASE

    @property
    def counter(self) -> int:
        """Number of changes to the table; 0 if it does not state it."""
        return config_tables.counter_of(self.offsets.data_version)


class OffsetTables(Struct, frozen=True):
    """All places with positions in a store."""

    tables: tuple[OffsetTable, ...] = ()  # those that can be read
    read: OffsetTable | None = None  # the one that a broker reads; None if it has none
    # File, relative to the root, to write new positions to so that the next start of a broker uses them. A broker with
    # RocksDB imports a consumerOffset.json with a newer data version.
    written: str = f"{file_names.CONFIG}/{file_names.CONSUMER_OFFSETS}"
    evidence: str = ""  # why the broker reads that place, in words; empty if there is no other
    problems: tuple[str, ...] = ()  # files that cannot be read, in words
    unread: str = ""  # why the positions that a broker reads are unknown; "" if they are known, or if there are none

    @property
    def offsets(self) -> ConsumerOffsets | None:
        """Content of the place that a broker reads; None if it has none."""
        return None if self.read is None else self.read.offsets


def load(directory: Path, config: BrokerConfig) -> OffsetTables:
    """Returns all places with positions below a store's config/; `Metadata.offset_tables` has them.

    Args:
        directory: config/ of the store; it may be empty.
        config: decides which place a broker reads.
    """
    tables: list[OffsetTable] = []
    unread: dict[str, str] = {}
    problems: list[str] = []
    for place in (*FILES, DATABASE):
        of_place: list[str] = []
        table = _table(directory, place, of_place)
        if table is not None:
            tables.append(table)
        elif of_place:
            unread[place] = of_place[0]
        problems += of_place
    by_name = {table.file_name: table for table in tables}
    name = file_read(directory, config)
    read, evidence = _choose(config, name, by_name)
    reason = config_tables.unread_database(directory, config)
    if reason:
        read, evidence = None, ""
        problems.append(reason)
    elif config_tables.may_be_in_database(config):
        reason = "" if DATABASE in by_name else unread.get(DATABASE, unread.get(name, ""))
    else:
        reason = unread.get(name, "")
    written = file_names.CONSUMER_OFFSETS if read is not None and read.is_database else name
    return OffsetTables(tuple(tables), read, f"{file_names.CONFIG}/{written}", evidence, tuple(problems), reason)


def file_read(directory: Path, config: BrokerConfig) -> str:
    """Returns the name of the file with positions that a broker without RocksDB reads and writes.

    If `enableLmq` is not configured, it is the file that is not empty; if both are not, consumerOffset.json.

    Args:
        directory: config/ of the store; it may be empty.
        config: the broker's configuration.
    """
    with_lmq = config.flag("enableLmq")
    if with_lmq is None:
        with_lmq = [_has_content(directory, name) for name in FILES] == [False, True]
    return file_names.LMQ_CONSUMER_OFFSETS if with_lmq else file_names.CONSUMER_OFFSETS


def _has_content(directory: Path, name: str) -> bool:
    """Whether a file or its backup exists and is not empty."""
    try:
        return any(
            path.exists() and path.stat().st_size
            for path in (directory / name, directory / (name + file_names.BACKUP_SUFFIX))
        )
    except OSError:  # the directory may not be searched
        return False


def _table(directory: Path, name: str, problems: list[str]) -> OffsetTable | None:
    """Returns one place; None if it is missing or cannot be read."""
    parse = config_files.parse_consumer_offsets
    shown = f"{file_names.CONFIG}/{name}"
    if name == DATABASE:
        parsed = config_tables.from_database(directory, file_names.CONSUMER_OFFSETS, parse, problems)
        return None if parsed is None else OffsetTable(shown, directory / DATABASE, parsed)
    table = config_tables.from_file(directory, name, parse, problems)
    return None if table is None else OffsetTable(shown, *table)


def _choose(config: BrokerConfig, name: str, tables: dict[str, OffsetTable]) -> tuple[OffsetTable | None, str]:
    """Returns the table that a broker reads, and why; `name` is the file that it reads without RocksDB."""
    plain, lmq = tables.get(file_names.CONSUMER_OFFSETS), tables.get(file_names.LMQ_CONSUMER_OFFSETS)
    database = tables.get(DATABASE)
    with_lmq = config.flag("enableLmq")
    if database is not None and config_tables.may_be_in_database(config):
        if plain is not None and plain.counter > database.counter:
            return plain, f"a broker with RocksDB takes {plain.name} over: its data version is newer"
        return database, f"a broker with storeType=defaultRocksDB reads {database.name}"
    if with_lmq is not None:
        words = f"with enableLmq={str(with_lmq).lower()} a broker reads {file_names.CONFIG}/{name}"
        return tables.get(name), words
    if plain is not None and lmq is not None:
        return plain, f"{plain.name} and {lmq.name} are both there; a broker with enableLmq=true reads the second"
    return tables.get(name), ""
