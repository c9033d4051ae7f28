"""Accounts and their permissions, read from RocketMQ's `plain_acl.yml`.

Source: PlainPermissionManager, Permission and RemoteAddressStrategyFactory (4.9.7).
"""

import re
from collections.abc import Mapping
from enum import IntFlag
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from mqtool.commands import with_extra
from mqtool.errors import ConfigFileError, StoreError, UnavailableError
from mqtool.formats.topics import RETRY_PREFIX
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
    """An account, identified by its access key.

    Attributes:
        access_key, secret_key: name of the account, and the key that signs requests.
        white: address pattern of clients that need no signature.
        admin: whether the account may change topics, groups and the broker's configuration.
        default_topic, default_group: permissions on topics and groups that are not listed; None, which denies, if the
            file does not state them.
        rights: permissions by topic, or by group with the prefix `RETRY_PREFIX`.
    """

    access_key: str
    secret_key: str
    white: str = ""
    admin: bool = False
    default_topic: Right | None = None
    default_group: Right | None = None
    rights: Mapping[str, Right] = field(default_factory=dict)

    __repr__ = repr_without("secret_key")


class AclConfig(Struct, frozen=True):
    """All accounts, and the addresses of clients that need no account."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    white: tuple[str, ...] = ()


def document_in(path: Path) -> Any:
    """Reads a YAML file with accounts; error messages do not quote its content.

    Raises:
        ConfigFileError: the file cannot be read, or is not YAML.
        UnavailableError: PyYAML is not installed.
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

    Raises:
        ConfigFileError: the file cannot be read, or contains something that RocketMQ would refuse.
        UnavailableError: PyYAML is not installed.
    """
    document = document_in(path) or {}
    try:
        accounts = [_account(item) for item in document.get("accounts") or []]
        white = tuple(str(item) for item in document.get("globalWhiteRemoteAddresses") or [])
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigFileError(f"no list of accounts: {error}", path) from error
    return AclConfig({item.access_key: item for item in accounts}, white)


def _account(document: Mapping[str, Any]) -> Account:
    access_key, secret_key = str(document.get("accessKey") or ""), str(document.get("secretKey") or "")
    if len(access_key) <= 6 or len(secret_key) <= 6:
        raise ValueError(f"accessKey {access_key!r}: it and secretKey need more than 6 characters")
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
