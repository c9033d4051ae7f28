"""Access control (ACL 1.0): accounts in RocketMQ's `plain_acl.yml`, signatures of requests, permissions.

`Acl(config).check` is the `guard` of a listener. Clients of 4.x and 5.x sign alike: HMAC-SHA1 over the values of all
fields, sorted by name, and the body. The account with which a command signs its own requests is read from
`conf/tools.yml` below `ROCKETMQ_HOME`, as by mqadmin, or from two environment variables; never from arguments, which
every user of a machine can list. Docs page: docs/protocol.md. Source: AclClientRPCHook, AclUtils,
AclUtils.getAclRPCHook (4.9.7, 5.5.0), PlainAccessValidator, PlainPermissionManager, Permission,
RemoteAddressStrategyFactory (4.9.7), DefaultAuthenticationProvider, DefaultAuthorizationProvider (5.5.0).
"""

import base64
import hmac
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntFlag
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from mqtool.commands import with_extra
from mqtool.errors import ConfigFileError, RemoteProtocolError, StoreError, UnavailableError, UsageError
from mqtool.formats.topics import RETRY_PREFIX, TRACE_TOPIC, is_retry_of, popped_topic, retry_topic
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.protocol.registration_body import document_in
from mqtool.server.net.peer import Answer, Peer
from mqtool.store.files import read_file
from mqtool.values import repr_without


class Right(IntFlag):
    """Permissions of an account on a topic or group; DENY overrides all others."""

    DENY = 1
    PUBLISH = 4
    SUBSCRIBE = 8


_RIGHTS = {
    "DENY": Right.DENY,
    "PUB": Right.PUBLISH,
    "SUB": Right.SUBSCRIBE,
    "PUB|SUB": Right.PUBLISH | Right.SUBSCRIBE,
    "SUB|PUB": Right.PUBLISH | Right.SUBSCRIBE,
}


class Account(Struct, frozen=True):
    """An account, identified by its access key."""

    # access_key, secret_key: name of the account, and the key that signs requests
    access_key: str
    secret_key: str
    white: str = ""  # address pattern of clients that need no signature
    admin: bool = False  # whether the account may change topics, groups and the broker's configuration
    # default_topic, default_group: permissions on topics and groups that are not listed; None, which denies, if the
    # file does not state them
    default_topic: Right | None = None
    default_group: Right | None = None
    # permissions by topic, or by group with the prefix `RETRY_PREFIX`
    rights: Mapping[str, Right] = field(default_factory=dict)

    __repr__ = repr_without("secret_key")


