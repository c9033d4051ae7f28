"""The keys of a broker's properties file, of the known releases together.

A broker ignores a key that it does not know, without a message, and so does every command of mqtool. Source: the
setters of BrokerConfig, MessageStoreConfig (also of the tiered store), NettyServerConfig, NettyClientConfig and
AuthConfig, which MixAll.properties2Object calls.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from pathlib import Path
from pkgutil import get_data
from typing import NamedTuple

from mqtool.formats.release import MEASURED, V4_9, V5_3, V5_5_1, Release
from mqtool.jobs import pool

LEGACY_KEYS = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
"""Misspelt before 4.7; later brokers ignore them silently."""

TABLE = Path(__file__).with_suffix(".tsv")
"""A row for each key: its name, the type of its setter, the part that reads it, its default by release.

`python -m tests.support.broker_keys` writes it from the published classes.
"""

NOT_READ = "-"
"""In the table, of a type: the key has no setter; of a default: the release does not know the key."""
AT_START = "*"
"""In the table, of a default: it depends on the machine, or is computed when the broker starts."""
NOT_SHOWN = "?"
"""In the table, of a default: the release reads the key, and its answer to GET_BROKER_CONFIG does not have it."""

_HEAD, *_ROWS = (line.split("\t") for line in (get_data(__name__, TABLE.name) or b"").decode().splitlines())
_FIRST = 3
"""Column of the first release in the table."""

CHOICES = {
    "brokerRole": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    "defaultMessageRequestMode": ("PULL", "POP"),
    "flushDiskType": ("ASYNC_FLUSH", "SYNC_FLUSH"),
}
"""Texts of which only certain ones are taken: those of an enum, in capital letters."""


_ELSEWHERE = "controller"
"""The part in the table that reads another file than the broker."""


class Type(Enum):
    """The type that a broker converts a value to: the parameter type of its setter."""

    FLAG = "boolean"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    TEXT = "String"


VERSIONS = tuple(_HEAD[_FIRST:])
"""The releases in the table, oldest first."""
_DEFAULTS = {row[0]: dict(zip(VERSIONS, row[_FIRST:], strict=True)) for row in _ROWS}
_PARTS = {row[0]: row[2] for row in _ROWS}
KEYS: Mapping[str, Type] = {key: Type(kind) for key, kind, part, *_ in _ROWS if kind != NOT_READ and part != _ELSEWHERE}

PROXY_KEYS = frozenset({"useEndpointPortFromRequest"})
"""Keys of the proxy's ProxyConfig that `serve` has for gRPC clients; a broker does not know them."""


def default_of(key: str, release: Release) -> str | None:
    """Returns the default of a key, None if the release does not read the key."""
    default = _DEFAULTS[key][MEASURED[release]]
    return None if default == NOT_READ else default


def defaults(release: Release) -> dict[str, str]:
    """Returns the keys that GET_BROKER_CONFIG of a release answers, with their defaults; "" for names and places."""
    started, version = _values_at_start(), MEASURED[release]
    known = {key: _DEFAULTS[key][version] for key, part in _PARTS.items() if part == "broker"}
    shown = {key: value for key, value in known.items() if value not in (NOT_READ, NOT_SHOWN)}
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


class UnreadKey(NamedTuple):
    """A key that a broker does not read."""

    key: str
    words: str  # why it has no effect, and the known key that was probably meant

    def __str__(self) -> str:
        return self.words


def unread_keys(keys: Collection[str], releases: Collection[Release] = tuple(MEASURED)) -> list[UnreadKey]:
    """Returns the keys that no broker of some releases reads; old spellings and keys of `serve` are not among them."""
    known = KEYS.keys() | LEGACY_KEYS.keys() | PROXY_KEYS
    unread = [UnreadKey(key, _words_of_unknown(key)) for key in keys if key not in known]
    for key in (key for key in keys if key in KEYS):
        reading = [release for release in MEASURED if default_of(key, release) is not None]
        if not set(reading).intersection(releases):
            since = "" if V4_9 in reading else f" since {'5.x' if V5_3 in reading else MEASURED[reading[0]]}"
            until = "" if V5_5_1 in reading else f" up to {MEASURED[reading[-1]]}"
            own = " or ".join(MEASURED[release] for release in releases)
            unread.append(
                UnreadKey(key, f"key {key!r} has no effect: read{since}{until}; this store's broker is {own}")
            )
    return unread


def _words_of_unknown(key: str) -> str:
    if key in _PARTS and _PARTS[key] == _ELSEWHERE:
        return f"key {key!r} has no effect: it belongs in the file of the controller or name server"
    meant = next((known for known in KEYS if _is_typo(key, known)), None)
    return f"unknown key {key!r} has no effect" + (f"; did you mean {meant}?" if meant else "")


def _is_typo(key: str, meant: str) -> bool:
    """Whether keys differ in their case, or by one letter: missing, added, wrong or exchanged with the next one.

    Two letters, a digit, or the first letter of a word make another key: `minX` of `maxX`, `appendCkAsync` of
    `appendAckAsync`.
    """
    shorter, longer = sorted((key.lower(), meant.lower()), key=len)
    letters = enumerate(zip(shorter, longer, strict=False))
    at = next((place for place, (left, right) in letters if left != right), len(shorter))
    if any(map(str.isdigit, shorter[at : at + 1] + longer[at : at + 1])) or meant[at : at + 1].isupper():
        return False
    if len(shorter) < len(longer):
        return shorter[at:] == longer[at + 1 :]
    return shorter[at + 1 :] == longer[at + 1 :] or (
        shorter[at : at + 2] == longer[at : at + 2][::-1] and shorter[at + 2 :] == longer[at + 2 :]
    )
