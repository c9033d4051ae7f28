"""Users and permissions (ACL 2.0) as the broker stores them in config/users and config/acls: one JSON document per key.

Source: User, Acl, Policy, PolicyEntry, Environment, Resource and their enums (rocketmq-auth 5.5.0). Its JSON library
sorts the members of an object, omits null members, and writes an enum as its code.
"""

import json
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Self, TypeVar

from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats.topics import RETRY_PREFIX
from mqtool.values import repr_without


class Word(IntEnum):
    """An enum value that is stored as a code and displayed as a word."""

    @property
    def word(self) -> str:
        """The word used in requests and messages."""
        return self.name.capitalize()

    @classmethod
    def of(cls, word: object) -> Self | None:
        """Returns the value for a word in upper or lower case; None if there is none."""
        return cls.__members__.get(word.upper()) if isinstance(word, str) else None


class UserType(Word):
    """Type of a user; SUPER has all permissions."""

    SUPER = 1
    NORMAL = 2


class UserStatus(Word):
    """Whether a user is enabled."""

    ENABLE = 1
    DISABLE = 2

    @property
    def word(self) -> str:
        """The word, in lower case."""
        return self.name.lower()


class ResourceType(Word):
    """Type of a resource."""

    UNKNOWN = 0
    ANY = 1
    CLUSTER = 2
    NAMESPACE = 3
    TOPIC = 4
    GROUP = 5


class Pattern(Word):
    """Which names a resource matches: all, one, or those with a prefix."""

    ANY = 1
    LITERAL = 2
    PREFIXED = 3


class Action(Word):
    """An operation on a resource."""

    UNKNOWN = 0
    ALL = 1
    ANY = 2
    PUB = 3
    SUB = 4
    CREATE = 5
    UPDATE = 6
    DELETE = 7
    GET = 8
    LIST = 9


class Decision(Word):
    """Whether a policy entry allows or denies."""

    ALLOW = 1
    DENY = 2


class PolicyType(Word):
    """The default policy applies only if no entry of the custom policy matches."""

    CUSTOM = 1
    DEFAULT = 2


_SUBJECT_USER = 1
USER_PREFIX = "User:"

W = TypeVar("W", bound=Word)


class User(Struct, frozen=True):
    """One user."""

    username: str  # the access key of its clients
    password: str | None = None  # the secret key with which they sign
    user_type: UserType | None = None  # and status: None if a request does not state them
    status: UserStatus | None = None

    __repr__ = repr_without("password")


class Resource(Struct, frozen=True):
    """A resource that is accessed, or to which a policy entry applies."""

    type: ResourceType  # of the resource
    name: str | None  # a name or a prefix, None for all
    pattern: Pattern = Pattern.LITERAL  # how `name` is compared

    @classmethod
    def parse(cls, key: object) -> "Resource | None":
        """Returns the resource of a key: `*`, or TYPE:NAME, TYPE:PREFIX* or TYPE:*; None if it is invalid."""
        if not isinstance(key, str) or not key.strip():
            return None
        if key == "*":
            return cls(ResourceType.ANY, None, Pattern.ANY)
        kind, _, name = key.partition(":")
        resource_type = ResourceType.of(kind)
        if resource_type is None:
            return None
        if name == "*":
            return cls(resource_type, None, Pattern.ANY)
        if name.endswith("*"):
            return cls(resource_type, name.partition("*")[0], Pattern.PREFIXED)
        return cls(resource_type, name)

    @classmethod
    def topic(cls, name: str | None) -> "Resource":
        """Returns the resource of a topic; for a retry topic that of its group."""
        if name is not None and name.startswith(RETRY_PREFIX):
            return cls.group(name)
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def group(cls, name: str | None) -> "Resource":
        """Returns the resource of a group, given its name or its retry topic."""
        return cls(ResourceType.GROUP, None if name is None else name.removeprefix(RETRY_PREFIX))

    @property
    def key(self) -> str:
        """The key that `parse` reads."""
        if self.type is ResourceType.ANY:
            return "*"
        name = "null" if self.name is None else self.name
        shown = {Pattern.ANY: "*", Pattern.LITERAL: name, Pattern.PREFIXED: name + "*"}[self.pattern]
        return f"{self.type.word}:{shown}"

    def covers(self, other: "Resource") -> bool:
        """Whether this resource matches another one, which has a single name."""
        if self.type is ResourceType.ANY:
            return True
        if self.type is not other.type:
            return False
        if self.pattern is Pattern.ANY:
            return True
        if self.pattern is Pattern.LITERAL:
            return self.name == other.name
        return other.name is not None and other.name.startswith(self.name or "")


class PolicyEntry(Struct, frozen=True):
    """One rule."""

    resource: Resource  # to which it applies
    actions: tuple[Action, ...]  # to which it applies
    decision: Decision  # whether they are allowed
    # Client addresses and networks to which it applies, empty for all; None if the document has no environment.
    source_ips: tuple[str, ...] | None = None


