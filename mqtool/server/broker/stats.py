"""Counters of a broker: messages in and out, messages that a service skipped, and unexpired ones that were deleted.

Messages in and out are counted by topic and group, in total and per minute, hour and day. No message stops or delays a
background service: the service skips one that it cannot process; the table counts it, logs it once with its location,
and keeps the most recent ones for the admin page. The message stays in its system topic. With its defaults the real
broker makes room on a full disk by deleting the oldest files, expired or not (diskSpaceCleanForciblyRatio). This broker
does the same, and reports the groups that lost messages. Source: BrokerStatsManager, StoreStatsService, StatsItem,
CleanCommitLogService (5.5.0).
"""

import logging
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from mqtool.engine.clock import SystemClock
from mqtool.engine.retention.rules import EarlyDeletion
from mqtool.errors import FormatError, MessageRejectedError, MqtoolError
from mqtool.server.broker.offsets import OffsetTable

_LOG = logging.getLogger(__name__)

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
SEND_BACK_NUMS = "SNDBCK_PUT_NUMS"

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_COARSE_EVERY_S = 300
_TOTALS_HISTORY_S = 660

REMEMBERED = 10_000
"""Number of locations remembered so that each is logged only once; older ones may be logged again."""
_SHOWN = 20
_MAX_REASON = 300

RECENT_S = 3600
_NAMED = 10


class _Sample(NamedTuple):
    at: float
    total: int
    times: int


