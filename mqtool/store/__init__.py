"""Opens a store directory for reading: takes no lock, maps no file, writes nothing.

`open_store(path)` returns a `Store`; docs/library.md shows its methods.
"""

from mqtool.records.damage import Damage
from mqtool.store.log.message import Message
from mqtool.store.queues.by_time import Boundary
from mqtool.store.queues.consume_queue import Lag
from mqtool.store.queues.get_message import GetStatus
from mqtool.store.queues.pull import GetResult
from mqtool.store.store import Store, open_readable, open_store

__all__ = ["Boundary", "Damage", "GetResult", "GetStatus", "Lag", "Message", "Store", "open_readable", "open_store"]
