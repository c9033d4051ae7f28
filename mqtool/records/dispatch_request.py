"""DispatchRequest: what dispatch does with one record. The scalar form of the rule; read it first.

`records.dispatch` is its form for columns of records; `tests/property/test_dispatch.py` compares the two.
Source: DispatchRequest, CommitLog.checkMessageAndReturnSize, IndexService.buildIndex (4.9.7, 5.5.0).
"""

from typing import NamedTuple

from mqtool.formats import commit_log, index_file, java, properties
from mqtool.formats.commit_log import Record
from mqtool.formats.consume_queue import tags_code
from mqtool.formats.service_records import due
from mqtool.formats.topics import SCHEDULE_TOPIC
from mqtool.records import multi_dispatch
from mqtool.records.dispatched import DispatchRules
from mqtool.records.multi_dispatch import FurtherQueues


class DispatchRequest(NamedTuple):
    """One record."""

    topic: str  # and queue_id, queue_offset: its place in its queue, as stored
    queue_id: int
    queue_offset: int
    physical_offset: int  # as stored
    size: int  # total_size of the record in bytes
    tags_code: int  # Java hash of TAGS, or the deliver time of a delayed message
    store_timestamp: int  # ms since epoch
    sys_flag: int  # as stored
    properties: dict[str, str]  # decoded
    base_queue_offset: int  # and batch_size: of an inner batch; otherwise its queue offset and 1
    batch_size: int

    @property
    def is_queued(self) -> bool:
        """Whether the record gets a unit (CommitLogDispatcherBuildConsumeQueue)."""
        return commit_log.is_queued(self.sys_flag)

    @property
    def is_indexed(self) -> bool:
        """Whether the record's keys are indexed; those of rolled-back records are not (IndexService.buildIndex)."""
        return commit_log.is_indexed(self.sys_flag)

    def further_queues(self, rules: DispatchRules) -> FurtherQueues:
        """Returns the further queues that get a unit for the record."""
        names = self.properties.get(properties.INNER_MULTI_DISPATCH, "")
        offsets = self.properties.get(properties.INNER_MULTI_QUEUE_OFFSET, "")
        return multi_dispatch.further_queues(self.topic, names, offsets, rules)

    def key_hashes(self, *, with_tags: bool) -> list[int]:
        """Returns the hashes to index: of the unique key, of each word of KEYS and, in 5.5, of TAGS.

        Args:
            with_tags: whether TAGS are indexed too.
        """
        return key_hashes(self.topic, self.properties, with_tags=with_tags)


def key_hashes(topic: str, values: dict[str, str], *, with_tags: bool) -> list[int]:
    """Returns the hashes to index of a record with a topic and properties; see `DispatchRequest.key_hashes`."""
    texts = [index_file.key_text(topic, word) for word in properties.keys_of(values)]
    if properties.UNIQUE_KEY in values:
        texts.insert(0, index_file.key_text(topic, values[properties.UNIQUE_KEY]))
    if with_tags and properties.TAGS in values:
        texts.append(index_file.tag_key_text(topic, values[properties.TAGS]))
    return [index_file.key_hash(text) for text in texts]


def request_of(record: Record, rules: DispatchRules) -> DispatchRequest:
    """Returns the request of a record.

    Raises:
        FormatError: a property that must be a number is not; the broker treats such a record as damaged.
    """
    topic = java.decode_utf8(record.topic)
    values = properties.decode(record.properties)
    base, count = record.queue_offset, 1
    if properties.INNER_NUM in values and properties.INNER_BASE in values:
        base, count = java.parse_long(values[properties.INNER_BASE]), java.parse_short(values[properties.INNER_NUM])
    return DispatchRequest(
        topic,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.total_size,
        tags_code_of(topic, values, record.store_timestamp, rules),
        record.store_timestamp,
        record.sys_flag,
        values,
        base,
        count,
    )


def tags_code_of(topic: str, values: dict[str, str], store_timestamp: int, rules: DispatchRules) -> int:
    """Returns the tags code of a record; raises FormatError if its delay level must be a number and is not."""
    level_text = values.get(properties.DELAY_LEVEL) if topic == SCHEDULE_TOPIC else None
    time = due(store_timestamp, java.parse_int(level_text), rules.delay_levels) if level_text is not None else None
    return tags_code(values.get(properties.TAGS)) if time is None else time
