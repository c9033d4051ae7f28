"""Refuses requests without a valid signature, or without permission, and determines the permissions that one needs.

A listener calls `Auth.check`; the gRPC server calls `authenticated` and `authorize`. For each need of a request, the
user must be allowed one of the need's actions. A request without needs is open to every user. Source:
DefaultAuthenticationHandler, UserAuthorizationHandler, AclAuthorizationHandler, AuthenticationPipeline,
AuthorizationPipeline, DefaultAuthorizationContextBuilder and the annotations RocketMQAction and RocketMQResource of the
request headers (5.5.0).
"""

import base64
import hmac
from collections.abc import Callable, Iterable, Iterator
from pkgutil import get_data
from typing import Any

from msgspec import Struct

from mqtool.errors import MqtoolError
from mqtool.formats.auth_records import (
    Action,
    Decision,
    Pattern,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceType,
    User,
    UserStatus,
    UserType,
)
from mqtool.formats.topics import RETRY_PREFIX
from mqtool.protocol.command import Command, ResponseCode
from mqtool.protocol.command import RequestCode as R
from mqtool.protocol.registration_body import document_in
from mqtool.server.auth.tables import AuthError, AuthOptions, AuthTables, matches_address
from mqtool.server.net.acl import ACCESS_KEY, ROUTE_CHANGES, SIGNATURE, UNIQUE_KEY_QUERY, sign
from mqtool.server.net.acl import signing as signing_as
from mqtool.server.net.peer import Answer, Peer

PUB, SUB = (Action.PUB,), (Action.SUB,)
SUB_GET, SUB_UPDATE = (Action.SUB, Action.GET), (Action.SUB, Action.UPDATE)

_ROWS = [
    line.split("\t")
    for line in (get_data(__name__, "guard.tsv") or b"").decode().splitlines()
    if not line.startswith("#")
]

OF_CLUSTER: dict[Action, frozenset[R]] = {
    action: frozenset(R[code] for code, word, *fields in _ROWS if word == action.name and not fields)
    for action in (Action.GET, Action.UPDATE)
}
"""Request codes by the action that they need on the broker's own cluster."""

STRICTER = frozenset(
    {
        R.UPDATE_BROKER_CONFIG,
        R.UPDATE_NAMESRV_CONFIG,
        R.UPDATE_AND_CREATE_TOPIC_LIST,
        R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    }
)
"""Changes that 5.5.0 allows to all users, since their headers name no resource; here they need the cluster's UPDATE."""

_T, _G, _C = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER

BY_FIELDS: dict[R, tuple[Action, tuple[tuple[str, ResourceType], ...]]] = {
    R[code]: (Action[word], tuple((name, ResourceType[kind]) for name, kind in (field.split(":") for field in fields)))
    for code, word, *fields in _ROWS
    if fields
}
"""By request code: the action that the request needs, and the header fields that name the resources."""

_SEPARATORS = {"topicList": ";", "filterGroups": ","}
"""Separator of each field that lists several names."""

LAST_UNSIGNED_QUERY = 399
"""V4_9_3: clients up to this release do not sign the field `_UNIQUE_KEY_QUERY`."""

_NO_SUBJECT = "Authorization failed. Please verify your access rights and try again."
_RANKS = {Pattern.LITERAL: 0, Pattern.PREFIXED: 1, Pattern.ANY: 2}


class Need(Struct, frozen=True):
    """A resource, and the actions of which one must be allowed."""

    resource: Resource
    actions: tuple[Action, ...]


_CLUSTER_CHANGES = frozenset(
    code for code, (_, fields) in BY_FIELDS.items() if any(kind is _C for _, kind in fields)
) - {R.GET_BROKER_MEMBER_GROUP}
"""Requests that apply to the broker's own cluster if they do not name a cluster."""


def needs_of(command: Command, cluster: str) -> list[Need]:
    """Returns the permissions that a request to a broker of `cluster` needs; raises AuthError if it is invalid."""
    if not command.fields:
        return []
    try:
        special = _SPECIAL.get(command.code)  # type: ignore[call-overload]  # a code of a client is any number
        return list(_by_table(command, cluster) if special is None else special(command))
    except (MqtoolError, KeyError, TypeError, AttributeError) as error:
        raise AuthError("parse authorization context error.") from error


