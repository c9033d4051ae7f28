"""Checks signatures and permissions of gRPC calls.

A client signs only the time of its call, in the header `x-mq-date-time`; as in the real proxy, any time is accepted.
Source: DefaultAuthenticationContextBuilder, DefaultAuthorizationContextBuilder (5.5.0), AuthenticationPipeline,
AuthorizationPipeline, ResponseBuilder (rocketmq-proxy 5.5.0).
"""

import base64
import binascii
from collections.abc import Callable, Iterator
from typing import Any

from mqtool.formats import java
from mqtool.formats.auth_records import Action, Resource, ResourceType
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s
from mqtool.server.auth.guard import Auth, check_signature, signature_of
from mqtool.server.auth.needs import PUB, SUB, Need
from mqtool.server.auth.tables import AuthError
from mqtool.server.grpc.core import StatusError
from mqtool.server.net.http2 import Call

_CONSUMERS = frozenset({d.PUSH_CONSUMER, d.SIMPLE_CONSUMER, d.PULL_CONSUMER})


def check(auth: Auth, call: Call, request: Any) -> None:
    """Refuses a call without a valid signature, or without permission.

    Args:
        auth: users and permissions.
        call: the call, with its headers.
        request: the parsed request message.

    Raises:
        StatusError: UNAUTHORIZED.
    """
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

    Args:
        authorization: the header, "ALGORITHM Credential=NAME/…, SignedHeaders=…, Signature=HEX".
        time: value of the header x-mq-date-time.

    Raises:
        AuthError: the header has another form.
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
    """Yields the permissions that a request needs; none for a request that is open to every user.

    Raises:
        AuthError: the request does not name its topic or group.
    """
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


def _publish(request: s.RecallMessageRequest | s.EndTransactionRequest) -> Iterator[Need]:
    yield _topic(request.topic, PUB)


def _heartbeat(request: s.HeartbeatRequest) -> Iterator[Need]:
    if request.client_type in _CONSUMERS:
        yield _group(request.group)


def _receive(request: s.ReceiveMessageRequest | s.PullMessageRequest) -> Iterator[Need]:
    if not request.HasField("message_queue"):
        raise AuthError("messageQueue is null.")
    yield _group(request.group)
    yield _topic(request.message_queue.topic, SUB)


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


def _change(request: s.ChangeInvisibleDurationRequest) -> Iterator[Need]:
    yield _group(request.group)


def _route(request: s.QueryRouteRequest) -> Iterator[Need]:
    yield _topic(request.topic, (Action.PUB, Action.SUB))


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


def _offset(request: s.UpdateOffsetRequest | s.GetOffsetRequest) -> Iterator[Need]:
    yield _group(request.group)
    yield _topic(request.message_queue.topic, SUB)


def _query_offset(request: s.QueryOffsetRequest) -> Iterator[Need]:
    yield _topic(request.message_queue.topic, SUB)


_NEEDS: dict[type[Any], Callable[[Any], Iterator[Need]]] = {
    s.SendMessageRequest: _send,
    s.RecallMessageRequest: _publish,
    s.EndTransactionRequest: _publish,
    s.HeartbeatRequest: _heartbeat,
    s.ReceiveMessageRequest: _receive,
    s.SyncLiteSubscriptionRequest: _lite,
    s.AckMessageRequest: _both,
    s.ForwardMessageToDeadLetterQueueRequest: _both,
    s.NotifyClientTerminationRequest: _leave,
    s.ChangeInvisibleDurationRequest: _change,
    s.QueryRouteRequest: _route,
    s.QueryAssignmentRequest: _both,
    s.TelemetryCommand: _settings,
    # The real proxy does not implement these.
    s.PullMessageRequest: _receive,
    s.UpdateOffsetRequest: _offset,
    s.GetOffsetRequest: _offset,
    s.QueryOffsetRequest: _query_offset,
}
