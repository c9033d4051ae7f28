"""Tiered storage behind the common interface for kinds of stores."""

import re
from collections.abc import Iterator
from pathlib import Path

from mqtool.errors import CorruptionError, StoreError, UnreadableError
from mqtool.formats import properties
from mqtool.records.damage import Damage, DamageKind
from mqtool.siblings import Row
from mqtool.siblings.base import OpenedStore
from mqtool.siblings.tiered import SEGMENTS, TABLES, UNITS, verify
from mqtool.siblings.tiered.store import TieredQueue, TieredStore, is_tiered
from mqtool.store.log.message import Message
from mqtool.verify.findings import Finding

_ADDRESS = re.compile("(.+)/([0-9]{1,9})@([0-9]{1,18})")


class OpenedTiered(OpenedStore):
    """A tiered store, read-only."""

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
                    for segment in segments:
                        yield {
                            **place,
                            "type": kind,
                            "base": segment.base,
                            "size": segment.size,
                            "file": str(segment.path),
                        }
            elif table == UNITS.name:
                yield from queue.unread_units()
                for entry in queue.units():
                    if isinstance(entry, Damage):
                        yield entry
                        continue
                    offset, unit, _ = entry
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

    def get(self, address: str) -> list[Row | Damage]:
        """Returns the message of each broker at `topic/queue@offset`, or the damage that a broker has there.

        Raises CorruptionError if no broker has a valid record there, UnreadableError if the system cannot read one
        either.
        """
        place = _ADDRESS.fullmatch(address)
        if place is None:
            return []
        items: list[Row | Damage] = []
        for queue in self.store.queues:
            if (queue.topic, queue.queue_id) == (place[1], int(place[2])):
                item = queue.message_at(int(place[3]))
                if item is not None:
                    items.append(item if isinstance(item, Damage) else message_row(queue, item))
        damage = [item for item in items if isinstance(item, Damage)]
        if len(damage) == len(items):
            raise self._nothing(damage, int(place[3]))
        return items

    def _nothing(self, damage: list[Damage], offset: int) -> StoreError:
        """Returns the error for a queue offset at which no broker has a valid message."""
        for part in damage:
            if part.kind == DamageKind.UNREADABLE:
                return UnreadableError(part.detail, part.path or self.path)
        if not damage:
            return CorruptionError("no unit with this queue offset", self.path, offset)
        reason = "; ".join([damage[0].detail, *map(str, damage[1:])])
        return CorruptionError(reason, damage[0].path or self.path, damage[0].start)

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
