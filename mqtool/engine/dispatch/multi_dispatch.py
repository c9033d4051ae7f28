"""LMQ: one record in several light queues; and the rewriting of properties for LMQ and inner batches.

A message names its light queues in INNER_MULTI_DISPATCH; the store adds their next offsets as
INNER_MULTI_QUEUE_OFFSET while it holds the append lock. Source: LmqDispatch, MultiDispatchUtils,
MessageExtBrokerInner.needDispatchLMQ (5.5.0), MultiDispatch (4.9.7).
"""

from msgspec.structs import replace

from mqtool.engine.options import PropertyOrder, StoreOptions
from mqtool.engine.write.queue_offsets import QueueOffsets
from mqtool.errors import FormatError
from mqtool.formats import java, properties
from mqtool.formats.release import V4_9, V5_5
from mqtool.formats.service_records import parse_delay_levels
from mqtool.formats.topics import is_lmq
from mqtool.records.dispatched import DispatchRules, rules_for
from mqtool.records.multi_dispatch import applies

SEPARATOR = ","

_MARK = properties.mark(properties.INNER_MULTI_DISPATCH)
_EVERYWHERE, _SOME = DispatchRules(lmq_everywhere=True), DispatchRules()
_HASH_MAP_CAPACITY = {V4_9: 16, V5_5: 128}
"""Initial capacity of the broker's map of properties; 128 since 5.1."""


def rules_of(options: StoreOptions, batch_topics: frozenset[str]) -> DispatchRules:
    """Returns the dispatch rules of a store."""
    levels = parse_delay_levels(options.delay_levels)
    rules = rules_for(
        options.release, multi_dispatch=options.multi_dispatch, delay_levels=levels, batch_topics=batch_topics
    )
    return rules if options.index_tags is None else replace(rules, index_tags=options.index_tags)


def light_queues(options: StoreOptions, topic: str, encoded: bytes) -> list[str]:
    """Returns the names of a message's light queues; [] for a message that is only in its own queue.

    Args:
        options: of the store.
        topic: of the message.
        encoded: its properties string.
    """
    if _MARK not in encoded or not (options.lmq if options.release >= (5, 5) else options.multi_dispatch):
        return []
    if not applies(topic, _SOME if options.release >= (5, 5) else _EVERYWHERE):
        return []
    named = properties.decode(encoded).get(properties.INNER_MULTI_DISPATCH, "")
    return java.split_drop_trailing(named, SEPARATOR) if named.strip() else []


def with_light_offsets(options: StoreOptions, offsets: QueueOffsets, encoded: bytes, names: list[str]) -> bytes:
    """Returns properties with the next offset of each light queue; call it under the append lock.

    The names are those of light queues (`refusal`).
    """
    decoded = properties.decode(encoded)
    numbers = (str(offsets.lmq.get(name, 0)) for name in names)
    decoded[properties.INNER_MULTI_QUEUE_OFFSET] = SEPARATOR.join(numbers)
    wait = decoded.pop(properties.WAIT, None)
    if wait is not None and options.release >= (
        5,
        5,
    ):  # The broker removes and re-adds it: last in a map in order of insertion.
        decoded[properties.WAIT] = wait
    return encode(options, decoded)


def advance(offsets: QueueOffsets, names: list[str]) -> None:
    """Counts a message in each of its light queues; call it under the append lock."""
    for name in names:
        offsets.lmq[name] = offsets.lmq.get(name, 0) + 1


def refusal(names: list[str]) -> str:
    """Returns why a message with these light queues is refused, "" if it is not.

    A name without the prefix gets an empty offset, at which the broker's dispatch hangs forever (see
    docs/engine.md), so such names are refused.
    """
    plain = [name for name in names if not is_lmq(name)]
    return f"{plain[0][:80]!r} in {properties.INNER_MULTI_DISPATCH} names no light queue" if plain else ""


def encode(options: StoreOptions, values: dict[str, str]) -> bytes:
    """Returns the properties string that the broker builds from a map."""
    names = list(values)
    if options.property_order is PropertyOrder.HASH:
        names = hash_order(names, _HASH_MAP_CAPACITY[options.release])
    return properties.encode([(name, values[name]) for name in names], trailing_separator=options.release >= (5, 5))


def hash_order(names: list[str], capacity: int) -> list[str]:
    """Returns names in the order in which a Java HashMap iterates over them.

    Args:
        names: in the order of insertion.
        capacity: initial capacity of the map; it doubles when it is three quarters full.
    """
    while len(names) > capacity * 3 // 4:
        capacity *= 2

    def bucket(name: str) -> int:
        code = java.string_hash(name) & 0xFFFFFFFF
        return (code ^ code >> 16) & (capacity - 1)

    return sorted(names, key=bucket)


def inner_count(values: dict[str, str]) -> int:
    """Returns the number of messages in an inner batch.

    Raises:
        FormatError: INNER_NUM is missing or not a short.
    """
    text = values.get(properties.INNER_NUM)
    if text is None:
        raise FormatError(f"{properties.INNER_NUM} is missing", layout="inner batch")
    return java.parse_short(text)
