"""Finds a directory that a broker's configuration names, also in a copy of the store at another place."""

from pathlib import Path

from mqtool.errors import LayoutError
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.real_path import named_below
from mqtool.store.remote import is_remote


def possible_places(path: Path, root: Path, config: BrokerConfig) -> tuple[Path, ...]:
    """Returns where a configured path may be, also in a copy of the store at another place, the likeliest first."""
    *likely, same_name = config.places_in_copy(path, root)
    return (*likely, path, same_name)


def place_of(path: Path, root: Path, config: BrokerConfig) -> Path | None:
    """Returns where a configured directory is, also in a copy of the store at another place; None if it is missing."""
    directory = next((place for place in possible_places(path, root, config) if place.is_dir()), None)
    return directory if directory is None or is_remote(root) else named_below(root, directory)


def place_or_name(path: Path, root: Path, config: BrokerConfig) -> Path:
    """Returns where a configured directory is; below the root under its own name if it is missing."""
    return place_of(path, root, config) or root / path.name


def require_place(path: Path, root: Path, config: BrokerConfig, what: str) -> Path:
    """Returns where a configured directory is; see `place_of`.

    Args:
        path: as the configuration names it.
        root: of the store.
        config: the configuration.
        what: the directory's content, for the message.

    Raises:
        LayoutError: it is missing.
    """
    place = place_of(path, root, config)
    if place is None:
        tried = f"neither it nor {root / path.name} exists"
        raise LayoutError(f"{config.source} names this {what} directory, but {tried}", path)
    return place
