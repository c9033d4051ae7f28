"""Where a store has the RocksDB of its ConsumeQueues.

A broker with `useSeparateStorePathForRocksdbCQ` has it in `consumequeue_rocksdb/`, others in `consumequeue/`; it does
not start if there is one in the other place. Source: RocksDBConsumeQueueStore, StorePathConfigHelper (5.5.0).
"""

from pathlib import Path

from mqtool.formats import file_names
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.rocksdb import is_database
from mqtool.store.files import subdirectories

PLACES = (file_names.CONSUME_QUEUE, file_names.CONSUME_QUEUE_ROCKSDB)
"""Directories below the root that may be the database."""


def queue_database(root: Path, config: BrokerConfig) -> Path:
    """Returns the directory of a store's database of queues; without one, where a broker would create it.

    Args:
        root: of the store.
        config: decides if there is a database in both places.
    """
    is_separate = bool(config.flag("useSeparateStorePathForRocksdbCQ"))
    places = [root / name for name in (reversed(PLACES) if is_separate else PLACES)]
    return next((place for place in places if is_database(place)), places[0])


def has_queue_database(root: Path, config: BrokerConfig) -> bool:
    """Whether a store has a database of queues, with or without files of queues."""
    return is_database(queue_database(root, config))


def has_queues_only_in_database(root: Path, config: BrokerConfig) -> bool:
    """Whether a store has a database of queues, and no files of queues next to it.

    A broker can keep its queues in both (CombineConsumeQueueStore, 5.5.0).
    """
    place = queue_database(root, config)
    if not is_database(place):
        return False
    return place.name == file_names.CONSUME_QUEUE or not subdirectories(root / file_names.CONSUME_QUEUE)
