"""Puts messages into the store, from one thread.

Only the event loop's thread appends; an append is a copy into the page cache. With SYNC_FLUSH, the answer to a producer
waits for a flush that its message shares with others (`engine.async_commit`). Source of the rewriting:
HookUtils.handleScheduleMessage (5.5.0).
"""

import asyncio
from collections.abc import Callable

from mqtool.engine import AppendStatus, MessageStore, PutResult, PutStatus
from mqtool.engine.write.hooks import Hook, OutgoingMessage, delay_message
from mqtool.errors import MessageRejectedError
from mqtool.formats import properties

_DELAY_MARK = properties.mark(properties.DELAY_LEVEL)
_APPENDED = AppendStatus.PUT_OK
_REFUSED = frozenset(
    {PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED, PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED}
)
"""Put statuses caused by the message, not by the store; a retry would not help."""

Rewrite = Callable[[OutgoingMessage], OutgoingMessage | PutStatus]
Arrived = Callable[[str, int, int], None]
"""Called with topic, queue id and queue offset of each message that was put, before or after its dispatch."""


class Writer:
    """Puts messages. Must be used in the event loop's thread.

    Attributes:
        rewrites: pairs of a mark in encoded properties and a function that rewrites messages with this mark.
    """

    def __init__(self, store: MessageStore, arrived: Arrived, settled: Callable[[], None]) -> None:
        """Creates a writer.

        Args:
            store: the store, open for writing.
            arrived: called after each put.
            settled: called after each flush.
        """
        self._store = store
        self._arrived = arrived
        self._settled = lambda _flushed: settled()
        self._delay: Hook = delay_message(store.options)
        self.rewrites: list[tuple[bytes, Rewrite]] = [(_DELAY_MARK, self._delay)]
        self._sync = store.options.sync

    def put(self, message: OutgoingMessage) -> PutResult:
        """Appends one message; a delayed message is rewritten first. Use `flushed` to wait until it is durable."""
        rewritten = self._rewritten(message)
        return PutResult(rewritten) if isinstance(rewritten, PutStatus) else self.put_as_it_is(rewritten)

    def _rewritten(self, message: OutgoingMessage) -> OutgoingMessage | PutStatus:
        encoded = message.properties
        for mark, rewrite in self.rewrites:
            if mark in encoded:
                answer = rewrite(message)
                if isinstance(answer, PutStatus):
                    return answer
                message = answer
        return message

    def put_as_it_is(self, message: OutgoingMessage) -> PutResult:
        """Appends one message without rewriting; a delivered message still has the properties that delayed it."""
        result = self._store.put(*message, wait=False)
        if result.append_status is _APPENDED:
            self._arrived(message.topic, message.queue_id, result.queue_offset)
            if self._sync:
                self._flush_soon(result)
        return result

    def deliver(self, message: OutgoingMessage) -> PutResult:
        """Appends a delayed message that is due, as `put_as_it_is` does.

        Raises:
            MessageRejectedError: the store never accepts this message.
        """
        result = self.put_as_it_is(message)
        if result.status in _REFUSED:
            raise MessageRejectedError(
                f"the store refuses the message for topic {message.topic}: {result.status.value}"
            )
        return result

    def put_batch(self, batch: OutgoingMessage) -> PutResult:
        """Appends the messages of a batch, one record each.

        As in the real broker, a delayed batch goes into the timer topic, although its messages lack the properties that
        the timer needs.

        Args:
            batch: the fields that the messages share; its body is the body of a batch request.
        """
        rewritten = batch if self._store.options.release < (5, 5) else self._rewritten(batch)
        if isinstance(rewritten, PutStatus):
            return PutResult(rewritten)
        batch = rewritten
        result = self._store.put_batch(
            batch.topic,
            batch.queue_id,
            batch.body,
            batch.properties,
            batch.sys_flag,
            batch.born_timestamp,
            batch.born_host,
            batch.store_host,
            batch.reconsume_times,
            wait=False,
        )
        if result.ok:
            last = result.queue_offset + max(1, len(result.physical_offsets)) - 1
            self._arrived(batch.topic, batch.queue_id, last)
            if self._sync:
                self._flush_soon(result)
        return result

    def _flush_soon(self, result: PutResult) -> asyncio.Future[PutStatus]:
        """Returns the future status of a put. Every put needs the flush, because dispatch also waits for it."""
        future = self._store.wait_flushed_async(result.end)
        future.add_done_callback(self._settled)
        return future

    def flushed(self, result: PutResult, encoded: bytes = b"") -> asyncio.Future[PutStatus] | None:
        """Returns a future for the status of a put after its flush; None if the answer need not wait for a flush."""
        if not (self._sync and result.ok) or not properties.waits(encoded):
            return None
        return self._flush_soon(result)

    async def store(self, message: OutgoingMessage) -> PutResult:
        """Appends one message and waits until it is as durable as the store's flush mode requires."""
        result = self.put(message)
        future = self.flushed(result, message.properties)
        if future is None:
            return result
        return result._replace(status=await future)
