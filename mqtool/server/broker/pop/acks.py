"""Acknowledges popped messages, singly or in batches, and changes their invisible duration.

Source: AckMessageProcessor, ChangeInvisibleTimeProcessor (5.5.0).
"""

import asyncio
import base64
import binascii
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from mqtool.engine import PutStatus
from mqtool.engine.write.messages import OutgoingMessage
from mqtool.errors import FormatError
from mqtool.formats import java
from mqtool.formats.service_records import Ack, CheckPoint, GroupQueue
from mqtool.formats.topics import lite_queue, pop_retry_topic
from mqtool.protocol.command import FAQ, Command, RequestCode, ResponseCode
from mqtool.server.broker.answers import RefusalError, body_of, flag, illegal_queue, number, ok, text
from mqtool.server.broker.broker import Broker, RequestProcessor, handles
from mqtool.server.broker.offsets import OrderTable
from mqtool.server.broker.pop.check_points import (
    ORDER_REVIVE_QUEUE,
    ExtraInfo,
    ack_message,
    check_point_message,
    parse_extra_info,
)
from mqtool.server.net.peer import Peer

_LOG = logging.getLogger(__name__)

MAX_BITS = 65_536
"""Maximum span of queue offsets in a batch entry; more than any pop returns, even if a filter matches few messages."""
MAX_ACKED = 65_536
"""Maximum number of acknowledgements in a request."""
_ACKS_AT_ONCE = 64
MAX_GATHERED = 128
"""Maximum number of acknowledgements that are stored in one message."""
GATHER_S = 0.002
"""How long acknowledgements wait for others, in seconds, if earlier ones of their check point arrived together."""
MAX_BUSY = 1000

_Point = tuple[GroupQueue, ExtraInfo]
"""Identifies a check point."""
Stored = Callable[[Exception | None], None]
"""Called once when an acknowledgement is as durable as messages are, or with the error that prevents it."""
Later = Callable[[Callable[[], None]], object]
"""Schedules a function to run after the requests that arrived together were handled."""


