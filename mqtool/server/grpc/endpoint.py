"""The gRPC service: all RPCs of apache.rocketmq.v2.MessagingService by path, and the permissions that they need.

RPCs about routes, assignments and pull consumers are here. The real proxy answers UNIMPLEMENTED to those of pull
consumers; the protocol defines them, and clients that use them are supported here. A client signs only the time of its
call, in the header `x-mq-date-time`; as in the real proxy, any time is accepted. Source: GrpcMessagingApplication,
RouteActivity, AuthenticationPipeline, AuthorizationPipeline, ResponseBuilder (rocketmq-proxy 5.5.0),
DefaultAuthenticationContextBuilder, DefaultAuthorizationContextBuilder (5.5.0), service.proto of apache.rocketmq.v2.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from mqtool.formats import java, properties
from mqtool.formats.auth_records import Action, Resource, ResourceType
from mqtool.formats.config_files import PERM_READ, PERM_WRITE, TopicConfig
from mqtool.protocol.command import RequestCode, ResponseCode
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s
from mqtool.server.auth.guard import PUB, SUB, Auth, Need, check_signature, signature_of
from mqtool.server.auth.tables import AuthError
from mqtool.server.broker.answers import RefusalError
from mqtool.server.broker.messages import parsed_records
from mqtool.server.broker.pull import SUBSCRIPTION, SUSPEND
from mqtool.server.broker.service import BrokerService
from mqtool.server.faults import Faults, Request
from mqtool.server.grpc.clients import BATCH_SIZE, POLL_S, Check, Client, Clients
from mqtool.server.grpc.consuming import Consuming
from mqtool.server.grpc.core import OK, Core, StatusError, duration_ms, refused, time_ms
from mqtool.server.grpc.messages import fill_incoming, tag_filter
from mqtool.server.grpc.producing import Producing
from mqtool.server.net.http2 import Call, GrpcError, GrpcStatus, Handler, Http2Connection, Methods, Result
from mqtool.server.net.peer import Endpoint, Peer
from mqtool.server.net.peer import Handler as RequestHandler

_CONSUMERS = frozenset({d.PUSH_CONSUMER, d.SIMPLE_CONSUMER, d.PULL_CONSUMER})

_NOTHING = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})

RpcHandler = Callable[[Call, Any], Awaitable[Result] | Result]
_SERVICE = "/apache.rocketmq.v2.MessagingService/"
_PERMISSIONS = {PERM_READ: d.READ, PERM_READ | PERM_WRITE: d.READ_WRITE}


def check_permissions(auth: Auth, call: Call, request: Any) -> None:
    """Raises StatusError (UNAUTHORIZED) for a call without a valid signature, or without permission."""
    rpc = request.DESCRIPTOR.full_name
    try:
        name = _authenticate(auth, call, rpc)
        if auth.options.authorization:
            auth.authorize(name, list(needs_of(request)), call.peer.host, rpc)
    except AuthError as error:
        raise StatusError(d.UNAUTHORIZED, str(error)) from error


def _authenticate(auth: Auth, call: Call, rpc: str) -> str | None:
    """Authenticates a call; returns the name of the user, or None if the call names none."""
    if not auth.options.authentication:
        return None
    name, signature = _credentials(call.header("authorization"), call.header("x-mq-date-time"))
    user = auth.authenticated(name or "", rpc)
    if user is not None:
        content = call.headers[b"x-mq-date-time"]
        check_signature(signature, signature_of(content, user.password or ""))
    return name


def _credentials(authorization: str, time: str) -> tuple[str | None, str]:
    """Returns the user name and the signature (in Base64) of an authorization header.

    Its form is "ALGORITHM Credential=NAME/…, SignedHeaders=…, Signature=HEX"; raises AuthError for another.
    """
    if not authorization:
        return None, ""
    if not time:
        raise AuthError("datetime is null.")
    _, space, rest = authorization.partition(" ")
    if not space:
        raise AuthError("authentication header is incorrect.")
    name, signature = None, ""
    for part in rest.rstrip(",").split(","):
        key, equals, value = part.strip().partition("=")
        if not equals:
            raise AuthError("authentication keyValues length is incorrect, actual length=1.")
        if key == "Credential":
            name = value.partition("/")[0]
        elif key == "Signature":
            try:
                signature = base64.b64encode(bytes.fromhex(value) if value.isalnum() or not value else b"!").decode()
            except (ValueError, binascii.Error) as error:
                raise AuthError("create authentication context error.") from error
    return name, signature


def needs_of(request: Any) -> Iterator[Need]:
    """Yields the permissions that a request needs; raises AuthError if it does not name its topic or group."""
    rule = _NEEDS.get(type(request))
    if rule is not None:
        yield from rule(request)


def _topic(topic: d.Resource, actions: tuple[Action, ...]) -> Need:
    if java.is_blank(topic.name):
        raise AuthError("topic is null.")
    return Need(Resource(ResourceType.TOPIC, topic.name), actions)


def _group(group: d.Resource) -> Need:
    if java.is_blank(group.name):
        raise AuthError("group is null.")
    return Need(Resource.group(group.name), SUB)


def _send(request: s.SendMessageRequest) -> Iterator[Need]:
    if not request.messages:
        raise AuthError("message is null.")
    for topic in dict.fromkeys(message.topic.name for message in request.messages):
        yield _topic(d.Resource(name=topic), PUB)


def _heartbeat(request: s.HeartbeatRequest) -> Iterator[Need]:
    if request.client_type in _CONSUMERS:
        yield _group(request.group)


def _receive(request: s.ReceiveMessageRequest | s.PullMessageRequest) -> Iterator[Need]:
    if not request.HasField("message_queue"):
        raise AuthError("messageQueue is null.")
    yield from _offset(request)


def _lite(request: s.SyncLiteSubscriptionRequest) -> Iterator[Need]:
    if request.lite_topic_set:
        yield from _both(request)


def _both(request: Any) -> Iterator[Need]:
    """Yields the needs for a consumer group and the topic that it consumes."""
    yield _group(request.group)
    yield _topic(request.topic, SUB)


def _leave(request: s.NotifyClientTerminationRequest) -> Iterator[Need]:
    if not java.is_blank(request.group.name):
        yield _group(request.group)


def _settings(request: s.TelemetryCommand) -> Iterator[Need]:
    if request.WhichOneof("command") != "settings":
        return
    settings = request.settings
    if settings.HasField("publishing"):
        for topic in settings.publishing.topics:
            yield _topic(topic, PUB)
    if settings.HasField("subscription"):
        yield _group(settings.subscription.group)
        for entry in settings.subscription.subscriptions:
            yield _topic(entry.topic, SUB)


def _offset(request: Any) -> Iterator[Need]:
    yield _group(request.group)
    yield _topic(request.message_queue.topic, SUB)


_NEEDS: dict[type[Any], Callable[[Any], Iterable[Need]]] = {
    s.SendMessageRequest: _send,
    s.RecallMessageRequest: lambda request: [_topic(request.topic, PUB)],
    s.EndTransactionRequest: lambda request: [_topic(request.topic, PUB)],
    s.HeartbeatRequest: _heartbeat,
    s.ReceiveMessageRequest: _receive,
    s.SyncLiteSubscriptionRequest: _lite,
    s.AckMessageRequest: _both,
    s.ForwardMessageToDeadLetterQueueRequest: _both,
    s.NotifyClientTerminationRequest: _leave,
    s.ChangeInvisibleDurationRequest: lambda request: [_group(request.group)],
    s.QueryRouteRequest: lambda request: [_topic(request.topic, (Action.PUB, Action.SUB))],
    s.QueryAssignmentRequest: _both,
    s.TelemetryCommand: _settings,
    # The real proxy does not implement these.
    s.PullMessageRequest: _receive,
    s.UpdateOffsetRequest: _offset,
    s.GetOffsetRequest: _offset,
    s.QueryOffsetRequest: lambda request: [_topic(request.message_queue.topic, SUB)],
}


class Offsets:
    """Handles the RPCs of pull consumers."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def pull(self, call: Call, request: s.PullMessageRequest) -> list[bytes]:
        """PullMessage: returns status, messages, and the queue offset of the next pull."""
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

    async def update(self, call: Call, request: s.UpdateOffsetRequest) -> bytes:
        """Handles the RPC UpdateOffset."""
        group = self._core.group(request.group)
        if request.offset < 0:
            raise StatusError(d.ILLEGAL_OFFSET, f"offset {request.offset} is negative")
        self._core.broker.groups.find(group)
        fields = {"consumerGroup": group, **self._queue(request.message_queue), "commitOffset": str(request.offset)}
        await self._core.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields, call.peer)
        return s.UpdateOffsetResponse(status=OK).SerializeToString()

    async def get(self, call: Call, request: s.GetOffsetRequest) -> bytes:
        """Handles the RPC GetOffset."""
        fields = {"consumerGroup": self._core.group(request.group), **self._queue(request.message_queue)}
        fields["setZeroIfNotFound"] = "false"
        answer = await self._core.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields, call.peer)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            raise StatusError(d.OFFSET_NOT_FOUND, answer.remark or "")
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer)
        return s.GetOffsetResponse(status=OK, offset=int(answer.fields["offset"])).SerializeToString()

    async def query(self, call: Call, request: s.QueryOffsetRequest) -> bytes:
        """Handles the RPC QueryOffset."""
        fields, code = self._queue(request.message_queue), RequestCode.GET_MIN_OFFSET
        if request.query_offset_policy == d.END:
            code = RequestCode.GET_MAX_OFFSET
        elif request.query_offset_policy == d.TIMESTAMP:
            code, fields["timestamp"] = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, str(time_ms(request.timestamp))
        answer = await self._core.call(code, fields, call.peer)
        return s.QueryOffsetResponse(status=OK, offset=int(answer.fields["offset"])).SerializeToString()


