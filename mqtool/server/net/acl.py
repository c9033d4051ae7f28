"""Access control (ACL 1.0): signatures of requests, and permissions of accounts.

`Acl(config).check` is the `guard` of a listener. Clients of 4.x and 5.x sign alike: HMAC-SHA1 over the values of all
fields, sorted by name, and the body. Docs page: docs/protocol.md. Source: AclClientRPCHook, AclUtils (4.9.7, 5.5.0),
PlainAccessValidator, PlainPermissionManager (4.9.7), DefaultAuthenticationProvider, DefaultAuthorizationProvider
(5.5.0).
"""

import base64
import hmac
from collections.abc import Iterable, Iterator

from mqtool.errors import RemoteProtocolError
from mqtool.formats.topics import RETRY_PREFIX, TRACE_TOPIC, is_retry_of, popped_topic, retry_topic
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.protocol.registration_body import document_in
from mqtool.server.net.acl_config import Account, AclConfig, Right, address_matches
from mqtool.server.net.peer import Answer, Peer

ACCESS_KEY, SIGNATURE = "AccessKey", "Signature"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"

ROUTE_CHANGES = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.UPDATE_NAMESRV_CONFIG,
    }
)
"""Requests that change the routes of a name server. RocketMQ checks none of them."""

ADMIN_ONLY = ROUTE_CHANGES | frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    }
)

_SENDS = {
    RequestCode.SEND_MESSAGE: "topic",
    RequestCode.SEND_MESSAGE_V2: "b",
    RequestCode.SEND_BATCH_MESSAGE: "b",
    RequestCode.SEND_REPLY_MESSAGE: "topic",
    RequestCode.SEND_REPLY_MESSAGE_V2: "b",
    RequestCode.RECALL_MESSAGE: "topic",
    RequestCode.END_TRANSACTION: "topic",
}
"""By request code: the header field with the topic that is sent to."""

