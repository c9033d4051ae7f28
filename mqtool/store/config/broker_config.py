"""A broker's properties file: the keys that affect a store, with the values that the broker takes from them.

The broker reads the file with java.util.Properties, which keeps blanks at the end of a value, and passes each value
to a setter (MixAll.properties2Object). Numbers and booleans are not trimmed, and a value that does not suit its setter
is ignored silently: `timerWheelEnable=true ` is false, and `fileReservedTime=24 ` leaves the default of 72. Text is
trimmed from 5.2.0 on, but not in 4.9 (source: MixAll of 4.9.7, 5.1.4, 5.2.0 and 5.5.0).
"""

import contextlib
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.errors import ConfigFileError, FormatError, StoreError, UsageError
from mqtool.formats import java, timer
from mqtool.formats.release import MEASURED, Release
from mqtool.store.config.broker_keys import CHOICES, KEYS, LEGACY_KEYS, Type, UnreadKey, default_of, unread_keys
from mqtool.store.files import read_file

_TRIMS_SINCE = Release(5, 2)

_COMMIT_LOG_KEYS = ("storePathCommitLog", "readOnlyCommitLogStorePaths")
LEDGER_DATA_KEY = "storePathDLedgerCommitLog"
LOG_PATH_KEYS = (*_COMMIT_LOG_KEYS, LEDGER_DATA_KEY)
"""Broker keys that hold paths of the log's directories."""

PATH_KEYS = ("storePathRootDir", *LOG_PATH_KEYS)
"""Broker keys that hold paths of a store's directories."""

_DOUBLE = re.compile(
    r"[+-]?(NaN|Infinity|((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|0[xX]([\da-fA-F]+\.?|[\da-fA-F]*\.[\da-fA-F]+)[pP][+-]?\d+)[fFdD]?)",
    re.ASCII,
)


class MisreadValue(NamedTuple):
    """A value that does not mean to the broker what it says."""

    key: str  # the key
    value: str  # as the file states it
    effect: str  # what the broker uses instead, in words

    def __str__(self) -> str:
        return f"{self.key}={self.value!r}: {self.effect}"


def effective_value(key: str, value: str, release: Release | None = None) -> str | None:
    """Returns the value that a broker takes from a text, None if it ignores the text and keeps the default.

    The text of an unknown key is taken as it is. Without a release, text is trimmed.
    """
    match KEYS.get(key):
        case Type.FLAG:
            return str(java.parse_boolean(value)).lower()
        case Type.INT | Type.LONG as kind:
            try:
                number = java.parse_int(value) if kind is Type.INT else java.parse_long(value)
            except FormatError:
                return None
            return str(timer.precision_ms(number) if key == "timerPrecisionMs" else number)
        case Type.DOUBLE:
            decimal = java.trim(value)
            return decimal if _DOUBLE.fullmatch(decimal) else None
        case Type.TEXT:
            text = value if release is not None and release < _TRIMS_SINCE else java.trim(value)
            return text if text in CHOICES.get(key, (text,)) else None
        case _:
            return value


def misread(values: Mapping[str, str], release: Release | None = None) -> list[MisreadValue]:
    """Returns the values that do not mean to the broker, or to any release, what they say, in the order of the keys."""
    misread_values = []
    for key, value in values.items():
        becomes = _effect(key, value, release)
        if becomes:
            misread_values.append(MisreadValue(key, value, becomes))
    return misread_values


def _effect(key: str, value: str, release: Release | None) -> str:
    """Returns in words what the broker uses instead of a value; empty if it uses the value as stated."""
    text = effective_value(key, value, release)
    match KEYS.get(key):
        case Type.FLAG if value.lower() not in ("true", "false"):
            meant = value.strip().lower() in ("true", "false")
            return "the broker reads false" + ("; remove the blanks" if meant else "; write true or false")
        case Type.INT | Type.LONG as kind if text is None:
            trimmed = effective_value(key, value.strip(), release) is not None
            hint = "remove the blanks" if trimmed else f"write a whole number that fits a Java {kind.value}"
            return f"the broker ignores it and keeps its default; {hint}"
        case Type.INT if key == "timerPrecisionMs" and text != value.lstrip("+"):
            return f"the broker rounds it down to {text}, a supported precision"
        case Type.DOUBLE if text is None:
            return "the broker ignores it and keeps its default; write a number"
        case Type.TEXT if text is None:
            choices = ", ".join(CHOICES[key])
            return f"the broker ignores it and keeps its default; write one of {choices}, without blanks"
        case Type.TEXT if java.trim(value) != value and (release is None or release < _TRIMS_SINCE):
            if key in CHOICES:
                return "brokers before 5.2 ignore it for its blanks and keep the default; remove the blanks"
            return "brokers before 5.2 keep the blanks at its end; remove the blanks"
    return ""


