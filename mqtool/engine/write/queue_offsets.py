"""Next queue offsets: the offset of the next message of each queue, and of each LMQ.

Kept in memory only; rebuilt from the ConsumeQueues when a store opens. Changed under the append lock. A message names
its light queues in INNER_MULTI_DISPATCH; the store adds their next offsets as INNER_MULTI_QUEUE_OFFSET.
Source: QueueOffsetOperator, LmqDispatch, MultiDispatchUtils, MessageExtBrokerInner.needDispatchLMQ (5.5.0),
CommitLog.topicQueueTable, MultiDispatch (4.9.7).
"""

from mqtool.engine.options import PropertyOrder, StoreOptions
from mqtool.formats import commit_log, java, properties
from mqtool.formats.commit_log import MAGIC_V1, MAGIC_V2
from mqtool.formats.file_names import is_directory_name
from mqtool.formats.release import Release
from mqtool.formats.topics import is_lmq
from mqtool.records.dispatch import has_further_queues

LONGEST_V1_TOPIC = java.INT_MAX >> 24
"""127: the maximum of a topic length stored in one signed byte."""

_SEPARATOR = ","
_MARK = properties.mark(properties.INNER_MULTI_DISPATCH)


class QueueState:
    """One queue of a topic, as the writer sees it.

    Attributes:
        topic, queue_id: which queue.
        next_offset: of its next message.
        magic_code: of its records.
        topic_field: topic length and topic, as records contain them.
        fixed_size: bytes of a record with IPv4 hosts, without body and properties.
        is_plain: its messages can be plain (`messages`).
        refused: why no record of this topic can be written, "" if one can.
        is_batch: its topic's queues are BatchCQ.
    """

    __slots__ = (
        "fixed_size",
        "is_batch",
        "is_plain",
        "magic_code",
        "next_offset",
        "queue_id",
        "refused",
        "topic",
        "topic_field",
    )

    def __init__(self, topic: str, queue_id: int, *, release: Release, is_batch: bool) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.next_offset = 0
        self.is_batch = is_batch
        data = java.encode_utf8(topic)
        # The broker picks the version by UTF-16 units but stores a length in bytes: topics in between break the record.
        self.magic_code = MAGIC_V2 if java.length(topic) > LONGEST_V1_TOPIC and release >= (5, 0) else MAGIC_V1
        self.refused = _refusal(topic, queue_id, data, self.magic_code)
        length = commit_log.TOPIC_LENGTH_V2 if self.magic_code == MAGIC_V2 else commit_log.TOPIC_LENGTH_V1
        self.topic_field = b"" if self.refused else length.pack(len(data)) + data
        self.is_plain = not (self.refused or is_batch)
        self.fixed_size = commit_log.BODY_POSITIONS[0] + len(self.topic_field) + commit_log.PROPERTIES_LENGTH.size


def _refusal(topic: str, queue_id: int, data: bytes, magic_code: int) -> str:
    if len(data) > (LONGEST_V1_TOPIC if magic_code == MAGIC_V1 else 0xFF):
        return f"a topic of {len(data)} bytes"
    if not is_directory_name(topic):
        return f"a topic that is not a valid directory name: {topic[:80]!r}"
    if not 0 <= queue_id <= java.INT_MAX:
        return f"queue id {queue_id}"
    return ""


class QueueOffsets:
    """The next offsets of all queues.

    Attributes:
        states: (topic, queue id) to state.
        lmq: LMQ name to next offset.
    """

    def __init__(self, *, release: Release, batch_topics: frozenset[str]) -> None:
        self.states: dict[tuple[str, int], QueueState] = {}
        self.lmq: dict[str, int] = {}
        self.batch_topics = batch_topics
        self._release = release

    def state(self, topic: str, queue_id: int) -> QueueState:
        """Returns the state of a topic-queue; creates it if it does not exist.

        Once the append lock is released, a deletion of the topic may forget it: look it up again to append.
        """
        state = self.states.get((topic, queue_id))
        if state is None:
            new = QueueState(topic, queue_id, release=self._release, is_batch=topic in self.batch_topics)
            state = self.states.setdefault((topic, queue_id), new)
        return state

    def advance_light_queues(self, names: list[str]) -> None:
        """Counts a message in each of its light queues."""
        for name in names:
            self.lmq[name] = self.lmq.get(name, 0) + 1

    def set_next(self, topic: str, queue_id: int, next_offset: int) -> None:
        """Sets the next offset that recovery found."""
        self.state(topic, queue_id).next_offset = next_offset
        if is_lmq(topic):
            self.lmq[topic] = next_offset

    def forget_topic(self, topic: str) -> None:
        """Resets the queues of a deleted topic to offset 0."""
        for key in [key for key in tuple(self.states) if key[0] == topic]:
            del self.states[key]
        self.lmq.pop(topic, None)

    def forget_queue(self, topic: str, queue_id: int) -> None:
        """Resets a deleted queue to offset 0."""
        self.states.pop((topic, queue_id), None)
        self.lmq.pop(topic, None)


def light_queues(options: StoreOptions, topic: str, encoded: bytes) -> list[str]:
    """Returns the names of a message's light queues by its properties; [] if it is only in its own queue."""
    is_5 = options.release >= (5, 0)
    if _MARK not in encoded or not (options.lmq if is_5 else options.multi_dispatch):
        return []
    if is_5 and not has_further_queues(topic):
        return []
    named = properties.decode(encoded).get(properties.INNER_MULTI_DISPATCH, "")
    return java.split_drop_trailing(named, _SEPARATOR) if named.strip() else []


def with_light_offsets(options: StoreOptions, offsets: QueueOffsets, encoded: bytes, names: list[str]) -> bytes:
    """Returns properties with the next offset of each light queue; call it under the append lock."""
    decoded = properties.decode(encoded)
    numbers = (str(offsets.lmq.get(name, 0)) for name in names)
    decoded[properties.INNER_MULTI_QUEUE_OFFSET] = _SEPARATOR.join(numbers)
    wait = decoded.pop(properties.WAIT, None)
    if wait is not None and options.release >= (5, 0):  # removed and added again: last in a map in order of insertion
        decoded[properties.WAIT] = wait
    return encode_properties(options, decoded)


def encode_properties(options: StoreOptions, values: dict[str, str]) -> bytes:
    """Returns the properties string that the broker builds from a map."""
    names = list(values)
    if options.property_order is PropertyOrder.HASH:
        names = _hash_order(names, 128 if options.release >= (5, 1) else 16)
    return properties.encode([(name, values[name]) for name in names], trailing_separator=options.release >= (5, 0))


def _hash_order(names: list[str], capacity: int) -> list[str]:
    """Returns names, given in the order of insertion, in the order in which a Java HashMap iterates over them.

    `capacity` is the map's initial one; it doubles when it is three quarters full.
    """
    while len(names) > capacity * 3 // 4:
        capacity *= 2

    def bucket(name: str) -> int:
        code = java.string_hash(name) & 0xFFFFFFFF
        return (code ^ code >> 16) & (capacity - 1)

    return sorted(names, key=bucket)
