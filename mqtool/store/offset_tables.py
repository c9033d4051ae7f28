"""Where a store keeps the positions of consumer groups, and which of these places a broker reads.

A broker reads one place: `lmqConsumerOffset.json` with `enableLmq`, the RocksDB `config/consumerOffsets` with
`storeType=defaultRocksDB`, else `consumerOffset.json`. Where a file cannot be read it takes its `.bak`. A broker with
RocksDB takes a `consumerOffset.json` over if its data version is newer. Source: BrokerController,
ConfigManager.load, LmqConsumerOffsetManager, RocksDBConsumerOffsetManager.merge (4.9.7, 5.5.0).
"""

from dataclasses import dataclass
from pathlib import Path

from mqtool.errors import FormatError, StoreError, UnavailableError
from mqtool.formats import config_files, file_names
from mqtool.formats.config_files import ConsumerOffsets
from mqtool.store import rocksdb
from mqtool.store.files import noting_unlisted, read_file
from mqtool.store.store import Store

DATABASE = "consumerOffsets"
"""Directory of the RocksDB below config/."""
_FILES = (file_names.CONSUMER_OFFSETS, file_names.LMQ_CONSUMER_OFFSETS)


@dataclass(frozen=True, slots=True)
class OffsetTable:
    """One place with positions.

    Attributes:
        name: of the file or database that a broker would use, below the root.
        path: what was read: the file, its `.bak`, or the directory of the database.
        offsets: its content.
    """

    name: str
    path: Path
    offsets: ConsumerOffsets

    @property
    def is_database(self) -> bool:
        """Whether it is a RocksDB."""
        return self.name.endswith(f"/{DATABASE}")

    @property
    def is_lmq(self) -> bool:
        """Whether it is the file of a broker with `enableLmq`."""
        return self.name.endswith(f"/{file_names.LMQ_CONSUMER_OFFSETS}")

    @property
    def counter(self) -> int:
        """How often the table changed; 0 if it does not state that."""
        return self.offsets.data_version.counter if self.offsets.data_version else 0


@dataclass(frozen=True, slots=True)
class OffsetTables:
    """All places with positions in a store.

    Attributes:
        tables: those that can be read.
        read: the one that a broker reads; None if it has none.
        evidence: why that one, in words; empty if there is no other.
        problems: files that cannot be read, in words.
    """

    tables: tuple[OffsetTable, ...]
    read: OffsetTable | None
    evidence: str
    problems: tuple[str, ...]


def offset_tables(store: Store) -> OffsetTables:
    """Returns the places of a store with positions of consumer groups."""
    directory = store.path / file_names.CONFIG
    problems: list[str] = []
    found = [table for name in _FILES if (table := _file(directory, name, problems)) is not None]
    database = _database(directory, problems)
    tables = (*found, *([database] if database else []))
    read, evidence = _choose(store, {table.name.rpartition("/")[2]: table for table in tables})
    return OffsetTables(tables, read, evidence, tuple(problems))


def _file(directory: Path, name: str, problems: list[str]) -> OffsetTable | None:
    for path in (directory / name, directory / (name + file_names.BACKUP_SUFFIX)):
        try:
            if path.exists():
                parsed = config_files.parse_consumer_offsets(read_file(path))
                return OffsetTable(f"{file_names.CONFIG}/{name}", path, parsed)
        except (FormatError, StoreError, OSError) as error:
            problems.append(f"{file_names.CONFIG}/{path.name}: {error}")
    return None


def _database(directory: Path, problems: list[str]) -> OffsetTable | None:
    try:
        with noting_unlisted(None):
            kept = rocksdb.table(directory, file_names.CONSUMER_OFFSETS)
        if kept is None:
            return None
        parsed = config_files.parse_consumer_offsets(kept)
    except (FormatError, StoreError, UnavailableError, OSError) as error:
        problems.append(f"{file_names.CONFIG}/{DATABASE}: {error}")
        return None
    return OffsetTable(f"{file_names.CONFIG}/{DATABASE}", directory / DATABASE, parsed)


def _choose(store: Store, tables: dict[str, OffsetTable]) -> tuple[OffsetTable | None, str]:
    """Returns the table that a broker reads, and why."""
    plain, lmq = tables.get(file_names.CONSUMER_OFFSETS), tables.get(file_names.LMQ_CONSUMER_OFFSETS)
    database = tables.get(DATABASE)
    kind, with_lmq = store.config.text("storeType"), store.config.flag("enableLmq")
    if database is not None and (kind == "defaultRocksDB" or (kind is None and store.config.file is None)):
        if plain is not None and plain.counter > database.counter:
            return plain, f"a broker with RocksDB takes {plain.name} over: its data version is newer"
        return database, f"a broker with storeType=defaultRocksDB reads {database.name}"
    if with_lmq is not None:
        name = file_names.LMQ_CONSUMER_OFFSETS if with_lmq else file_names.CONSUMER_OFFSETS
        words = f"with enableLmq={str(with_lmq).lower()} a broker reads {file_names.CONFIG}/{name}"
        return tables.get(name), words
    if plain is not None and lmq is not None:
        return plain, f"{plain.name} and {lmq.name} are both there; a broker with enableLmq=true reads the second"
    return plain or lmq, ""