class BrokerConfig(Struct, frozen=True):
    """Keys and values as the broker reads them (java.util.Properties)."""

    values: Mapping[str, str] = field(default_factory=dict)  # key to value, as in the file
    directory: Path | None = None  # base of relative paths; None for values given directly
    source: str = ""  # where the values came from, for messages

    @property
    def file(self) -> Path | None:
        """The configuration file, None for values given directly."""
        return None if self.directory is None else Path(self.source)

    def unread_keys(self, releases: Collection[Release] = MEASURED) -> list[UnreadKey]:
        """Returns the keys that no broker of some releases reads; old spellings are not among them."""
        return unread_keys(self.values, releases)

    def misread(self, release: Release | None = None) -> list[MisreadValue]:
        """Returns the values that a broker misreads; None stands for any release."""
        return misread(self.values, release)

    def effective_values(self) -> dict[str, str]:
        """Returns keys and values as a broker uses them, without those that it ignores."""
        effective = {key: effective_value(key, value) for key, value in self.values.items()}
        return {key: value for key, value in effective.items() if value is not None}

    def value(self, key: str) -> str | None:
        """Returns the text of a key, or that of its old spelling; None if both are absent."""
        legacy = (old for old, new in LEGACY_KEYS.items() if new == key)
        return next((self.values[name] for name in (key, *legacy) if name in self.values), None)

    def integer(self, key: str) -> int | None:
        """Returns an integer, None if absent or ignored by a broker; raises UsageError if a given one is invalid."""
        value = self.value(key)
        if value is None:
            return None
        number = effective_value(key, value)
        if number is None and self.directory is None:
            raise UsageError(f"{self.source or 'configuration'}: {key}: expected a whole number, found {value!r}")
        return None if number is None else int(number)

    def stated(self, key: str) -> str:
        """Returns a key with its text, or that it is missing, for messages."""
        value = self.value(key)
        return f"{key} is missing" if value is None else f"{key}={value}"

    @property
    def timer_precision(self) -> int:
        """Time span of a slot of the timer wheel, ms."""
        return self.integer("timerPrecisionMs") or timer.DEFAULT_PRECISION_MS

    def flag(self, key: str) -> bool | None:
        """Returns a Boolean as a broker reads it, None if the key is absent."""
        value = self.values.get(key)
        return None if value is None else java.parse_boolean(value)

    def flag_or_default(self, key: str, release: Release, *, default: bool | None = None) -> bool:
        """Returns a Boolean as a broker of a release uses it; `default` overrides the release's own."""
        own = default_of(key, release)
        value = None if own is None else self.flag(key)
        if value is None:
            return own == "true" if default is None else default
        return value

    def text(self, key: str, release: Release | None = None) -> str | None:
        """Returns a text; None if the key is absent, or if a broker ignores the value in the file.

        Without a release, text is trimmed. Raises UsageError if a value that was given directly is not allowed for the
        key.
        """
        value = self.values.get(key)
        if value is None:
            return None
        effective = effective_value(key, value, release)
        if effective is None and self.directory is None:
            choices = ", ".join(CHOICES[key])
            raise UsageError(f"{self.source or 'configuration'}: {key}: expected one of {choices}, found {value!r}")
        return effective

    def paths(self, key: str) -> tuple[Path, ...]:
        """Returns a comma-separated list of directories; relative ones start at the file's own directory."""
        value = self.values.get(key, "")
        paths = tuple(Path(part.strip()) for part in value.split(",") if part.strip())
        return tuple(path if path.is_absolute() or not self.directory else self.directory / path for path in paths)

    @property
    def commit_log_paths(self) -> tuple[Path, ...]:
        """Directories of the CommitLog, those that files are created in first."""
        return tuple(path for key in _COMMIT_LOG_KEYS for path in self.paths(key))

    def places_in_copy(self, path: Path, root: Path) -> tuple[Path, ...]:
        """Returns where a configured directory may be in a copy of the store with another root, the likeliest first."""
        places = [root / path.name]
        original = next(iter(self.paths("storePathRootDir")), None)
        if original is not None and path.is_relative_to(original):
            places.insert(0, root / path.relative_to(original))
        return tuple(places)

    def for_copy(self, root: Path) -> "BrokerConfig":
        """Returns the configuration of a copy of the store: directories of the log are those that the copy has.

        The configured ones may still be there, and have the log of the original.
        """
        values = {key: value for key, value in self.values.items() if key not in PATH_KEYS}
        for key in LOG_PATH_KEYS:
            places = (self.places_in_copy(path, root) for path in self.paths(key))
            directories = dict.fromkeys(
                next((str(place) for place in candidates if place.is_dir()), "") for candidates in places
            )
            directories.pop("", None)
            if directories:
                values[key] = ",".join(directories)
        return replace(self, values=values)


