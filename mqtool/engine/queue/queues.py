"""Queues: every ConsumeQueue and BatchConsumeQueue of a store, by topic and queue id.

Source: ConsumeQueueStore (4.9.7, 5.5.0).
"""

import logging
from pathlib import Path

from mqtool.engine.disk.files import Files
from mqtool.engine.options import StoreOptions
from mqtool.engine.queue.batch_queue import BatchQueue
from mqtool.engine.queue.consume_queue import ConsumeQueue
from mqtool.engine.queue.consume_queue_ext import ConsumeQueueExt
from mqtool.formats import file_names

_LOG = logging.getLogger(__name__)

AnyQueue = ConsumeQueue | BatchQueue

_LISTED = 1000
"""Maximum number of topics remembered so that each is logged once."""


class Queues:
    """All queues of a store. Only the dispatcher adds queues and writes.

    Attributes:
        by_key: (topic, queue id) to queue.
        unwritable: topics of records that are not usable as directory names. Their queues are never created: the
            broker would create such a directory outside the store (`../../x`), or stop dispatching (a NUL in the
            name).
    """

    def __init__(self, options: StoreOptions, files: Files, root: Path, batch_topics: frozenset[str]) -> None:
        self.by_key: dict[tuple[str, int], AnyQueue] = {}
        self.unwritable: set[str] = set()
        self._options = options
        self._files = files
        self._root = root
        self._batch_topics = batch_topics

    def add_batch_topic(self, topic: str) -> None:
        """Makes the queues of a topic BatchConsumeQueues; the topic must have no queues yet."""
        self._batch_topics |= {topic}

    def add_recovered(self, topic: str, queue_id: int, *, is_batch: bool) -> AnyQueue | None:
        """Adds a queue that recovery found and returns it; None if its topic cannot be a directory name.

        The queue is still empty; recovery fills it.
        """
        if not self._is_writable(topic):
            return None
        queue = self.by_key[topic, queue_id] = self._make(topic, queue_id, is_batch=is_batch)
        return queue

    def get(self, topic: str, queue_id: int) -> AnyQueue | None:
        """Returns a queue, None if there is none; for a topic of batches an empty one, as a broker creates it."""
        queue = self.by_key.get((topic, queue_id))
        if queue is None and topic in self._batch_topics:
            return self._make(topic, queue_id, is_batch=True)
        return queue

    def find_or_create(self, topic: str, queue_id: int) -> AnyQueue | None:
        """Returns a queue; a new one has no file until its first unit. None if its topic cannot be a directory name."""
        queue = self.by_key.get((topic, queue_id))
        if queue is None:
            if not self._is_writable(topic):
                return None
            queue = self._make(topic, queue_id, is_batch=topic in self._batch_topics)
            if queue.ext is not None:
                queue.ext.clear()
            self.by_key[topic, queue_id] = queue
        return queue

    def _is_writable(self, topic: str) -> bool:
        if file_names.is_directory_name(topic):
            return True
        if topic not in self.unwritable and len(self.unwritable) < _LISTED:
            _LOG.warning("no queue for topic=%.200r: it cannot be the name of a directory", topic)
            self.unwritable.add(topic)
        return False

    def _make(self, topic: str, queue_id: int, *, is_batch: bool) -> AnyQueue:
        options, place = self._options, f"{topic}/{queue_id}"
        if is_batch:
            directory = self._root / file_names.BATCH_CONSUME_QUEUE / place
            return BatchQueue(topic, queue_id, self._files, directory, options.batch_consume_queue_file_size)
        directory = self._root / file_names.CONSUME_QUEUE / place
        queue = ConsumeQueue(topic, queue_id, self._files, directory, options.consume_queue_file_size)
        if options.consume_queue_ext:
            ext = self._root / file_names.CONSUME_QUEUE_EXT / place
            queue.ext = ConsumeQueueExt(self._files, ext, options.consume_queue_ext_file_size)
        return queue

    def all(self) -> tuple[AnyQueue, ...]:
        """Returns all queues that exist now."""
        return tuple(self.by_key.values())

    def flush(self, least_pages: int = 0) -> int:
        """Flushes every queue as `ConsumeQueue.flush`; returns how many had something to write.

        Raises:
            OSError: some units may be lost.
        """
        return sum(queue.flush(least_pages) for queue in self.all())

    def delete(self, queue: AnyQueue) -> None:
        """Removes a queue with its files and empty directories.

        Whoever still uses the queue finds it without files, so a new queue of this name is safe from it.
        """
        del self.by_key[queue.topic, queue.queue_id]
        for part in (queue, queue.ext):
            if part is not None:
                part.files.delete_all()
                self._files.remove_directory(part.directory)
                self._files.remove_directory(part.directory.parent)

    def close(self) -> None:
        """Closes every file; nothing is flushed."""
        for queue in self.all():
            queue.close()
