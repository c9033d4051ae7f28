"""Pop: messages of any queue of a topic, invisible to others until they are acknowledged or their time is over.

Source: PopMessageProcessor, AckMessageProcessor, ChangeInvisibleTimeProcessor, ExtraInfoUtil (5.5.0).
"""

import asyncio
import base64
import random
import time
from typing import TYPE_CHECKING, NamedTuple

from mqtool.engine.filters import MessageFilter
from mqtool.formats import properties
from mqtool.protocol.codes import ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker import names
from mqtool.server.broker.answers import RefusalError, body_of, flag, number, ok, text
from mqtool.server.broker.client_manage import missing_group
from mqtool.server.broker.popped import PoppedQueue, QueueKey
from mqtool.server.broker.stored import again, stored
from mqtool.server.peer import Peer

if TYPE_CHECKING:
    from mqtool.server.broker.broker import Broker

_PERIOD_S = 0.2
_MOST = 32
_INIT_AT_END = 1
_RETRIES_FIRST = 5
"""One pop in so many looks at the messages to be consumed again before the others."""
_RECONSUMED_TOO_OFTEN = 16


class _Pop(NamedTuple):
    """A request, checked."""

    group: str
    topic: str
    queues: list[tuple[str, int]]
    max_num: int
    invisible_ms: int
    wanted: MessageFilter | None
    from_end: bool
    in_order: bool


class _Taken(NamedTuple):
    """Messages of one queue that go out."""

    topic: str
    queue_id: int
    offsets: list[int]
    records: list[memoryview]