class Policy(Struct, frozen=True):
    """The rules of one type."""

    type: PolicyType
    entries: tuple[PolicyEntry, ...]

    def updated(self, entries: Iterable[PolicyEntry]) -> "Policy":
        """Returns the policy with entries added; an entry replaces an older one for the same resource."""
        by_resource = {entry.resource: entry for entry in self.entries}
        by_resource |= {entry.resource: entry for entry in entries}
        return Policy(self.type, tuple(by_resource.values()))

    def without(self, resource: Resource) -> "Policy":
        """Returns the policy without the entry for a resource."""
        return Policy(self.type, tuple(entry for entry in self.entries if entry.resource != resource))


class Acl(Struct, frozen=True):
    """The permissions of one user."""

    username: str
    policies: tuple[Policy, ...]

    @property
    def subject(self) -> str:
        """The key of the document."""
        return USER_PREFIX + self.username

    def policy(self, kind: PolicyType) -> Policy | None:
        """Returns the policy of a type."""
        return next((policy for policy in self.policies if policy.type is kind), None)

    def updated(self, policies: Iterable[Policy]) -> "Acl":
        """Returns the ACL with the entries of policies added or replaced."""
        by_type = {policy.type: policy for policy in self.policies}
        for policy in policies:
            old = by_type.get(policy.type)
            by_type[policy.type] = policy if old is None else old.updated(policy.entries)
        return Acl(self.username, tuple(by_type.values()))

    def without(self, kind: PolicyType, resource: Resource) -> "Acl":
        """Returns the ACL without a policy's entry for a resource, and without the policy if it becomes empty."""
        changed = (policy.without(resource) if policy.type is kind else policy for policy in self.policies)
        return Acl(self.username, tuple(policy for policy in changed if policy.type is not kind or policy.entries))


def build_user(user: User) -> bytes:
    """Returns a user as the broker stores it; the key is the user name."""
    return _document(
        {
            "password": user.password,
            "subjectType": _SUBJECT_USER,
            "userStatus": user.status,
            "userType": user.user_type,
            "username": user.username,
        }
    )


def parse_user(data: bytes) -> User:
    """Parses a stored user; the FormatError does not quote the document, because it contains the password."""
    document = _object(data, "user")
    name, password = document.get("username"), document.get("password")
    if not isinstance(name, str) or not isinstance(password, str | None):
        raise FormatError("expected a user name and a password", layout="user")
    return User(
        name,
        password,
        _word(UserType, document.get("userType"), "user"),
        _word(UserStatus, document.get("userStatus"), "user"),
    )


def build_acl(acl: Acl) -> bytes:
    """Returns the permissions of a user as the broker stores them; the key is `acl.subject`."""
    policies = [
        {"entries": [_entry_document(entry) for entry in policy.entries], "policyType": policy.type}
        for policy in acl.policies
    ]
    return _document({"policies": policies, "subject": {"subjectType": _SUBJECT_USER, "username": acl.username}})


def parse_acl(key: bytes, data: bytes) -> Acl:
    """Parses the stored permissions of a subject; raises FormatError if they are not valid."""
    subject = key.decode("utf-8", "replace")
    if not subject.startswith(USER_PREFIX):
        raise FormatError(f"subject {subject!r}: expected {USER_PREFIX}NAME", layout="acl")
    policies = _object(data, "acl").get("policies") or []
    try:
        parsed = [
            Policy(
                _word(PolicyType, policy.get("policyType"), "acl") or PolicyType.CUSTOM,
                tuple(_entry(entry) for entry in policy.get("entries") or []),
            )
            for policy in policies
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise FormatError(f"{subject}: {error!r}", layout="acl") from error
    return Acl(subject.removeprefix(USER_PREFIX), tuple(parsed))


def _entry_document(entry: PolicyEntry) -> dict[str, Any]:
    environment = None
    if entry.source_ips is not None:
        environment = {"sourceIps": list(entry.source_ips) or None}
    resource = entry.resource
    return {
        "actions": list(entry.actions),
        "decision": entry.decision,
        "environment": environment,
        "resource": {
            "resourceName": resource.name,
            "resourcePattern": resource.pattern,
            "resourceType": resource.type,
        },
    }


def _entry(document: dict[str, Any]) -> PolicyEntry:
    resource, environment = document["resource"], document.get("environment")
    kind = _word(ResourceType, resource.get("resourceType"), "acl")
    pattern = _word(Pattern, resource.get("resourcePattern"), "acl")
    decision = _word(Decision, document.get("decision"), "acl")
    if kind is None or pattern is None or decision is None:
        raise FormatError("expected a resource and a decision", layout="acl")
    actions = (_word(Action, action, "acl") for action in document.get("actions") or [])
    return PolicyEntry(
        Resource(kind, resource.get("resourceName"), pattern),
        tuple(action for action in actions if action is not None),
        decision,
        None if environment is None else tuple(map(str, environment.get("sourceIps") or ())),
    )


def _object(data: bytes, layout: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError("expected JSON", layout=layout) from error
    if not isinstance(document, dict):
        raise FormatError("expected a JSON object", layout=layout)
    return document


def _word(kind: type[W], value: object, layout: str) -> W | None:
    """Returns the value of a code or name, None for null."""
    if value is None:
        return None
    member = kind.of(value)
    if member is None and isinstance(value, int) and value in [each.value for each in kind]:
        member = kind(value)
    if member is None:
        raise FormatError(f"expected a {kind.__name__}, found {value!r}", layout=layout)
    return member


def _document(value: dict[str, Any]) -> bytes:
    return json.dumps(_without_nulls(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
