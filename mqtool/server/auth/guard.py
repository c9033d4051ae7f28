"""Refuses requests without a valid signature, or without permission.

A listener calls `Auth.check`; the gRPC server calls `authenticate` and `authorize`. Source:
DefaultAuthenticationHandler, UserAuthorizationHandler, AclAuthorizationHandler, AuthenticationPipeline,
AuthorizationPipeline (5.5.0).
"""

import base64
import hmac
from collections.abc import Callable, Iterable

from mqtool.formats.auth_records import (
    Action,
    Decision,
    Pattern,
    PolicyEntry,
    PolicyType,
    ResourceType,
    User,
    UserStatus,
    UserType,
)
from mqtool.protocol.codes import ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.auth.needs import Need, needs_of
from mqtool.server.auth.tables import AuthError, AuthOptions, AuthTables, matches_address
from mqtool.server.net.acl import ACCESS_KEY, ROUTE_CHANGES, SIGNATURE, UNIQUE_KEY_QUERY, sign
from mqtool.server.net.acl import signing as signing_as
from mqtool.server.net.peer import Answer, Peer

LAST_UNSIGNED_QUERY = 399
"""V4_9_3: clients up to this release do not sign the field `_UNIQUE_KEY_QUERY`."""

_NO_SUBJECT = "Authorization failed. Please verify your access rights and try again."
_RANKS = {Pattern.LITERAL: 0, Pattern.PREFIXED: 1, Pattern.ANY: 2}


class Auth:
    """Authenticates and authorizes requests.

    Attributes:
        options: which checks are enabled.
        tables: users and permissions.
    """

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

        Args:
            name: name of the user; "" if the request names none.
            rpc: request code or message type.

        Raises:
            AuthError: the user does not exist or is disabled.
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
        """Checks that a user has the permissions that a request needs.

        Args:
            name: name of the user; None if the request names none.
            needs: permissions that the request needs.
            host: address of the client.
            rpc: request code or message type.

        Raises:
            AuthError: a permission is missing.
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
    return (
        resource.type is ResourceType.ANY,
        _RANKS[resource.pattern],
        -length,
        entry.decision is not Decision.DENY,
    )
