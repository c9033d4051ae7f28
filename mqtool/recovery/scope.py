"""Which parts of a broker's start are modelled; the others are refused by name or reported."""

from pathlib import Path

from mqtool.errors import UnsupportedFormatError
from mqtool.formats import file_names
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.controller_files import epoch_file
from mqtool.store.queues.queue_database import has_queues_only_in_database, queue_database

_OTHER_ENGINES = {
    "enableControllerMode": "the broker's role comes from a controller",
    "duplicationEnable": "recovery follows a replica's confirm offset",
    "enableRocksDBStore": "the queues are in RocksDB",
    "rocksdbCQDoubleWriteEnable": "the queues are in RocksDB too",
    "enableAcceleratedRecovery": "recovery starts inside a segment",
}
_BESIDE = (file_names.TIMER_LOG, file_names.TIMER_WHEEL)


def refuse_other_engines(root: Path, config: BrokerConfig) -> None:
    """Checks that the plain file-based store would open the directory.

    Raises:
        UnsupportedFormatError: another engine would, according to the configuration or, if that does not say, to its
            files.
    """
    for key, meaning in _OTHER_ENGINES.items():
        if config.flag(key):
            raise UnsupportedFormatError(f"{root}: {key}=true: {meaning}; only the file-based store's start is known")
    kind = config.text("storeType") or ""
    if kind not in ("", "default"):
        raise UnsupportedFormatError(f"{root}: storeType={kind}: only the file-based store's start is known")
    if not kind and has_queues_only_in_database(root, config):
        raise UnsupportedFormatError(
            f"{queue_database(root, config)} holds a RocksDB database: only the start with queue files is known; "
            "for a broker that uses those give --config with storeType=default"
        )


def unmodelled_parts(root: Path, config: BrokerConfig) -> tuple[str, ...]:
    """Returns the parts of a store that a start uses and that are not modelled, in words."""
    parts = [
        f"{name}: 5.x loads it too, and may refuse to start because of it" for name in _BESIDE if (root / name).exists()
    ]
    if config.flag("enableConsumeQueueExt"):
        parts.append(f"{file_names.CONSUME_QUEUE_EXT}: its files are cut and written too")
    if epoch_file(root, config).exists() and config.flag("enableControllerMode") is None:
        parts.append(f"{file_names.EPOCH_FILE} is there: in controller mode recovery follows other bounds")
    return tuple(parts)
