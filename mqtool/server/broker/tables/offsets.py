"""Consumer offsets by topic, group and queue. Source: ConsumerOffsetManager (5.5.0)."""

from msgspec.structs import replace

from mqtool.formats import config_files, file_names
from mqtool.formats.config_files import TOPIC_GROUP_SEPARATOR, ConsumerOffsets, split_topic_group
from mqtool.formats.topics import is_lmq
from mqtool.server.broker.tables.config_persister import ConfigPersister, next_version


def key_of(topic: str, group: str) -> str:
    """Returns the table's key for a topic and a group: "topic@group"."""
    return f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"


def _is_light(key: str) -> bool:
    return is_lmq(split_topic_group(key)[1])


class OffsetTable:
    """Consumer offsets of all groups. `persist`, called at intervals, schedules writing the file."""

    def __init__(self, persister: ConfigPersister, name: str = file_names.CONSUMER_OFFSETS) -> None:
        """Loads the file.

        Args:
            persister: persister of the configuration files.
            name: of the file, as `offset_file` decides; lmqConsumerOffset.json has a separate table for LMQ
                groups (LmqConsumerOffsetManager).

        Raises:
            ConfigFileError: the file cannot be parsed.
        """
        self._name = name
        self._lmq = name == file_names.LMQ_CONSUMER_OFFSETS
        loaded = persister.configs.load(self._name, config_files.parse_consumer_offsets)
        self._loaded = loaded or ConsumerOffsets({}, pull_offset_table={})
        self._table = {key: dict(offsets) for key, offsets in self._loaded.offset_table.items()}
        if self._lmq:
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
        """Returns the current content of the file."""
        return self._build()

    def persist(self) -> None:
        """Schedules writing the file if an offset has changed."""
        if self._changed:
            self._changed = False
            release = self._persister.configs.release
            if release >= (5, 5):  # the file has no data version before
                self._version = next_version(self._version, release)
            self._persister.mark(self._name)

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Returns a consumer offset; None if there is none. A pending reset counts as committed."""
        key, queue_id = key_of(topic, group), self._place(group, queue_id)
        reset = self._resets.get(key)
        if reset is not None and queue_id in reset:
            return reset[queue_id]
        offsets = self._table.get(key)
        return None if offsets is None else offsets.get(queue_id)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Sets a consumer offset, forward or backward."""
        key, queue_id = key_of(topic, group), self._place(group, queue_id)
        offsets = self._table.get(key)
        if offsets is None:
            offsets = self._table[key] = {}
        offsets[queue_id] = offset
        self._changed = True

    def forget(self, group: str, topic: str, queue_id: int) -> None:
        """Removes the consumer offset in one queue."""
        key = key_of(topic, group)
        offsets = self._table.get(key, {})
        if offsets.pop(self._place(group, queue_id), None) is not None:
            self._changed = True
        if not offsets:
            self._table.pop(key, None)

    def _place(self, group: str, queue_id: int) -> int:
        """Returns the queue id under which an offset is stored: always 0 for an LMQ group."""
        return 0 if self._lmq and is_lmq(group) else queue_id

    def of(self, group: str, topic: str) -> dict[int, int]:
        """Returns a group's consumer offsets in a topic, by queue id."""
        return dict(self._table.get(key_of(topic, group), {}))

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Records the queue offset up to which a consumer has pulled."""
        self._pulled.setdefault(key_of(topic, group), {})[queue_id] = offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """Returns the queue offset up to which a consumer has pulled; -1 if it has not pulled."""
        return self._pulled.get(key_of(topic, group), {}).get(queue_id, -1)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Sets a consumer offset at which the next pull continues (ConsumerOffsetManager.assignResetOffset)."""
        self.commit(group, topic, queue_id, offset)
        self._resets.setdefault(key_of(topic, group), {})[queue_id] = offset

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset is pending, which moves the next pull of a queue to another offset."""
        return queue_id in self._resets.get(key_of(topic, group), ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Removes a pending reset and returns its offset; None if there is none."""
        key = key_of(topic, group)
        resets = self._resets.get(key)
        if resets is None:
            return None
        offset = resets.pop(queue_id, None)
        if not resets:
            del self._resets[key]
        return offset

    def groups_of(self, topic: str) -> set[str]:
        """Returns the groups that have consumer offsets in a topic."""
        return {group for name, group in map(split_topic_group, self._table) if name == topic}

    def topics_of(self, group: str) -> set[str]:
        """Returns the topics in which a group has consumer offsets."""
        return {name for name, owner in map(split_topic_group, self._table) if owner == group}

    def pairs(self) -> list[tuple[str, str]]:
        """Returns all (topic, group) pairs with consumer offsets."""
        return list(map(split_topic_group, self._table))

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copies the consumer offsets of a group in a topic to another group."""
        offsets = self._table.get(key_of(topic, source))
        if offsets is not None:
            self._table[key_of(topic, target)] = dict(offsets)
            self._changed = True

    def forget_group(self, group: str) -> None:
        """Removes all consumer offsets of a group."""
        self._forget({key for key in self._table if split_topic_group(key)[1] == group})

    def forget_topic(self, topic: str) -> None:
        """Removes all consumer offsets in a topic."""
        self._forget({key for key in self._table if split_topic_group(key)[0] == topic})

    def _forget(self, keys: set[str]) -> None:
        for key in keys:
            for table in (self._table, self._pulled, self._resets):
                table.pop(key, None)
            self._changed = True
