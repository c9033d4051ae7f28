"""RPCs of consumers: ReceiveMessage, AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue.

Source: ReceiveMessageActivity, ConsumerProcessor, AckMessageActivity, ChangeInvisibleDurationActivity,
ForwardMessageToDLQActivity, PopMessageResultFilterImpl (rocketmq-proxy 5.5.0).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, NamedTuple

from mqtool.engine.clock import SystemClock
from mqtool.errors import MqtoolError
from mqtool.formats import java, properties
from mqtool.formats.config_files import GroupConfig
from mqtool.formats.service_records import GroupQueue
from mqtool.formats.topics import lite_queue
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s
from mqtool.server.broker.messages import ParsedRecord, parsed_records, uninterrupted
from mqtool.server.broker.pop.check_points import ORDER_REVIVE_QUEUE, ExtraInfo
from mqtool.server.grpc.clients import BATCH_SIZE, Client, Clients
from mqtool.server.grpc.core import OK, Core, StatusError, duration_ms, refused, thrown
from mqtool.server.grpc.messages import fill_incoming, tag_filter
from mqtool.server.grpc.receipts import RENEWAL_MS, Receipt, Renewals, change, check_fresh, parse_receipt
from mqtool.server.net.http2 import Call
from mqtool.server.net.peer import Peer
from mqtool.store.queues.get_message import TagFilter

_LOG = logging.getLogger(__name__)

MIN_INVISIBLE_MS = 10_000
MAX_INVISIBLE_MS = 43_200_000
MIN_POLL_MS = 5_000
MAX_POLL_MS = 20_000
_WITH_POLLING_CODE = "5.0.3"
"""First client version that gets ILLEGAL_POLLING_TIME. ReceiveMessageActivity compares versions as texts."""

_NOT_ACKNOWLEDGED = d.Status(code=d.INTERNAL_SERVER_ERROR, message="ack failed: status is abnormal")
"""Whatever the reason: the proxy does not pass on that of the broker (AckMessageActivity)."""

_BEFORE_DEADLINE_MS = 250
"""How long before the client's deadline a poll ends, in ms, so that the answer arrives in time."""


class _Popped(NamedTuple):
    """A popped message with its receipt handle."""

    message: ParsedRecord
    receipt: Receipt
    handle: str
    attempt: int

    @property
    def lite(self) -> str:
        """Lite topic of the message; "" if it has none."""
        return self.message.properties.get(properties.LITE_TOPIC, "")


