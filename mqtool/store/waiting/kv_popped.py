"""Popped messages, where the broker keeps them in RocksDB (popConsumerKVServiceEnable).

Each unacknowledged message has a record in the column family `popState` of `kvStore`; an acknowledgement deletes it.
Source: PopConsumerService, PopConsumerRocksdbStore, PopConsumerRecord (5.5.0).
"""

import json

from msgspec import Struct

from mqtool.errors import FormatError, StoreError, UnavailableError
from mqtool.formats import java
from mqtool.formats.service_records import CheckPoint, GroupQueue
from mqtool.store.config import rocksdb
from mqtool.store.store import Store

DIRECTORY = "kvStore"
_FAMILY = "popState"


class KvPopped(Struct, frozen=True):
    """Content of the database."""

    points: tuple[CheckPoint, ...] = ()  # a check point for each unacknowledged message
    unknown: str = ""  # why there may be others, otherwise ""


def read(store: Store) -> KvPopped:
    """Returns the unacknowledged messages; none if the store has no such database."""
    path = store.path / DIRECTORY
    try:
        if not path.is_dir() or not rocksdb.is_database(path):
            return KvPopped()
        with rocksdb.Database(path) as database:
            return _points(database)
    except (StoreError, UnavailableError) as error:
        return KvPopped(unknown=f"{DIRECTORY}, which holds what POP has handed out: {error}")


def _points(database: rocksdb.Database) -> KvPopped:
    points, problems = [], []
    for _, value in database.items(_FAMILY):
        try:
            points.append(_point(value))
        except (ValueError, TypeError, KeyError, FormatError, RecursionError):
            problems.append(value[:40])
    unknown = f"{DIRECTORY}: {len(problems)} record(s) are not POP's, the first {problems[0]!r}" if problems else ""
    return KvPopped(tuple(points), unknown)


def _point(value: bytes) -> CheckPoint:
    document = json.loads(value)
    offset = java.json_long(document["offset"])
    key = GroupQueue(str(document["groupId"]), str(document["topicId"]), java.json_int(document["queueId"]))
    return CheckPoint(
        key, offset, [offset], java.json_long(document["popTime"]), java.json_long(document["invisibleTime"]), ""
    )


def is_used(store: Store) -> bool:
    """Whether the store has such a database."""
    path = store.path / DIRECTORY
    return path.is_dir() and rocksdb.is_database(path)
