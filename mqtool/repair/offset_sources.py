"""Reads positions of consumer groups from a store, a backup or a file, or maps them through a replay's ids."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from mqtool.errors import FormatError, StoreError, UsageError
from mqtool.formats import config_files, file_names
from mqtool.repair.backup.pieces import Pieces
from mqtool.repair.backup.snapshots import DIRECTORY, load
from mqtool.store.config.config_tables import OFFSET_FILES
from mqtool.store.files import read_file
from mqtool.store.groups.offset_moves import Committed
from mqtool.store.store import open_store

Positions = dict[str, dict[str, dict[int, int]]]
"""Group to topic to queue id to next queue offset."""


_SHOWN = 60
"""Characters of an invalid line that an error prints."""


class Place(NamedTuple):
    """The place of a message in its queue."""

    topic: str
    queue_id: int
    queue_offset: int


def positions_at(path: Path) -> Positions:
    """Returns the committed positions at a path, without negative ones, which brokers treat as absent.

    Args:
        path: root of a store, a destination of `mqtool backup` (its newest snapshot), or a file such as
            consumerOffset.json.

    Raises:
        UsageError: it is none of these, or has no positions.
        StoreError, RefusedError: it cannot be read.
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
    """Yields the old and the new place of each message in a file that `replay --ids` or `convert` wrote.

    Raises:
        UsageError: a line is not of this form.
        StoreError: it cannot be read.
    """
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
    """Maps positions of an old store to the queues of a new one.

    A new position is at the first message that the group has not consumed, so the group gets every such message.
    Consumed messages after it are delivered again; this happens where several queues were merged.

    Args:
        positions: in the old store.
        places: old and new place of each message.
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