def _by_table(command: Command, cluster: str) -> Iterator[Need]:
    code, fields = command.code, command.fields
    if code in STRICTER or code in OF_CLUSTER[Action.UPDATE]:
        yield Need(Resource(_C, cluster), (Action.UPDATE,))
        return
    if code in OF_CLUSTER[Action.GET]:
        yield Need(Resource(_C, cluster), (Action.GET,))
        return
    action, named = BY_FIELDS.get(code, (Action.UNKNOWN, ()))  # type: ignore[call-overload]
    is_known = False
    for name, kind in named:
        value = fields.get(name)
        if value is None:
            continue
        separator = _SEPARATORS.get(name)
        for item in [value] if separator is None else filter(None, value.split(separator)):
            is_known = True
            yield Need(Resource.topic(item) if kind is _T else Resource(kind, item), (action,))
    if not is_known and code in _CLUSTER_CHANGES:
        yield Need(Resource(_C, cluster), (action,))


def _of_topic(command: Command, actions: tuple[Action, ...]) -> Need:
    return Need(Resource(_T, command.fields.get("topic")), actions)


def _of_group(command: Command, field: str, actions: tuple[Action, ...]) -> Need:
    return Need(Resource.group(command.fields.get(field)), actions)


def _route(command: Command) -> Iterator[Need]:
    resource = Resource.topic(command.fields.get("topic"))
    yield Need(resource, SUB_GET if resource.type is _G else (Action.PUB, Action.SUB, Action.GET))


def _send(field: str, command: Command) -> Iterator[Need]:
    """Yields the need of a send: PUB on the topic, or SUB on the consumer group of a retry topic."""
    resource = Resource.topic(command.fields.get(field))
    yield Need(resource, SUB if resource.type is _G else PUB)


def _end_transaction(command: Command) -> Iterator[Need]:
    if command.fields.get("topic", "").strip():
        yield _of_topic(command, PUB)


def _of_both(actions: tuple[Action, ...], command: Command) -> Iterator[Need]:
    """Yields the needs of a consumer's request: the topic, unless it is a retry topic, and the consumer group."""
    topic = Resource.topic(command.fields.get("topic"))
    if topic.type is _T:
        yield Need(topic, actions)
    yield _of_group(command, "consumerGroup", actions)


def _heartbeat(command: Command) -> Iterator[Need]:
    for consumer in document_in(command.body).get("consumerDataSet") or []:
        yield Need(Resource.group(str(consumer["groupName"])), SUB)
        yield from _topics(consumer.get("subscriptionDataSet"))


def _leave(command: Command) -> Iterator[Need]:
    if command.fields.get("consumerGroup", "").strip():
        yield _of_group(command, "consumerGroup", SUB)


def _lock(command: Command) -> Iterator[Need]:
    document = document_in(command.body)
    yield Need(Resource.group(document.get("consumerGroup")), SUB)
    yield from _topics(document.get("mqSet"))


def _topics(rows: Any) -> Iterator[Need]:
    for row in rows or []:
        topic = str(row["topic"])
        if not topic.startswith(RETRY_PREFIX):
            yield Need(Resource(_T, topic), SUB)


_SPECIAL: dict[R, Callable[[Command], Iterable[Need]]] = {
    R.GET_ROUTEINFO_BY_TOPIC: _route,
    R.SEND_MESSAGE: lambda command: _send("topic", command),
    R.SEND_MESSAGE_V2: lambda command: _send("b", command),
    R.SEND_BATCH_MESSAGE: lambda command: _send("b", command),
    R.RECALL_MESSAGE: lambda command: [_of_topic(command, PUB)],
    R.END_TRANSACTION: _end_transaction,
    R.CONSUMER_SEND_MSG_BACK: lambda command: [_of_group(command, "group", SUB)],
    R.PULL_MESSAGE: lambda command: _of_both(SUB, command),
    R.QUERY_MESSAGE: lambda command: [_of_topic(command, SUB_GET)],
    R.HEART_BEAT: _heartbeat,
    R.UNREGISTER_CLIENT: _leave,
    R.GET_CONSUMER_LIST_BY_GROUP: lambda command: [_of_group(command, "consumerGroup", SUB_GET)],
    R.QUERY_CONSUMER_OFFSET: lambda command: _of_both(SUB_GET, command),
    R.UPDATE_CONSUMER_OFFSET: lambda command: _of_both(SUB_UPDATE, command),
    R.LOCK_BATCH_MQ: _lock,
    R.UNLOCK_BATCH_MQ: _lock,
}
"""Requests whose needs do not follow from their header's annotations."""


