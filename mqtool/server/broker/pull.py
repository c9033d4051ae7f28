"""Handles pulls and queries: messages of a queue from a queue offset on, or by key, or by physical offset.

A pull waits for messages that have not arrived yet (long polling). Source: PullMessageProcessor,
DefaultPullMessageResultHandler, QueryMessageProcessor (5.5.0).
"""

from collections.abc import Awaitable
from typing import NamedTuple

from mqtool.engine import GetResult, GetStatus
from mqtool.errors import FormatError
from mqtool.formats import properties
from mqtool.formats.config_files import GroupConfig, TopicConfig
from mqtool.formats.topics import lite_queue
from mqtool.protocol.command import FAQ, Command, RequestCode, ResponseCode
from mqtool.server.broker.answers import RefusalError, flag, illegal_queue, number, ok, text
from mqtool.server.broker.broker import RequestProcessor, handles
from mqtool.server.broker.clients import filter_allowed
from mqtool.server.broker.messages import parsed_record
from mqtool.server.net.peer import Peer
from mqtool.store.queues.get_message import MessageFilter

_DEFAULT_MAX = 32
_TAG = "T"


class QueryProcessor(RequestProcessor):
    """Handles QUERY_MESSAGE and VIEW_MESSAGE_BY_ID."""

    @handles(RequestCode.QUERY_MESSAGE)
    def query(self, command: Command, _peer: Peer) -> Command:
        """Returns the messages that have a key.

        The IndexFile contains only the hash of a key. The real broker returns every message with that hash, and its
        clients discard those with another key. Here they are omitted, for clients that do not check.
        """
        limit = _DEFAULT_MAX if flag(command, "_UNIQUE_KEY_QUERY") else number(command, "maxNum")
        topic, key, is_tag = text(command, "topic"), text(command, "key"), command.fields.get("indexType") == _TAG
        begin, end = number(command, "beginTimestamp"), number(command, "endTimestamp")
        result = self._broker.messages.query_message(topic, key, limit, begin, end, tag=is_tag)
        records = [record for record in result.records if _has_key(record, topic, key, is_tag=is_tag)]
        fields = {
            "indexLastUpdateTimestamp": str(result.index_last_update_timestamp),
            "indexLastUpdatePhyoffset": str(result.index_last_update_physical_offset),
        }
        if not records:
            remark = "can not find message, maybe time range not correct"
            return command.reply(ResponseCode.QUERY_NOT_FOUND, remark, fields)
        return ok(command, fields, b"".join(records))

    @handles(RequestCode.VIEW_MESSAGE_BY_ID)
    def view(self, command: Command, _peer: Peer) -> Command:
        """Returns the message at a physical offset."""
        offset = number(command, "offset")
        data = self._broker.messages.message_at(offset)
        if data is None:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return ok(command, data=bytes(data))


def _has_key(record: "memoryview | bytes", topic: str, key: str, *, is_tag: bool) -> bool:
    """Whether a record really has the topic and the key (or tag), not just the same hash."""
    try:
        message = parsed_record(record)
    except FormatError:
        return False
    values = message.properties
    if message.topic != topic:
        return False
    if is_tag:
        return values.get(properties.TAGS) == key
    return key == message.unique_key or key in values.get(properties.KEYS, "").split(properties.KEY_SEPARATOR)


COMMIT_OFFSET = 1
SUSPEND = 2
SUBSCRIPTION = 4

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


class _Pull(NamedTuple):
    """A pull request that has passed all checks."""

    group: str
    topic: str
    queue_topic: str  # topic of the queue that is read: that of the lite topic, if the request names one
    queue_id: int
    offset: int
    max_num: int
    message_filter: MessageFilter | None
    group_config: GroupConfig
    topic_config: TopicConfig


