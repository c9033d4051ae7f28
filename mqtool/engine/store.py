"""MessageStore: open, put, get, query, close. The façade of the engine.

One process may write to a store, and the lock sees to it; within it any thread may call any method. What can be
asked of an open store is in `store_reads`. Docs page: docs/engine.md.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mqtool.engine import batch
from mqtool.engine.batch import BatchMessage
from mqtool.engine.clock import Clock, SystemClock
from mqtool.engine.files import Files
from mqtool.engine.flags import RunningFlag
from mqtool.engine.hooks import Hook, OutgoingMessage
from mqtool.engine.options import StoreOptions
from mqtool.engine.parts import Parts, assemble, flush_all, named_errors, shut_down
from mqtool.engine.retention import RetentionPolicy, Verdict
from mqtool.engine.statuses import PutResult, PutStatus
from mqtool.engine.store_reads import StoreReads
from mqtool.formats import java
from mqtool.formats import properties as property_format

if TYPE_CHECKING:
    from mqtool.engine.dispatch import BitMapOf

_WAIT_MARK = property_format.WAIT.encode() + b"\x01"


class MessageStore(StoreReads):
    """One store, open for writing. Use `open_store`, and close it, or use it as a context manager.

    Attributes:
        path: its root.
        options: how it was opened.
        recovered: what opening it came to.
    """

    def __init__(self, parts: Parts, hooks: Sequence[Hook]) -> None:
        """Takes what `open_store` has put together."""
        self.path = parts.root
        self.options = parts.options
        self.recovered = parts.recovered
        self._parts = parts
        self._hooks = tuple(hooks)
        self._append = parts.log.append
        self._sync = parts.options.sync
        self._loop = parts.loop
        self._closed = False

    # -- putting -------------------------------------------------------------------------------------------------

    def put(  # noqa: PLR0917 - the fields of a record; keywords would cost a tenth of the call
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes = b"",
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: bytes | None = None,
        store_host: bytes | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> PutResult:
        """Stores one message.

        On return it is durable with SYNC_FLUSH (unless its property WAIT says not to wait). With ASYNC_FLUSH it
        survives the end of the process, and a power cut only after the next flush; with a transient store pool it
        survives neither before the next commit.

        Args:
            topic: any name that can be a directory.
            queue_id: 0 or above.
            body: as it is stored; sys_flag says if it is compressed.
            properties: encoded (`formats.properties.encode`); their order is kept.
            flag: the application's integer.
            sys_flag: of compression, transaction, batch; the bits of IPv6 hosts are set here.
            born_timestamp: ms since epoch; None for now.
            born_host, store_host: 8 or 20 bytes (`formats.hosts.build`); None for those of the options.
            reconsume_times: how often a consumer sent it back.
            prepared_transaction_offset: of a committed message, physical offset of its half.

        Returns:
            Status and place. A message that the real store refuses is refused with the same status.
        """
        if self._hooks:
            message = self._hooked(OutgoingMessage(
                topic, queue_id, body, properties, flag, sys_flag, born_timestamp, born_host, store_host,
                reconsume_times, prepared_transaction_offset,
            ))  # fmt: skip
            if isinstance(message, PutStatus):
                return PutResult(message)
            properties = message.properties
            result = self._append(*message)
        else:
            result = self._append(
                topic, queue_id, body, properties, flag, sys_flag, born_timestamp, born_host, store_host,
                reconsume_times, prepared_transaction_offset,
            )  # fmt: skip
        if self._sync:
            return self._flushed(result, properties)
        if self._loop.idle:
            self._loop.wake()
        return result

    def put_batch(  # noqa: PLR0917 - in the order of `put`
        self,
        topic: str,
        queue_id: int,
        messages: "bytes | Iterable[BatchMessage]",
        properties: bytes = b"",
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: bytes | None = None,
        store_host: bytes | None = None,
        reconsume_times: int = 0,
    ) -> PutResult:
        """Stores messages of one queue: all of them, in one file, one behind the other, or none.

        Durable on return as after `put`.

        Args:
            topic, queue_id, sys_flag, born_timestamp, born_host, store_host, reconsume_times: as `put`, for all.
            messages: them, or the body of a client's batch request.
            properties: of the batch; 4.9 adds them to every message's.

        Returns:
            Status and place of the first, with the physical offsets of all.
        """
        result = batch.append_batch(
            self._parts.log, topic, queue_id, messages, properties, sys_flag, born_timestamp, born_host, store_host,
            reconsume_times,
        )  # fmt: skip
        if self._sync:
            return self._flushed(result, properties)
        self._wake()
        return result

    def _hooked(self, message: OutgoingMessage) -> OutgoingMessage | PutStatus:
        for hook in self._hooks:
            answer = hook(message)
            if isinstance(answer, PutStatus):
                return answer
            message = answer
        return message

    def _flushed(self, result: PutResult, properties: bytes) -> PutResult:
        """Waits for the flush that a put asks for; dispatch goes on behind it."""
        if not result.ok:
            return result
        if _WAIT_MARK in properties:
            wait = property_format.decode(properties).get(property_format.WAIT)
            if wait is not None and not java.parse_boolean(wait):
                return result
        status = self._parts.flusher.group.wait(result.end)
        self._wake()
        return result if status is PutStatus.PUT_OK else result._replace(status=status)

    def _wake(self) -> None:
        if self._loop.idle:
            self._loop.wake()

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

    def delete_topic(self, topic: str) -> int:
        """Removes every queue of a topic; its records stay in the log. Returns how many queues went.

        A message that is put to the topic later begins at queue offset 0.
        """
        parts = self._open
        with parts.log.lock:
            parts.offsets.forget_topic(topic)
            return parts.cleaner.delete_topic(topic)

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
    hooks: Sequence[Hook] = (),
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
        Path(path), options or StoreOptions(), policy or RetentionPolicy(), clock or SystemClock(), files or Files(),
        bit_map_of, background=background,
    )  # fmt: skip
    return MessageStore(parts, hooks)