class Consuming:
    """Handles the RPCs of consumers."""

    def __init__(self, core: Core, clients: Clients, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """Creates the handler; `spawn` runs work that no call waits for."""
        self._core, self._clients, self._spawn = core, clients, spawn
        self.renewals = Renewals(core, clients.is_present)

    # -- receiving -----------------------------------------------------------------------------------------------

    async def receive(self, call: Call, request: s.ReceiveMessageRequest) -> list[bytes]:
        """ReceiveMessage: returns the messages of the answer stream in order: status, messages, delivery timestamp.

        The queue in the request is ignored: every poll takes messages from all queues (ReceiveMessageQueueSelector).
        """
        popped: list[_Popped] = []
        try:
            popped = await self._receive(call, request)
            if popped:
                self._expect_delivery(call, request, popped)
            status = OK if popped else d.Status(code=d.MESSAGE_NOT_FOUND, message="no new message")
        except StatusError as error:
            status = error.status
        topic = request.message_queue.topic.name
        answers = [s.ReceiveMessageResponse(status=status).SerializeToString()]
        for message, _, handle, attempt in popped:
            answer = s.ReceiveMessageResponse()
            fill_incoming(answer.message, message, topic, handle, attempt)
            answers.append(answer.SerializeToString())
        last = s.ReceiveMessageResponse()
        last.delivery_timestamp.FromMilliseconds(self._core.broker.clock.now())
        answers.append(last.SerializeToString())
        return answers

    async def _receive(self, call: Call, request: s.ReceiveMessageRequest) -> list[_Popped]:
        core, client = self._core, await self._clients.wait_for_settings(call)
        if client is None:
            raise StatusError(d.INTERNAL_SERVER_ERROR, "the client has sent no settings")
        poll_ms = self._poll_ms(call, client, request)
        topic = core.topic(request.message_queue.topic)
        group = core.group(request.group)
        invisible_ms = self._invisible_ms(request)
        if core.readable_queues(core.topic_config(topic)) <= 0:
            raise thrown(d.FORBIDDEN, "no readable queue")
        config, tags = core.group_config(group), tag_filter(request.filter_expression)
        if request.batch_size < 0:
            raise StatusError(d.INTERNAL_SERVER_ERROR, f"batch_size {request.batch_size} is negative")
        is_ordered = bool(config.consume_message_orderly)
        code, fields = RequestCode.POP_MESSAGE, _pop_fields(request, group, topic, invisible_ms, is_ordered=is_ordered)
        if client.is_lite:
            code, fields["clientId"] = RequestCode.POP_LITE_MESSAGE, client.client_id
            fields["maxMsgNum"] = fields["maxMsgNums"]
        end = core.broker.clock.monotonic() + poll_ms / 1000
        while True:
            if not call.connection.has_room and not await _has_room_in(call, end - core.broker.clock.monotonic()):
                return []
            fields["pollTime"] = str(max(0, int((end - core.broker.clock.monotonic()) * 1000)))
            answer = await core.ask(code, fields, call.peer)
            if answer.code == ResponseCode.POLLING_TIMEOUT:
                return []
            if answer.code != ResponseCode.SUCCESS:
                raise _refused_pop(answer)
            popped = await self._deliverable(call, group, topic, config, tags, answer)
            if popped and request.auto_renew:
                self._renew(call, client, group, topic, popped)
            if popped or not call.is_open:
                return popped

    def _renew(self, call: Call, client: Client, group: str, topic: str, popped: list[_Popped]) -> None:
        """Starts to renew messages; raises StatusError if their client has left meanwhile: others get them then."""
        if not self._clients.is_present(client.client_id):
            self._give_back(client.client_id, group, topic, popped, call.peer)
            raise StatusError(d.MESSAGE_NOT_FOUND, f"The client [{client.client_id}] is disconnected.")
        for message in popped:
            self.renewals.add(
                client.client_id, group, topic, message.lite, message.handle, message.receipt, client.peer
            )

    def _give_back(self, client_id: str, group: str, topic: str, popped: list[_Popped], peer: Peer) -> None:
        """Makes messages visible again soon, without waiting; those that are popped stay so while the broker stops."""

        async def give_back() -> None:
            for message in popped:
                await self.renewals.give_back(
                    client_id, group, topic, message.lite, message.handle, message.receipt, peer
                )

        if not self._core.broker.is_stopping:
            self._spawn(give_back())

    def _expect_delivery(self, call: Call, request: s.ReceiveMessageRequest, popped: list[_Popped]) -> None:
        """Makes messages visible again if their call ends before they are sent.

        Those that were sent already may then come twice. Source: ReceiveMessageResponseStreamWriter (5.5.0).
        """
        client_id, group = call.header("x-mq-client-id"), request.group.name
        topic, peer = request.message_queue.topic.name, call.peer
        undelivered = partial(self._give_back, client_id, group, topic, popped, peer)
        if call.is_open:
            call.on_undelivered = undelivered
        else:
            undelivered()

    def _poll_ms(self, call: Call, client: Client, request: s.ReceiveMessageRequest) -> int:
        """Returns how long to wait for messages, in ms; raises StatusError if the client's deadline is too near."""
        left = MAX_POLL_MS * 2
        if call.deadline is not None:
            left = int((call.deadline - asyncio.get_running_loop().time()) * 1000)
        if request.HasField("long_polling_timeout"):
            poll_ms = duration_ms(request.long_polling_timeout)
        else:
            poll_ms = left - java.divide(duration_ms(client.settings.request_timeout), 2)
        poll_ms = min(max(poll_ms, MIN_POLL_MS), MAX_POLL_MS)
        if poll_ms > left:
            if left < MIN_POLL_MS:
                message = "The deadline time remaining is not enough for polling, please check network condition"
                new = call.header("x-mq-client-version") >= _WITH_POLLING_CODE
                raise StatusError(d.ILLEGAL_POLLING_TIME if new else d.BAD_REQUEST, message)
            poll_ms = left
        return min(poll_ms, left - _BEFORE_DEADLINE_MS)

    def _invisible_ms(self, request: s.ReceiveMessageRequest) -> int:
        if request.auto_renew:
            return RENEWAL_MS
        invisible_ms = duration_ms(request.invisible_duration)
        _check_invisible(invisible_ms, MIN_INVISIBLE_MS)
        return invisible_ms

    async def _deliverable(
        self, call: Call, group: str, topic: str, config: GroupConfig, tags: TagFilter, answer: Command
    ) -> list[_Popped]:
        """Returns the popped messages that the client gets (PopMessageResultFilterImpl).

        The broker compares only hashes of tags; messages whose tag is another one are acknowledged. Messages that were
        delivered too often become dead letters.
        """
        messages = []
        for item in _popped(answer, self._core.broker_name, in_order=bool(config.consume_message_orderly)):
            if not tags.by_tag(item.message.properties.get(properties.TAGS)):
                # If this fails, the message is popped again later, and is acknowledged again.
                self._acknowledge(call, group, topic, item.receipt, item.lite, lambda _status: None)
            elif item.attempt <= config.retry_max_times + 1:
                messages.append(item)
            else:
                try:
                    await uninterrupted(self._dead_letter(call, group, topic, item.receipt, item.lite))
                except StatusError as error:  # it is popped again later
                    _LOG.warning("dead letter not stored group=%s topic=%s error=%s", group, topic, error)
        return messages

    async def _dead_letter(self, call: Call, group: str, topic: str, receipt: Receipt, lite: str) -> None:
        """Stores a message in the group's dead letter topic; acknowledges it without waiting.

        The answer is that of the first step (ProducerProcessor.forwardMessageToDeadLetterQueue): a client that repeats
        a call which failed at the second one would get another dead letter. Raises StatusError if the receipt has no
        physical offset, or the dead letter cannot be stored.
        """
        if receipt.physical_offset < 0:
            raise StatusError(d.INVALID_RECEIPT_HANDLE, "commit log offset is empty")
        fields = {
            "offset": str(receipt.physical_offset),
            "group": group,
            "delayLevel": "-1",
            "originTopic": receipt.topic(group, topic),
            "maxReconsumeTimes": "0",
        }
        await self._core.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields, call.peer)

        def acknowledged(status: d.Status) -> None:
            if status.code != d.OK:
                _LOG.warning("dead letter not acknowledged group=%s topic=%s error=%s", group, topic, status.message)

        self._acknowledge(call, group, topic, receipt, lite, acknowledged)

    # -- acknowledging -------------------------------------------------------------------------------------------

    def _acknowledge(
        self, call: Call, group: str, topic: str, receipt: Receipt, lite: str, done: Callable[[d.Status], None]
    ) -> None:
        """Acknowledges a message; calls `done` with the resulting status, possibly before returning."""
        name = receipt.topic(group, topic)
        key = GroupQueue(group, lite_queue(name, lite) if lite else name, receipt.queue_id)
        info = ExtraInfo(*receipt[:4], receipt.broker_name)

        def stored(error: Exception | None) -> None:
            if error is not None:
                _LOG.debug("not acknowledged group=%s topic=%s error=%s", group, topic, error)
            done(OK if error is None else _NOT_ACKNOWLEDGED)

        try:
            self._core.acks.acknowledge(key, receipt.offset, info, call.peer, stored, call.connection.after_read)
        except (MqtoolError, OSError) as error:
            stored(error)

    def ack(self, call: Call, request: s.AckMessageRequest) -> Awaitable[bytes]:
        """Handles the RPC AckMessage."""
        topic, group = self._core.topic(request.topic), self._core.group(request.group)
        client_id = call.header("x-mq-client-id")
        if not request.entries:
            raise StatusError(d.INTERNAL_SERVER_ERROR, "ack message result is empty")
        answer = _AckAnswer(request)
        for place, entry in enumerate(request.entries):
            try:
                receipt = self.renewals.take(client_id, group, entry.receipt_handle, acknowledged=True)
                check_fresh(receipt, self._core.broker.clock.now())
            except StatusError as error:
                answer.set(place, error.status)
                continue
            self._acknowledge(call, group, topic, receipt, entry.lite_topic, partial(answer.set, place))
        return answer.future

    async def change(self, call: Call, request: s.ChangeInvisibleDurationRequest) -> bytes:
        """Handles the RPC ChangeInvisibleDuration."""
        topic, group = self._core.topic(request.topic), self._core.group(request.group)
        invisible_ms = duration_ms(request.invisible_duration)
        _check_invisible(invisible_ms, 0)
        receipt = self.renewals.take(call.header("x-mq-client-id"), group, request.receipt_handle)
        check_fresh(receipt, self._core.broker.clock.now())
        more = {"lite": request.lite_topic, "suspend": request.suspend}
        changed = await change(self._core, call.peer, group, topic, receipt, invisible_ms, **more)  # type: ignore[arg-type]
        return s.ChangeInvisibleDurationResponse(status=OK, receipt_handle=changed.text).SerializeToString()

    async def forward(self, call: Call, request: s.ForwardMessageToDeadLetterQueueRequest) -> bytes:
        """Handles the RPC ForwardMessageToDeadLetterQueue."""
        topic, group = self._core.topic(request.topic), self._core.group(request.group)
        receipt = self.renewals.take(call.header("x-mq-client-id"), group, request.receipt_handle)
        await self._dead_letter(call, group, topic, receipt, request.lite_topic)
        return s.ForwardMessageToDeadLetterQueueResponse(status=d.Status(code=d.OK, message="0")).SerializeToString()


