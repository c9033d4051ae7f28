"""The keys of a broker's properties file, of 4.9.7 and 5.5.0 together.

A broker ignores a key that it does not know, without a message, and so does every command of mqtool. Source: the
setters of BrokerConfig, MessageStoreConfig (also of the tiered store), NettyServerConfig, NettyClientConfig and
AuthConfig, which MixAll.properties2Object calls.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from pkgutil import get_data
from typing import NamedTuple

from mqtool.formats.release import MEASURED, Release
from mqtool.jobs import pool

LEGACY_KEYS = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
"""Misspelt before 4.7; later brokers ignore them silently."""

TABLE = Path(__file__).with_suffix(".tsv")
"""A row for each key: its name, the type of its setter, its default by release. tests.support.broker_keys writes it."""

NOT_SHOWN = "-"
"""In the table: there is no setter, or the broker's answer to GET_BROKER_CONFIG has no such key."""
AT_START = "*"
"""In the table, of a default: it depends on the machine, or is computed when the broker starts."""

_HEAD, *_ROWS = (line.split("\t") for line in (get_data(__name__, TABLE.name) or b"").decode().splitlines())

CHOICES = {
    "brokerRole": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    "defaultMessageRequestMode": ("PULL", "POP"),
    "flushDiskType": ("ASYNC_FLUSH", "SYNC_FLUSH"),
}
"""Texts of which only certain ones are taken: those of an enum, in capital letters."""


class Type(Enum):
    """The type that a broker converts a value to: the parameter type of its setter."""

    FLAG = "boolean"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    TEXT = "String"


KEYS: Mapping[str, Type] = {key: Type(kind) for key, kind, *_ in _ROWS if kind != NOT_SHOWN}

PROXY_KEYS = frozenset({"useEndpointPortFromRequest"})
"""Keys of the proxy's ProxyConfig that `serve` has for gRPC clients; a broker does not know them."""


def default(key: str, release: Release) -> str:
    """Returns the default of a key that a broker of the release has."""
    return next(row for row in _ROWS if row[0] == key)[_HEAD.index(MEASURED[release])]


def defaults(release: Release) -> dict[str, str]:
    """Returns the keys that GET_BROKER_CONFIG of a release answers, with their defaults; "" for names and places."""
    column, started = _HEAD.index(MEASURED[release]), _values_at_start()
    shown = {row[0]: row[column] for row in _ROWS if row[column] != NOT_SHOWN}
    return {key: started.get(key, "") if value == AT_START else value for key, value in shown.items()}


def _values_at_start() -> dict[str, str]:
    """Returns the values that a broker computes when it starts: most are numbers of threads, by that of processors."""
    processors = pool.available()
    numbers = {
        "bitMapLengthConsumeQueueExt": 112,  # ConsumerFilterManager, for the defaults of the Bloom filter's two keys
        "clientCallbackExecutorThreads": processors,
        "endTransactionThreadPoolNums": 8 + 2 * processors,
        "heartbeatThreadPoolNums": min(32, processors),
        "litePullMessageThreadPoolNums": 16 + 2 * processors,
        "processReplyMessageThreadPoolNums": 16 + 2 * processors,
        "pullMessageThreadPoolNums": 16 + 2 * processors,
        "putMessageFutureThreadPoolNums": min(4, processors),
        "queryMessageThreadPoolNums": 8 + processors,
        "sendMessageThreadPoolNums": min(4, processors),
    }
    return {key: str(number) for key, number in numbers.items()}


class UnknownKey(NamedTuple):
    """A key that no broker knows, and the known key that was probably meant."""

    key: str
    suggestion: str | None

    def __str__(self) -> str:
        meant = f"; did you mean {self.suggestion}?" if self.suggestion else ""
        return f"unknown key {self.key!r} has no effect{meant}"


def unknown_keys(keys: Iterable[str]) -> list[UnknownKey]:
    """Returns the keys that no broker knows, each with the most similar known key."""
    import difflib  # noqa: PLC0415 - few configurations have such a key

    folded = {key.lower(): key for key in KEYS}
    unknown = []
    for key in keys:
        if key not in KEYS.keys() | LEGACY_KEYS.keys() | PROXY_KEYS:
            near = difflib.get_close_matches(key.lower(), folded, 1, 0.75)
            unknown.append(UnknownKey(key, folded[near[0]] if near else None))
    return unknown
