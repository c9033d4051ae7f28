"""Tiered storage behind the common interface for kinds of stores."""

import re
from collections.abc import Iterator
from pathlib import Path

from mqtool.errors import CorruptionError, FormatError, StoreError
from mqtool.formats import properties
from mqtool.records.damage import Damage
from mqtool.siblings.base import OpenedStore
from mqtool.siblings.tables import Row
from mqtool.siblings.tiered import verify
from mqtool.siblings.tiered.columns import SEGMENTS, TABLES, UNITS
from mqtool.siblings.tiered.store import TieredQueue, TieredStore, is_tiered
from mqtool.store.message import Message
from mqtool.verify.findings import Finding

_ADDRESS = re.compile("(.+)/([0-9]{1,9})@([0-9]{1,18})")


class OpenedTiered(OpenedStore):
    """A tiered store, read-only.

    Attributes:
        store: the underlying store.
    """

    tables = TABLES
    recognises = staticmethod(is_tiered)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = TieredStore(path)

    def layout(self) -> Row:
        """Returns a description of the store."""
        queues = self.store.queues
        files = [segment for queue in queues for kind in queue.segments.values() for segment in kind]
        return {
            "release": "tieredstore of RocketMQ 5",
            "clusters": len(self.store.clusters),
            "queues": len(queues),
            "segments": len(files),
            "bytes": sum(file.size for file in files),
            "metadata": self.store.metadata.is_read,
            "oddities": [f"{path} belongs to no queue" for path in self.store.strays],
        }

    def rows(self, table: str) -> Iterator[Row | Damage]:
        """Yields messages, units or segments."""
        for queue in self.store.queues:
            place = {"broker": queue.broker, "topic": queue.topic, "queue_id": queue.queue_id}
            if table == SEGMENTS.name:
                for kind, segments in queue.segments.items():
                    for one in segments:
                        yield {**place, "type": kind, "base": one.base, "size": one.size, "file": str(one.path)}
            elif table == UNITS.name:
                yield from queue.unread_units()
                for offset, unit, _ in queue.units():
                    yield {
                        **place,
                        "queue_offset": offset,
                        "position": unit.physical_offset,
                        "size": unit.size,
                        "tags_code": unit.tags_code,
                    }
            else:
                for item in queue.messages():
                    yield item if isinstance(item, Damage) else message_row(queue, item)

    def get(self, address: str) -> Row | None:
        """Returns the message at `topic/queue@offset`.

        Raises:
            CorruptionError: there is no valid record at the address.
        """
        found = _ADDRESS.fullmatch(address)
        if found is None:
            return None
        wanted = int(found[3])
        for queue in self.store.queues:
            if (queue.topic, queue.queue_id) == (found[1], int(found[2])):
                for offset, unit, path in queue.units():
                    if offset == wanted:
                        try:
                            return message_row(queue, queue.record(unit.physical_offset, unit.size))
                        except (StoreError, FormatError) as error:
                            raise CorruptionError(str(error), path, unit.physical_offset) from error
        raise CorruptionError("no unit with this queue offset", self.path, wanted)

    def verify(self) -> Iterator[Finding]:
        """Yields a finding for each broken invariant."""
        return verify.verify(self.store)

    def close(self) -> None:
        """Does nothing: files are open only while they are read."""


KIND = OpenedTiered


def message_row(queue: TieredQueue, message: Message) -> Row:
    """Returns a message as a row of `MESSAGES`."""
    return {
        "broker": queue.broker,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "position": message.physical_offset,
        "size": message.store_size,
        "store_timestamp": message.store_timestamp,
        "born_timestamp": message.born_timestamp,
        "tags": message.tags,
        "keys": message.properties.get(properties.KEYS),
        "unique_key": message.properties.get(properties.UNIQUE_KEY),
        "body_size": len(message.body),
        "body": message.body,
    }