class _AckAnswer:
    """The answer to an AckMessage call; `future` is completed when the last acknowledgement is stored."""

    _one = s.AckMessageResponse(status=OK, entries=[s.AckMessageResultEntry(status=OK)])

    __slots__ = ("_left", "_request", "_statuses", "future")

    def __init__(self, request: s.AckMessageRequest) -> None:
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._request, self._left = request, len(request.entries)
        self._statuses: list[d.Status] = [OK] * self._left

    def set(self, place: int, status: d.Status) -> None:
        """Sets the status of the entry at index `place`."""
        self._statuses[place] = status
        self._left -= 1
        if not self._left:
            _set_result(self.future, self._bytes())

    def _bytes(self) -> bytes:
        request, statuses = self._request, self._statuses
        if len(statuses) == 1 and statuses[0] is OK:
            answer = self._one  # reused; creating a new answer takes three times as long
            answer.entries[0].message_id = request.entries[0].message_id
            answer.entries[0].receipt_handle = request.entries[0].receipt_handle
            return answer.SerializeToString()
        answer = s.AckMessageResponse()
        for entry, status in zip(request.entries, statuses, strict=True):
            answer.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
        codes = {entry.code for entry in statuses}
        answer.status.code = codes.pop() if len(codes) == 1 else d.MULTIPLE_RESULTS
        answer.status.message = d.Code.Name(answer.status.code)
        return answer.SerializeToString()


