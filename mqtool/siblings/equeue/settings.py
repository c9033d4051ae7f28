"""Broker settings that determine the files. The store itself does not record them."""

from collections import Counter
from pathlib import Path

from msgspec import Struct

from mqtool.errors import UnreadableError
from mqtool.formats import equeue
from mqtool.siblings.equeue.listing import Listing, list_store
from mqtool.store.files import ReadFile


class EQueueSettings(Struct, frozen=True):
    """Values of BrokerSetting (EQueue 2.6.3).

    Attributes:
        message_chunk_size: data bytes of a message chunk.
        queue_chunk_entries: number of entries of a queue chunk.
        max_record_size: maximum size of a message record in bytes.
        broker_name: name of the broker, which is part of message ids.
    """

    message_chunk_size: int = 1 << 30
    queue_chunk_entries: int = 1_000_000
    max_record_size: int = equeue.MAX_RECORD_SIZE
    broker_name: str = "DefaultBroker"

    @property
    def queue_chunk_size(self) -> int:
        """Data bytes of a queue chunk."""
        return self.queue_chunk_entries * equeue.ENTRY_SIZE


def settings_of(root: Path, listing: Listing | None = None) -> EQueueSettings:
    """Returns the settings that most of a store's chunk headers imply; default values if there are no chunks."""
    listed = listing or list_store(root)
    message = _capacity(listed.messages)
    queue = _capacity(tuple(path for queue in listed.queues for path in queue.chunks))
    defaults = EQueueSettings()
    return EQueueSettings(
        message or defaults.message_chunk_size,
        (queue or defaults.queue_chunk_size) // equeue.ENTRY_SIZE or 1,
    )


def _capacity(paths: tuple[Path, ...]) -> int:
    sizes: Counter[int] = Counter()
    for path in paths:
        try:
            with ReadFile(path) as file:
                head = file.read(0, equeue.HEADER_SIZE)
        except UnreadableError:  # the others tell
            continue
        if len(head) == equeue.HEADER_SIZE and (header := equeue.HEADER.parse(head)).is_valid:
            sizes[header.capacity] += 1
    return sizes.most_common(1)[0][0] if sizes else 0
