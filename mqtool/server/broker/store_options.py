"""Determines the options to open a store with: file sizes and release from the store, the rest as configured."""

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mqtool.engine import Compat, StoreOptions, options_from_config
from mqtool.errors import NotAStoreError
from mqtool.formats.hosts import Host
from mqtool.store.broker_config import BrokerConfig
from mqtool.store.index_file import DEFAULT_SHAPE, shape_of
from mqtool.store.store import Store, open_store

_SIZES = {
    "commit_log_size": "commit_log_file_size",
    "consume_queue_size": "consume_queue_file_size",
    "consume_queue_ext_size": "consume_queue_ext_file_size",
    "batch_consume_queue_size": "batch_consume_queue_file_size",
}
"""Store option for each size of a layout."""


def store_options(root: Path, config: BrokerConfig, host: Host) -> StoreOptions:
    """Returns the options for a store: file sizes and release from the store if it has them, else as configured.

    Args:
        root: of the store; it may be empty or not there.
        config: what was configured.
        host: what records are stored under.

    Raises:
        UsageError: a configured value is invalid.
        LayoutError: the configuration does not fit the store.
    """
    base = StoreOptions(store_host=host)
    try:
        if root.is_dir() and any(root.iterdir()):
            with open_store(root, dict(config.values)) as store:
                base = replace(base, **_found(store))
    except NotAStoreError:
        pass
    return options_from_config(config, base)


def _found(store: Store) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, option in _SIZES.items():
        known = getattr(store.layout, name)
        if known is not None:
            found[option] = known.value
    if store.disk_index_files():
        shape = shape_of(store.disk_index_files(), store.config) or DEFAULT_SHAPE
        found |= {"index_slots": shape.slots, "index_entries": shape.places}
    if store.version.release < (5, 5):
        found["compat"] = Compat.V4_9
    return found
