"""Entries without a message, which fill the gaps that lost messages leave in a rebuilt queue.

The broker skips an entry if reading its message throws ChunkReadException or ChunkNotExistException. If the broker
finds nothing, or if the record cannot be decoded, it stops at the entry: consumers would get no further message.
Source: PullMessageRequestHandler.PullMessages (EQueue 2.6.3), Chunk.TryReadForwardInternal (ECommon 2.6.5).
"""

from mqtool.formats.equeue import QueueEntry

_INSIDE = 13
"""Distance from the start of a frame at which no frame begins: a length there consists of the upper three bytes of the
message id's length and the first digit of the id, so it is larger than any record."""


def filler(message_position: int) -> QueueEntry:
    """Returns a filler that points into the frame of a message.

    It is to follow the entry of this message, so that the broker keeps the queue chunk as long as the message.
    """
    return QueueEntry(message_position + _INSIDE + 1, 0)


def first_filler(log_start: int) -> QueueEntry:
    """Returns a filler for the start of a queue: it points before the log, or into the first frame.

    Args:
        log_start: global position at which the oldest message chunk starts.
    """
    return QueueEntry(log_start, 0) if log_start > 0 else filler(0)


def filled_after(entry: QueueEntry) -> int | None:
    """Returns the position of the message into whose frame an entry points if it is a filler; None if it is not."""
    return entry.message_position - _INSIDE if entry.tag_code == 0 else None
