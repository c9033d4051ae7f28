"""The tables of users and permissions, in memory and on disk, and the keys of a broker.conf about them.

This module has the rules for changing them. They are opened with the configured superusers and the accounts of a
plain_acl.yml. Source: AuthenticationMetadataManagerImpl, AuthorizationMetadataManagerImpl,
LocalAuthenticationMetadataProvider, LocalAuthorizationMetadataProvider, IPAddressUtils, AuthConfig,
AuthenticationFactory, AuthorizationFactory, AuthMigrator (5.5.0).
"""

import ipaddress
import json
import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import FormatError, MqtoolError, StoreError, UsageError
from mqtool.formats import auth_records, file_names
from mqtool.formats.auth_records import (
    Acl,
    Action,
    Decision,
    Pattern,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceType,
    User,
    UserStatus,
    UserType,
)
from mqtool.formats.topics import RETRY_PREFIX
from mqtool.server.net import acl
from mqtool.server.net.acl import Account, Right
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.rocksdb import Table, rows


class AuthError(MqtoolError):
    """Refuses a request; the text is the real broker's."""


class AuthTables:
    """Users and permissions of one broker, by user name.

    Changes run in `thread`, since they wait for the disk. Any thread may read at the same time; it sees a change once
    it is on disk.
    """

    def __init__(self, root: Path, *, writable: bool) -> None:
        """Reads the tables of a store; changes are kept in memory if it is not `writable`.

        Raises UnavailableError if rocksdict is not installed; StoreError if a table cannot be read, or another process
        has it open.
        """
        config = root / file_names.CONFIG
        self.writable = writable
        self.thread = ThreadPoolExecutor(1, "mqtool-users")
        self.users, self.acls = _read_users(config / file_names.USERS), _read_acls(config / file_names.ACLS)
        self._user_table = Table(config / file_names.USERS) if writable else None
        try:
            self._acl_table = Table(config / file_names.ACLS) if writable else None
        except StoreError:
            self.close()
            raise

    def close(self) -> None:
        """Waits for changes in progress, then closes the tables."""
        self.thread.shutdown()
        for table in (self._user_table, getattr(self, "_acl_table", None)):
            if table is not None:
                table.close()

    def user(self, name: str) -> User | None:
        """Returns a user; None if there is none. Raises AuthError if the name is blank."""
        _check_name(name)
        return self.users.get(name)

    def create_user(self, user: User) -> None:
        """Adds a user; raises AuthError if the user exists, or the name or password is missing."""
        _check_name(user.username)
        if not (user.password or "").strip():
            raise AuthError("password can not be blank")
        if user.username in self.users:
            raise AuthError("The user is existed")
        self._put_user(
            replace(user, user_type=user.user_type or UserType.NORMAL, status=user.status or UserStatus.ENABLE)
        )

    def update_user(self, user: User) -> None:
        """Changes the given fields of a user; raises AuthError if there is no such user."""
        _check_name(user.username)
        old = self.users.get(user.username)
        if old is None:
            raise AuthError("The user is not exist")
        password = user.password if (user.password or "").strip() else old.password
        kind, status = user.user_type or old.user_type, user.status or old.status
        self._put_user(User(old.username, password, kind, status))

    def delete_user(self, name: str) -> None:
        """Deletes a user and its permissions."""
        self._delete_acl(name)
        if self._user_table is not None:
            self._user_table.delete(name.encode("utf-8", "replace"))
        self.users.pop(name, None)

    def _put_user(self, user: User) -> None:
        if self._user_table is not None:
            self._user_table.put(user.username.encode("utf-8", "replace"), auth_records.build_user(user))
        self.users[user.username] = user

    def acl(self, name: str) -> Acl | None:
        """Returns the permissions of a user; raises AuthError if there is no such user."""
        if name not in self.users:
            raise AuthError("The subject is not exist.")
        return self.acls.get(name)

    def put_acl(self, name: str, policies: Iterable[Policy]) -> None:
        """Adds entries for a user, replacing those about the same resources; raises AuthError without such a user."""
        if name not in self.users:
            raise AuthError(f"The subject of {auth_records.USER_PREFIX}{name} is not exist.")
        old = self.acls.get(name)
        self._put_acl(Acl(name, tuple(policies)) if old is None else old.updated(policies))

    def delete_acl(self, name: str, kind: PolicyType, resource: Resource | None) -> None:
        """Deletes the entry for a resource from a policy of a user; with None, all permissions of the user.

        Raises AuthError if there is no such user, or it has no permissions.
        """
        old = self.acl(name)
        if old is None:
            raise AuthError("The acl is not exist.")
        if resource is not None:
            old = old.without(kind, resource)
        if resource is None or not old.policies:
            self._delete_acl(name)
        else:
            self._put_acl(old)

    def _put_acl(self, acl: Acl) -> None:
        if self._acl_table is not None:
            self._acl_table.put(acl.subject.encode("utf-8", "replace"), auth_records.build_acl(acl))
        self.acls[acl.username] = acl

    def _delete_acl(self, name: str) -> None:
        if self._acl_table is not None:
            self._acl_table.delete(f"{auth_records.USER_PREFIX}{name}".encode("utf-8", "replace"))
        self.acls.pop(name, None)


