"""Files of controller mode, which a broker's configuration may place outside of the root.

Source: MessageStoreConfig.getStorePathEpochFile, getStorePathBrokerIdentity (5.5.0).
"""

from pathlib import Path

from mqtool.formats import file_names
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.configured_place import possible_places

KEYS = {"storePathEpochFile": file_names.EPOCH_FILE, "storePathBrokerIdentity": file_names.BROKER_IDENTITY}
"""Broker key to the name of the file below the root, where it is by default."""


def epoch_file(root: Path, config: BrokerConfig) -> Path:
    """Returns where a store's epoch file is, or would be; its backup has the same name with `.bak`."""
    return _place(root, config, "storePathEpochFile")


def broker_identity(root: Path, config: BrokerConfig) -> Path:
    """Returns where a store's broker identity is, or would be."""
    return _place(root, config, "storePathBrokerIdentity")


def has_epochs(root: Path, config: BrokerConfig) -> bool:
    """Whether there is an epoch file or its backup: the store belongs to a broker in controller mode."""
    return _exists(epoch_file(root, config))


def files_outside(root: Path, config: BrokerConfig) -> list[tuple[str, Path]]:
    """Returns key and path of each existing file of controller mode that is not below the root."""
    places = [(key, _place(root, config, key)) for key in KEYS]
    return [(key, path) for key, path in places if _exists(path) and not path.is_relative_to(root)]


def _place(root: Path, config: BrokerConfig, key: str) -> Path:
    """Returns the configured place, also in a copy of the store at another place, or the default one."""
    configured = next(iter(config.paths(key)), None)
    if configured is None:
        return root / KEYS[key]
    places = possible_places(configured, root, config)
    return next((path for path in places if _exists(path)), places[0])


def _exists(path: Path) -> bool:
    return path.exists() or path.with_name(path.name + file_names.BACKUP_SUFFIX).exists()
