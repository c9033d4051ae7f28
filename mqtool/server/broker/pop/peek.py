"""Reads messages without popping them: peek, and notification that there are messages.

Source: NotificationProcessor, PeekMessageProcessor, PollingInfoProcessor (5.5.0).
"""

import itertools
from collections.abc import Mapping

from mqtool.engine import GetResult, GetStatus
from mqtool.formats.service_records import GroupQueue
from mqtool.protocol.codes import FAQ, RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker.answers import RefusalError, flag, illegal_queue, number, ok, text
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.pop.order import OrderTable
from mqtool.server.broker.pop.request import retry_topics
from mqtool.server.net.peer import Handler, Peer

_OUTSIDE_QUEUE = frozenset({GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY})


class PeekProcessor:
    """Handles NOTIFICATION, PEEK_MESSAGE and POLLING_INFO."""

    def __init__(self, broker: Broker, orders: OrderTable, ahead: dict[GroupQueue, int]) -> None:
        """Creates the processor.

        Args:
            broker: the broker.
            orders: messages popped in order and not yet acknowledged.
            ahead: queue offset up to which a group has popped, by queue.
        """
        self._broker = broker
        self._orders = orders
        self._ahead = ahead
        self._turns = itertools.count()

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        return {
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notify,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    async def notify(self, command: Command, peer: Peer) -> Command:
        """Returns whether there is a message to pop; if there is none, waits as long as the request allows."""
        queues = self._queues(command, peer, ResponseCode.SYSTEM_ERROR)
        long_polling = self._broker.long_polling
        seconds = self._broker.long_polling.seconds(number(command, "pollTime", 0))
        has_message = self._has_message(command, queues)
        if not has_message and seconds and not self._broker.is_stopping:
            ends = {(key.topic, key.queue_id): self._bounds(key)[1] for key in queues}
            if await long_polling.wait(ends, seconds):
                has_message = self._has_message(command, queues)
        return ok(command, {"hasMsg": str(has_message).lower(), "pollingFull": "false"})

    def peek(self, command: Command, peer: Peer) -> Command:
        """Returns the next messages of a group without popping them."""
        limit, left = number(command, "maxMsgNums"), number(command, "maxMsgNums")
        rest, data = 0, list[memoryview]()
        for key in self._queues(command, peer, ResponseCode.INVALID_PARAMETER):
            at = self._position(key)
            rest += max(0, self._bounds(key)[1] - at)
            if left <= 0:
                continue
            result = self._get(key, at, left)
            data += result.records
            left = limit - len(data)
            if result.records:
                self._broker.stats.got(key.group, key.topic, key.queue_id, len(result.records), result.size)
        fields = {"restNum": str(rest), "popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
        if not data:
            return command.reply(ResponseCode.PULL_NOT_FOUND, GetStatus.NO_MESSAGE_IN_QUEUE.value, fields)
        return ok(command, fields, b"".join(data), GetStatus.FOUND.value)

    def polling_info(self, command: Command, peer: Peer) -> Command:
        """Returns the number of requests that wait for a queue."""
        key = self._queues(command, peer, ResponseCode.SYSTEM_ERROR)[0]
        return ok(command, {"pollingNum": str(self._broker.long_polling.waiting(key.topic, key.queue_id))})

    # -- details -------------------------------------------------------------------------------------------------

    def _get(self, key: GroupQueue, at: int, count: int) -> GetResult:
        messages = self._broker.messages
        result: GetResult = messages.get_message(key.topic, key.queue_id, at, count)
        if result.status in _OUTSIDE_QUEUE:
            result = messages.get_message(key.topic, key.queue_id, result.next_begin_offset, count)
        return result

    def _has_message(self, command: Command, queues: list[GroupQueue]) -> bool:
        in_order, attempt = flag(command, "order"), command.fields.get("attemptId")
        return any(
            self._bounds(key)[1] > self._position(key)
            for key in queues
            if not (in_order and self._orders.is_blocked(key, attempt))
        )

    def _position(self, key: GroupQueue) -> int:
        committed = self._broker.offsets.get(*key)
        if committed is None or committed < 0:
            committed = self._bounds(key)[0]
        return max(self._ahead.get(key, 0), committed)

    def _bounds(self, key: GroupQueue) -> tuple[int, int]:
        return self._broker.messages.queue_bounds(key.topic, key.queue_id)

    def _queues(self, command: Command, peer: Peer, code: ResponseCode) -> list[GroupQueue]:
        """Returns the queues that a request may read; the checks are in the real broker's order.

        Args:
            command, peer: the request and its connection.
            code: response code of the refusal for a queue that the topic does not have.
        """
        broker = self._broker
        group, topic, queue_id = text(command, "consumerGroup"), text(command, "topic"), number(command, "queueId")
        broker.check_release_5(command)
        broker.check_readable("peeking message")
        config = broker.readable_topic(topic, "peeking message")
        if queue_id >= config.read_queue_nums:
            raise RefusalError(code, illegal_queue(topic, queue_id, config.read_queue_nums, peer.address))
        broker.consuming_group(group, f"does not exist, {FAQ}")
        count = config.read_queue_nums
        start = next(self._turns) % max(1, count)
        every = [(start + number_) % count for number_ in range(count)] if queue_id < 0 else [queue_id]
        retries = [GroupQueue(group, index, 0) for index in retry_topics(broker.settings, group, topic)]
        return [GroupQueue(group, topic, index) for index in every] + retries