def check_entry(
    resource: Resource | None, actions: Iterable[Action], source_ips: Iterable[object], has_decision: bool
) -> None:
    """Raises AuthError if an entry of a policy is invalid."""
    actions = tuple(actions)
    if resource is None:
        raise AuthError("The resource is null.")
    if not actions:
        raise AuthError("The actions is empty.")
    if Action.ANY in actions:
        raise AuthError("The actions can not be Any.")
    for address in source_ips:
        if not isinstance(address, str) or not address.strip():
            raise AuthError("The source ip is empty.")
        if network_of(address) is None:
            raise AuthError("The source ip is invalid.")
    if not has_decision:
        raise AuthError("The decision is null or illegal.")


def network_of(address: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Parses an address or ADDRESS/BITS; None if the text is neither."""
    try:
        return ipaddress.ip_network(address, strict=False)
    except ValueError:
        return None


def matches_address(entry: PolicyEntry, host: str) -> bool:
    """Whether an entry applies to requests from an address."""
    if not entry.source_ips:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host in entry.source_ips
    mapped = getattr(address, "ipv4_mapped", None)
    networks = [network for network in map(network_of, entry.source_ips) if network is not None]
    return any(address in network or (mapped is not None and mapped in network) for network in networks)


def _check_name(name: str) -> None:
    if not name.strip():
        raise AuthError("username can not be blank")


def _read_users(path: Path) -> dict[str, User]:
    try:
        users = (auth_records.parse_user(value) for value in rows(path).values())
        return {user.username: user for user in users}
    except FormatError as error:
        raise StoreError(f"a user cannot be read: {error}", path) from error


def _read_acls(path: Path) -> dict[str, Acl]:
    try:
        acls = (auth_records.parse_acl(key, value) for key, value in rows(path).items())
        return {acl.username: acl for acl in acls}
    except FormatError as error:
        raise StoreError(f"permissions cannot be read: {error}", path) from error


_AUTHENTICATION = "org.apache.rocketmq.auth.authentication."
_AUTHORIZATION = "org.apache.rocketmq.auth.authorization."
_CLASSES = {
    "authenticationProvider": (f"{_AUTHENTICATION}provider.DefaultAuthenticationProvider",),
    "authenticationMetadataProvider": (f"{_AUTHENTICATION}provider.LocalAuthenticationMetadataProvider",),
    "authenticationStrategy": (
        f"{_AUTHENTICATION}strategy.StatelessAuthenticationStrategy",
        f"{_AUTHENTICATION}strategy.StatefulAuthenticationStrategy",
    ),
    "authorizationProvider": (f"{_AUTHORIZATION}provider.DefaultAuthorizationProvider",),
    "authorizationMetadataProvider": (f"{_AUTHORIZATION}provider.LocalAuthorizationMetadataProvider",),
    "authorizationStrategy": (
        f"{_AUTHORIZATION}strategy.StatelessAuthorizationStrategy",
        f"{_AUTHORIZATION}strategy.StatefulAuthorizationStrategy",
    ),
}
"""Supported classes by key.

A broker's stateful strategies cache decisions; here they behave like the stateless ones.
"""
_TABLES = ("authenticationMetadataProvider", "authorizationMetadataProvider")
_FLAGS = ("authenticationEnabled", "authorizationEnabled", "migrateAuthFromV1Enabled")


class AuthOptions(Struct, frozen=True):
    """Options of authentication and authorization."""

    authentication: bool  # whether requests need a valid signature
    authorization: bool  # whether users need permissions
    cluster: str  # name of the cluster resource for administrative requests
    first_users: tuple[User, ...] = ()  # superusers that are created if they do not exist
    # request codes and message types that need no signature (authenticationWhitelist)
    unsigned: frozenset[str] = frozenset()
    # request codes and message types that need no permission (authorizationWhitelist)
    unlimited: frozenset[str] = frozenset()
    old_accounts: Path | None = None  # a plain_acl.yml whose accounts become users; None for none


def options_of(config: BrokerConfig, accounts: Path | None = None) -> AuthOptions | None:
    """Returns the options in a broker.conf; None if it enables neither authentication nor authorization.

    `accounts` is the plain_acl.yml of --acl. Raises UsageError if a key has an unsupported value, or contradicts --acl.
    """
    authentication, authorization, migrates = (bool(config.flag(key)) for key in _FLAGS)
    for key, supported in _CLASSES.items():
        value = config.text(key)
        if value and value not in supported:
            raise UsageError(
                f"{key}: expected {' or '.join(supported)}, found {value!r}; other classes are not supported"
            )
    if not (authentication or authorization or migrates or any(config.text(key) for key in _TABLES)):
        return None
    if migrates and accounts is None:
        raise UsageError("migrateAuthFromV1Enabled: name the plain_acl.yml with --acl")
    if accounts is not None and not migrates:
        reason = "--acl: users and permissions are in config/users and config/acls of the store"
        raise UsageError(f"{reason}; set migrateAuthFromV1Enabled=true to import this file, or leave it out")
    first = _user(config, "initAuthenticationUser", "username", "password"), own_user(config)
    return AuthOptions(
        authentication,
        authorization,
        config.text("brokerClusterName") or "DefaultCluster",
        tuple(user for user in first if user is not None),
        _listed(config, "authenticationWhitelist"),
        _listed(config, "authorizationWhitelist"),
        accounts,
    )


def own_user(config: BrokerConfig) -> User | None:
    """Returns the user who signs the broker's own requests, or None; raises UsageError if the key is invalid."""
    return _user(config, "innerClientAuthenticationCredentials", "accessKey", "secretKey")


def _listed(config: BrokerConfig, key: str) -> frozenset[str]:
    return frozenset(part.strip() for part in (config.text(key) or "").split(",") if part)


def _user(config: BrokerConfig, key: str, name_field: str, password_field: str) -> User | None:
    """Returns the superuser that a key names; None without the key. Error messages do not quote the value."""
    value = config.text(key)
    if not value or not value.strip():
        return None
    try:
        document = json.loads(value)
        name, password = document[name_field], document[password_field]
    except (ValueError, KeyError, TypeError):
        name = password = None
    if not isinstance(name, str) or not isinstance(password, str) or not name.strip() or not password.strip():
        form = json.dumps({name_field: "NAME", password_field: "PASSWORD"})
        raise UsageError(f"{key}: expected {form}, found something else")
    return User(name, password, UserType.SUPER)


_LOG = logging.getLogger(__name__)


def open_tables(options: AuthOptions, root: Path, *, writable: bool) -> AuthTables:
    """Returns the tables of a store, including the users that the configuration names.

    Raises UnavailableError if a library is not installed; StoreError if a table or a file cannot be read.
    """
    tables = AuthTables(root, writable=writable)
    try:
        for user in options.first_users:
            if user.username not in tables.users:
                tables.create_user(user)
                _LOG.info("superuser created name=%s", user.username)
        if options.old_accounts is not None:
            _import(options.old_accounts, tables)
    except BaseException:
        tables.close()
        raise
    if options.authentication and not any(user.user_type is UserType.SUPER for user in tables.users.values()):
        _LOG.warning("there is no superuser; set initAuthenticationUser to create users and permissions")
    return tables


def _import(path: Path, tables: AuthTables) -> None:
    """Creates a user with permissions for each account of a plain_acl.yml that is not a user yet."""
    config = acl.load(path)
    for account in config.accounts.values():
        if account.access_key in tables.users:
            continue
        kind = UserType.SUPER if account.admin else UserType.NORMAL
        tables.create_user(User(account.access_key, account.secret_key, kind))
        policies = list(_policies(account))
        if policies:
            tables.put_acl(account.access_key, policies)
        _LOG.info("account imported name=%s", account.access_key)
        if account.white:
            _LOG.warning(
                "its address list is not imported, so its requests need a signature name=%s", account.access_key
            )
    if config.white:
        _LOG.warning("globalWhiteRemoteAddresses are not imported: requests from them need a signature")


def _policies(account: Account) -> Iterator[Policy]:
    topics = [(name, right) for name, right in account.rights.items() if not name.startswith(RETRY_PREFIX)]
    groups = [(name, right) for name, right in account.rights.items() if name.startswith(RETRY_PREFIX)]
    custom = [_entry(Resource(ResourceType.TOPIC, name), right) for name, right in topics]
    custom += [_entry(Resource.group(name), right) for name, right in groups]
    if custom:
        yield Policy(PolicyType.CUSTOM, tuple(custom))
    defaults = [
        _entry(Resource(kind, None, Pattern.ANY), right)
        for kind, right in ((ResourceType.TOPIC, account.default_topic), (ResourceType.GROUP, account.default_group))
        if right is not None
    ]
    if defaults:
        yield Policy(PolicyType.DEFAULT, tuple(defaults))


def _entry(resource: Resource, right: Right) -> PolicyEntry:
    if right & Right.DENY:
        return PolicyEntry(resource, (Action.ALL,), Decision.DENY)
    actions = [action for flag, action in ((Right.PUBLISH, Action.PUB), (Right.SUBSCRIBE, Action.SUB)) if right & flag]
    return PolicyEntry(resource, tuple(actions), Decision.ALLOW)
