"""The topics of a store: those that globs select, and those that can be left out of a copy of the log."""

from collections.abc import Iterable, Sequence

from mqtool.errors import UsageError
from mqtool.formats.topics import holds_service_records
from mqtool.store.log.message import Message
from mqtool.store.log.selection import Globs
from mqtool.store.store import Store


def unmatched(store: Store, globs: Iterable[str]) -> list[str]:
    """Returns the globs that match no topic of the store; raises StoreError.

    The log is read only for globs that match neither a queue nor the configuration.
    """
    known = named_topics(store)
    missing = [glob for glob in globs if not any(map(Globs([glob]).matches, known))]
    return [glob for glob in missing if not _is_in_log(store, glob)]


def named_topics(store: Store) -> set[str]:
    """Returns the topics that queues, configuration or consumer offsets name."""
    metadata = store.metadata
    known = {queue.topic for queue in store.disk_queues()} | metadata.topics.keys()
    known.update(topic for topics in metadata.consumer_offsets.values() for topic in topics)
    return known


def _is_in_log(store: Store, glob: str) -> bool:
    return any(isinstance(item, Message) for item in store.messages(topics=glob, limit=1, check_crc=False))


def purgeable_topics(stores: Sequence[Store], globs: Sequence[str]) -> tuple[str, ...]:
    """Returns the topics selected by globs; a glob skips topics in which the broker keeps its own records.

    The stores are copies of one log; a topic in any of them counts. Raises UsageError if a glob selects no topic, or a
    name is that of a topic with the broker's own records.
    """
    known = {name for store in stores for name in (*store.metadata.topics, *(q.topic for q in store.disk_queues()))}
    chosen: set[str] = set()
    for glob in globs:
        match = Globs([glob])
        names = {name for name in known if match.matches(name)}
        if not names:
            raise UsageError(f"{stores[0].path}: there is no topic {glob!r}; `mqtool info` lists topics")
        if names == {glob} and holds_service_records(glob):
            raise UsageError(f"{glob} cannot be left out: the broker keeps messages of other topics in it")
        chosen |= {name for name in names if not holds_service_records(name)}
    return tuple(sorted(chosen))
