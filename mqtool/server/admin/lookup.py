"""Look-up of messages by id, key, queue offset or physical offset."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mqtool.errors import FormatError
from mqtool.formats import java, message_id
from mqtool.formats import properties as property_format
from mqtool.server.admin.reads import Messages
from mqtool.server.admin.snapshot import Snapshot
from mqtool.server.broker.stored import Stored, stored

MOST_HITS = 32
"""Maximum number of messages of one key."""
_LAST_QUEUE = (1 << 31) - 1
_SEARCH_S = 2.0
"""Time for a unique key in all topics."""


@dataclass(slots=True)
class Looked:
    """The result of a look-up.

    Attributes:
        hits: messages, by physical offset.
        problem: what is wrong with the question, "" if nothing is.
        notes: other remarks.
    """

    hits: list[Stored] = field(default_factory=list)
    problem: str = ""
    notes: list[str] = field(default_factory=list)


class _QuestionError(Exception):
    """A look-up with invalid fields."""


def look_up(fields: Mapping[str, str], snapshot: Snapshot, messages: Messages) -> Looked | None:
    """Returns the messages that the fields of a form ask for, None if they ask for nothing.

    Args:
        fields: `id`, and `topic` if it is known; or `physical`; or `topic` and `key`; or `topic`, `queue` and `offset`.
        snapshot: for the names of topics.
        messages: where to look.
    """
    looked = Looked()
    try:
        if fields.get("id"):
            _by_id(fields["id"], fields.get("topic", ""), snapshot, messages, looked)
        elif fields.get("physical"):
            looked.hits = _at(messages, _number(fields["physical"], "physical offset", java.LONG_MAX))
        elif fields.get("key"):
            looked.hits = _by_key(messages, _topic(fields, snapshot), fields["key"])
        elif fields.get("offset"):
            _by_place(fields, snapshot, messages, looked)
        else:
            return None
    except _QuestionError as error:
        looked.problem = str(error)
    return looked


def _number(text: str, name: str, most: int) -> int:
    """Returns a number; raises _QuestionError if the text is not one, or it is out of range."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
        raise _QuestionError(f"expected a {name} of 0 to {most}, found {text[:40]}")
    return int(text)


def _topic(fields: Mapping[str, str], snapshot: Snapshot) -> str:
    topic = fields.get("topic", "")
    if not topic:
        raise _QuestionError("expected the name of a topic, too")
    if topic not in snapshot.topics:
        raise _QuestionError(f"there is no topic {topic}")
    return topic


def _by_id(text: str, topic: str, snapshot: Snapshot, messages: Messages, looked: Looked) -> None:
    """Looks an id up: of 32 or 56 digits it may be an offset message id, or a unique key made by the client."""
    try:
        place = message_id.parse_offset_id(text)
        found = _at(messages, place.physical_offset)
    except FormatError:
        found = []
    looked.hits = [one for one in found if _offset_id(one) == text.upper()]
    if looked.hits:
        return
    if topic:
        looked.hits = _by_key(messages, _topic({"topic": topic}, snapshot), text, unique=True)
        return
    until = time.monotonic() + _SEARCH_S
    others = sorted(snapshot.topics.keys() - snapshot.own_topics)
    for number, name in enumerate(others):
        looked.hits = _by_key(messages, name, text, unique=True)
        if looked.hits:
            return
        if time.monotonic() > until:
            looked.notes.append(f"Looked in {number + 1} of {len(others)} topics; name the topic to look in that one.")
            return


def _by_place(fields: Mapping[str, str], snapshot: Snapshot, messages: Messages, looked: Looked) -> None:
    topic = _topic(fields, snapshot)
    queue = _number(fields.get("queue") or "0", "queue id", _LAST_QUEUE)
    offset = _number(fields["offset"], "queue offset", java.LONG_MAX)
    found = messages.get_message(topic, queue, offset, 1)
    looked.hits = _read(found.records[:1])
    if looked.hits and found.queue_offsets[0] > offset:
        looked.notes.append(f"The message at {offset} is damaged or gone; this is the next one.")
    elif not looked.hits:
        low, high = found.min_offset, found.max_offset
        held = f"{low} to {high - 1}" if high > low else "no message"
        looked.notes.append(f"Queue {queue} of the topic has {held}.")


def _by_key(messages: Messages, topic: str, key: str, *, unique: bool = False) -> list[Stored]:
    """Returns messages with a key; the index knows hashes only, so the keys are compared here."""
    found = _read(messages.query_message(topic, key, MOST_HITS).records)
    return [one for one in found if one.unique_key == key or (not unique and key in keys_of(one))]


def _at(messages: Messages, physical_offset: int) -> list[Stored]:
    """Returns the message whose record starts at a physical offset, if there is one."""
    if not max(0, messages.min_physical_offset) <= physical_offset < messages.max_physical_offset:
        return []
    data = messages.message_at(physical_offset)
    found = _read([data] if data is not None else [])
    return [one for one in found if one.record.physical_offset == physical_offset]


def _read(records: Iterable[memoryview]) -> list[Stored]:
    return list(_readable(records))


def _readable(records: Iterable[memoryview]) -> Iterator[Stored]:
    for data in records:
        try:
            yield stored(bytes(data))
        except FormatError:
            continue


def keys_of(message: Stored) -> tuple[str, ...]:
    """Returns the words of KEYS."""
    return property_format.keys_of(message.properties)


def _offset_id(message: Stored) -> str:
    return message_id.format_offset_id(message.record.store_host, message.record.physical_offset)
