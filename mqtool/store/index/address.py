"""Resolves addresses of messages as users have them: offsets, ids, keys, places in a queue."""

import re

from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import CorruptionError, FormatError, UsageError
from mqtool.formats import message_id
from mqtool.records.damage import Damage
from mqtool.store.index.find import crc_damage, find_messages
from mqtool.store.log.message import Message, explode
from mqtool.store.queues.get_message import GetStatus
from mqtool.store.store import Store

_NUMBER = re.compile(r"\d{1,19}", re.ASCII)
_PLACE = re.compile(r"(?P<topic>.+)/(?P<queue>\d{1,10})@(?P<offset>\d{1,19})", re.ASCII)
_LARGEST = (1 << 63) - 1
GRAMMAR = (
    "a physical offset such as 4096, a place such as TOPIC/QUEUE@OFFSET (Orders/0@3), an offset message id "
    "(32 or 56 hexadecimal digits), or a unique key"
)


class AddressMatches(Struct, frozen=True):
    """The messages at an address."""

    messages: list[Message]  # none, one, or several with the same unique key
    method: str  # how the address was interpreted, and why nothing was found
    damage: list[Damage]  # found in place of a message or in it
    is_unambiguous: bool = False  # the address has only one interpretation


def resolve(store: Store, address: str) -> AddressMatches:
    """Returns the messages at an address.

    Args:
        store: the store.
        address: a physical offset (digits), `topic/queue@offset`, an offset message id (32 or 56 hexadecimal digits)
            or a unique key (anything else). An id that may be either is tried as an offset id first; it is one if the
            record there has exactly this id.

    Raises:
        CorruptionError: the address is a physical offset without a record.
        UsageError: the address looks like an incomplete place in a queue, and no message has it as its unique key.
    """
    if _NUMBER.fullmatch(address) and int(address) <= _LARGEST:
        return replace(_checked(store.message_at(int(address)), "physical offset"), is_unambiguous=True)
    place = _PLACE.fullmatch(address)
    if place:
        return _in_queue(store, place["topic"], int(place["queue"]), int(place["offset"]))
    by_id = _by_offset_id(store, address)
    if by_id and by_id.messages[0].offset_message_id == address.upper():
        return by_id
    by_key = _by_unique_key(store, address)
    if not by_key.messages and by_id is None and re.search("[/@]", address):
        raise UsageError(f"{address!r} is not an address: expected {GRAMMAR}")
    if by_key.messages or by_id is None:
        return by_key
    stated = by_id.messages[0].offset_message_id
    how = f"offset message id of another broker address: the record there has {stated}"
    return AddressMatches(by_id.messages, how, by_id.damage)


def is_unique_key(address: str) -> bool:
    """Whether an address can only be a unique key, which is found by the index or by a scan of the log."""
    if _PLACE.fullmatch(address) or (_NUMBER.fullmatch(address) and int(address) <= _LARGEST):
        return False
    try:
        message_id.parse_offset_id(address)
    except FormatError:
        return True
    return False


def _checked(message: Message, method: str) -> AddressMatches:
    damage = crc_damage(message)
    return AddressMatches([message], method, [damage] if damage else [])


def _by_offset_id(store: Store, address: str) -> AddressMatches | None:
    try:
        parsed = message_id.parse_offset_id(address)
        return _checked(store.message_at(parsed.physical_offset), "offset message id")
    except (FormatError, CorruptionError):
        return None


def _by_unique_key(store: Store, address: str) -> AddressMatches:
    search = find_messages(store, unique_keys=[address])
    items = list(search.items)
    messages = [item for item in items if isinstance(item, Message)]
    damage = [item for item in items if isinstance(item, Damage)]
    how = f"unique key, by {' and '.join(search.methods)}"
    return AddressMatches(messages, how, damage)


def _in_queue(store: Store, topic: str, queue_id: int, queue_offset: int) -> AddressMatches:
    if store.queue(topic, queue_id) is None:
        known = f"there is no queue {queue_id} of topic {topic}"
        return AddressMatches([], store.unread_queues or known, [])
    result = store.get_message(topic, queue_id, queue_offset, 1)
    if result.damage:
        return AddressMatches([], f"queue offset; its record is damaged: {result.damage[0].detail}", result.damage)
    if result.status is not GetStatus.FOUND:
        bounds = f"the queue has {result.min_offset} to {result.max_offset}, end exclusive"
        return AddressMatches([], f"queue offset; {result.status.value}: {bounds}", [])
    messages = [part for message in result.messages for part in explode(message) if part.queue_offset == queue_offset]
    damage = [bad for message in result.messages if (bad := crc_damage(message))]
    return AddressMatches(messages or result.messages, "queue offset", damage, is_unambiguous=True)
