"""The storage engine: a single-node message store, written so that the real RocketMQ opens it, and the other way round.

`open_store` is the way in. Docs page: docs/engine.md.
"""

from mqtool.engine.options import Compat, FlushMode, PropertyOrder, StoreOptions, options_from_config
from mqtool.engine.statuses import AppendStatus, GetResult, GetStatus, PutResult, PutStatus, QueryResult
from mqtool.engine.store import MessageStore, open_store

__all__ = [
    "AppendStatus",
    "Compat",
    "FlushMode",
    "GetResult",
    "GetStatus",
    "MessageStore",
    "PropertyOrder",
    "PutResult",
    "PutStatus",
    "QueryResult",
    "StoreOptions",
    "open_store",
    "options_from_config",
]