ConfigSource = str | Path | Mapping[str, object] | BrokerConfig | None
"""A broker.conf, the broker's keys as a mapping, or both as they were read."""


def load(config: "str | Path | Mapping[str, object] | BrokerConfig | None") -> BrokerConfig:
    """Reads a configuration from a properties file, or takes it from a mapping; raises ConfigFileError."""
    if config is None:
        return BrokerConfig()
    if isinstance(config, BrokerConfig):
        return config
    if isinstance(config, Mapping):
        return BrokerConfig({str(key): str(value) for key, value in config.items()}, None, "configuration")
    path = Path(config)
    try:
        values = java.parse_properties(read_file(path, 1 << 20))
    except StoreError as error:
        raise ConfigFileError(f"expected a properties file: {error.reason}", path) from error
    except FormatError as error:
        raise ConfigFileError(f"a broker refuses to start with it: {error}; correct the file", path) from error
    loaded = BrokerConfig(values, path.parent, str(path))
    unknown = loaded.unread_keys()
    if unknown and len(unknown) == len(loaded.values):
        first = unknown[0]._replace(key=unknown[0].key[:100])
        reason = f"expected a broker's properties file, found no key that a broker reads: {first}"
        raise ConfigFileError(reason, path)
    return loaded


_PLACES = ("broker.conf", "conf/broker.conf", "conf/2m-*/*.properties", "conf/2m-*/*.conf")
"""Where configuration files are, relative to the directory of the store or, with the broker's program, above it."""


UNCHECKED = "sizes were detected from the files; broker.conf was not checked: pass --config FILE"
"""Qualifies a verdict without a configuration: a size in it that differs from the files prevents the start."""


def find(root: Path) -> Path | None:
    """Returns the configuration file of the broker that uses a store, None if there is not exactly one.

    A running broker states its file (`-c`). Otherwise files count that are where brokers keep them and whose
    storePathRootDir is this store; one right next to the store may leave the key out.
    """
    store = root.resolve()
    running = [path for path in _of_running_brokers() if _is_config_of(path, store, stated=True)]
    near = [
        path
        for directory, stated in ((root / "..", False), (root / "../..", True))
        for place in _PLACES
        for path in Path(os.path.normpath(directory)).glob(place)
        if _is_config_of(path, store, stated=stated)
    ]
    candidates = dict.fromkeys(running or near)
    return next(iter(candidates)) if len(candidates) == 1 else None


def _is_config_of(path: Path, store: Path, *, stated: bool) -> bool:
    """Returns whether a file is the configuration of a store; if `stated`, it must name the store."""
    try:
        roots = load(path).paths("storePathRootDir")
    except StoreError:
        return False
    return any(place.resolve() == store for place in roots) if roots else not stated


def _of_running_brokers() -> list[Path]:
    """Returns the files that brokers on this machine were started with."""
    paths = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            main = next((number for number, word in enumerate(words) if word.endswith("BrokerStartup")), len(words))
            if "-c" in words[main:-1]:
                paths.append((process / "cwd").resolve() / words[words.index("-c", main) + 1])
    return paths
