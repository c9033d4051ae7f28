"""The topics of a store: from its queues, its configuration, or only from records of its log."""

from collections.abc import Iterable

from mqtool.store.globs import Globs
from mqtool.store.message import Message
from mqtool.store.store import Store


def unmatched(store: Store, globs: Iterable[str]) -> list[str]:
    """Returns the globs that match no topic of the store.

    The log is read only for globs that match neither a queue nor the configuration.

    Raises:
        StoreError: something cannot be read.
    """
    metadata = store.metadata
    known = {queue.topic for queue in store.disk_queues()} | metadata.topics.keys()
    known.update(topic for topics in metadata.consumer_offsets.values() for topic in topics)
    missing = [glob for glob in globs if not any(map(Globs([glob]).matches, known))]
    return [glob for glob in missing if not _is_in_log(store, glob)]


def _is_in_log(store: Store, glob: str) -> bool:
    return any(isinstance(item, Message) for item in store.messages(topics=glob, limit=1, check_crc=False))
