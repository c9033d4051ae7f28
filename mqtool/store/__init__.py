"""Opens a store directory for reading: takes no lock, maps no file, writes nothing.

`open_store(path)` returns a `Store`; docs/library.md shows its methods.
"""

from mqtool.records.damage import Damage
from mqtool.store.by_time import Boundary
from mqtool.store.get_message import GetStatus
from mqtool.store.lags import Lag
from mqtool.store.message import Message
from mqtool.store.pull import GetResult
from mqtool.store.store import Store, open_readable, open_store

__all__ = ["Boundary", "Damage", "GetResult", "GetStatus", "Lag", "Message", "Store", "open_readable", "open_store"]
