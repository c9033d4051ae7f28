"""Handles mqadmin's requests that list and change users and permissions.

Source: AdminBrokerProcessor, UserConverter, AclConverter (5.5.0).
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

from mqtool.formats.auth_records import (
    USER_PREFIX,
    Acl,
    Action,
    Decision,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
)
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.server.auth.tables import AuthError, AuthTables, check_entry
from mqtool.server.broker.answers import RefusalError, body, body_of
from mqtool.server.net.acl import ACCESS_KEY
from mqtool.server.net.peer import Handler, Peer

_DONE = "not set any response code"
"""Remark of successful answers; the real broker sets only the code."""
_FAILED = "An system error occurred, please try again later."
_OFF = "users and permissions are off; set authenticationEnabled=true or authorizationEnabled=true"
_NO_BODY = "org.apache.rocketmq.auth.authorization.exception.AuthorizationException: The body of acl is null"


class AuthAdmin:
    """Handles the requests from AUTH_CREATE_USER to AUTH_LIST_ACL."""

    def __init__(self, tables: AuthTables | None) -> None:
        """Creates the processor; without tables it refuses every request."""
        self._tables = tables

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        return {
            RequestCode.AUTH_CREATE_USER: self._answering(self._create_user, changes=True),
            RequestCode.AUTH_UPDATE_USER: self._answering(self._update_user, changes=True),
            RequestCode.AUTH_DELETE_USER: self._answering(self._delete_user, changes=True),
            RequestCode.AUTH_GET_USER: self._answering(self._get_user),
            RequestCode.AUTH_LIST_USER: self._answering(self._list_users),
            RequestCode.AUTH_CREATE_ACL: self._answering(self._put_acl, changes=True),
            RequestCode.AUTH_UPDATE_ACL: self._answering(self._put_acl, changes=True),
            RequestCode.AUTH_DELETE_ACL: self._answering(self._delete_acl, changes=True),
            RequestCode.AUTH_GET_ACL: self._answering(self._get_acl),
            RequestCode.AUTH_LIST_ACL: self._answering(self._list_acls),
        }

    def _answering(self, work: Any, *, changes: bool = False) -> Handler:
        """Returns a handler that answers with the result of `work`, or with the refusal that `work` raises.

        Changes wait for the disk, so they run one after another in the thread of the tables.
        """

        def answer(tables: AuthTables, command: Command) -> Command:
            try:
                result = work(tables, command)
            except AuthError as error:
                raise RefusalError(ResponseCode.NO_PERMISSION, str(error)) from error
            return command.reply(ResponseCode.SUCCESS, _DONE, body=b"" if result is None else body(result))

        def handle(command: Command, _peer: Peer) -> Awaitable[Command] | Command:
            tables = self._tables
            if tables is None:
                raise RefusalError(ResponseCode.SYSTEM_ERROR, _OFF)
            if not changes:
                return answer(tables, command)
            if not tables.writable:
                raise RefusalError(ResponseCode.NO_PERMISSION, "the store is served read-only")
            return asyncio.get_running_loop().run_in_executor(tables.thread, answer, tables, command)

        return handle

    def _create_user(self, tables: AuthTables, command: Command) -> None:
        user = _user_in(command)
        if user.user_type is UserType.SUPER:
            _check_super(tables, command, "The super user can only be create by super user")
        tables.create_user(user)

    def _update_user(self, tables: AuthTables, command: Command) -> None:
        user, reason = _user_in(command), "The super user can only be update by super user"
        if user.user_type is UserType.SUPER:
            _check_super(tables, command, reason)
        old = tables.user(user.username)
        if old is None:
            raise AuthError("The user is not exist")
        if old.user_type is UserType.SUPER and not _is_super(tables, command):
            raise AuthError(reason)
        tables.update_user(user)

    def _delete_user(self, tables: AuthTables, command: Command) -> None:
        name = command.fields.get("username", "")
        user = tables.user(name)
        if user is None:
            return
        if user.user_type is UserType.SUPER and not _is_super(tables, command):
            raise AuthError("The super user can only be update by super user")
        tables.delete_user(name)

    def _get_user(self, tables: AuthTables, command: Command) -> dict[str, Any] | None:
        name = command.fields.get("username", "")
        if not name.strip():
            raise RefusalError(ResponseCode.INVALID_PARAMETER, "The username is blank")
        user = tables.user(name)
        return None if user is None else _user_shown(user)

    def _list_users(self, tables: AuthTables, command: Command) -> list[dict[str, Any]] | None:
        pattern = command.fields.get("filter", "")
        users = tables.users.copy()  # another thread may be changing the table
        names = sorted(users, key=str.encode)
        return [_user_shown(users[name]) for name in names if not pattern.strip() or pattern in name] or None

    def _put_acl(self, tables: AuthTables, command: Command) -> None:
        document = body_of(command)
        if not document.get("policies"):
            raise RefusalError(ResponseCode.SYSTEM_ERROR, _NO_BODY)
        name = _subject(document.get("subject")) or _subject(command.fields.get("subject"))
        if name is None:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, _FAILED)
        try:
            policies = [_policy(policy) for policy in document["policies"] if policy.get("entries")]
        except (AttributeError, TypeError) as error:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, _FAILED) from error
        if not policies:
            raise AuthError("The policies is empty.")
        tables.put_acl(name, policies)

    def _delete_acl(self, tables: AuthTables, command: Command) -> None:
        name = _subject(command.fields.get("subject"))
        if name is None:
            raise AuthError("The subject is null.")
        kind = PolicyType.of(command.fields.get("policyType")) or PolicyType.CUSTOM
        tables.delete_acl(name, kind, Resource.parse(command.fields.get("resource")))

    def _get_acl(self, tables: AuthTables, command: Command) -> dict[str, Any] | None:
        name = _subject(command.fields.get("subject"))
        if name is None:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, _FAILED)
        acl = tables.acl(name)
        return None if acl is None else _acl_shown(acl)

    def _list_acls(self, tables: AuthTables, command: Command) -> list[dict[str, Any]] | None:
        subject, resource = (command.fields.get(name, "") for name in ("subjectFilter", "resourceFilter"))
        rows = []
        for acl in sorted(tables.acls.copy().values(), key=lambda item: item.subject.encode()):
            if subject.strip() and subject not in acl.subject:
                continue
            shown = _acl_shown(acl, resource if resource.strip() else "")
            if shown["policies"]:
                rows.append(shown)
        return rows or None


def _user_in(command: Command) -> User:
    """Returns the user in a request; the name is a header field, everything else is in the body."""
    name = command.fields.get("username", "")
    if not name:
        raise RefusalError(ResponseCode.INVALID_PARAMETER, "The username is blank")
    document = body_of(command)
    password = document.get("password")
    return User(
        name,
        None if password is None else str(password),
        UserType.of(document.get("userType")),
        UserStatus.of(document.get("userStatus")),
    )


def _is_super(tables: AuthTables, command: Command) -> bool:
    """Whether the sender is a superuser; without authentication, requests name no user and may do everything."""
    name = command.fields.get(ACCESS_KEY)
    if not name:
        return True
    user = tables.users.get(name)
    return user is not None and user.user_type is UserType.SUPER


def _check_super(tables: AuthTables, command: Command, reason: str) -> None:
    if not _is_super(tables, command):
        raise RefusalError(ResponseCode.SYSTEM_ERROR, reason)


def _subject(key: object) -> str | None:
    """Returns the user name in a subject; None if the subject is not a user."""
    if not isinstance(key, str):
        return None
    kind, _, name = key.partition(":")
    return name if kind.lower() == USER_PREFIX[:-1].lower() else None


def _policy(document: dict[str, Any]) -> Policy:
    """Parses a policy of a request; raises AuthError if one of its entries is invalid."""
    entries = tuple(_entry(entry) for entry in document["entries"])
    return Policy(PolicyType.of(document.get("policyType")) or PolicyType.CUSTOM, entries)


def _entry(document: dict[str, Any]) -> PolicyEntry:
    resource, decision = Resource.parse(document.get("resource")), Decision.of(document.get("decision"))
    words = (Action.of(word) for word in document.get("actions") or [])
    actions = tuple(action for action in words if action is not None)
    addresses = tuple(document.get("sourceIps") or ())
    check_entry(resource, actions, addresses, decision is not None)
    assert resource is not None
    assert decision is not None
    return PolicyEntry(resource, actions, decision, addresses)


def _user_shown(user: User) -> dict[str, Any]:
    shown: dict[str, Any] = {"password": user.password}
    if user.status is not None:
        shown["userStatus"] = user.status.word
    if user.user_type is not None:
        shown["userType"] = user.user_type.word
    return shown | {"username": user.username}


def _acl_shown(acl: Acl, subject: str = "") -> dict[str, Any]:
    """Converts permissions to the form of an answer, with the entries whose resource contains `subject`."""
    policies = []
    for policy in acl.policies:
        entries = [_entry_shown(entry) for entry in policy.entries if subject in entry.resource.key]
        if entries:
            policies.append({"entries": entries, "policyType": policy.type.word})
    return {"policies": policies, "subject": acl.subject}


def _entry_shown(entry: PolicyEntry) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "actions": [action.word for action in entry.actions],
        "decision": entry.decision.word,
        "resource": entry.resource.key,
    }
    return shown | ({"sourceIps": list(entry.source_ips)} if entry.source_ips else {})
