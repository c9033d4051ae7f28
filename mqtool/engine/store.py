"""MessageStore: open, put, get, query, close. The façade of the engine.

One process may write to a store, and the lock sees to it; within it any thread may call any method. What can be
put is in `append`, what can be asked in `store_reads`. Docs page: docs/engine.md.
"""

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mqtool.engine.append import StorePuts
from mqtool.engine.clock import Clock, SystemClock
from mqtool.engine.files import Files
from mqtool.engine.flags import RunningFlag
from mqtool.engine.hooks import Hook
from mqtool.engine.options import StoreOptions
from mqtool.engine.parts import Parts, assemble, flush_all, named_errors, shut_down
from mqtool.engine.retention import EarlyDeletion, RetentionPolicy, Verdict
from mqtool.engine.store_reads import StoreReads

if TYPE_CHECKING:
    from mqtool.engine.dispatch import BitMapOf


class MessageStore(StorePuts, StoreReads):
    """One store, open for writing. Use `open_store`, and close it, or use it as a context manager.

    Attributes:
        path: its root.
        options: how it was opened.
        recovered: what opening it came to.
    """

    def __init__(self, parts: Parts, hooks: Iterable[Hook]) -> None:
        """Takes what `open_store` has put together."""
        super().__init__(parts, hooks)
        self.path = parts.root
        self.options = parts.options
        self.recovered = parts.recovered
        self._closed = False

    @property
    def writable(self) -> bool:
        """Whether messages are taken: nothing has failed, and the disk is not full."""
        return not self._open.flags.refuses

    # -- upkeep --------------------------------------------------------------------------------------------------

    def dispatch(self) -> int:
        """Dispatches what waits, in this thread; returns how many records. Units are in the page cache on return.

        With background threads there is no need to, but to wait until queues and index hold every message so far.

        Raises:
            StoreError: something could not be written.
        """
        with named_errors(self.path):
            return self._open.loop.turn()

    def flush(self) -> int:
        """Brings log, queues, index and checkpoint to the disk. Durable on return.

        Returns:
            The physical offset up to which the log is.

        Raises:
            StoreError: they may be lost; no more messages are taken.
        """
        with named_errors(self.path):
            return flush_all(self._open)

    def clean(self) -> list[Path]:
        """One turn of retention, in this thread; returns the files that were removed."""
        with named_errors(self.path):
            return self._open.cleaner.turn()

    def clean_soon(self) -> None:
        """Asks for deletion of expired files at the next turns, whatever the hour."""
        self._open.cleaner.ask()

    def retention(self) -> list[Verdict]:
        """Returns what the next turn of retention would do to each file of the log, and why."""
        return self._open.cleaner.verdicts()

    def add_batch_topic(self, topic: str) -> None:
        """Has the queues of a new topic be BatchConsumeQueues; of a topic that has queues nothing changes."""
        parts = self._open
        with parts.log.lock:
            if topic in parts.offsets.batch_topics or any(name == topic for name, _ in parts.offsets.states):
                return
            parts.offsets.batch_topics |= {topic}
            parts.queues.add_batch_topic(topic)
            parts.dispatcher.add_batch_topic(topic)

    def take_early_deletions(self) -> list[EarlyDeletion]:
        """Returns what retention deleted before it expired since the last call, because the disk was so full."""
        found = self._open.cleaner.early_deletions
        return [found.popleft() for _ in range(len(found))]

    def delete_topic(self, topic: str) -> int:
        """Removes every queue of a topic; its records stay in the log. Returns how many queues went.

        A message that is put to the topic later begins at queue offset 0.
        """
        parts = self._open
        with parts.log.lock:
            parts.offsets.forget_topic(topic)
            return parts.cleaner.delete_topic(topic)

    def change_reading(self, options: StoreOptions) -> None:
        """Has gets go by the limits of other options from now on; everything else stays as the store was opened."""
        self._open.reader.options = options

    # -- life ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stops everything in order; may be called twice.

        On return everything is durable and `abort` is gone, unless dispatch could not catch up or the store had
        stopped taking messages: then `abort` stays, and the next opening recovers.

        Raises:
            StoreError: something could not be written; `abort` stays.
        """
        if not self._closed:
            self._closed = True
            self._parts.flags.set(RunningFlag.FENCED)
            with named_errors(self.path):
                shut_down(self._parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def open_store(
    path: "str | Path",
    options: StoreOptions | None = None,
    *,
    policy: RetentionPolicy | None = None,
    hooks: Iterable[Hook] = (),
    bit_map_of: "BitMapOf | None" = None,
    background: bool = True,
    clock: Clock | None = None,
    files: Files | None = None,
) -> MessageStore:
    """Opens a store for writing, a new one if the directory is empty or not there; recovers it first.

    Args:
        path: its root.
        options: how; None for the real store's defaults.
        policy: of retention; None for the real store's defaults.
        hooks: see every message before it is stored (`engine.hooks`).
        bit_map_of: computes filter bit maps, for queues with an extension.
        background: whether threads flush, dispatch and clean. Without them `dispatch` and `flush` do, and `close`.
        clock: what time it is.
        files: the file system.

    Raises:
        StoreLockedError: a broker, or another mqtool, has it open.
        LayoutError: its files are not of the sizes that the options say, or the real store would refuse it.
        UnsupportedFormatError: it belongs to another kind of store, or to a release that is not known.
        StoreError: it cannot be written.
    """
    parts = assemble(
        Path(path),
        options or StoreOptions(),
        policy or RetentionPolicy(),
        clock or SystemClock(),
        files or Files(),
        bit_map_of,
        background=background,
    )
    return MessageStore(parts, hooks)