class Auth:
    """Authenticates and authorizes requests."""

    def __init__(self, options: AuthOptions, tables: AuthTables) -> None:
        self.options, self.tables = options, tables

    def check(self, command: Command, peer: Peer) -> Answer:
        """Checks a remoting request; returns None if it may be handled, otherwise the answer that refuses it."""
        fields, rpc = command.fields, str(int(command.code))
        name = fields.get(ACCESS_KEY)
        try:
            user = self.authenticated(name or "", rpc)
            if user is not None:
                skipped = {UNIQUE_KEY_QUERY} if command.version <= LAST_UNSIGNED_QUERY else frozenset[str]()
                check_signature(
                    fields.get(SIGNATURE, ""), sign(command, user.password or "", without=frozenset(skipped))
                )
            if self.options.authorization:
                self.authorize(name, needs_of(command, self.options.cluster), peer.host, rpc)
        except AuthError as error:
            return command.reply(ResponseCode.NO_PERMISSION, str(error))
        return None

    def check_routes(self, command: Command, peer: Peer) -> Answer:
        """Like `check`, for a name server: every client may query routes; changes of routes are checked."""
        return self.check(command, peer) if command.code in ROUTE_CHANGES else None

    def authenticated(self, name: str, rpc: str) -> User | None:
        """Returns the user whose signature must be checked; None if the request needs no signature.

        `rpc` is a request code or message type. Raises AuthError if the user does not exist or is disabled.
        """
        if not self.options.authentication or rpc in self.options.unsigned:
            return None
        if not name:
            raise AuthError("username cannot be null.")
        user = self.tables.users.get(name)
        if user is None:
            raise AuthError(f"User:{name} is not found.")
        if user.status is UserStatus.DISABLE:
            raise AuthError(f"User:{name} is disabled.")
        return user

    def authorize(self, name: str | None, needs: Iterable[Need], host: str, rpc: str) -> None:
        """Raises AuthError if a user does not have the permissions that a request needs.

        `name` is None if the request names no user, `rpc` a request code or message type.
        """
        if not self.options.authorization or rpc in self.options.unlimited:
            return
        for need in needs:
            if name is None:
                raise AuthError(_NO_SUBJECT)
            user = self.tables.users.get(name)
            if user is None:
                raise AuthError(f"User:{name} not found.")
            if user.status is UserStatus.DISABLE:
                raise AuthError(f"User:{name} is disabled.")
            if user.user_type is not UserType.SUPER:
                self._check_permission(name, need, host)

    def _check_permission(self, name: str, need: Need, host: str) -> None:
        acl = self.tables.acls.get(name)
        entry = None
        for kind in PolicyType:
            policy = acl.policy(kind) if acl is not None else None
            matching = (
                [candidate for candidate in policy.entries if _matches(candidate, need, host)]
                if policy is not None
                else []
            )
            if matching:
                entry = min(matching, key=_priority)
                break
        if entry is None or entry.decision is Decision.DENY:
            why = "no matched policies." if entry is None else "the decision is deny."
            raise AuthError(f"User:{name} has no permission to access {need.resource.key} from {host}, {why}")


def check_signature(signature: str, expected: str) -> None:
    """Raises AuthError if a signature differs from the expected one."""
    if not hmac.compare_digest(signature.encode("utf-8", "replace"), expected.encode()):
        raise AuthError("check signature failed.")


def signing(user: User | None) -> Callable[[Command], Command] | None:
    """Returns a function that signs requests as a user; None without a user."""
    return None if user is None else signing_as(user.username, user.password or "")


def signature_of(content: bytes, password: str) -> str:
    """Returns the signature of request content, in Base64."""
    return base64.b64encode(hmac.new(password.encode(), content, "sha1").digest()).decode()


def _matches(entry: PolicyEntry, need: Need, host: str) -> bool:
    if not entry.resource.covers(need.resource) or not matches_address(entry, host):
        return False
    return Action.ALL in entry.actions or not set(need.actions).isdisjoint(entry.actions)


def _priority(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    """Returns the sort key of a matching entry: exact names first, then longer prefixes; denials before permissions."""
    resource = entry.resource
    length = len(resource.name or "") if resource.pattern is Pattern.PREFIXED else 0
    return (resource.type is ResourceType.ANY, _RANKS[resource.pattern], -length, entry.decision is not Decision.DENY)