class GrpcEndpoint:
    """The gRPC service of one broker: the connected clients, and the RPCs by path (`methods`)."""

    def __init__(
        self,
        service: BrokerService,
        handlers: Mapping[int, RequestHandler],
        auth: Auth | None = None,
        faults: Faults | None = None,
    ) -> None:
        """Creates the service on the broker's request handlers; `auth` checks users and permissions."""
        self._service = service
        self._core = core = Core(service.broker, handlers, service.acks, service.fast_sends)
        producing = Producing(core)
        check = None if auth is None else partial(check_permissions, auth)
        self.clients = producing.clients = clients = Clients(core, producing.deliver, check)
        self._consuming = consuming = Consuming(core, clients, self._spawn)
        offsets = Offsets(core)
        clients.on_leave.append(self._left)
        service.tasks.forever(consuming.renewals.turn)
        unary: dict[str, RpcHandler] = {
            "QueryRoute": self.route,
            "Heartbeat": clients.heartbeat,
            "SendMessage": producing.send,
            "QueryAssignment": self.assignment,
            "ReceiveMessage": consuming.receive,
            "AckMessage": consuming.ack,
            "ForwardMessageToDeadLetterQueue": consuming.forward,
            "PullMessage": offsets.pull,
            "UpdateOffset": offsets.update,
            "GetOffset": offsets.get,
            "QueryOffset": offsets.query,
            "EndTransaction": producing.end,
            "NotifyClientTermination": clients.terminate,
            "ChangeInvisibleDuration": consuming.change,
            "SyncLiteSubscription": clients.sync_lite,
            "RecallMessage": producing.recall,
        }
        calls = {_SERVICE + name: answering(name, handler, check, faults) for name, handler in unary.items()}
        polls = frozenset({_SERVICE + "ReceiveMessage", _SERVICE + "PullMessage"})
        self.methods = Methods(calls, {_SERVICE + "Telemetry": clients.telemetry}, polls)

    def pause(self) -> None:
        """Passes all sends to the handlers, which may wait, until `serve` is called."""
        self._core.fast_sends = None

    def serve(self, service: BrokerService) -> None:
        """Serves the connected clients with another broker from now on."""
        self._service, core = service, self._core
        core.broker, core.acks, core.fast_sends = service.broker, service.acks, service.fast_sends
        service.tasks.forever(self._consuming.renewals.turn)

    def connection(self, peer: Peer, endpoint: Endpoint) -> Http2Connection:
        """Returns the HTTP/2 protocol for a new connection."""
        return Http2Connection(peer, self.methods, endpoint.limits, lambda: endpoint.stopping)

    def _left(self, client: Client) -> None:
        if not self._core.broker.is_stopping:
            self._spawn(self._consuming.renewals.free(client.client_id))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._service.tasks.spawn(work)

    def route(self, call: Call, request: s.QueryRouteRequest) -> bytes:
        """QueryRoute: returns all queues of a topic, at the hosts that the client used and the connection's port."""
        topic = self._core.topic(request.topic)
        config, answer = self._core.topic_config(topic), s.QueryRouteResponse(status=OK)
        endpoints = self._endpoints(call, request.endpoints)
        kinds = self._core.message_types(topic)
        for queue_id, permission in enumerate(self._queue_permissions(config)):
            queue = answer.message_queues.add()
            self._set_queue(queue, topic, queue_id, endpoints)
            queue.permission = permission
            queue.accept_message_types.extend(kinds)  # type: ignore[arg-type]
        return answer.SerializeToString()

    def assignment(self, call: Call, request: s.QueryAssignmentRequest) -> bytes:
        """QueryAssignment: returns the whole broker as queue -1; each queue for a group that consumes in order."""
        topic, group = self._core.topic(request.topic), self._core.group(request.group)
        config, answer = self._core.topic_config(topic), s.QueryAssignmentResponse(status=OK)
        readable = self._core.readable_queues(config)
        if readable <= 0:
            raise StatusError(d.FORBIDDEN, "no readable queue")
        endpoints = self._endpoints(call, request.endpoints)
        permission = _PERMISSIONS[self._core.permission(config) & (PERM_READ | PERM_WRITE)]
        for queue_id in range(readable) if self._core.group_config(group).consume_message_orderly else (-1,):
            queue = answer.assignments.add().message_queue
            self._set_queue(queue, topic, queue_id, endpoints)
            queue.permission = permission
        return answer.SerializeToString()

    def _queue_permissions(self, config: TopicConfig) -> list[d.Permission]:
        """Returns the permission of each queue in a route, by queue id (RouteActivity.genMessageQueueFromQueueData)."""
        readable, writable = self._core.readable_queues(config), self._core.writable_queues(config)
        if not self._core.permission(config) & (PERM_READ | PERM_WRITE):
            return [d.NONE] * max(1, config.read_queue_nums, config.write_queue_nums)
        both = min(readable, writable)
        return [d.READ] * (readable - both) + [d.WRITE] * (writable - both) + [d.READ_WRITE] * both

    def _endpoints(self, call: Call, requested: d.Endpoints) -> d.Endpoints:
        """Returns the hosts that a client used, with the port of the connection, or the one advertised in its place.

        If the settings say so, the client's port is returned instead; it is needed if another port is mapped to the
        extra one for gRPC clients, as for a container.
        """
        broker, endpoints, port = self._core.broker, d.Endpoints(scheme=requested.scheme), call.peer.local_port
        if port == broker.settings.number("listenPort"):
            port = broker.port
        own = broker.settings.flag("useEndpointPortFromRequest")
        for address in requested.addresses:
            endpoints.addresses.add(host=address.host, port=address.port if own else port)
        return endpoints

    def _set_queue(self, queue: d.MessageQueue, topic: str, queue_id: int, endpoints: d.Endpoints) -> None:
        queue.topic.name, queue.id = topic, queue_id
        queue.broker.name = self._core.broker_name
        queue.broker.endpoints.CopyFrom(endpoints)


