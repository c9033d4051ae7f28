"""Handles pops: returns messages of any queue of a topic, invisible to others until acknowledged or until a timeout.

A check point is stored before the messages are sent (`check_points`), so that they are not lost if the broker is
killed, even if a real broker opens the store next. Peek and notification read messages without popping them. Source:
PopMessageProcessor, ExtraInfoUtil, NotificationProcessor, PeekMessageProcessor, PollingInfoProcessor (5.5.0).
"""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from mqtool.engine import GetResult, GetStatus, PutResult
from mqtool.formats import properties
from mqtool.formats.service_records import CheckPoint, GroupQueue
from mqtool.formats.topics import RETRY_PREFIX
from mqtool.protocol.command import FAQ, Command, RequestCode, ResponseCode
from mqtool.server.broker.answers import RefusalError, flag, illegal_queue, number, ok, text
from mqtool.server.broker.broker import Broker, RequestProcessor, handles
from mqtool.server.broker.delay import Timer
from mqtool.server.broker.long_polling import Key
from mqtool.server.broker.messages import parsed_record, uninterrupted, with_place
from mqtool.server.broker.offsets import OrderInfo, OrderTable
from mqtool.server.broker.pop.acks import PopAcks
from mqtool.server.broker.pop.check_points import (
    ORDER_REVIVE_QUEUE,
    PopRequest,
    Revive,
    build_extra_info,
    check_point_message,
    read_request,
    retry_flag,
    retry_topics,
)
from mqtool.server.net.peer import Handler, Peer
from mqtool.store.queues.get_message import MessageFilter

_PEEKED_OUTSIDE_QUEUE = frozenset({GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY})


class PeekProcessor(RequestProcessor):
    """Handles NOTIFICATION, PEEK_MESSAGE and POLLING_INFO."""

    def __init__(self, broker: Broker, orders: OrderTable, ahead: dict[GroupQueue, int]) -> None:
        """Creates the processor; `ahead` has the queue offset up to which a group has popped, by queue."""
        super().__init__(broker)
        self._orders = orders
        self._ahead = ahead
        self._turns = itertools.count()

    @handles(RequestCode.NOTIFICATION)
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

    @handles(RequestCode.PEEK_MESSAGE)
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

    @handles(RequestCode.POLLING_INFO)
    def polling_info(self, command: Command, peer: Peer) -> Command:
        """Returns the number of requests that wait for a queue."""
        key = self._queues(command, peer, ResponseCode.SYSTEM_ERROR)[0]
        return ok(command, {"pollingNum": str(self._broker.long_polling.waiting(key.topic, key.queue_id))})

    def _get(self, key: GroupQueue, at: int, count: int) -> GetResult:
        messages = self._broker.messages
        result: GetResult = messages.get_message(key.topic, key.queue_id, at, count)
        if result.status in _PEEKED_OUTSIDE_QUEUE:
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
        """Returns the queues that a request may read; refuses one that the topic does not have with `code`."""
        broker = self._broker
        group, topic, queue_id = text(command, "consumerGroup"), text(command, "topic"), number(command, "queueId")
        broker.check_release_5(command)
        broker.check_readable("peeking message")
        config = broker.readable_topic(topic, "peeking message")
        if queue_id >= config.read_queue_nums:
            raise illegal_queue(code, config, queue_id, peer)
        broker.consuming_group(group, f"does not exist, {FAQ}")
        count = config.read_queue_nums
        start = next(self._turns) % max(1, count)
        every = [(start + number_) % count for number_ in range(count)] if queue_id < 0 else [queue_id]
        retries = [GroupQueue(group, index, 0) for index in retry_topics(broker.settings, group, topic)]
        return [GroupQueue(group, topic, index) for index in every] + retries


_OUTSIDE_QUEUE = frozenset({GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL})
"""Statuses of a consumer offset outside the queue; the pop reads again from the next valid queue offset."""


class PoppedMessages(NamedTuple):
    """Messages popped from one queue."""

    point: CheckPoint
    result: GetResult
    stored: PutResult | None