_READS: dict[int, tuple[str | None, str | None]] = {
    RequestCode.PULL_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.POP_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.POP_LITE_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.PEEK_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.NOTIFICATION: ("topic", "consumerGroup"),
    RequestCode.QUERY_MESSAGE: ("topic", None),
    RequestCode.UPDATE_CONSUMER_OFFSET: ("topic", "consumerGroup"),
    RequestCode.QUERY_CONSUMER_OFFSET: ("topic", "consumerGroup"),
    RequestCode.CONSUMER_SEND_MSG_BACK: (None, "group"),
    RequestCode.UNREGISTER_CLIENT: (None, "consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (None, "consumerGroup"),
}
"""By request code: the header fields with the topic and the consumer group."""

_ACKS = frozenset({RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME})


def sign(command: Command, secret_key: str, *, without: frozenset[str] = frozenset()) -> str:
    """Returns the signature of a request, computed from its fields and body.

    Args:
        command: the request; an existing signature in it is ignored.
        secret_key: secret key of the account.
        without: further fields to ignore.
    """
    skipped = without | {SIGNATURE}
    content = "".join(value for name, value in sorted(command.fields.items()) if name not in skipped).encode()
    digest = hmac.new(secret_key.encode(), content + bytes(command.body), "sha1").digest()
    return base64.b64encode(digest).decode()


class Acl:
    """Checks requests against accounts.

    Attributes:
        since_5: whether to refuse requests as 5.5.0 does (code 16); otherwise as 4.9.7 does (code 1).
    """

    def __init__(self, config: AclConfig, *, since_5: bool = True) -> None:
        """Refuses all requests that no account may make; `config` comes from `acl_config.load`."""
        self.since_5 = since_5
        self._config = config

    def check(self, command: Command, peer: Peer) -> Answer:
        """Checks a request; returns None if it may be handled, otherwise the answer that refuses it."""
        if any(address_matches(pattern, peer.host) for pattern in self._config.white):
            return None
        access_key = command.fields.get(ACCESS_KEY)
        if not access_key:
            return self._refuse(command, "No accessKey is configured", "authentication failed: no credentials")
        account = self._config.accounts.get(access_key)
        if account is None:
            return self._refuse(command, f"No acl config for {access_key}", f"User:{access_key} is not found.")
        if address_matches(account.white, peer.host):
            return None
        if not _signed(command, account):
            return self._refuse(
                command, f"Check signature failed for accessKey={access_key}", "check signature failed."
            )
        return self._check_rights(command, account, peer)

    def check_routes(self, command: Command, peer: Peer) -> Answer:
        """Like `check`, for a name server: every client may query routes, and administrators may change them."""
        return self.check(command, peer) if command.code in ROUTE_CHANGES else None

    def _check_rights(self, command: Command, account: Account, peer: Peer) -> Answer:
        if account.admin and not account.rights:  # listed permissions limit an administrator too
            return None
        code, name = command.code, account.access_key
        if code in ADMIN_ONLY and not account.admin:
            return self._refuse(
                command,
                f"Need admin permission for request code={code}, but accessKey={name} is not",
                f"{name} has no permission for request {code} from {peer.host}, it is not an admin.",
            )
        for resource, right in _required_rights(command):
            group = resource.startswith(RETRY_PREFIX)
            default = account.default_group if group else account.default_topic
            owned = account.rights.get(resource, default or Right.DENY)
            if owned & Right.DENY or not owned & right:
                shown = f"group:{resource.removeprefix(RETRY_PREFIX)}" if group else f"topic:{resource}"
                return self._refuse(
                    command,
                    f"No default permission for {shown}",
                    f"User:{name} has no permission to access "
                    f"{shown[0].upper()}{shown[1:]} from {peer.host}, no matched policies.",
                )
        return None

    def _refuse(self, command: Command, old: str, new: str) -> Command:
        if self.since_5:
            return command.reply(ResponseCode.NO_PERMISSION, new)
        return command.reply(ResponseCode.SYSTEM_ERROR, f"org.apache.rocketmq.acl.common.AclException: {old}")


def _signed(command: Command, account: Account) -> bool:
    """Whether the signature is valid; for a query by unique key with or without that field, since clients differ."""
    given = command.fields.get(SIGNATURE, "").encode()
    if hmac.compare_digest(given, sign(command, account.secret_key).encode()):
        return True
    if UNIQUE_KEY_QUERY not in command.fields:
        return False
    other = sign(command, account.secret_key, without=frozenset({UNIQUE_KEY_QUERY}))
    return hmac.compare_digest(given, other.encode())


def _required_rights(command: Command) -> Iterator[tuple[str, Right]]:
    """Yields (topic or group, right) that a request needs; a request without any needs only a signature."""
    code, fields = command.code, command.fields
    if (name := _SENDS.get(code)) is not None:  # type: ignore[call-overload]
        topic = fields.get(name, "")
        if code == RequestCode.END_TRANSACTION and not topic.strip():  # clients of 4.x do not send it
            return
        if topic.startswith(RETRY_PREFIX):  # 4.9.7 checks a field that no send has, so it allows every send
            yield topic, Right.SUBSCRIBE
        elif topic != TRACE_TOPIC:
            yield topic, Right.PUBLISH
    elif code == RequestCode.HEART_BEAT:
        yield from _of_heartbeat(command)
    elif code in _ACKS:
        yield from _of_acks([(fields.get("consumerGroup", ""), fields.get("topic", ""))])
    elif code == RequestCode.BATCH_ACK_MESSAGE:
        yield from _of_batch_ack(command)
    elif code in _READS:
        topic_field, group_field = _READS[code]
        if topic_field is not None and topic_field in fields:
            yield fields[topic_field], Right.SUBSCRIBE
        if group_field is not None and group_field in fields:
            yield RETRY_PREFIX + fields[group_field], Right.SUBSCRIBE


def _of_acks(acks: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Right]]:
    """Yields the rights for acknowledgements by (consumer group, topic), where a POP retry topic is its topic."""
    for group, topic in acks:
        named = popped_topic(group, topic) if is_retry_of(topic, group) else topic
        if named:  # the group's own retry topic needs only the right on the group
            yield named, Right.SUBSCRIBE
        yield retry_topic(group), Right.SUBSCRIBE


def _of_batch_ack(command: Command) -> Iterator[tuple[str, Right]]:
    if not command.body:
        return
    try:
        acks = {(str(ack["c"]), str(ack["t"])) for ack in document_in(command.body).get("acks") or []}
    except (KeyError, TypeError, AttributeError) as error:
        raise RemoteProtocolError(f"list of acknowledgements: {error!r}") from error
    yield from _of_acks(sorted(acks))


def _of_heartbeat(command: Command) -> Iterator[tuple[str, Right]]:
    try:
        consumers = document_in(command.body).get("consumerDataSet") or []
        for consumer in consumers:
            yield RETRY_PREFIX + str(consumer["groupName"]), Right.SUBSCRIBE
            for subscription in consumer.get("subscriptionDataSet") or []:
                yield str(subscription["topic"]), Right.SUBSCRIBE
    except (KeyError, TypeError, AttributeError) as error:
        raise RemoteProtocolError(f"heartbeat: {error!r}") from error