async def _has_room_in(call: Call, seconds: float) -> bool:
    """Waits for room for an answer; returns False if there is none when the time is up."""
    try:
        async with asyncio.timeout(seconds):
            await call.connection.wait_for_room()
    except TimeoutError:
        return False
    return True


def _set_result(future: "asyncio.Future[Any]", result: object) -> None:
    """Completes a future, unless the call that waits for it was cancelled."""
    if not future.done():
        future.set_result(result)


def _check_invisible(invisible_ms: int, minimum: int) -> None:
    """Raises StatusError if an invisible duration, in ms, is out of range."""
    if invisible_ms < minimum:
        raise StatusError(d.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {minimum}")
    if invisible_ms > MAX_INVISIBLE_MS:
        raise StatusError(d.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {MAX_INVISIBLE_MS}")


def _pop_fields(
    request: s.ReceiveMessageRequest, group: str, topic: str, invisible_ms: int, *, is_ordered: bool
) -> dict[str, str]:
    """Returns the header fields of POP_MESSAGE, without the time to wait."""
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "-1",
        "maxMsgNums": str(min(request.batch_size, BATCH_SIZE)),
        "invisibleTime": str(invisible_ms),
        "bornTime": str(SystemClock.now()),
        "initMode": "1",  # ConsumeInitMode.MAX: a new group starts at the newest message
        "expType": "SQL92" if request.filter_expression.type == d.SQL else "TAG",
        "exp": request.filter_expression.expression or "*",
        "order": str(is_ordered).lower(),
    }
    if request.HasField("attempt_id"):
        fields["attemptId"] = request.attempt_id
    return fields


def _refused_pop(answer: Command) -> StatusError:
    if answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        return StatusError(d.ILLEGAL_FILTER_EXPRESSION, answer.remark or "")
    return refused(answer)


def _popped(answer: Command, broker_name: str, *, in_order: bool) -> Iterator[_Popped]:
    """Yields the messages in the answer to a pop, with their receipt handles (ConsumerProcessor, ExtraInfoUtil)."""
    fields = answer.fields
    if "startOffsetInfo" not in fields:
        yield from _popped_lite(answer, broker_name)
        return
    starts = {place: int(start) for place, start in _infos(fields["startOffsetInfo"])}
    counts = dict(_infos(fields.get("orderCountInfo", "")))
    pop_time, invisible_ms = int(fields["popTime"]), int(fields["invisibleTime"])
    revive_queue = ORDER_REVIVE_QUEUE if in_order else int(fields["reviveQid"])
    for message in parsed_records(answer.body):
        record = message.record
        given = message.properties.get(properties.POP_CHECK_POINT)
        attempt = record.reconsume_times + 1
        handle = f"{given} {record.physical_offset}"
        if given is not None:
            receipt = parse_receipt(handle)
        else:
            queue_id, offset = record.queue_id, record.queue_offset
            start = starts.get(f"0 {queue_id}", offset)
            words = (start, pop_time, invisible_ms, revive_queue, 0, broker_name, queue_id, offset)
            receipt = Receipt(*words, record.physical_offset)
            handle = receipt.text
            if in_order:
                attempt = int(counts.get(f"0 qo{queue_id}%{offset}", counts.get(f"0 {queue_id}", 0))) + 1
        yield _Popped(message, receipt, handle, attempt)


def _popped_lite(answer: Command, broker_name: str) -> Iterator[_Popped]:
    """Yields the messages in the answer to a pop of lite topics (MQClientAPIImpl.processPopLiteResponse)."""
    fields = answer.fields
    pop_time, invisible_ms = int(fields["popTime"]), int(fields["invisibleTime"])
    counts = fields["orderCountInfo"].split(";")
    for count, message in zip(counts, parsed_records(answer.body), strict=True):
        offset = int(message.properties[properties.INNER_MULTI_QUEUE_OFFSET].partition(",")[0])
        words = (offset, pop_time, invisible_ms, ORDER_REVIVE_QUEUE, 0, broker_name, 0, offset)
        receipt = Receipt(*words, message.record.physical_offset)
        yield _Popped(message, receipt, receipt.text, int(count) + 1)


def _infos(text: str) -> Iterator[tuple[str, str]]:
    """Yields key and value of each entry of an info field such as "0 3 17;1 0 5"."""
    for entry in text.split(";"):
        place, _, value = entry.rpartition(" ")
        if place:
            yield place, value