class PopProcessor:
    """POP_MESSAGE, ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME."""

    def __init__(self, broker: "Broker") -> None:
        """Takes the broker whose tables and store it uses."""
        self._broker = broker
        self._queues: dict[QueueKey, PoppedQueue] = {}

    async def pop(self, command: Command, peer: Peer) -> Command:  # noqa: ARG002 - every handler has both
        """Hands out messages; without any, waits for them as long as the request allows."""
        request = self._checked(command)
        held = self._broker.held
        waits = min(number(command, "pollTime", 0), 30_000) / 1000
        end = held.now() + waits
        while True:
            taken = self._take(request)
            left = end - held.now()
            if taken or left <= 0 or self._broker.is_stopping:
                return self._answer(command, request, taken)
            await held.wait({queue: self._queue(request, *queue).next_offset for queue in request.queues}, left)

    def _checked(self, command: Command) -> _Pop:
        broker = self._broker
        group, topic = text(command, "consumerGroup"), text(command, "topic")
        broker.check_readable("pop message")
        if number(command, "maxMsgNums") > _MOST:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"maxMsgNums is greater than {_MOST}")
        config = broker.groups.find(group)
        if config is None:
            raise missing_group(group)
        if not config.consume_enable:
            raise RefusalError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
        topic_config = broker.readable_topic(topic)
        queue_id = number(command, "queueId", -1)
        if queue_id >= topic_config.read_queue_nums:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"queueId[{queue_id}] is illegal, topic:[{topic}]")
        every = list(range(topic_config.read_queue_nums)) if queue_id < 0 else [queue_id]
        start = random.randrange(max(1, len(every)))  # noqa: S311 - spreads load, hides nothing
        queues = [(topic, one) for one in every[start:] + every[:start]]
        if not topic.startswith(names.RETRY_PREFIX):  # it need not be there yet: what is popped now may come again
            first = random.randrange(_RETRIES_FIRST) == 0  # noqa: S311
            queues.insert(0 if first else len(queues), (names.pop_retry_topic(group, topic), 0))
        wanted = broker.pulls.filter_for(command.fields.get("exp") or "*", command.fields.get("expType") or "TAG")
        return _Pop(
            group, topic, queues, number(command, "maxMsgNums"), number(command, "invisibleTime"), wanted,
            number(command, "initMode", 0) == _INIT_AT_END, flag(command, "order"),
        )  # fmt: skip

    def _queue(self, request: _Pop, topic: str, queue_id: int) -> PoppedQueue:
        """Returns what the group has popped of a queue; a group that is new there begins as it wants to."""
        key = QueueKey(request.group, topic, queue_id)
        found = self._queues.get(key)
        lowest, highest = self._broker.messages.queue_bounds(topic, queue_id)
        reset = self._broker.offsets.take_reset(*key)
        if found is None or reset is not None:
            offset = reset if reset is not None else self._broker.offsets.get(*key)
            if offset is None:
                young = lowest == 0 and not self._broker.messages.get_message(topic, queue_id, 0, 1).suggest_slave
                offset = highest if request.from_end and not young else lowest
            found = self._queues[key] = PoppedQueue(min(max(offset, lowest), highest))
        found.next_offset = max(found.next_offset, lowest)
        return found

    def _take(self, request: _Pop) -> list[_Taken]:
        """Takes messages out of the queues, up to the number wanted."""
        broker, taken, left = self._broker, [], request.max_num
        deadline = time.time_ns() // 1_000_000 + request.invisible_ms
        for topic, queue_id in request.queues:
            queue = self._queue(request, topic, queue_id)
            if left <= 0:
                break
            if request.in_order and queue.invisible:
                continue
            found = broker.messages.get_message(topic, queue_id, queue.next_offset, left, request.wanted)
            if found.next_begin_offset > queue.next_offset:
                queue.take(found.queue_offsets, found.next_begin_offset, deadline)
                broker.offsets.commit(request.group, topic, queue_id, queue.committed)
            if found.records:
                left -= len(found.records)
                taken.append(_Taken(topic, queue_id, found.queue_offsets, found.records))
                broker.stats.got(request.group, topic, queue_id, len(found.records), found.size)
        return taken

    def _answer(self, command: Command, request: _Pop, taken: list[_Taken]) -> Command:
        now = time.time_ns() // 1_000_000
        rest = sum(
            max(0, self._broker.messages.queue_bounds(*queue)[1] - self._queue(request, *queue).next_offset)
            for queue in request.queues
        )
        fields = {
            "popTime": str(now), "invisibleTime": str(request.invisible_ms), "reviveQid": "0", "restNum": str(rest),
        }  # fmt: skip
        if not taken:
            return command.reply(ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE", fields)
        fields["startOffsetInfo"] = ";".join(f"{_retry_flag(one)} {one.queue_id} {one.offsets[0]}" for one in taken)
        fields["msgOffsetInfo"] = ";".join(
            f"{_retry_flag(one)} {one.queue_id} {','.join(map(str, one.offsets))}" for one in taken
        )
        data = b"".join(record for one in taken for record in one.records)
        return command.reply(ResponseCode.SUCCESS, "FOUND", fields, data)

    # -- acknowledging -------------------------------------------------------------------------------------------

    def ack(self, command: Command, peer: Peer) -> Command:  # noqa: ARG002
        """Notes that a message is consumed."""
        key = QueueKey(text(command, "consumerGroup"), text(command, "topic"), number(command, "queueId"))
        lowest, highest = self._broker.messages.queue_bounds(key.topic, key.queue_id)
        offset = number(command, "offset")
        if not lowest <= offset < highest:
            raise RefusalError(ResponseCode.NO_MESSAGE, f"offset {offset} is illegal, {key.topic}@{key.queue_id}")
        self._acknowledge(key, offset)
        return ok(command)

    def batch_ack(self, command: Command, peer: Peer) -> Command:  # noqa: ARG002
        """Notes that messages are consumed: a bit for each, from an offset on."""
        for one in body_of(command).get("acks") or []:
            topic = str(one.get("t", ""))
            if str(one.get("r", "0")) == "1":
                topic = names.pop_retry_topic(str(one.get("c", "")), topic)
            key = QueueKey(str(one.get("c", "")), topic, int(one.get("q", 0)))
            bits = int.from_bytes(base64.b64decode(str(one.get("b", ""))), "little")
            start = int(one.get("so", 0))
            for place in range(bits.bit_length()):
                if bits >> place & 1:
                    self._acknowledge(key, start + place)
        return ok(command)

    def _acknowledge(self, key: QueueKey, offset: int) -> None:
        queue = self._queues.get(key)
        if queue is not None and queue.acknowledge(offset):
            self._broker.offsets.commit(*key, queue.committed)

    def change_invisible(self, command: Command, peer: Peer) -> Command:  # noqa: ARG002
        """Changes how long a message stays invisible."""
        key = QueueKey(text(command, "consumerGroup"), text(command, "topic"), number(command, "queueId"))
        now, invisible = time.time_ns() // 1_000_000, number(command, "invisibleTime")
        queue = self._queues.get(key)
        if queue is None or not queue.prolong(number(command, "offset"), now + invisible):
            raise RefusalError(ResponseCode.NO_MESSAGE, "the message is not out any more")
        return ok(command, {"popTime": str(now), "invisibleTime": str(invisible), "reviveQid": "0"})

    # -- what comes again ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Has messages come again whose time is over, for as long as the broker runs."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            now = time.time_ns() // 1_000_000
            for key, queue in list(self._queues.items()):
                for offset in queue.due(now):
                    await self._revive(key, offset)
                    self._acknowledge(key, offset)

    async def close(self) -> None:
        """Leaves offsets at the oldest message that is out."""
        for key, queue in self._queues.items():
            self._broker.offsets.commit(*key, queue.committed)

    async def _revive(self, key: QueueKey, offset: int) -> None:
        """Puts a message into the retry topic of its group and topic; one that came too often, to the dead letters."""
        broker = self._broker
        found = broker.messages.get_message(key.topic, key.queue_id, offset, 1)
        if not found.records or found.queue_offsets[0] != offset:
            return
        message = stored(found.records[0])
        is_retry = key.topic.startswith(names.RETRY_PREFIX)
        topic = key.topic if is_retry else names.pop_retry_topic(key.group, key.topic)
        config = broker.groups.get(key.group)
        limit = config.retry_max_times if config is not None else _RECONSUMED_TOO_OFTEN
        if message.record.reconsume_times >= limit:
            topic = names.dead_letter_topic(key.group)
        broker.topics.create_for_send_back(topic, 1)
        changed = dict(message.properties)
        changed.setdefault(properties.RETRY_TOPIC, key.topic)
        outgoing = again(message, topic, 0, changed, broker.store_host)
        await broker.writer.store(outgoing._replace(reconsume_times=message.record.reconsume_times + 1))


def _retry_flag(taken: _Taken) -> int:
    """Returns how POP marks a queue: 1 for messages that come again."""
    return 1 if taken.topic.startswith(names.RETRY_PREFIX) else 0
