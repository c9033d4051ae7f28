"""Sets positions of consumer groups: rewrites the file that the broker reads."""

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from mqtool.errors import UsageError
from mqtool.formats import config_files, config_json, file_names
from mqtool.formats.config_files import TOPIC_GROUP_SEPARATOR, ConsumerOffsets, DataVersion
from mqtool.formats.config_json import JsonStyle
from mqtool.formats.topics import is_lmq
from mqtool.jobs.atomic import write_new
from mqtool.repair.changes import MoveOffsets
from mqtool.repair.staged_files import StagedFiles
from mqtool.store.config import config_tables
from mqtool.store.config.config_tables import OffsetTable, OffsetTables
from mqtool.store.files import read_file
from mqtool.store.groups.offset_moves import Move, StoredQueues, case_lints, effect_of, words_of
from mqtool.store.store import Store
from mqtool.words import moment

_MAX_NOTES = 1000
"""Queues that a plan describes one by one."""


def move_offsets(store: Store, change: MoveOffsets, out: Path, staged: StagedFiles) -> None:
    """Writes the file of positions that the broker reads, with the moves applied.

    Raises:
        UsageError: the present position is not the one that the move starts from, or is missing.
        UnsupportedFormatError: the positions are in a database that is not read.
    """
    advice = "start the broker and plan with --broker HOST:PORT"
    config_tables.require_readable(store.path / file_names.CONFIG, store.config, advice)
    tables = store.metadata.offset_tables
    table = tables.read
    has_database = any(listed.is_database for listed in tables.tables)  # it keeps what the file does not name
    known = ConsumerOffsets({}) if table is None else table.offsets
    name = tables.written
    offsets = {key: dict(value) for key, value in known.offset_table.items()}
    lmq = None if known.lmq_offset_table is None else dict(known.lmq_offset_table)
    if lmq is None and name.endswith(file_names.LMQ_CONSUMER_OFFSETS):
        lmq = {}
    pulled = known.pull_offset_table and {key: dict(value) for key, value in known.pull_offset_table.items()}
    for move in change.moves:
        _move(move, offsets, lmq, pulled or {}, keeps_keys=has_database)
    version = data_version(store, table)
    offsets_file = replace(
        known, offset_table=offsets, lmq_offset_table=lmq, pull_offset_table=pulled, data_version=version
    )
    write_new(out / name, config_files.build_consumer_offsets(offsets_file, _style(store, table)))
    staged.put(name, out / name)
    staged.notes.extend(_notes(store, tables, change, name))
    staged.read_settings(store)


def _move(
    move: Move,
    offsets: dict[str, dict[int, int]],
    lmq: dict[str, int] | None,
    pulled: dict[str, dict[int, int]],
    *,
    keeps_keys: bool,
) -> None:
    """Applies one move to the tables."""
    key = f"{move.topic}{TOPIC_GROUP_SEPARATOR}{move.group}"
    if lmq is not None and (is_lmq(move.group) or (key in lmq and key not in offsets)):
        _require(move, lmq.get(key))
        if move.after is None:
            del lmq[key]
        else:
            lmq[key] = move.after
        return
    _require(move, offsets.get(key, {}).get(move.queue_id))
    if move.after is not None:
        offsets.setdefault(key, {})[move.queue_id] = move.after
        return
    for table in (offsets, pulled):
        table.get(key, {}).pop(move.queue_id, None)
        if table.get(key) == {} and not keeps_keys:
            del table[key]


def _require(move: Move, current: int | None) -> None:
    if current != move.before:
        where = f"group {move.group}, {move.topic}/{move.queue_id}"
        raise UsageError(f"{where}: expected position {move.before}, found {current}; plan again")


def data_version(store: Store, table: OffsetTable | None) -> DataVersion | None:
    """Returns the data version to write: a new file has one since 5.x, and with RocksDB its counter must grow."""
    if table is None:
        return None if store.version.release < (5, 5) else DataVersion(1, 0, 0)
    known = table.offsets.data_version
    if not table.is_database:
        return known
    return replace(known or DataVersion(0, 0, 0), counter=table.counter + 1)


def _style(store: Store, table: OffsetTable | None) -> JsonStyle:
    if table is not None and not table.is_database:
        style = config_json.style_of(read_file(table.path))
        if style is not JsonStyle.COMPACT:
            return style
    return config_json.json_style(store.version.release)


# -- what to know before -----------------------------------------------------------------------------------------


def _notes(store: Store, tables: OffsetTables, change: MoveOffsets, name: str) -> Iterator[str]:
    yield from lints(store, tables, change.moves, name)
    queues = StoredQueues(store)
    for move in change.moves[:_MAX_NOTES]:
        yield words_of(effect_of(move, queues), moment)
    if len(change.moves) > _MAX_NOTES:
        yield f"{len(change.moves) - _MAX_NOTES} more queue(s); `mqtool plan` prints all of them"


def lints(store: Store, tables: OffsetTables, moves: tuple[Move, ...], name: str) -> Iterator[str]:
    """Yields, in words, what keeps a broker or its clients from using the new positions.

    Args:
        store: opened.
        tables: of the store.
        moves: the changes.
        name: file that is written.
    """
    yield from tables.problems
    if tables.evidence:
        yield f"{tables.evidence}; the plan writes {name}"
    if tables.read is not None and tables.read.is_database:
        yield (
            "the positions are in RocksDB: the next start of a broker with storeType=defaultRocksDB takes the new "
            f"{name} over; `mqtool undo` is then no longer possible"
        )
    groups = sorted({move.group for move in moves})
    yield from _switches(store, groups)
    if store.config.text("brokerRole") == "SLAVE":
        yield "brokerRole=SLAVE: the broker replaces its positions by its master's; plan the change on the master"
    yield from case_lints(groups, {*store.metadata.groups, *store.metadata.consumer_offsets})


def _switches(store: Store, groups: list[str]) -> Iterator[str]:
    for group in groups:
        if is_lmq(group) and store.config.flag("enableLmq") is False:
            yield f"group {group} belongs to light message queues, and enableLmq=false: no client can use its position"
        config = store.metadata.groups.get(group)
        if config is None:
            yield f"group {group} has no configuration: clients get SUBSCRIPTION_GROUP_NOT_EXIST if it is not created"
        elif not config.consume_enable:
            yield f"group {group}: consumeEnable=false, it gets no message whatever its position"
