"""The topics that a store knows of: by its queues, by its configuration, or only by records of its log."""

from collections.abc import Iterable

from mqtool.store.globs import Globs
from mqtool.store.message import Message
from mqtool.store.store import Store


def unmatched(store: Store, globs: Iterable[str]) -> list[str]:
    """Returns those of some globs that no topic of the store matches.

    The log is read only for those that neither a queue nor the configuration matches.

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
