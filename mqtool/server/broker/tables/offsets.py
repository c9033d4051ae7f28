"""Consumer offsets: what groups have committed, by topic and queue. Source: ConsumerOffsetManager (5.5.0)."""

from dataclasses import replace

from mqtool.formats import config_files, file_names
from mqtool.formats.config_files import TOPIC_GROUP_SEPARATOR, ConsumerOffsets, split_topic_group
from mqtool.formats.topics import is_lmq
from mqtool.server.broker.tables.config_persister import ConfigPersister
from mqtool.server.broker.tables.config_table import next_version


def key_of(topic: str, group: str) -> str:
    """Returns the key of the table."""
    return f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"


def _is_light(key: str) -> bool:
    return is_lmq(split_topic_group(key)[1])


class OffsetTable:
    """Offsets of all groups. `persist`, called at intervals, has the file written."""

    def __init__(self, persister: ConfigPersister, *, lmq: bool = False) -> None:
        """Loads the file.

        Args:
            persister: of the configuration files.
            lmq: enableLmq: the file is lmqConsumerOffset.json, with a table of its own for LMQ groups
                (LmqConsumerOffsetManager).

        Raises:
            ConfigFileError: it cannot be parsed.
        """
        self._name = file_names.LMQ_CONSUMER_OFFSETS if lmq else file_names.CONSUMER_OFFSETS
        self._lmq = lmq
        loaded = persister.configs.load(self._name, config_files.parse_consumer_offsets)
        self._loaded = loaded or ConsumerOffsets({}, pull_offset_table={})
        self._table = {key: dict(offsets) for key, offsets in self._loaded.offset_table.items()}
        if lmq:
            self._table |= {key: {0: offset} for key, offset in (self._loaded.lmq_offset_table or {}).items()}
        self._pulled: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._version = self._loaded.data_version
        self._changed = False
        self._persister = persister
        persister.register(self._name, self._build)

    def _build(self) -> bytes:
        table = {key: dict(sorted(offsets.items())) for key, offsets in self._table.items()}
        light = None
        if self._lmq:
            light = {key: table.pop(key)[0] for key in list(table) if _is_light(key) and 0 in table[key]}
        offsets = replace(self._loaded, offset_table=table, lmq_offset_table=light, data_version=self._version)
        return config_files.build_consumer_offsets(offsets, self._persister.configs.style)

    def encoded(self) -> bytes:
        """Returns the file's bytes as they would be written now."""
        return self._build()

    def persist(self) -> None:
        """Has the file written, if anything changed since the last time."""
        if self._changed:
            self._changed = False
            self._version = next_version(self._version)
            self._persister.mark(self._name)

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Returns a committed offset, None without one; a pending reset counts as committed."""
        key, queue_id = key_of(topic, group), self._place(group, queue_id)
        reset = self._resets.get(key)
        if reset is not None and queue_id in reset:
            return reset[queue_id]
        found = self._table.get(key)
        return None if found is None else found.get(queue_id)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Sets an offset, also backwards."""
        key, queue_id = key_of(topic, group), self._place(group, queue_id)
        offsets = self._table.get(key)
        if offsets is None:
            offsets = self._table[key] = {}
        offsets[queue_id] = offset
        self._changed = True

    def _place(self, group: str, queue_id: int) -> int:
        """Returns the queue id that an offset is kept under: 0 for an LMQ group, whatever the request names."""
        return 0 if self._lmq and is_lmq(group) else queue_id

    def of(self, group: str, topic: str) -> dict[int, int]:
        """Returns a group's offsets in a topic, by queue."""
        return dict(self._table.get(key_of(topic, group), {}))

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Notes how far a consumer has pulled."""
        self._pulled.setdefault(key_of(topic, group), {})[queue_id] = offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """Returns how far a consumer has pulled, -1 if it has not."""
        return self._pulled.get(key_of(topic, group), {}).get(queue_id, -1)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Sets an offset, and sends the next pull of the queue there (ConsumerOffsetManager.assignResetOffset)."""
        self.commit(group, topic, queue_id, offset)
        self._resets.setdefault(key_of(topic, group), {})[queue_id] = offset

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether the next pull of a queue will be sent to another offset."""
        return queue_id in self._resets.get(key_of(topic, group), ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Removes and returns the offset of a reset; None if nothing was reset."""
        key = key_of(topic, group)
        resets = self._resets.get(key)
        if resets is None:
            return None
        offset = resets.pop(queue_id, None)
        if not resets:
            del self._resets[key]
        return offset

    def groups_of(self, topic: str) -> set[str]:
        """Returns the groups that have offsets in a topic."""
        return {group for name, group in map(split_topic_group, self._table) if name == topic}

    def topics_of(self, group: str) -> set[str]:
        """Returns the topics that a group has offsets in."""
        return {name for name, owner in map(split_topic_group, self._table) if owner == group}

    def pairs(self) -> list[tuple[str, str]]:
        """Returns topic and group of everything that was committed."""
        return list(map(split_topic_group, self._table))

    def clone(self, source: str, target: str, topic: str) -> None:
        """Gives a group the offsets of another one in a topic."""
        found = self._table.get(key_of(topic, source))
        if found is not None:
            self._table[key_of(topic, target)] = dict(found)
            self._changed = True

    def forget_group(self, group: str) -> None:
        """Removes everything that a group has committed."""
        self._forget({key for key in self._table if split_topic_group(key)[1] == group})

    def forget_topic(self, topic: str) -> None:
        """Removes everything that was committed in a topic."""
        self._forget({key for key in self._table if split_topic_group(key)[0] == topic})

    def _forget(self, keys: set[str]) -> None:
        for key in keys:
            for table in (self._table, self._pulled, self._resets):
                table.pop(key, None)
            self._changed = True