class PopAcks(RequestProcessor):
    """Handles ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME."""

    def __init__(self, broker: Broker, revive_topic: str, orders: OrderTable) -> None:
        super().__init__(broker)
        self._revive_topic = revive_topic
        self._orders = orders
        self._gathered: dict[_Point, list[tuple[int, Stored]]] = {}
        self._storing: set[_Point] = set()
        self._busy: dict[_Point, None] = {}

    @handles(RequestCode.ACK_MESSAGE)
    async def ack(self, command: Command, peer: Peer) -> Command:
        """Stores an acknowledgement; answers when it is as durable as messages are."""
        key, offset = self._key(command, peer), number(command, "offset")
        self._check_offset(key, offset)
        info, loop = parse_extra_info(text(command, "extraInfo")), asyncio.get_running_loop()
        answer: asyncio.Future[Command] = loop.create_future()
        self._acknowledge(key, offset, info, peer, partial(_answered, command, answer), loop.call_soon)
        return await answer

    def acknowledge(
        self, key: GroupQueue, offset: int, info: ExtraInfo, peer: Peer, stored: Stored, later: Later
    ) -> None:
        """Acknowledges a message for a client of another protocol, as `ack` does.

        `stored` is called when the acknowledgement is stored, possibly before this function returns. `later` schedules
        storing, so that acknowledgements that arrive together are stored in one message. Raises RefusalError, without
        calling `stored`, if there is no such message, or it cannot be acknowledged.
        """
        self._check_key(key, peer)
        self._check_offset(key, offset)
        self._acknowledge(key, offset, info, peer, stored, later)

    def _acknowledge(
        self, key: GroupQueue, offset: int, info: ExtraInfo, peer: Peer, stored: Stored, later: Later
    ) -> None:
        if info.revive_queue == ORDER_REVIVE_QUEUE:
            self._ack_in_order(key, offset, info.pop_time, peer)
            stored(None)
        else:
            self._gather((key, info), offset, stored, later)

    def _check_offset(self, key: GroupQueue, offset: int) -> None:
        lowest, highest = self._broker.messages.queue_bounds(key.topic, key.queue_id)
        if not lowest <= offset <= highest:
            remark = f"offset is illegal, key:{key.topic}@{key.queue_id}, commit:{offset}, store:{lowest}~{highest}"
            raise RefusalError(ResponseCode.NO_MESSAGE, remark)

    @handles(RequestCode.BATCH_ACK_MESSAGE)
    async def batch_ack(self, command: Command, peer: Peer) -> Command:
        """Stores acknowledgements of many messages; each entry has a start offset and a bit for each message."""
        request = body_of(command) if command.body else {}
        acks, name = request.get("acks"), str(request.get("brokerName") or self._broker.settings.text("brokerName"))
        if not isinstance(acks, list) or not acks:
            raise RefusalError(ResponseCode.NO_MESSAGE, "")
        batches, total = [], 0
        for place, ack in enumerate(acks):
            batches.append(_batch_of(ack, name))
            total += max(1, len(batches[-1][2]))
            if total > MAX_ACKED:
                remark = f"more than {MAX_ACKED} acknowledgements in one request"
                raise RefusalError(ResponseCode.INVALID_PARAMETER, remark)
            if place % _ACKS_AT_ONCE == 0:
                await asyncio.sleep(0)  # let the event loop handle other requests
        for place, (key, info, given) in enumerate(batches):
            if place % _ACKS_AT_ONCE == 0:
                await asyncio.sleep(0)
            lowest, highest = self._broker.messages.queue_bounds(key.topic, key.queue_id)
            offsets = [offset for offset in given if lowest <= offset <= highest]
            if info.revive_queue == ORDER_REVIVE_QUEUE:
                for offset in offsets:
                    self._ack_in_order(key, offset, info.pop_time, peer)
            elif offsets:
                await self._store(self._ack_message((key, info), offsets))
        return ok(command)

    @handles(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    async def change_invisible(self, command: Command, peer: Peer) -> Command:
        """Changes a message's invisible duration: stores a new check point for it, and acknowledges the old one."""
        key = self._key(command, peer)
        offset, invisible_ms = number(command, "offset"), number(command, "invisibleTime")
        lowest, highest = self._broker.messages.queue_bounds(key.topic, key.queue_id)
        if not lowest <= offset < highest:
            raise RefusalError(ResponseCode.NO_MESSAGE, "")
        info = parse_extra_info(text(command, "extraInfo"))
        now = self._broker.clock.now()
        if info.revive_queue == ORDER_REVIVE_QUEUE:
            committed = self._broker.offsets.get(*key)
            if committed is not None and offset < committed:
                return ok(command)
            self._orders.prolong(key, offset, info.pop_time, now + invisible_ms)
            now, invisible_ms = info.pop_time, now + invisible_ms - info.pop_time
        else:
            suspend = flag(command, "suspend")
            point = CheckPoint(key, offset, [offset], now, invisible_ms, info.broker_name, suspend=suspend)
            host, queue = self._broker.store_host, info.revive_queue
            await self._store(check_point_message(point, self._revive_topic, queue, host))
            await self._store(self._ack_message((key, info), [offset]))
        fields = {"popTime": str(now), "invisibleTime": str(invisible_ms), "reviveQid": str(info.revive_queue)}
        return ok(command, fields)

    def _key(self, command: Command, peer: Peer) -> GroupQueue:
        """Returns the queue that a request names; raises RefusalError if it does not exist."""
        topic = text(command, "topic")
        if lite := command.fields.get("liteTopic"):
            topic = lite_queue(topic, lite)
        key = GroupQueue(text(command, "consumerGroup"), topic, number(command, "queueId"))
        self._check_key(key, peer)
        return key

    def _check_key(self, key: GroupQueue, peer: Peer) -> None:
        config = self._broker.existing_topic(key.topic, f"topic[{key.topic}] not exist, apply first please! {FAQ}")
        if not 0 <= key.queue_id < config.read_queue_nums:
            raise illegal_queue(ResponseCode.MESSAGE_ILLEGAL, config, key.queue_id, peer)

    def _gather(self, point: _Point, offset: int, stored: Stored, later: Later) -> None:
        """Stores an acknowledgement, together with others of the same check point.

        Acknowledgements of a check point that arrive together are stored in one message, which needs one unit in the
        timer wheel. If a client sent several before the first was answered, it is expected to send more, and they wait
        for these. A client that acknowledges one message after another is answered at once.
        """
        waiting = self._gathered.get(point)
        if waiting is None:
            waiting = self._gathered[point] = []
            if point in self._busy or point in self._storing:
                asyncio.get_running_loop().call_later(GATHER_S, self._store_gathered, point)
            else:
                later(partial(self._store_gathered, point))
        waiting.append((offset, stored))
        if len(waiting) == MAX_GATHERED:
            self._store_gathered(point)

    def _store_gathered(self, point: _Point) -> None:
        waiting = self._gathered.pop(point, None)
        if waiting is None:  # already stored, because MAX_GATHERED was reached
            return
        self._busy.pop(point, None)
        if len(waiting) > 1:
            self._busy[point] = None
            if len(self._busy) > MAX_BUSY:
                del self._busy[next(iter(self._busy))]
        offsets = list(dict.fromkeys(offset for offset, _ in waiting))
        try:
            flushed = self._put(self._ack_message(point, offsets))
        except Exception as error:  # noqa: BLE001 - whatever it is, clients wait for an answer
            _settle(waiting, error)
            return
        if flushed is None:
            _settle(waiting, None)
            return
        self._storing.add(point)
        flushed.add_done_callback(partial(self._flushed, point, waiting))

    def _flushed(self, point: _Point, waiting: list[tuple[int, Stored]], flushed: "asyncio.Future[PutStatus]") -> None:
        self._storing.discard(point)
        error = RefusalError(ResponseCode.SYSTEM_ERROR, "the broker is being stopped")
        _settle(waiting, error if flushed.cancelled() else None)

    def _ack_message(self, point: _Point, offsets: list[int]) -> OutgoingMessage:
        """Returns acknowledgements as a message for the revive queue of their check point."""
        key, info = point
        ack = Ack(key, info.start, offsets, info.pop_time, info.broker_name)
        due = info.pop_time + info.invisible_ms
        return ack_message(ack, due, self._revive_topic, info.revive_queue, self._broker.store_host)

    async def _store(self, message: OutgoingMessage) -> None:
        """Puts a message and waits until it is as durable as messages are; raises RefusalError on failure."""
        flushed = self._put(message)
        if flushed is not None:
            await flushed

    def _put(self, message: OutgoingMessage) -> "asyncio.Future[PutStatus] | None":
        """Puts a message; a read-only broker instead only keeps the consumer offset in memory.

        Returns a future for the flush, None if none is pending; a flush that times out is not a refusal
        (AckMessageProcessor). Raises RefusalError if the message cannot be stored.
        """
        if not self._broker.is_writable:
            return None
        config = self._broker.topics.get(message.topic)
        if config is None or not 0 <= message.queue_id < config.write_queue_nums:
            remark = f"extraInfo: there is no revive queue {message.queue_id}"
            raise RefusalError(ResponseCode.SYSTEM_ERROR, remark)
        result = self._broker.writer.put(message)
        if not result.ok:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"could not be stored: {result.status.value}")
        return self._broker.writer.flushed(result, message.properties)

    def _ack_in_order(self, key: GroupQueue, offset: int, pop_time: int, peer: Peer) -> None:
        broker = self._broker
        committed = broker.offsets.get(*key)
        if committed is not None and offset < committed:
            return
        following = self._orders.acknowledge(key, offset, pop_time)
        if following == -1:
            name = "@".join(map(str, (key.topic, key.group, key.queue_id)))
            old = -1 if committed is None else committed
            remark = f"offset is illegal, key:{name}, old:{old}, commit:{offset}, next:-1, /{peer.address}"
            raise RefusalError(ResponseCode.MESSAGE_ILLEGAL, remark)
        if following >= 0:
            if not broker.offsets.has_reset(*key):
                broker.offsets.commit(*key, following)
            broker.long_polling.wake(key.topic, key.queue_id)