class PullProcessor(RequestProcessor):
    """Handles PULL_MESSAGE and LITE_PULL_MESSAGE."""

    @handles(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
    def pull(self, command: Command, peer: Peer) -> Command | Awaitable[Command]:
        """Answers at once if there are messages or an error; otherwise when messages arrive or the time is up."""
        request = self._checked(command, peer)
        flags = number(command, "sysFlag")
        if (moved := self._moved(request)) is not None:
            return self._answer(command, request, moved)
        if flags & COMMIT_OFFSET:
            offset = number(command, "commitOffset", -1)
            if offset >= 0:
                self._broker.offsets.commit(request.group, request.topic, request.queue_id, offset)
        result = self._get(request)
        is_last = result.next_begin_offset >= result.max_offset
        if is_last and self._broker.long_polling.is_expected(request.queue_topic, request.queue_id):
            return self._get_all(command, request, flags)
        return self._answer_or_hold(command, request, flags, result)

    async def _get_all(self, command: Command, request: _Pull, flags: int) -> Command:
        """Waits for the dispatch of messages whose send was answered before the request, then reads again."""
        await self._broker.long_polling.caught_up(request.queue_topic, request.queue_id)
        answer = self._answer_or_hold(command, request, flags, self._get(request))
        return answer if isinstance(answer, Command) else await answer

    def _answer_or_hold(
        self, command: Command, request: _Pull, flags: int, result: GetResult
    ) -> Command | Awaitable[Command]:
        answer = self._answer(command, request, result)
        if answer.code != ResponseCode.PULL_NOT_FOUND or not flags & SUSPEND:
            return answer
        settings = self._broker.settings
        wait_ms = number(command, "suspendTimeoutMillis", 0)
        if not settings.flag("longPollingEnable"):
            wait_ms = settings.number("shortPollingTimeMills")
        return self._hold(command, request, self._broker.long_polling.seconds(wait_ms), result.next_begin_offset)

    async def _hold(self, command: Command, request: _Pull, seconds: float, offset: int) -> Command:
        """Waits for messages that match the filter; reads again after each arrival, until the time is up."""
        long_polling = self._broker.long_polling
        end = self._broker.clock.monotonic() + seconds
        while True:
            queue = request.queue_topic, request.queue_id
            arrived = await long_polling.wait({queue: offset}, end - self._broker.clock.monotonic())
            if (moved := self._moved(request)) is not None:
                return self._answer(command, request, moved)
            result = self._get(request._replace(offset=offset))
            if not arrived or result.status is not GetStatus.NO_MATCHED_MESSAGE or self._broker.is_stopping:
                return self._answer(command, request, result)
            offset = result.next_begin_offset

    def _moved(self, request: _Pull) -> GetResult | None:
        """Returns the result of a pull whose consumer offset was reset; None if no reset is pending."""
        reset = self._broker.offsets.take_reset(request.group, request.topic, request.queue_id)
        if reset is None:
            return None
        bounds = self._broker.messages.queue_bounds(request.queue_topic, request.queue_id)
        return GetResult(GetStatus.OFFSET_RESET, reset, *bounds, [], [])

    def _get(self, request: _Pull) -> GetResult:
        return self._broker.messages.get_message(
            request.queue_topic, request.queue_id, request.offset, request.max_num, request.message_filter
        )

    def _answer(self, command: Command, request: _Pull, result: GetResult) -> Command:
        code = _CODES.get(result.status)
        if code is None:  # empty queue: a pull at offset 0 waits, others are moved there
            code = ResponseCode.PULL_NOT_FOUND if request.offset == 0 else ResponseCode.PULL_OFFSET_MOVED
        broker = self._broker
        fields = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(result.next_begin_offset),
            "minOffset": str(result.min_offset),
            "maxOffset": str(result.max_offset),
            "topicSysFlag": str(request.topic_config.topic_sys_flag),
            "groupSysFlag": str(request.group_config.group_sys_flag or 0),
        }
        broker.offsets.note_pull(request.group, request.topic, request.queue_id, result.next_begin_offset)
        if result.records:
            broker.stats.got(request.group, request.topic, request.queue_id, len(result.records), result.size)
            return command.reply(code, result.status.value, fields, result.joined())
        broker.stats.not_found += 1
        return command.reply(code, result.status.value, fields)

    def _checked(self, command: Command, peer: Peer) -> _Pull:
        """Parses and checks a request; raises RefusalError for the first failed check, in the real broker's order."""
        broker = self._broker
        group, topic = text(command, "consumerGroup"), text(command, "topic")
        queue_id = number(command, "queueId")
        broker.check_readable("pulling message")
        group_config = broker.consuming_group(group, "does not exist, apply first please!")
        topic_config = broker.readable_topic(topic)
        if not 0 <= queue_id < topic_config.read_queue_nums:
            raise illegal_queue(ResponseCode.INVALID_PARAMETER, topic_config, queue_id, peer)
        message_filter = self._filter(command, group, topic, group_config)
        offset, count = number(command, "queueOffset"), number(command, "maxMsgNums")
        lite = command.fields.get("liteTopic", "").strip()
        queue_topic = lite_queue(topic, lite) if lite else topic
        return _Pull(group, topic, queue_topic, queue_id, offset, count, message_filter, group_config, topic_config)

    def _filter(self, command: Command, group: str, topic: str, config: GroupConfig) -> MessageFilter | None:
        """Returns the message filter in the request; without one, that of the group's last heartbeat."""
        fields = command.fields
        if number(command, "sysFlag") & SUBSCRIPTION:
            expression, kind = fields.get("subscription") or "*", fields.get("expressionType")
        else:
            consumers = self._broker.clients.consumers.get(group)
            if consumers is None:
                raise RefusalError(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
            if not config.consume_broadcast_enable and consumers.message_model == "BROADCASTING":
                raise RefusalError(
                    ResponseCode.NO_PERMISSION, f"the consumer group[{group}] can not consume by broadcast way"
                )
            if self._broker.groups.is_forbidden(group, topic):
                remark = f"the consumer group[{group}] is forbidden for topic[{topic}]"
                raise RefusalError(ResponseCode.NO_PERMISSION, remark)
            subscription = consumers.subscriptions.get(topic)
            if subscription is None:
                raise RefusalError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
            if subscription.version < number(command, "subVersion", 0):
                raise RefusalError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
            expression, kind = subscription.expression, subscription.kind
        return filter_allowed(self._broker.settings, expression, kind or "TAG")
