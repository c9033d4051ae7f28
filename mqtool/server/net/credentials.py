"""The account with which a command signs its requests to a broker with access control.

It is read from `conf/tools.yml` below `ROCKETMQ_HOME`, as by mqadmin, or from two environment variables; never from
arguments, which every user of a machine can list. Source: AclUtils.getAclRPCHook (4.9.7, 5.5.0).
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from mqtool.errors import ConfigFileError, UsageError
from mqtool.protocol.command import Command
from mqtool.server.net.acl import ACCESS_KEY, SIGNATURE, sign
from mqtool.server.net.acl_config import document_in

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

    Raises:
        UsageError: only one of the two variables is set.
        ConfigFileError: the file cannot be read, or does not contain an account.
        UnavailableError: the file exists, and PyYAML is not installed.
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
    document = document_in(path)
    keys = [document.get(name) if isinstance(document, dict) else None for name in ("accessKey", "secretKey")]
    key, secret = ("" if value is None else str(value) for value in keys)
    if not key or not secret:
        raise ConfigFileError("expected accessKey and secretKey, found no account", path)
    return key, secret