_SAME = {
    "SendMessage": RequestCode.SEND_MESSAGE_V2.name,
    "ReceiveMessage": RequestCode.POP_MESSAGE.name,
    "PullMessage": RequestCode.PULL_MESSAGE.name,
    "AckMessage": RequestCode.ACK_MESSAGE.name,
    "UpdateOffset": RequestCode.UPDATE_CONSUMER_OFFSET.name,
}
"""Names of the remoting requests that do the same as an RPC."""


def _with_faults(faults: Faults, name: str, handler: RpcHandler, failed: Callable[[StatusError], bytes]) -> RpcHandler:
    """Returns the handler of an RPC that lists its calls, with the faults that a test asks for.

    `failed` returns the answer to a call that ends with an error.
    """
    parse = getattr(s, f"{name}Response").FromString

    def refuse(code: ResponseCode, remark: str) -> Result:
        return failed(refused(RefusalError(code, remark)))

    def outcome(result: Result) -> str:
        parts = map(parse, [result] if isinstance(result, bytes) else result)
        status = next(part.status for part in parts if part.HasField("status"))
        return "OK" if status.code == d.OK else f"{d.Code.Name(status.code)}: {status.message}"

    def handle(call: Call, request: Any) -> Awaitable[Result] | Result:
        about = next(iter(getattr(request, "messages", ())), getattr(request, "message_queue", request))
        topic, group = (
            getattr(resource, "name", "") for resource in (getattr(about, "topic", ""), getattr(request, "group", ""))
        )
        called = Request(_SAME.get(name, name), topic, group, call.peer.address)
        return faults.answer(called, lambda: handler(call, request), refuse, outcome)

    return handle


