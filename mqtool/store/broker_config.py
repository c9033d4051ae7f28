"""A broker's properties file: the keys that shape a store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mqtool.errors import ConfigFileError, StoreError, UsageError
from mqtool.store.files import read_file

LEGACY_KEYS = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
"""Misspelt before 4.7; later brokers ignore them silently."""


@dataclass(frozen=True)
class BrokerConfig:
    """Keys and values as the broker reads them (java.util.Properties).

    Attributes:
        values: key to value.
        directory: what relative paths are relative to; None for values given directly.
        source: where they came from, for messages.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    source: str = ""

    def integer(self, key: str) -> int | None:
        """Returns a whole number, None if the key is absent.

        Raises:
            UsageError: the value is none.
        """
        value = self.values.get(key)
        if value is None:
            legacy = (old for old, new in LEGACY_KEYS.items() if new == key and old in self.values)
            value = next((self.values[old] for old in legacy), None)
        if value is None:
            return None
        try:
            return int(value)
        except ValueError as error:
            where = self.source or "configuration"
            raise UsageError(f"{where}: {key}: expected a whole number, found {value!r}") from error

    def flag(self, key: str) -> bool | None:
        """Returns a Boolean, None if the key is absent."""
        value = self.values.get(key)
        return None if value is None else value.strip().lower() == "true"

    def paths(self, key: str) -> tuple[Path, ...]:
        """Returns a comma-separated list of directories, relative ones from the file's own directory."""
        value = self.values.get(key, "")
        found = tuple(Path(part.strip()) for part in value.split(",") if part.strip())
        return tuple(path if path.is_absolute() or not self.directory else self.directory / path for path in found)


def load(config: "str | Path | Mapping[str, object] | BrokerConfig | None") -> BrokerConfig:
    """Reads a configuration from a properties file or takes it from a mapping.

    Raises:
        ConfigFileError: the file cannot be read.
    """
    if config is None:
        return BrokerConfig()
    if isinstance(config, BrokerConfig):
        return config
    if isinstance(config, Mapping):
        return BrokerConfig({str(key): str(value) for key, value in config.items()}, None, "configuration")
    path = Path(config)
    try:
        text = read_file(path, 1 << 20).decode("utf-8", "replace")
    except StoreError as error:
        raise ConfigFileError(f"expected a properties file: {error.reason}", path) from error
    return BrokerConfig(parse_properties(text), path.parent, str(path))


def parse_properties(text: str) -> dict[str, str]:
    """Reads `key=value` lines as java.util.Properties does, without its escapes for other than line ends."""
    values: dict[str, str] = {}
    pending = ""
    for line in text.splitlines():
        whole = pending + line.lstrip()
        if whole.endswith("\\") and not whole.endswith("\\\\"):
            pending = whole[:-1]
            continue
        pending = ""
        if not whole or whole[0] in "#!":
            continue
        cut = min((at for at in (whole.find("="), whole.find(":")) if at >= 0), default=-1)
        key, value = (whole, "") if cut < 0 else (whole[:cut], whole[cut + 1 :])
        values[key.strip()] = value.strip()
    return values
