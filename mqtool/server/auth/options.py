"""Reads the keys of a broker.conf about users and permissions.

Source: AuthConfig, AuthenticationFactory, AuthorizationFactory (rocketmq-auth 5.5.0).
"""

import json
from pathlib import Path

from msgspec import Struct

from mqtool.errors import UsageError
from mqtool.formats.auth_records import User, UserType
from mqtool.store.broker_config import BrokerConfig

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
    """Options of authentication and authorization.

    Attributes:
        authentication: whether requests need a valid signature.
        authorization: whether users need permissions.
        cluster: name of the cluster resource for administrative requests.
        first_users: superusers that are created if they do not exist.
        unsigned: request codes and message types that need no signature (authenticationWhitelist).
        unlimited: request codes and message types that need no permission (authorizationWhitelist).
        old_accounts: a plain_acl.yml whose accounts become users; None for none.
    """

    authentication: bool
    authorization: bool
    cluster: str
    first_users: tuple[User, ...] = ()
    unsigned: frozenset[str] = frozenset()
    unlimited: frozenset[str] = frozenset()
    old_accounts: Path | None = None


def options_of(config: BrokerConfig, accounts: Path | None = None) -> AuthOptions | None:
    """Returns the options in a broker.conf; None if it enables neither authentication nor authorization.

    Args:
        config: the keys.
        accounts: the plain_acl.yml of --acl.

    Raises:
        UsageError: a key has an unsupported value, or contradicts --acl.
    """
    authentication, authorization, migrates = (bool(config.flag(key)) for key in _FLAGS)
    for key, supported in _CLASSES.items():
        value = config.text(key)
        if value and value not in supported:
            raise UsageError(f"{key}: expected {' or '.join(supported)}, found {value!r}; other classes are not run")
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
    """Returns the user as which the broker signs its own requests; None if it does not sign them.

    Raises:
        UsageError: the key has an invalid value.
    """
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
