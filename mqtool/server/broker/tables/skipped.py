"""Counts messages that a background service could not process.

No message stops or delays a service. The service skips the message; this table counts it, logs it once with its
location, and keeps the most recent ones for the admin page. The message stays in its system topic.
"""

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from mqtool.errors import FormatError, MessageRejectedError, MqtoolError

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