def _settle(waiting: list[tuple[int, Stored]], error: Exception | None) -> None:
    """Reports the result of storing acknowledgements to each of their callers."""
    for _, stored in waiting:
        try:
            stored(error)
        except Exception as failure:  # noqa: BLE001 - call the remaining callbacks too
            _LOG.error("an acknowledgement was not answered", exc_info=failure)


def _answered(command: Command, answer: "asyncio.Future[Command]", error: Exception | None) -> None:
    """Sets the answer to an ACK_MESSAGE request."""
    if answer.done():  # the client disconnected
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(ok(command))


def _batch_of(ack: Any, broker_name: str) -> tuple[GroupQueue, ExtraInfo, list[int]]:
    """Parses one entry of a batch (BatchAck); raises RefusalError if it is invalid."""
    try:
        group, topic, retry = str(ack["c"]), str(ack["t"]), str(ack.get("r", "0"))
        if retry != "0":
            topic = pop_retry_topic(group, topic, second_form=retry != "1")
        coded = str(ack["b"])[: MAX_BITS // 4]  # the Base64 text of MAX_BITS bits is shorter
        bits = int.from_bytes(base64.b64decode(coded)[: MAX_BITS // 8], "little")
        times = java.json_long(ack["pt"]), java.json_long(ack["it"])
        info = ExtraInfo(java.json_long(ack["so"]), *times, java.json_int(ack["rq"]), broker_name)
        offsets = [info.start + place for place, bit in enumerate(f"{bits:b}"[::-1]) if bit == "1"]
        return GroupQueue(group, topic, java.json_int(ack["q"])), info, offsets
    except (KeyError, TypeError, ValueError, AttributeError, FormatError, binascii.Error) as error:
        remark = f"body is not a list of acknowledgements: {error!r}"[:200]
        raise RefusalError(ResponseCode.SYSTEM_ERROR, remark) from error
