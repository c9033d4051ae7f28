"""Sets positions of consumer groups in the file that the broker reads, and reads positions from elsewhere.

They come from a store, a backup or a file, or are mapped through a replay's ids.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from mqtool.errors import FormatError, StoreError, UsageError
from mqtool.formats import config_files, config_json, file_names
from mqtool.formats.config_files import TOPIC_GROUP_SEPARATOR, ConsumerOffsets, DataVersion
from mqtool.formats.config_json import JsonStyle
from mqtool.formats.topics import is_lmq
from mqtool.jobs.atomic import write_new
from mqtool.repair.backup.snapshots import DIRECTORY, Pieces, load
from mqtool.repair.changes import MoveOffsets
from mqtool.repair.staged_files import StagedFiles
from mqtool.store.config.metadata import OFFSET_FILES, OffsetTable, OffsetTables, require_readable
from mqtool.store.files import read_file
from mqtool.store.groups.offset_moves import Committed, Move, StoredQueues, case_lints, effect_of, words_of
from mqtool.store.store import Store, open_store
from mqtool.words import moment

MAX_NOTES = 1000
"""Queues that a plan describes one by one."""
Positions = dict[str, dict[str, dict[int, int]]]
"""Group to topic to queue id to next queue offset."""
_SHOWN = 60
"""Characters of an invalid line that an error prints."""


def move_offsets(store: Store, change: MoveOffsets, out: Path, staged: StagedFiles) -> None:
    """Writes the file of positions that the broker reads, with the moves applied."""
    advice = "start the broker and plan with --broker HOST:PORT"
    require_readable(store.path / file_names.CONFIG, store.config, advice)
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
        return None if store.version.release < (5, 0) else DataVersion(1, 0, 0)
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
    for move in change.moves[:MAX_NOTES]:
        yield words_of(effect_of(move, queues), moment)
    if len(change.moves) > MAX_NOTES:
        yield f"{len(change.moves) - MAX_NOTES} more queue(s); `mqtool plan` prints all of them"


def lints(store: Store, tables: OffsetTables, moves: tuple[Move, ...], name: str) -> Iterator[str]:
    """Yields, in words, what keeps a broker or its clients from using new positions that are written to a file."""
    yield from tables.problems
    if tables.evidence:
        yield f"{tables.evidence}; the plan writes {name}"
    if tables.read is not None and tables.read.is_database:
        yield (
            "the positions are in RocksDB: the next start of a broker with storeType=defaultRocksDB imports the new "
            f"{name}; `mqtool undo` is then no longer possible"
        )
    groups = sorted({move.group for move in moves})
    yield from _switches(store, groups)
    if store.config.text("brokerRole") == "SLAVE":
        yield "brokerRole=SLAVE: the broker replaces its positions with its master's; plan the change on the master"
    yield from case_lints(groups, {*store.metadata.groups, *store.metadata.consumer_offsets})


def _switches(store: Store, groups: list[str]) -> Iterator[str]:
    for group in groups:
        if is_lmq(group) and store.config.flag("enableLmq") is False:
            yield f"group {group} belongs to light message queues, and enableLmq=false: no client can use its position"
        config = store.metadata.groups.get(group)
        if config is None:
            yield (
                f"group {group} has no configuration: with autoCreateSubscriptionGroup=true, the default, the broker "
                f"creates it; otherwise create it (mqadmin updateSubGroup -g {group}), or clients get "
                "SUBSCRIPTION_GROUP_NOT_EXIST"
            )
        elif not config.consume_enable:
            yield f"group {group}: consumeEnable=false, so it gets no message, whatever its position"


class Place(NamedTuple):
    """The place of a message in its queue."""

    topic: str
    queue_id: int
    queue_offset: int


def positions_at(path: Path) -> Positions:
    """Returns the committed positions at a path, without negative ones, which brokers treat as absent.

    The path is the root of a store, a destination of `mqtool backup` (its newest snapshot), or a file such as
    consumerOffset.json.
    """
    if path.is_dir():
        positions = _in_backup(path) if (path / DIRECTORY).is_dir() else _in_store(path)
    else:
        positions = _parsed(read_file(path), path)
    positive = {
        group: {
            topic: {queue_id: offset for queue_id, offset in offsets.items() if offset >= 0}
            for topic, offsets in by_topic.items()
        }
        for group, by_topic in positions.items()
    }
    if not any(offsets for by_topic in positive.values() for offsets in by_topic.values()):
        raise UsageError(f"{path}: expected positions of consumer groups, found none")
    return positive


def _in_store(path: Path) -> Positions:
    with open_store(path) as store:
        tables = store.metadata.offset_tables
        if tables.read is not None:
            return tables.read.offsets.by_group()
        if tables.problems:
            problems = "; ".join(tables.problems)
            raise UsageError(f"{path}: expected positions of consumer groups, but none can be read: {problems}")
        return {}


def _in_backup(path: Path) -> Positions:
    snapshot, pieces = load(path), Pieces(path)
    files = {file.path: file for file in snapshot.files}
    for name in OFFSET_FILES:
        file = files.get(f"{file_names.CONFIG}/{name}")
        if file is not None:
            data = bytearray(file.size)
            for piece in file.pieces:
                data[piece.position : piece.position + piece.length] = pieces.read(piece.sha256, piece.length)
            return _parsed(bytes(data), path / file.path)
    raise UsageError(
        f"{path}: snapshot {snapshot.name} has none of {', '.join(OFFSET_FILES)}; restore it and name the store"
    )


def _parsed(data: bytes, path: Path) -> Positions:
    try:
        return config_files.parse_consumer_offsets(data).by_group()
    except FormatError as error:
        raise UsageError(f"{path}: expected consumerOffset.json, a store or a backup: {error}") from error


def places_in(path: Path) -> Iterator[tuple[Place, Place]]:
    """Yields the old and the new place of each message in a file that `replay --ids` or `convert` wrote."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                places = _places(line, f"{path}:{number}")
                if places is not None:
                    yield places
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", path) from error