def answering(name: str, handler: RpcHandler, check: Check | None = None, faults: Faults | None = None) -> Handler:
    """Wraps the handler of an RPC: parses its requests, and turns a StatusError into an answer with this status.

    A future that the handler returns must end with an answer. `check` is called before; it raises StatusError.
    """
    parse, answer = getattr(s, f"{name}Request").FromString, getattr(s, f"{name}Response")

    def failed(error: StatusError) -> bytes:
        return bytes(answer(status=error.status).SerializeToString())

    async def later(result: Awaitable[Result]) -> Result:
        try:
            return await result
        except StatusError as error:
            return failed(error)

    def begin(call: Call, request: Any) -> Awaitable[Result] | Result:
        try:
            if check is not None:
                check(call, request)
            if b"x-mq-client-id" not in call.headers:
                return failed(StatusError(d.CLIENT_ID_REQUIRED, "client-id cannot be empty"))
            result = handler(call, request)
        except StatusError as error:
            return failed(error)
        if isinstance(result, asyncio.Future):  # a future never ends with StatusError
            return result
        return later(result) if isinstance(result, Awaitable) else result

    answered = begin if faults is None else _with_faults(faults, name, begin, failed)

    def handle(call: Call, data: bytes) -> Awaitable[Result] | Result:
        try:
            request = parse(data)
        except DecodeError as error:
            raise GrpcError(GrpcStatus.INTERNAL, "Invalid protobuf byte sequence") from error
        return answered(call, request)

    return handle
