"""The store as the page reads it, in a thread of its own.

An open engine can be read from any thread. The caches of a read-only store belong to one, so it is opened again.
"""

from collections.abc import Mapping

from mqtool.engine import MessageStore
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.read_only import ReadOnlyMessages
from mqtool.store.store import Store, open_store

Messages = MessageStore | ReadOnlyMessages
"""A store to read messages from."""


class Reads:
    """Opens the store for the page on first use. For the page's thread."""

    def __init__(self, broker: Broker, config: Mapping[str, str]) -> None:
        """Takes the broker, and the keys of its configuration."""
        self._broker = broker
        self._config = config
        self._store: Store | None = None

    def messages(self) -> Messages:
        """Returns the store to read.

        Raises:
            StoreError: the store cannot be opened.
        """
        served = self._broker.messages
        if isinstance(served, MessageStore):
            return served
        if self._store is None:
            self._store = open_store(served.path, dict(self._config))
        return ReadOnlyMessages(self._store, served.options)

    def close(self) -> None:
        """Closes what was opened here."""
        if self._store is not None:
            self._store.close()
            self._store = None