def _places(line: bytes, where: str) -> tuple[Place, Place] | None:
    """Parses one line; returns None if the message has no old or no new place."""
    try:
        row = json.loads(line)
        old, new = row["old"], row["new"]
        if new is None or "queue_offset" not in old or old["queue_offset"] is None:
            return None
        before = Place(str(row["topic"]), int(old["queue_id"]), int(old["queue_offset"]))
        return before, Place(str(new["topic"]), int(new["queue_id"]), int(new["queue_offset"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{where}: expected topic, old and new, as `mqtool replay --ids` writes them, found {_start(line)}"
        ) from error


def _start(line: bytes) -> str:
    """Returns the first characters of a line, for an error message."""
    text = line.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def map_positions(positions: Committed, places: Iterable[tuple[Place, Place]]) -> Positions:
    """Maps positions of an old store to the queues of a new one, given the old and the new place of each message.

    A new position is at the first message that the group has not consumed, so the group gets every such message.
    Consumed messages after it are delivered again; this happens where several queues were merged.
    """
    groups_of: dict[tuple[str, int], list[tuple[str, int]]] = defaultdict(list)
    for group, by_topic in positions.items():
        for topic, offsets in by_topic.items():
            for queue_id, offset in offsets.items():
                groups_of[topic, queue_id].append((group, offset))
    unread: dict[tuple[str, str, int], int] = {}
    ends: dict[tuple[str, str, int], int] = {}
    for old, new in places:
        for group, position in groups_of.get((old.topic, old.queue_id), ()):
            key = group, new.topic, new.queue_id
            ends[key] = max(ends.get(key, 0), new.queue_offset + 1)
            if old.queue_offset >= position:
                unread[key] = min(unread.get(key, new.queue_offset), new.queue_offset)
    moved: Positions = {}
    for group, topic, queue_id in ends:
        key = group, topic, queue_id
        moved.setdefault(group, {}).setdefault(topic, {})[queue_id] = unread.get(key, ends[key])
    return moved
