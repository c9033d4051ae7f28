"""Toolkit for the files of Apache RocketMQ's message store.

`mqtool.open(path)` gives a read-only `Store`. Everything else is reached through it or
through the subpackages; see docs/library.md.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqtool.store import Damage, Message, Store
    from mqtool.store import open_store as open  # noqa: A004

__version__ = "0.1.0"
__all__ = ["Damage", "Message", "Store", "__version__", "open"]


def __getattr__(name: str) -> Any:
    """Loads the names above on first use: importing mqtool must not import numpy (PEP 562)."""
    if name in __all__:
        from mqtool import store  # noqa: PLC0415

        return getattr(store, "open_store" if name == "open" else name)
    raise AttributeError(f"module 'mqtool' has no attribute {name!r}")
