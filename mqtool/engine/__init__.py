"""The storage engine: a single-node message store. The real RocketMQ opens its stores, and it opens those of RocketMQ.

`open_store` is the entry point. Docs page: docs/engine.md.
"""

import logging

from mqtool.choices import Compat, RecoveryMode
from mqtool.engine.options import FlushMode, PropertyOrder, StoreOptions, options_from_config
from mqtool.engine.statuses import AppendStatus, GetResult, PutResult, PutStatus, QueryResult
from mqtool.engine.store import MessageStore, open_store
from mqtool.store.queues.get_message import GetStatus

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
    "RecoveryMode",
    "StoreOptions",
    "open_store",
    "options_from_config",
]

logging.getLogger("mqtool").addHandler(logging.NullHandler())  # what is logged goes where the caller wants it
