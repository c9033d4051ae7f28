"""Bit maps of consumer filters: which groups with an SQL92 expression would accept a message.

Source: CommitLogDispatcherCalcBitMap, ConsumerFilterManager, ConsumerFilterData (4.9.7, 5.5.0).
"""

from collections.abc import Iterable
from typing import NamedTuple

from mqtool.engine.dispatch import bloom
from mqtool.formats.config_json import Document
from mqtool.formats.sql92 import Expression
from mqtool.records.dispatch_request import DispatchRequest

_SQL92 = "SQL92"


class GroupFilter(NamedTuple):
    """One group's filter on one topic.

    Attributes:
        topic: of the messages.
        expression: compiled.
        bits: positions that the group sets in a bit map.
    """

    topic: str
    expression: Expression
    bits: tuple[int, ...]


def filters_of(document: Document) -> list[GroupFilter]:
    """Returns the filters in consumerFilter.json, including those of groups that no longer have consumers.

    Args:
        document: the file, parsed (`formats.config_json.parse`).

    Raises:
        UsageError: an expression is invalid.
    """
    found = []
    for topic, data in document.get("filterDataByTopic", {}).items():
        for one in data.get("groupFilterData", {}).values():
            if one.get("expressionType") == _SQL92:
                bits = tuple(one.get("bloomFilterData", {}).get("bitPos", ()))
                found.append(GroupFilter(topic, Expression(one["expression"]), bits))
    return found


class BitMaps:
    """Computes the bit map of each dispatched message; pass it to `open_store` as `bit_map_of`."""

    def __init__(self, filters: Iterable[GroupFilter], bits: int) -> None:
        """Takes the filters.

        Args:
            filters: of every group.
            bits: length of a bit map (`StoreOptions.bit_map_bits`).
        """
        self._filters = tuple(filters)
        self._size = -(-bits // 8)
        self._topics = {one.topic for one in self._filters}

    def __call__(self, request: DispatchRequest) -> bytes:
        """Returns the bit map; b"" for a topic on which no group has a filter."""
        if request.topic not in self._topics:
            return b""
        found = bytearray(self._size)
        for one in self._filters:
            if one.topic == request.topic and one.expression.matches(request.properties):
                bloom.set_all(found, one.bits)
        return bytes(found)
