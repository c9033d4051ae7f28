"""Reports unexpired messages that retention deleted because the disk was full, and the groups that lost them.

With its defaults the real broker makes room on a full disk by deleting the oldest files, expired or not
(diskSpaceCleanForciblyRatio). This broker does the same, and reports it. Source: CleanCommitLogService (5.5.0).
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable

from mqtool.engine.retention.rules import EarlyDeletion
from mqtool.server.broker.tables.offsets import OffsetTable

_LOG = logging.getLogger(__name__)

RECENT_S = 3600
_NAMED = 10


class EarlyDeletions:
    """Early deletions of one broker since its start. Must be used in the event loop's thread.

    Attributes:
        files, messages: numbers of files and messages that were deleted before they expired.
        unread: number of these messages that a group had not consumed, by topic and group.
    """

    def __init__(self, offsets: OffsetTable) -> None:
        self.files = 0
        self.messages = 0
        self.unread: Counter[tuple[str, str]] = Counter()
        self._last_at = 0.0
        self._offsets = offsets

    @property
    def is_recent(self) -> bool:
        """Whether there was an early deletion within the last hour."""
        return bool(self.files) and time.monotonic() - self._last_at < RECENT_S

    def add(self, deletions: Iterable[EarlyDeletion]) -> None:
        """Counts deletions, and logs how many messages each group loses."""
        lost: Counter[tuple[str, str]] = Counter()
        for deletion in deletions:
            self.files += len(deletion.paths)
            self.messages += deletion.messages
            self._last_at = time.monotonic()
            lost += self._unread_in(deletion)
        self.unread += lost
        for (topic, group), count in lost.most_common(_NAMED):
            _LOG.error("UNREAD MESSAGES WERE DELETED group=%s topic=%s messages=%d", group, topic, count)
        if len(lost) > _NAMED:
            _LOG.error("UNREAD MESSAGES WERE DELETED of %d more groups; /metrics has all", len(lost) - _NAMED)

    def _unread_in(self, deletion: EarlyDeletion) -> Counter[tuple[str, str]]:
        lost: Counter[tuple[str, str]] = Counter()
        topics = {topic for topic, _ in deletion.queues}
        for topic, group in self._offsets.pairs():
            if topic not in topics:
                continue
            committed = self._offsets.of(group, topic)
            for (name, queue_id), (first, end) in deletion.queues.items():
                if name == topic:
                    lost[topic, group] += max(0, end - max(first, committed.get(queue_id, 0)))
        return +lost
