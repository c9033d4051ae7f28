"""A broker's properties file: the keys that shape a store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mqtool.errors import ConfigFileError, StoreError, UsageError
from mqtool.store.broker_keys import LEGACY_KEYS, UnknownKey, unknown_keys
from mqtool.store.files import read_file


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

    @property
    def file(self) -> Path | None:
        """The file that they were read from, None for values given directly."""
        return None if self.directory is None else Path(self.source)

    def unknown_keys(self) -> list[UnknownKey]:
        """Returns the keys that no broker reads; those in their old spelling are not among them."""
        return unknown_keys(self.values)

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


ConfigSource = str | Path | Mapping[str, object] | BrokerConfig | None
"""A broker.conf, the broker's keys as a mapping, or both as they were read."""


def load(config: "str | Path | Mapping[str, object] | BrokerConfig | None") -> BrokerConfig:
    """Reads a configuration from a properties file or takes it from a mapping.

    Raises:
        ConfigFileError: the file cannot be read, or is something else than a broker's configuration.
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
    found = BrokerConfig(parse_properties(text), path.parent, str(path))
    unknown = found.unknown_keys()
    if unknown and len(unknown) == len(found.values):
        first = unknown[0]._replace(key=unknown[0].key[:100])
        words = f"expected a broker's properties file, found no key that a broker reads: {first}"
        raise ConfigFileError(words, path)
    return found


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