class _Item:
    """A counter: its total, and samples of the total from which rates are computed."""

    __slots__ = ("_coarse", "_fine", "times", "total")

    def __init__(self) -> None:
        self.total = 0
        self.times = 0
        self._fine: deque[_Sample] = deque(maxlen=8)
        self._coarse: deque[_Sample] = deque(maxlen=_DAY_S // _COARSE_EVERY_S + 1)

    def sample(self, now: float) -> None:
        sample = _Sample(now, self.total, self.times)
        self._fine.append(sample)
        if not self._coarse or now - self._coarse[-1].at >= _COARSE_EVERY_S:
            self._coarse.append(sample)

    def over(self, seconds: int, now: float) -> dict[str, float]:
        """Returns sum, rate and average over a number of seconds, in the form of JSON bodies (BrokerStatsItem)."""
        samples = self._fine if seconds <= _MINUTE_S else self._coarse
        first = next((sample for sample in samples if now - sample.at <= seconds + 10), _Sample(now, 0, 0))
        if len(samples) < 2 or now - samples[0].at < seconds:  # the counter is newer than this period: use all of it
            first = _Sample(samples[0].at if samples else now - 1, 0, 0)
        total, times = self.total - first.total, self.times - first.times
        rate = total / max(1.0, now - first.at)
        return {"avgpt": total / times if times else 0.0, "sum": total, "tps": rate}


class Stats:
    """The counters of a broker. Must be used in the event loop's thread.

    `found` and `not_found` count pulls with and without messages.
    """

    def __init__(self, now: Callable[[], float] = SystemClock.monotonic) -> None:
        self.puts = self.put_bytes = self.put_failures = 0
        self.gets = self.found = self.not_found = 0
        self._now = now
        self._items: dict[tuple[str, str], _Item] = {}
        self._put_items: dict[str, tuple[_Item, _Item]] = {}
        self._totals: deque[tuple[float, int, int, int, int]] = deque(maxlen=_TOTALS_HISTORY_S // 10 + 2)
        self._days: dict[str, tuple[int, int]] = {}
        self.sample()

    def put(self, topic: str, queue_id: int, count: int, size: int) -> None:  # noqa: ARG002 - queues may be counted later
        """Counts stored messages."""
        self.puts += count
        self.put_bytes += size
        numbers, sizes = self._put_items.get(topic) or self._put_items_of(topic)
        numbers.total += count
        numbers.times += 1
        sizes.total += size
        sizes.times += 1

    def _put_items_of(self, topic: str) -> tuple[_Item, _Item]:
        items = self._put_items[topic] = self._item(TOPIC_PUT_NUMS, topic), self._item(TOPIC_PUT_SIZE, topic)
        return items

    def got(self, group: str, topic: str, _queue_id: int, count: int, size: int) -> None:
        """Counts delivered messages."""
        self.gets += count
        self.found += 1
        key = f"{topic}@{group}"
        self._add(GROUP_GET_NUMS, key, count)
        self._add(GROUP_GET_SIZE, key, size)

    def sent_back(self, group: str, topic: str) -> None:
        """Counts a message that a consumer sent back."""
        self._add(SEND_BACK_NUMS, f"{topic}@{group}", 1)

    def _add(self, name: str, key: str, by: int) -> None:
        item = self._item(name, key)
        item.total += by
        item.times += 1

    def _item(self, name: str, key: str) -> _Item:
        item = self._items.get((name, key))
        if item is None:
            item = self._items[name, key] = _Item()
            item.sample(self._now())
        return item

    def sample(self) -> None:
        """Samples all counters; must be called every ten seconds."""
        now = self._now()
        for item in self._items.values():
            item.sample(now)
        self._totals.append((now, self.puts, self.gets, self.found, self.not_found))
        self._days.setdefault(time.strftime("%Y%m%d"), (self.puts, self.gets))
        while len(self._days) > 2:
            del self._days[min(self._days)]

    def item(self, name: str, key: str) -> dict[str, dict[str, float]] | None:
        """Returns a counter in the form of JSON bodies (BrokerStatsData); None if it does not exist."""
        counter = self._items.get((name, key))
        if counter is None:
            return None
        now = self._now()
        spans = {"statsDay": _DAY_S, "statsHour": _HOUR_S, "statsMinute": _MINUTE_S}
        return {member: counter.over(seconds, now) for member, seconds in spans.items()}

    def items(self) -> dict[tuple[str, str], int]:
        """Returns the totals of all counters, by name and key."""
        return {key: item.total for key, item in self._items.items()}

    def per_second(self, name: str, key: str) -> float:
        """Returns the rate of a counter per second over the last minute."""
        counter = self._items.get((name, key))
        return counter.over(_MINUTE_S, self._now())["tps"] if counter is not None else 0.0

    def rates(self, column: int) -> str:
        """Returns the rates of a total over 10 seconds, 1 minute and 10 minutes, in the format of runtime information.

        Columns: 1 for puts, 2 for gets, 3 for pulls with messages, 4 for pulls without.
        """
        now = self._now()
        current = (now, self.puts, self.gets, self.found, self.not_found)
        shown = []
        for seconds in (10, 60, 600):
            first = next((sample for sample in self._totals if now - sample[0] <= seconds + 1), current)
            shown.append(f"{(current[column] - first[column]) / max(1.0, now - first[0]):.2f}")
        return " ".join(shown)

    def mornings(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Returns the totals of (puts, gets) at the start of yesterday and of today."""
        days = sorted(self._days)
        return self._days[days[0]], self._days[days[-1]]


class SkippedMessage(NamedTuple):
    """A message that a service skipped."""

    service: str
    topic: str
    queue_id: int
    queue_offset: int
    reason: str
    at_ms: int


class SkippedRecords:
    """The skipped messages of one broker, counted by service. Must be used in the event loop's thread."""

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
        skipped = SkippedMessage(*place, reason[:_MAX_REASON], SystemClock.now())
        self._places[place] = skipped
        if len(self._places) > REMEMBERED:
            self._places.popitem(last=False)
        _LOG.error(
            "message skipped service=%s topic=%s queue=%d queue_offset=%d reason=%s; `mqtool verify` lists those "
            "still in the log",
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
            _LOG.exception("service failed at a message service=%s", service)
            self.note(service, topic, queue_id, queue_offset, repr(error))


class EarlyDeletions:
    """Early deletions of one broker since its start. Must be used in the event loop's thread.

    `unread` counts the deleted messages that a group had not consumed, by topic and group.
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
        return bool(self.files) and SystemClock.monotonic() - self._last_at < RECENT_S

    def add(self, deletions: Iterable[EarlyDeletion]) -> None:
        """Counts deletions, and logs how many messages each group loses."""
        lost: Counter[tuple[str, str]] = Counter()
        for deletion in deletions:
            self.files += len(deletion.paths)
            self.messages += deletion.messages
            self._last_at = SystemClock.monotonic()
            lost += self._unread_in(deletion)
        self.unread += lost
        for (topic, group), count in lost.most_common(_NAMED):
            _LOG.error("UNREAD MESSAGES WERE DELETED group=%s topic=%s messages=%d", group, topic, count)
        if len(lost) > _NAMED:
            _LOG.error("UNREAD MESSAGES WERE DELETED of %d more groups; see /metrics for all", len(lost) - _NAMED)

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
