"""The gRPC service: all RPCs of apache.rocketmq.v2.MessagingService by path, including routes and assignments.

Source: GrpcMessagingApplication, RouteActivity (rocketmq-proxy 5.5.0).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from mqtool.formats.config_files import PERM_READ, PERM_WRITE, TopicConfig
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s
from mqtool.server.auth.guard import Auth
from mqtool.server.broker.service import BrokerService
from mqtool.server.grpc import permissions
from mqtool.server.grpc.clients import Check, Client, Clients
from mqtool.server.grpc.consuming import Consuming
from mqtool.server.grpc.core import OK, Core, StatusError
from mqtool.server.grpc.offsets import Offsets
from mqtool.server.grpc.producing import Producing
from mqtool.server.net.http2 import Call, GrpcError, GrpcStatus, Handler, Http2Connection, Methods, Result
from mqtool.server.net.peer import Endpoint, Peer
from mqtool.server.net.peer import Handler as RequestHandler

_SERVICE = "/apache.rocketmq.v2.MessagingService/"
_PERMISSIONS = {PERM_READ: d.READ, PERM_READ | PERM_WRITE: d.READ_WRITE}


class GrpcEndpoint:
    """The gRPC service of one broker.

    Attributes:
        clients: the connected clients.
        methods: the RPCs by path.
    """

    def __init__(
        self, service: BrokerService, handlers: Mapping[int, RequestHandler], auth: Auth | None = None
    ) -> None:
        """Creates the service.

        Args:
            service: the broker.
            handlers: the broker's request handlers.
            auth: checks users and permissions; None checks nothing.
        """
        self._service = service
        self._core = core = Core(service.broker, handlers, service.acks, service.fast_sends)
        producing = Producing(core)
        check = None if auth is None else partial(permissions.check, auth)
        self.clients = producing.clients = clients = Clients(core, producing.deliver, check)
        self._consuming = consuming = Consuming(core, clients, service.tasks.spawn)
        offsets = Offsets(core)
        clients.on_leave.append(self._left)
        service.tasks.forever(consuming.renewals.turn)
        unary: dict[str, tuple[Handler, Any]] = {
            "QueryRoute": (self.route, s.QueryRouteResponse),
            "Heartbeat": (clients.heartbeat, s.HeartbeatResponse),
            "SendMessage": (producing.send, s.SendMessageResponse),
            "QueryAssignment": (self.assignment, s.QueryAssignmentResponse),
            "ReceiveMessage": (consuming.receive, s.ReceiveMessageResponse),
            "AckMessage": (consuming.ack, s.AckMessageResponse),
            "ForwardMessageToDeadLetterQueue": (consuming.forward, s.ForwardMessageToDeadLetterQueueResponse),
            "PullMessage": (offsets.pull, s.PullMessageResponse),
            "UpdateOffset": (offsets.update, s.UpdateOffsetResponse),
            "GetOffset": (offsets.get, s.GetOffsetResponse),
            "QueryOffset": (offsets.query, s.QueryOffsetResponse),
            "EndTransaction": (producing.end, s.EndTransactionResponse),
            "NotifyClientTermination": (clients.terminate, s.NotifyClientTerminationResponse),
            "ChangeInvisibleDuration": (consuming.change, s.ChangeInvisibleDurationResponse),
            "SyncLiteSubscription": (clients.sync_lite, s.SyncLiteSubscriptionResponse),
            "RecallMessage": (producing.recall, s.RecallMessageResponse),
        }
        calls = {
            _SERVICE + name: answering(handler, answer, check and _checking(check, getattr(s, f"{name}Request")))
            for name, (handler, answer) in unary.items()
        }
        polls = frozenset({_SERVICE + "ReceiveMessage", _SERVICE + "PullMessage"})
        self.methods = Methods(calls, {_SERVICE + "Telemetry": clients.telemetry}, polls)

    def connection(self, peer: Peer, endpoint: Endpoint) -> Http2Connection:
        """Returns the HTTP/2 protocol for a new connection."""
        return Http2Connection(peer, self.methods, endpoint.limits, lambda: endpoint.stopping)

    def _left(self, client: Client) -> None:
        if not self._core.broker.is_stopping:
            self._service.tasks.spawn(self._consuming.renewals.free(client.client_id))

    # -- routes --------------------------------------------------------------------------------------------------

    def route(self, call: Call, data: bytes) -> bytes:
        """QueryRoute: returns all queues of a topic, at the hosts that the client used and the connection's port."""
        request = s.QueryRouteRequest.FromString(data)
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

    def assignment(self, call: Call, data: bytes) -> bytes:
        """QueryAssignment: returns the whole broker as queue -1; each queue for a group that consumes in order."""
        request = s.QueryAssignmentRequest.FromString(data)
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


def _checking(check: Check, request: Any) -> Callable[[Call, bytes], None]:
    """Returns a function that checks a call before its handler runs, based on the type of its request."""
    return lambda call, data: check(call, request.FromString(data))


def answering(
    handler: Handler, answer: Callable[..., Any], check: Callable[[Call, bytes], None] | None = None
) -> Handler:
    """Wraps a handler so that a StatusError becomes an answer with this status.

    Args:
        handler: the handler. If it returns a future, that future must end with an answer.
        answer: builds the answer from a status.
        check: called before the handler; raises StatusError to refuse the call.
    """

    def failed(error: StatusError) -> bytes:
        return bytes(answer(status=error.status).SerializeToString())

    async def later(result: Awaitable[Result]) -> Result:
        try:
            return await result
        except StatusError as error:
            return failed(error)

    def handle(call: Call, data: bytes) -> Awaitable[Result] | Result:
        try:
            if check is not None:
                check(call, data)
            if b"x-mq-client-id" not in call.headers:
                return failed(StatusError(d.CLIENT_ID_REQUIRED, "client-id cannot be empty"))
            result = handler(call, data)
        except StatusError as error:
            return failed(error)
        except DecodeError as error:
            raise GrpcError(GrpcStatus.INTERNAL, "Invalid protobuf byte sequence") from error
        if isinstance(result, asyncio.Future):  # a future never ends with StatusError
            return result
        return later(result) if isinstance(result, Awaitable) else result

    return handle
