"""Filter bit maps of ConsumeQueueExt: which consumer groups' filters each message passes.

The broker computes them when it dispatches a message, from the filters that groups have registered
(config/consumerFilter.json). A group ignores the bits of messages from before its registration
(ConsumerFilterData.isMsgInLive), so those bits are not set here. A unit without a bit map is valid too: the broker
then evaluates the filter on the message itself. Source: CommitLogDispatcherCalcBitMap, ConsumerFilterManager, BitsArray
(4.9.7, 5.5.0).
"""

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from mqtool.errors import FormatError, StoreError, UsageError
from mqtool.formats import config_json, file_names, properties
from mqtool.formats.config_json import Document
from mqtool.formats.sql92 import Expression
from mqtool.store.files import read_file
from mqtool.store.store import Store

_SQL = "SQL92"
_LARGEST = 8 * 32_000
"""Bits that fit into a unit, whose size is a short."""


class Filter(Struct, frozen=True):
    """One consumer group's filter on a topic."""

    born: int  # registration time, ms
    bits: tuple[int, ...]  # positions that it sets
    bit_count: int  # size of the whole map
    matches: Callable[[dict[str, str]], bool]  # whether properties pass


class FilterBitMaps(Struct):
    """Bit maps for all topics."""

    filters: dict[str, tuple[Filter, ...]] = field(default_factory=dict)  # by topic
    # Filters that cannot be evaluated, in words; their topics get no bit maps.
    problems: list[str] = field(default_factory=list)

    def __call__(self, topic: str, stored: Sequence[bytes], times: Sequence[int]) -> list[bytes]:
        """Returns bit maps for messages of a topic, from stored properties and times in ms; empty without filters."""
        filters = self.filters.get(topic)
        if not filters:
            return [b""] * len(stored)
        rows = zip(stored, times, strict=True)
        return [_bit_map(filters, properties.decode(encoded), time) for encoded, time in rows]


def _bit_map(filters: tuple[Filter, ...], properties: dict[str, str], time: int) -> bytes:
    bit_map = bytearray(-(-filters[0].bit_count // 8))
    for filter_ in filters:
        if filter_.born < time and filter_.matches(properties):
            for bit in filter_.bits:
                bit_map[bit >> 3] |= 1 << (bit & 7)
    return bytes(bit_map)


def bit_maps_of(store: Store) -> FilterBitMaps:
    """Reads the filters of a store's consumers; without any, no unit gets a bit map."""
    bit_maps = FilterBitMaps()
    if store.config.flag("enableCalcFilterBitMap") is False:
        return bit_maps
    path = store.path / file_names.CONFIG / file_names.CONSUMER_FILTERS
    try:
        if not path.exists():
            return bit_maps
        topics = config_json.parse(read_file(path)).get("filterDataByTopic") or {}
        for topic, data in topics.items():
            _add_topic(bit_maps, str(topic), data.get("groupFilterData") or {})
    except (FormatError, StoreError, AttributeError, TypeError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        bit_maps.problems.append(f"{path.name}: {reason}")
        bit_maps.filters.clear()
    return bit_maps


def _add_topic(bit_maps: FilterBitMaps, topic: str, groups: Document) -> None:
    filters = []
    for group, data in groups.items():
        try:
            filters.append(_filter(data))
        except (FormatError, UsageError, KeyError, ValueError) as error:
            bit_maps.problems.append(f"filter of {group} on {topic}: {error}; queues of {topic} get no bit maps")
            return
    if filters and len({filter_.bit_count for filter_ in filters}) == 1:
        bit_maps.filters[topic] = tuple(filters)


def _filter(data: Document) -> Filter:
    bloom = data.get("bloomFilterData") or {}
    positions, count = tuple(int(bit) for bit in bloom.get("bitPos") or ()), int(bloom.get("bitNum") or 0)
    if data.get("expressionType") != _SQL or not all(0 <= bit < count < _LARGEST for bit in positions):
        raise FormatError(f"expected {_SQL} and bit positions below {count}", layout="filter")
    return Filter(int(data.get("bornTime", 0)), positions, count, Expression(str(data["expression"])).matches)
