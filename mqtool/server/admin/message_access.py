"""Opens the store for the admin pages, which read it in a separate thread.

An open engine can be read from any thread. The caches of a read-only store belong to one thread, so such a store is
opened a second time.
"""

from collections.abc import Mapping

from mqtool.engine import MessageStore
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.read_only import ReadOnlyMessages
from mqtool.store.store import Store, open_store

Messages = MessageStore | ReadOnlyMessages
"""An open store from which messages are read."""


class MessageAccess:
    """Opens the store for the pages on first use. Must be used in the thread for pages."""

    def __init__(self, broker: Broker, config: Mapping[str, str]) -> None:
        """Opens nothing yet; `config` contains the keys of the broker's configuration."""
        self._broker = broker
        self._config = config
        self._store: Store | None = None

    def messages(self) -> Messages:
        """Returns the open store; opens it on the first call.

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
        """Closes the store if it was opened here."""
        if self._store is not None:
            self._store.close()
            self._store = None
