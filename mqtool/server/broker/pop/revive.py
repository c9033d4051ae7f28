"""Revive: messages that were popped and not acknowledged in time are put again, into the retry topic of their group.

The timer delivers check points and acknowledgements to the revive topic, acknowledgements when the invisible time of
their messages is over; messages of a check point without an acknowledgement are then put again. The group
CID_RMQ_SYS_REVIVE_GROUP has as its offset of a revive queue the last check point that is settled.
Source: PopReviveService (5.5.0).
"""

import logging

from mqtool.formats import properties
from mqtool.formats.service_records import REVIVE_GROUP, Ack, CheckPoint, QueueKey, check_revive_time, revive_record
from mqtool.server.broker import names
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.delay.timer import Timer
from mqtool.server.broker.stored import Stored, requeued, stored

_LOG = logging.getLogger(__name__)

_PERIOD_S = 0.2
_AT_ONCE = 32
_FIRST_POP_TIME = "1ST_POP_TIME"
_ORIGIN_GROUP = "ORIGIN_GROUP"


class _ReviveQueue:
    """The check points of one revive queue that are not settled.

    Attributes:
        queue_id: of the queue.
        next_offset: queue offset to read next.
        points: check points, in queue order.
        last_done: queue offset of the last check point that is settled.
    """

    def __init__(self, queue_id: int, next_offset: int) -> None:
        self.queue_id = queue_id
        self.next_offset = next_offset
        self.points: dict[tuple[QueueKey, int, int, str], CheckPoint] = {}
        self.last_done = next_offset - 1


class Revive:
    """The service of one broker."""

    def __init__(self, broker: Broker, timer: Timer) -> None:
        """Takes the broker whose tables and store it uses, and the timer that delivers to the revive topic."""
        self._broker = broker
        self._timer = timer
        self._queues: dict[int, _ReviveQueue] = {}

    @property
    def topic(self) -> str:
        """Name of the revive topic of the broker's cluster."""
        return names.REVIVE_TOPIC_PREFIX + self._broker.settings.text("brokerClusterName")

    @property
    def queue_count(self) -> int:
        """Number of its queues, at least 1."""
        config = self._broker.topics.get(self.topic)
        return max(1, config.write_queue_nums) if config is not None else 1

    def turns(self) -> float:
        """Settles what is due in every revive queue; returns the seconds until the next turn."""
        for queue_id in range(self.queue_count):
            self.turn(queue_id)
        return _PERIOD_S

    def turn(self, queue_id: int) -> None:
        """Reads what arrived in a revive queue, and puts messages again that are due."""
        broker = self._broker
        if broker.long_polling.is_expected(self.topic, queue_id):  # an acknowledgement may be on its way into the queue
            return
        until = self._timer.delivered_until
        queue = self._queues.get(queue_id)
        if queue is None:
            last = broker.offsets.get(REVIVE_GROUP, self.topic, queue_id)
            queue = self._queues[queue_id] = _ReviveQueue(queue_id, 0 if last is None else last + 1)
        self._read(queue)
        for identity, point in list(queue.points.items()):
            if point.revive_time >= until:
                continue  # one that waits longer keeps nobody else waiting
            if not self._revive(point):
                break
            del queue.points[identity]
            queue.last_done = max(queue.last_done, point.revive_offset)
        first_open = min((point.revive_offset for point in queue.points.values()), default=queue.last_done + 1)
        done = min(queue.last_done, first_open - 1)
        if done >= 0 and done != broker.offsets.get(REVIVE_GROUP, self.topic, queue_id):
            broker.offsets.commit(REVIVE_GROUP, self.topic, queue_id, done)

    def _read(self, queue: _ReviveQueue) -> None:
        """Reads a revive queue to its end."""
        while True:
            found = self._broker.messages.get_message(self.topic, queue.queue_id, queue.next_offset, _AT_ONCE)
            for queue_offset, data in zip(found.queue_offsets, found.records, strict=True):
                with self._broker.skipped.guard("pop revive", self.topic, queue.queue_id, queue_offset):
                    self._note(queue, stored(data), queue_offset)
                queue.next_offset = queue_offset + 1
            if found.records:
                continue
            if found.resume_offset == queue.next_offset:
                return
            queue.next_offset = found.resume_offset

    def _note(self, queue: _ReviveQueue, message: Stored, queue_offset: int) -> None:
        broker = self._broker
        tag = message.properties.get(properties.TAGS, "")
        found = revive_record(tag, message.record.body, broker.settings.text("brokerName"))
        if isinstance(found, CheckPoint):
            check_revive_time(found, message.record.store_timestamp, broker.settings.number("timerMaxDelaySec"))
            found.revive_offset = queue_offset
            queue.points[found.identity] = found
        elif isinstance(found, Ack):
            point = queue.points.get(found.identity)
            if point is not None:
                point.done.update(offset for offset in found.offsets if offset in point.offsets)

    def _revive(self, point: CheckPoint) -> bool:
        """Puts again what is not acknowledged; returns whether a check point is settled."""
        broker, key = self._broker, point.key
        if broker.topics.get(names.popped_topic(key.group, key.topic)) is None or broker.groups.find(key.group) is None:
            return True
        for offset in point.offsets:
            if offset in point.done:
                continue
            is_done = True
            with broker.skipped.guard("pop revive", key.topic, key.queue_id, offset):
                is_done = self._put_again(point, offset)
            if not is_done:
                return False
            point.done.add(offset)
        return True

    def _put_again(self, point: CheckPoint, offset: int) -> bool:
        """Puts a message into the retry topic of its group and topic; returns False if the store does not take it."""
        broker, key = self._broker, point.key
        found = broker.messages.get_message(key.topic, key.queue_id, offset, 1)
        if not found.records or found.queue_offsets[0] != offset:
            return True
        message = stored(found.records[0])
        is_retry = key.topic.startswith(names.RETRY_PREFIX)
        topic = key.topic if is_retry else names.pop_retry_topic(key.group, key.topic)
        broker.topics.create_for_send_back(topic, 1)
        if broker.offsets.get(key.group, topic, 0) is None:
            broker.offsets.commit(key.group, topic, 0, 0)
        changed = dict(message.properties)
        if not message.record.reconsume_times or _FIRST_POP_TIME not in changed:
            changed[_FIRST_POP_TIME] = str(point.pop_time)
        changed[_ORIGIN_GROUP] = key.group
        times = message.record.reconsume_times + (not point.suspend)
        outgoing = requeued(message, topic, 0, changed, broker.store_host)._replace(reconsume_times=times)
        result = broker.writer.deliver(outgoing._replace(born_host=broker.store_host))
        if result.ok:
            broker.stats.put(topic, 0, 1, result.size)
        else:
            _LOG.error("a popped message could not be put again topic=%s status=%s", topic, result.status.value)
        return result.ok
