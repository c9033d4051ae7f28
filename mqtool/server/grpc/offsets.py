"""RPCs of pull consumers: PullMessage, UpdateOffset, GetOffset, QueryOffset.

The real proxy answers UNIMPLEMENTED. The protocol defines them, and clients that use them are supported here.
Source: service.proto of apache.rocketmq.v2.
"""

from mqtool.formats import properties
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s
from mqtool.server.broker.consume.pull import SUBSCRIPTION, SUSPEND
from mqtool.server.broker.parsed_record import parsed_records
from mqtool.server.grpc.clients import BATCH_SIZE, POLL_S
from mqtool.server.grpc.core import OK, Core, StatusError, duration_ms, refused, time_ms
from mqtool.server.grpc.messages import fill_incoming, tag_filter
from mqtool.server.net.http2 import Call

_NOTHING = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})


class Offsets:
    """Handles the RPCs of pull consumers."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def pull(self, call: Call, data: bytes) -> list[bytes]:
        """PullMessage: returns status, messages, and the queue offset of the next pull."""
        request = s.PullMessageRequest.FromString(data)
        core = self._core
        topic, group = core.topic(request.message_queue.topic), core.group(request.group)
        core.topic_config(topic)
        if request.offset < 0:
            raise StatusError(d.ILLEGAL_OFFSET, f"offset {request.offset} is negative")
        wait = request.long_polling_timeout
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(request.message_queue.id),
            "queueOffset": str(request.offset),
            "maxMsgNums": str(min(max(request.batch_size, 1), BATCH_SIZE)),
            "sysFlag": str(SUBSCRIPTION | SUSPEND),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(min(duration_ms(wait), POLL_S * 1000)),
            "subscription": request.filter_expression.expression or "*",
            "expressionType": "SQL92" if request.filter_expression.type == d.SQL else "TAG",
            "subVersion": "0",
        }
        answer = await core.ask(RequestCode.PULL_MESSAGE, fields, call.peer)
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            status = d.Status(code=d.ILLEGAL_OFFSET, message="the offset is not in the queue")
        elif answer.code in _NOTHING:
            status = d.Status(code=d.MESSAGE_NOT_FOUND, message="no new message")
        elif answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
            raise StatusError(d.ILLEGAL_FILTER_EXPRESSION, answer.remark or "")
        elif answer.code != ResponseCode.SUCCESS:
            raise refused(answer)
        else:
            status = OK
        answers = [s.PullMessageResponse(status=status)]
        tags = tag_filter(request.filter_expression)
        for message in parsed_records(answer.body):
            if not tags.by_tag(message.properties.get(properties.TAGS)):
                continue  # the broker compares only hashes of tags
            attempt = message.record.reconsume_times + 1
            reply = s.PullMessageResponse()
            fill_incoming(reply.message, message, topic, None, attempt)
            answers.append(reply)
        answers.append(s.PullMessageResponse(next_offset=int(answer.fields["nextBeginOffset"])))
        return [reply.SerializeToString() for reply in answers]

    def _queue(self, queue: d.MessageQueue) -> dict[str, str]:
        """Returns the request fields that name a queue; raises StatusError if the queue does not exist."""
        topic = self._core.topic(queue.topic)
        config = self._core.topic_config(topic)
        if not 0 <= queue.id < config.read_queue_nums:
            raise StatusError(d.BAD_REQUEST, f"queue {queue.id}: the topic has {config.read_queue_nums}")
        return {"topic": topic, "queueId": str(queue.id)}

    async def update(self, call: Call, data: bytes) -> bytes:
        """Handles the RPC UpdateOffset."""
        request = s.UpdateOffsetRequest.FromString(data)
        group = self._core.group(request.group)
        if request.offset < 0:
            raise StatusError(d.ILLEGAL_OFFSET, f"offset {request.offset} is negative")
        self._core.broker.groups.find(group)
        fields = {"consumerGroup": group, **self._queue(request.message_queue), "commitOffset": str(request.offset)}
        await self._core.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields, call.peer)
        return s.UpdateOffsetResponse(status=OK).SerializeToString()

    async def get(self, call: Call, data: bytes) -> bytes:
        """Handles the RPC GetOffset."""
        request = s.GetOffsetRequest.FromString(data)
        fields = {"consumerGroup": self._core.group(request.group), **self._queue(request.message_queue)}
        fields["setZeroIfNotFound"] = "false"
        answer = await self._core.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields, call.peer)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            raise StatusError(d.OFFSET_NOT_FOUND, answer.remark or "")
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer)
        return s.GetOffsetResponse(status=OK, offset=int(answer.fields["offset"])).SerializeToString()

    async def query(self, call: Call, data: bytes) -> bytes:
        """Handles the RPC QueryOffset."""
        request = s.QueryOffsetRequest.FromString(data)
        fields, code = self._queue(request.message_queue), RequestCode.GET_MIN_OFFSET
        if request.query_offset_policy == d.END:
            code = RequestCode.GET_MAX_OFFSET
        elif request.query_offset_policy == d.TIMESTAMP:
            code, fields["timestamp"] = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, str(time_ms(request.timestamp))
        answer = await self._core.call(code, fields, call.peer)
        return s.QueryOffsetResponse(status=OK, offset=int(answer.fields["offset"])).SerializeToString()
