"""Popped messages: which ones a group has taken and not acknowledged, and until when they stay invisible.

A group's offset of a queue stays at the oldest message that is not acknowledged: after a crash, and for another broker
on the same files, everything behind it comes again, and nothing is lost. Source: PopMessageProcessor,
PopReviveService (5.5.0), which keep checkpoints in a topic instead.
"""

from dataclasses import dataclass, field
from typing import NamedTuple


class QueueKey(NamedTuple):
    """A queue as one group sees it."""

    group: str
    topic: str
    queue_id: int


@dataclass(slots=True)
class PoppedQueue:
    """What one group has popped of one queue.

    Attributes:
        next_offset: of the next message that was not popped yet.
        invisible: deadline of each message that is out, by queue offset; ms since epoch.
    """

    next_offset: int
    invisible: dict[int, int] = field(default_factory=dict)

    @property
    def committed(self) -> int:
        """The offset up to which everything is acknowledged."""
        return min(self.invisible, default=self.next_offset)

    def take(self, offsets: list[int], following: int, deadline: int) -> None:
        """Notes that messages went out."""
        for offset in offsets:
            self.invisible[offset] = deadline
        self.next_offset = max(self.next_offset, following)

    def acknowledge(self, offset: int) -> bool:
        """Notes that a message is consumed; returns whether it was out."""
        return self.invisible.pop(offset, None) is not None

    def prolong(self, offset: int, deadline: int) -> bool:
        """Changes how long a message stays invisible; returns whether it was out."""
        if offset not in self.invisible:
            return False
        self.invisible[offset] = deadline
        return True

    def due(self, now: int) -> list[int]:
        """Returns the messages whose time is over, oldest first."""
        return sorted(offset for offset, deadline in self.invisible.items() if deadline <= now)