class AclConfig(Struct, frozen=True):
    """All accounts, and the addresses of clients that need no account."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    white: tuple[str, ...] = ()


def yaml_document(path: Path) -> Any:
    """Reads a YAML file with accounts; error messages do not quote its content.

    Raises ConfigFileError if the file cannot be read, or is not YAML; UnavailableError if PyYAML is not installed.
    """
    try:
        import yaml  # noqa: PLC0415 - needed only with accounts
    except ImportError as error:
        raise UnavailableError(f"accounts need PyYAML: {with_extra('serve')}") from error
    try:
        return yaml.safe_load(read_file(path).decode("utf-8"))
    except StoreError as error:
        raise ConfigFileError(error.reason, path) from error
    except UnicodeDecodeError as error:
        raise ConfigFileError("expected YAML in UTF-8, found other bytes", path) from error
    except yaml.YAMLError as error:  # do not print its text: it quotes the file, with secret keys
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f"; look at line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigFileError(f"expected YAML, found something else{where}", path) from None


def load(path: Path) -> AclConfig:
    """Reads a `plain_acl.yml`.

    Raises ConfigFileError if the file cannot be read, or contains something that RocketMQ would refuse;
    UnavailableError if PyYAML is not installed.
    """
    document = yaml_document(path) or {}
    try:
        accounts = [_account(item) for item in document.get("accounts") or []]
        white = tuple(str(item) for item in document.get("globalWhiteRemoteAddresses") or [])
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigFileError(f"no list of accounts: {error}", path) from error
    return AclConfig({item.access_key: item for item in accounts}, white)


def _account(document: Mapping[str, Any]) -> Account:
    access_key, secret_key = str(document.get("accessKey") or ""), str(document.get("secretKey") or "")
    if len(access_key) <= 6 or len(secret_key) <= 6:
        raise ValueError(f"accessKey {access_key!r}: accessKey and secretKey need more than 6 characters each")
    rights = dict(_right(line) for line in document.get("topicPerms") or [])
    rights |= {RETRY_PREFIX + group: right for group, right in map(_right, document.get("groupPerms") or [])}
    return Account(
        access_key,
        secret_key,
        str(document.get("whiteRemoteAddress") or ""),
        bool(document.get("admin")),
        _named(document["defaultTopicPerm"]) if document.get("defaultTopicPerm") else None,
        _named(document["defaultGroupPerm"]) if document.get("defaultGroupPerm") else None,
        rights,
    )


def _right(line: Any) -> tuple[str, Right]:
    name, separator, right = str(line).partition("=")
    if not separator:
        raise ValueError(f"{line!r}: expected NAME=RIGHT")
    return name.strip(), _named(right)


def _named(right: Any) -> Right:
    """Returns the permission with a name; an unknown name denies, as in RocketMQ."""
    return _RIGHTS.get(str(right or "").strip(), Right.DENY)


def address_matches(pattern: str, host: str) -> bool:
    """Whether an address matches a pattern.

    A pattern is a comma-separated list of addresses whose last parts may be `*`, a range `1-9` or a choice `{1,2}`. `*`
    alone matches every address, an empty pattern matches none.
    """
    parts = re.split(r",(?![^{]*})", pattern.strip()) if pattern.strip() else []
    return any(_one_matches(part.strip(), host) for part in parts)


def _one_matches(pattern: str, host: str) -> bool:
    if pattern in {"*", "*.*.*.*", host}:
        return True
    separator = ":" if ":" in host else "."
    patterns, parts = pattern.split(separator), host.split(separator)
    return len(patterns) == len(parts) and all(map(_part_matches, patterns, parts))


def _part_matches(pattern: str, part: str) -> bool:
    if pattern.startswith("{"):
        return part in {choice.strip() for choice in pattern.strip("{}").split(",")}
    low, dash, high = pattern.partition("-")
    if dash and low.isdigit() and high.isdigit() and part.isdigit():
        return int(low) <= int(part) <= int(high)
    return pattern in {"*", part}


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
    """Returns the signature of a request, computed from its fields, but those in `without`, and its body."""
    skipped = without | {SIGNATURE}
    content = "".join(value for name, value in sorted(command.fields.items()) if name not in skipped).encode()
    digest = hmac.new(secret_key.encode(), content + bytes(command.body), "sha1").digest()
    return base64.b64encode(digest).decode()


class Acl:
    """Checks requests against accounts; refuses them as 5.5.0 does (code 16), or else as 4.9.7 does (code 1)."""

    def __init__(self, config: AclConfig, *, since_5: bool = True) -> None:
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


KEY_VARIABLE, SECRET_VARIABLE = "MQTOOL_ACCESS_KEY", "MQTOOL_SECRET_KEY"
_FILE = Path("conf") / "tools.yml"


def signing(access_key: str, secret_key: str) -> Callable[[Command], Command]:
    """Returns a function that signs requests with an account."""

    def signed(command: Command) -> Command:
        command.fields[ACCESS_KEY] = access_key
        command.fields[SIGNATURE] = sign(command, secret_key)
        return command

    return signed


def own_signing(environment: Mapping[str, str] = os.environ) -> Callable[[Command], Command] | None:
    """Returns a function that signs the requests of this process; None if no account is configured.

    Raises UsageError if only one of the two variables is set; ConfigFileError if the file cannot be read, or does not
    contain an account; UnavailableError if the file exists, and PyYAML is not installed.
    """
    key, secret = environment.get(KEY_VARIABLE), environment.get(SECRET_VARIABLE)
    if key and secret:
        return signing(key, secret)
    if key or secret:
        raise UsageError(f"expected both {KEY_VARIABLE} and {SECRET_VARIABLE}, found one")
    home = environment.get("ROCKETMQ_HOME")
    path = Path(home) / _FILE if home else None
    return None if path is None or not path.is_file() else signing(*_in_file(path))


def _in_file(path: Path) -> tuple[str, str]:
    document = yaml_document(path)
    keys = [document.get(name) if isinstance(document, dict) else None for name in ("accessKey", "secretKey")]
    key, secret = ("" if value is None else str(value) for value in keys)
    if not key or not secret:
        raise ConfigFileError("expected accessKey and secretKey, found no account", path)
    return key, secret