class PopProcessor:
    """Handles POP_MESSAGE; `PopAcks` and `PeekProcessor` handle the other POP requests."""

    def __init__(self, broker: Broker, timer: Timer) -> None:
        """Loads consumerOrderInfo.json; raises ConfigFileError if it cannot be parsed."""
        self._broker = broker
        self.revive = Revive(broker, timer)
        self.orders = OrderTable(broker.persister, broker.clock.now, is_stored=broker.release >= (5, 0))
        self.acks = PopAcks(broker, self.revive.topic, self.orders)
        self._ahead: dict[GroupQueue, int] = {}
        self._peeks = PeekProcessor(broker, self.orders, self._ahead)
        self._turns = itertools.count()

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        own: dict[int, Handler] = {RequestCode.POP_MESSAGE: self.pop}
        return {**own, **self.acks.handlers(), **self._peeks.handlers()}

    async def pop(self, command: Command, peer: Peer) -> Command:
        """Pops and returns messages; if there are none, waits as long as the request allows."""
        request = read_request(self._broker, command, peer)
        long_polling = self._broker.long_polling
        end = self._broker.clock.monotonic() + long_polling.seconds(number(command, "pollTime", 0))
        for key in request.queues:  # sends answered before the request must be visible to it
            if long_polling.is_expected(key.topic, key.queue_id):
                await long_polling.caught_up(key.topic, key.queue_id)
        while True:
            pop_time = self._broker.clock.now()
            revive_queue = ORDER_REVIVE_QUEUE if request.in_order else next(self._turns) % self.revive.queue_count
            taken = self.take(request, pop_time, revive_queue)
            left = end - self._broker.clock.monotonic()
            if taken or left <= 0 or self._broker.is_stopping:
                await self._written(taken)
                return self._answer(command, request, taken, pop_time, revive_queue)
            await self.wait(request, left)

    def _position(self, request: PopRequest, key: GroupQueue) -> int:
        """Returns the queue offset to pop next; for a new consumer group it depends on the request's initMode."""
        offsets = self._broker.offsets
        reset = offsets.take_reset(*key)
        if reset is not None:
            self.orders.clear(key)
            self._ahead.pop(key, None)
            offsets.commit(*key, reset)
            return reset
        committed = offsets.get(*key)
        if committed is None:
            lowest, highest = self._broker.messages.queue_bounds(key.topic, key.queue_id)
            committed = max(0, lowest)
            if request.from_end and not key.topic.startswith(RETRY_PREFIX):
                first = self._broker.messages.get_message(key.topic, key.queue_id, 0, 1)
                committed = 0 if lowest == 0 and not first.suggest_slave else max(0, highest - 1)
            offsets.commit(*key, committed)
        return max(self._ahead.get(key, 0), committed)

    def take(self, request: PopRequest, pop_time: int, revive_queue: int) -> list[PoppedMessages]:
        """Pops messages from the queues, up to the number that the request states."""
        taken: list[PoppedMessages] = []
        left = request.max_num
        for key in request.queues:
            if left <= 0:
                break
            at = self._position(request, key)
            if request.in_order and self.orders.is_blocked(key, request.attempt_id):
                continue
            answer = self._get(key, at, left, request.message_filter)
            if not answer.records:
                if answer.next_begin_offset > at:
                    self._broker.offsets.commit(*key, answer.next_begin_offset)
                continue
            point = CheckPoint(
                key,
                min(at, answer.queue_offsets[0]),
                list(answer.queue_offsets),
                pop_time,
                request.invisible_ms,
                self._broker.settings.text("brokerName"),
            )
            if request.in_order:
                popped_messages = self._note_order(request, point, answer)
            else:
                result = self._write_down(point, answer, revive_queue)
                if result is not None and not result.ok and taken:
                    break
                if result is not None and not result.ok:
                    remark = f"the check point could not be stored: {result.status.value}"
                    raise RefusalError(ResponseCode.SYSTEM_ERROR, remark)
                popped_messages = PoppedMessages(point, answer, result)
            left -= len(answer.records)
            taken.append(popped_messages)
            self._broker.stats.got(key.group, key.topic, key.queue_id, len(answer.records), answer.size)
        return taken

    def _get(self, key: GroupQueue, at: int, count: int, message_filter: MessageFilter | None) -> GetResult:
        messages = self._broker.messages
        result: GetResult = messages.get_message(key.topic, key.queue_id, at, count, message_filter)
        if result.status in _OUTSIDE_QUEUE and result.next_begin_offset != at:
            self._broker.offsets.commit(*key, result.next_begin_offset)
            result = messages.get_message(key.topic, key.queue_id, result.next_begin_offset, count, message_filter)
        return result

    def _note_order(self, request: PopRequest, point: CheckPoint, result: GetResult) -> PoppedMessages:
        now = self._broker.clock.now()
        info = OrderInfo(point.pop_time, point.invisible_ms, point.offsets, request.attempt_id, last_ms=now)
        self.orders.take(point.key, info)
        self._broker.offsets.commit(*point.key, point.start)
        return PoppedMessages(point, result, None)

    def _write_down(self, point: CheckPoint, popped: GetResult, revive_queue: int) -> PutResult | None:
        """Stores a check point, so that the next pop continues after its messages; None if the broker is read-only."""
        if not self._broker.is_writable:
            self._broker.offsets.commit(*point.key, popped.next_begin_offset)
            return None
        message = check_point_message(point, self.revive.topic, revive_queue, self._broker.store_host)
        result = self._broker.writer.put(message)
        if result.ok:
            self._ahead[point.key] = popped.next_begin_offset
        return result

    async def _written(self, popped: list[PoppedMessages]) -> None:
        """Waits until check points are as durable as messages are, then commits the consumer offsets."""
        for messages in popped:
            if messages.stored is None:
                continue
            future = self._broker.writer.flushed(messages.stored)
            if future is not None:
                await uninterrupted(future)  # the messages are invisible now: the caller has to give them back
            key, following = messages.point.key, messages.result.next_begin_offset
            if not self._broker.offsets.has_reset(*key):
                self._broker.offsets.commit(*key, max(following, self._broker.offsets.get(*key) or 0))
            if self._ahead.get(key) == following:
                del self._ahead[key]

    async def wait(self, request: PopRequest, seconds: float, also: Mapping[Key, int] | None = None) -> None:
        """Waits for a message, until a blocked queue can be popped again, or until a queue in `also` is woken."""
        now, queues = self._broker.clock.now(), dict(also or {})
        for key in request.queues:
            queues[key.topic, key.queue_id] = self._position(request, key)
            if request.in_order and self.orders.is_blocked(key, request.attempt_id):
                queues[key.topic, key.queue_id] = self._broker.messages.queue_bounds(key.topic, key.queue_id)[1]
                info = self.orders.find(key)
                seconds = min(seconds, max(0.01, (info.free_at - now) / 1000)) if info is not None else seconds
        await self._broker.long_polling.wait(queues, seconds)

    def _answer(
        self, command: Command, request: PopRequest, popped: list[PoppedMessages], pop_time: int, revive_queue: int
    ) -> Command:
        rest = sum(
            max(0, self._broker.messages.queue_bounds(key.topic, key.queue_id)[1] - self._position(request, key))
            for key in request.queues
        )
        fields = {
            "popTime": str(pop_time),
            "invisibleTime": str(request.invisible_ms),
            "reviveQid": str(revive_queue),
            "restNum": str(rest),
        }
        if not popped:
            return command.reply(ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE", fields)
        points = [item.point for item in popped]
        fields["startOffsetInfo"] = ";".join(f"{_name(item.key)} {item.start}" for item in points)
        fields["msgOffsetInfo"] = ";".join(f"{_name(item.key)} {','.join(map(str, item.offsets))}" for item in points)
        if request.in_order:
            fields["orderCountInfo"] = ";".join(self._counts(item) for item in points)
        data = b"".join(
            _as_popped(item.point, record, offset, request.topic, revive_queue)
            for item in popped
            for record, offset in zip(item.result.records, item.result.queue_offsets, strict=True)
        )
        return command.reply(ResponseCode.SUCCESS, "FOUND", fields, data)

    def _counts(self, point: CheckPoint) -> str:
        """Returns how often each message was popped before, and the minimum (OrderInfo.offsetConsumedCount)."""
        info = self.orders.find(point.key)
        consumed = info.consumed if info is not None else {}
        flag_ = retry_flag(point.key.topic)
        queue_id = point.key.queue_id
        each = [f"{flag_} qo{queue_id}%{offset} {times}" for offset, times in consumed.items()]
        lowest = min(consumed.values()) if consumed and len(consumed) == len(point.offsets) else 0
        return ";".join([*each, f"{flag_} {queue_id} {lowest}"])


def _name(key: GroupQueue) -> str:
    return f"{retry_flag(key.topic)} {key.queue_id}"


def _as_popped(
    point: CheckPoint, record: "memoryview | bytes", offset: int, topic: str, revive_queue: int
) -> "memoryview | bytes":
    """Returns a record as it is sent to a client; a record of a retry topic gets its original topic back."""
    if not point.key.topic.startswith(RETRY_PREFIX) or point.key.topic == topic:
        return record
    message = parsed_record(record)
    changed = dict(message.properties)
    changed.setdefault(properties.POP_CHECK_POINT, build_extra_info(point, revive_queue, offset))
    return with_place(
        message, topic, message.record.queue_id, message.record.queue_offset, properties.encode(changed.items())
    )
