"""Dispatch and index as the broker does them, record by record: the model that the columnar code is held to."""

import struct
from dataclasses import dataclass, field

from mqtool.errors import FormatError
from mqtool.formats import commit_log, java, properties
from mqtool.formats.commit_log import Record

MINUTES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)
LEVELS_MS = (1000, 5000, 10000, 30000, *(60000 * minutes for minutes in MINUTES))


def record(topic="T", queue_id=0, queue_offset=0, *, at=0, props=b"", body=b"", sys_flag=0, stored=1_700_000_000_000):
    """A record whose lengths and own physical offset are right; `props` as stored, or a dict."""
    if isinstance(props, dict):
        props = properties.encode(props.items())
    name = topic if isinstance(topic, bytes) else topic.encode()
    magic = commit_log.MAGIC_V2 if len(name) > 127 else commit_log.MAGIC_V1
    hosts = [bytes(20 if sys_flag & bit else 8) for bit in (0x10, 0x20)]
    total = 91 + len(name) + len(props) + len(body) + sum(map(len, hosts)) - 16 + (magic == commit_log.MAGIC_V2)
    return Record(
        total,
        magic,
        commit_log.body_crc(body),
        queue_id,
        0,
        queue_offset,
        at,
        sys_flag,
        stored - 5,
        hosts[0],
        stored,
        hosts[1],
        0,
        0,
        len(body),
        body,
        len(name),
        name,
        len(props),
        props,
    )


def laid_out(records, base=0):
    """The bytes of records one after the other, each told where it stands; and the records so changed."""
    data, placed = bytearray(), []
    for one in records:
        fields = {name: getattr(one, name) for name in Record.__struct_fields__} | {"physical_offset": base + len(data)}
        placed.append(Record(**fields))
        data += commit_log.build_record(placed[-1])
    return bytes(data), placed


@dataclass
class Rules:
    """As `DispatchRules`, said once more."""

    index_tags: bool = True
    lmq_everywhere: bool = False
    batch_topics: frozenset = field(default_factory=frozenset)


def tags_code(one, topic, found):
    tags = found.get("TAGS")
    code = java.string_hash(tags) if tags else 0
    if topic == "SCHEDULE_TOPIC_XXXX" and "DELAY" in found:
        try:
            level = min(java.parse_int(found["DELAY"]), len(LEVELS_MS))
        except FormatError:
            return code
        if level > 0:
            return one.store_timestamp + LEVELS_MS[level - 1]
    return code


def units_of(one, rules):
    """(topic, queue id, queue offset, physical offset, size, tags code, batch size) of each unit of a record."""
    if one.sys_flag & 0xC not in (0, 8):
        return []
    topic, found = java.decode_utf8(one.topic), properties.decode(one.properties)
    code, offset, count = tags_code(one, topic, found), one.queue_offset, 1
    if topic in rules.batch_topics and "INNER_NUM" in found and "INNER_BASE" in found:
        offset, count = int(found["INNER_BASE"]), int(found["INNER_NUM"])
    rest = (one.physical_offset, one.total_size, code)
    units = [(topic, one.queue_id, offset, *rest, count)]
    left_out = topic == "SCHEDULE_TOPIC_XXXX" or topic.startswith(("%RETRY%", "rmq_sys_"))
    if topic in rules.batch_topics or (left_out and not rules.lmq_everywhere):
        return units
    names = java.split_drop_trailing(found.get("INNER_MULTI_DISPATCH", ""), ",")
    offsets = java.split_drop_trailing(found.get("INNER_MULTI_QUEUE_OFFSET", ""), ",")
    if names != [""] and len(names) == len(offsets):
        for name, place in zip(names, offsets, strict=True):
            if not place.isdigit():
                break
            units.append((name, 0 if name.startswith("%LMQ%") else one.queue_id, int(place), *rest, 1))
    return units


def keys_of(one, rules):
    """(key hash, physical offset, store time) of each index key of a record."""
    if one.sys_flag & 0xC == 0xC:
        return []
    topic, found = java.decode_utf8(one.topic), properties.decode(one.properties)
    texts = [f"{topic}#{found['UNIQ_KEY']}"] if "UNIQ_KEY" in found else []
    texts += [f"{topic}#{word}" for word in found.get("KEYS", "").split(" ") if word]
    texts += [f"{topic}#T#{found['TAGS']}"] if rules.index_tags and "TAGS" in found else []
    return [(java.index_hash(text), one.physical_offset, one.store_timestamp) for text in texts]


class IndexModel:
    """IndexService and IndexFile over plain lists; `files` are the bytes of each."""

    def __init__(self, slots, capacity):
        self.slots, self.capacity = slots, capacity
        self.files = []
        self.last_end = (0, 0)

    def _new(self):
        end_time, end_offset = self.last_end
        self.head = [max(0, end_time), max(0, end_time), max(0, end_offset), max(0, end_offset), 0, 1]
        self.bytes = bytearray(40 + 4 * self.slots + 20 * self.capacity)
        self.files.append(self.bytes)

    def _save(self):
        struct.pack_into(">qqqqii", self.bytes, 0, *self.head)
        self.last_end = (self.head[1], self.head[3])

    def record(self, keys, offset):
        """One record with its keys, in order."""
        if not self.files or self.head[5] >= self.capacity:
            self._new()
            self._save()
        if offset < self.head[3]:
            return
        for key in keys:
            if self.head[5] >= self.capacity:
                self._new()
            self._put(*key)
            self._save()

    def _put(self, key_hash, offset, time):
        head = self.head
        slot = 40 + 4 * (key_hash % self.slots)
        (previous,) = struct.unpack_from(">i", self.bytes, slot)
        difference = abs(time - head[0]) // 1000 * (1 if time >= head[0] else -1)
        difference = 0 if head[0] <= 0 else min(max(difference, 0), (1 << 31) - 1)
        entry = struct.pack(">iqii", key_hash, offset, difference, previous)
        place = 40 + 4 * self.slots + 20 * head[5]
        self.bytes[place : place + 20] = entry
        struct.pack_into(">i", self.bytes, slot, head[5])
        if head[5] <= 1:
            head[0], head[2] = time, offset
        head[4] += previous == 0
        head[1], head[3] = time, offset
        head[5] += 1
