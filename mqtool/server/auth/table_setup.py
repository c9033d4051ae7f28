"""Opens the tables of users and permissions, and adds configured superusers and the accounts of a plain_acl.yml.

Source: AuthenticationMetadataManagerImpl.initUser, AuthMigrator (5.5.0).
"""

import logging
from collections.abc import Iterator
from pathlib import Path

from mqtool.formats.auth_records import (
    Action,
    Decision,
    Pattern,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceType,
    User,
    UserType,
)
from mqtool.formats.topics import RETRY_PREFIX
from mqtool.server.auth.options import AuthOptions
from mqtool.server.auth.tables import AuthTables
from mqtool.server.net import acl
from mqtool.server.net.acl import Account, Right

_LOG = logging.getLogger(__name__)


def open_tables(options: AuthOptions, root: Path, *, writable: bool) -> AuthTables:
    """Returns the tables of a store, including the users that the configuration names.

    Args:
        options: options from the configuration.
        root: root of the store.
        writable: whether changes are written to the store.

    Raises:
        UnavailableError: a library is not installed.
        StoreError: a table or a file cannot be read.
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
        _LOG.warning("there is no superuser: name one with initAuthenticationUser to create users and permissions")
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
            _LOG.warning("its address list is not imported, requests need a signature: name=%s", account.access_key)
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
