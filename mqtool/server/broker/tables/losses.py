"""Messages that a background service could not process, and unexpired ones that retention deleted on a full disk.

No message stops or delays a service. The service skips the message; the table counts it, logs it once with its
location, and keeps the most recent ones for the admin page. The message stays in its system topic. With its defaults
the real broker makes room on a full disk by deleting the oldest files, expired or not (diskSpaceCleanForciblyRatio).
This broker does the same, and reports the groups that lost messages. Source: CleanCommitLogService (5.5.0).
"""

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from mqtool.engine.retention.rules import EarlyDeletion
from mqtool.errors import FormatError, MessageRejectedError, MqtoolError
from mqtool.server.broker.tables.offsets import OffsetTable

_LOG = logging.getLogger(__name__)

_REMEMBERED = 10_000
"""Number of locations remembered so that each is logged only once; older ones may be logged again."""
_SHOWN = 20
_MAX_REASON = 300


class SkippedMessage(NamedTuple):
    """A message that a service skipped."""

    service: str
    topic: str
    queue_id: int
    queue_offset: int
    reason: str
    at_ms: int


class SkippedRecords:
    """The skipped messages of one broker. Must be used in the event loop's thread.

    Attributes:
        counts: number of messages skipped since the start, by service.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._places: OrderedDict[tuple[str, str, int, int], SkippedMessage] = OrderedDict()

    @property
    def newest(self) -> list[SkippedMessage]:
        """The most recently skipped messages, newest first."""
        return list(self._places.values())[: -_SHOWN - 1 : -1]

    def note(self, service: str, topic: str, queue_id: int, queue_offset: int, reason: str) -> None:
        """Counts a skipped message, and logs it unless it was logged before."""
        place = service, topic, queue_id, queue_offset
        if place in self._places:
            return
        self.counts[service] += 1
        skipped = SkippedMessage(*place, reason[:_MAX_REASON], time.time_ns() // 1_000_000)
        self._places[place] = skipped
        if len(self._places) > _REMEMBERED:
            self._places.popitem(last=False)
        _LOG.error(
            "a message was skipped service=%s topic=%s queue=%d queue_offset=%d reason=%s; `mqtool verify` names those "
            "that are left",
            *place,
            skipped.reason,
        )

    @contextmanager
    def guard(self, service: str, topic: str, queue_id: int, queue_offset: int) -> Iterator[None]:
        """Context manager around the processing of a message; skips the message if it is invalid.

        Errors of the disk and the store are raised: no single message causes them, and the service tries again.
        """
        try:
            yield
        except (FormatError, MessageRejectedError) as error:
            self.note(service, topic, queue_id, queue_offset, str(error))
        except (OSError, MqtoolError):
            raise
        except Exception as error:  # noqa: BLE001 - the service continues whatever happens
            _LOG.exception("a service failed at a message service=%s", service)
            self.note(service, topic, queue_id, queue_offset, repr(error))


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
