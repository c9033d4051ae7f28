"""The putting half of `MessageStore`: one message, a batch, a column of messages.

`put` is the engine's hottest function, and written for that: whatever of a record does not depend on its place
is made before the append lock is taken. Under the lock offset, position and store timestamp become known; body
and tail are copied into the mapping, and the fixed fields are packed in front of them last, so that a record that
a kill cut short does not look like one. Messages that need more than that go through `special`.
Source: CommitLog.asyncPutMessage, DefaultMessageStore.asyncPutMessage/waitForPutResult (4.9.7, 5.5.0).
"""

import sys
from collections.abc import Iterable
from time import time_ns

from mqtool import kernels
from mqtool.engine import batch, put_many, record, special
from mqtool.engine.batch import BatchMessage
from mqtool.engine.clock import SystemClock
from mqtool.engine.commit_log import CommitLog
from mqtool.engine.hooks import Hook, OutgoingMessage
from mqtool.engine.parts import Parts
from mqtool.engine.put_many import MessageColumns, PutManyResult
from mqtool.engine.statuses import AppendFailedError, AppendStatus, PutResult, PutStatus
from mqtool.formats import commit_log, java
from mqtool.formats import properties as property_format
from mqtool.scan.crc import crc32

_OK = PutStatus.PUT_OK
_APPENDED = AppendStatus.PUT_OK
_BODY_AT = commit_log.BODY_POSITIONS[0]
_SPECIAL_BITS = special.BITS
_LONGEST_PROPERTIES = record.LONGEST_PROPERTIES
_WAIT_MARK = property_format.WAIT.encode() + b"\x01"
_pack_head = record.HEAD_PACKERS[0].pack_into
_new_tuple = tuple.__new__


class StorePuts:
    """Puts. Any number of threads; the append lock makes them one writer."""

    def __init__(self, parts: Parts, hooks: Iterable[Hook]) -> None:
        """Takes what `open_store` has put together."""
        options = parts.options
        self._parts = parts
        self._hooks = tuple(hooks)
        self._log: CommitLog = parts.log
        self._loop = parts.loop
        self._flags = parts.flags
        self._store_host = parts.log.store_host
        self._born_host = parts.log.born_host
        self._acquire, self._release = parts.log.lock.acquire, parts.log.lock.release
        self._note = parts.log.trail.note
        self._ticks = time_ns if isinstance(parts.clock, SystemClock) else lambda: parts.clock.now() * 1_000_000
        room = min(options.max_message_size, options.commit_log_file_size - commit_log.BLANK_SIZE)
        self._longest_body = room - _BODY_AT - _LONGEST_PROPERTIES - 0xFF
        self._is_plain = not (options.append_record_crc or options.positional_writes or self._hooks)
        self._states = parts.offsets.states if self._is_plain else {}
        self._sync = options.sync
        self._until_kernels = options.kernels_after

    @property
    def default_store_host(self) -> bytes:
        """The store host of records whose caller names none; 8 or 20 bytes."""
        return self._store_host

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
        *,
        wait: bool = True,
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
            wait: False to return before the flush of SYNC_FLUSH; then `wait_flushed` waits for it.

        Returns:
            Status and place. A message that the real store refuses is refused with the same status.
        """
        size = len(body)
        try:  # a KeyError at the first message of a queue, or with properties of a new length
            state = self._states[topic, queue_id]
            pack_tail, prefix, total = state.tails[len(properties)]
        except KeyError:
            state = None
        if (  # `find`, since `in` takes twice as long
            state is None
            or sys_flag & _SPECIAL_BITS
            or size > self._longest_body
            or properties.find(b"INNER_") >= 0
            or self._flags.refuses
            or (born_host is not None and len(born_host) != 8)
            or (store_host is not None and len(store_host) != 8)
        ):
            return self._put_slowly(
                OutgoingMessage(
                    topic,
                    queue_id,
                    body,
                    properties,
                    flag,
                    sys_flag,
                    born_timestamp,
                    born_host,
                    store_host,
                    reconsume_times,
                    prepared_transaction_offset,
                ),
                wait=wait,
            )
        crc = crc32(body) & 0x7FFFFFFF
        total += size
        log, host = self._log, store_host or self._store_host
        self._acquire()
        try:
            file = log.file
            if file is None or file.wrote + total > log.limit:
                file = log.make_room(total)
            now = self._ticks() // 1_000_000
            start, buffer, number = file.wrote, log.buffer, state.next_offset
            middle = start + _BODY_AT + size
            buffer[start + _BODY_AT : middle] = body
            pack_tail(buffer, middle, prefix, properties)
            physical = file.file_from_offset + start
            _pack_head(
                buffer,
                start,
                total,
                state.magic_code,
                crc,
                queue_id,
                flag,
                number,
                physical,
                sys_flag,
                now if born_timestamp is None else born_timestamp,
                born_host or self._born_host,
                now,
                host,
                reconsume_times,
                prepared_transaction_offset,
                size,
            )
            file.store_timestamp = now
            file.wrote = start + total
            self._note(physical)
            state.next_offset = number + 1
        except AppendFailedError as failed:
            return failed.result
        finally:
            self._release()
        result = _new_tuple(PutResult, (_OK, _APPENDED, physical, total, number, now, host, ()))
        if self._sync:
            return self._finish(result, properties, wait=wait)
        if self._loop.idle:
            self._loop.wake()
        return result

    def _put_slowly(self, message: OutgoingMessage, *, wait: bool = True) -> PutResult:
        """Stores a message of any kind, through hooks if there are any, and waits for its flush if it must."""
        for hook in self._hooks:
            answer = hook(message)
            if isinstance(answer, PutStatus):
                return PutResult(answer)
            message = answer
        log = self._log
        state = log.offsets.state(message.topic, message.queue_id)
        born, host = message.born_host or self._born_host, message.store_host or self._store_host
        result = special.append_special(log, state, message._replace(born_host=born, store_host=host))
        if self._is_plain and state.is_plain and result.ok:
            state.learn_tail(len(message.properties))
        return self._finish(result, message.properties, wait=wait)

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
        *,
        wait: bool = True,
    ) -> PutResult:
        """Stores messages of one queue: all of them, in one file, one behind the other, or none.

        Durable on return as after `put`.

        Args:
            topic, queue_id, sys_flag, born_timestamp, born_host, store_host, reconsume_times, wait: as `put`, for all.
            messages: them, or the body of a client's batch request.
            properties: of the batch; 4.9 adds them to every message's.

        Returns:
            Status and place of the first, with the physical offsets of all.
        """
        result = batch.append_batch(
            self._log,
            topic,
            queue_id,
            messages,
            properties,
            sys_flag,
            born_timestamp,
            born_host,
            store_host,
            reconsume_times,
        )
        return self._finish(result, properties, wait=wait)

    def put_many(self, columns: MessageColumns) -> PutManyResult:
        """Stores columns of messages: each as by `put`, in their order, until one is refused.

        Durable on return as after `put`; with SYNC_FLUSH one flush serves all.

        Args:
            columns: the messages.

        Returns:
            Where those are that were stored; the status is that of the first that was not.
        """
        if self._hooks:
            return put_many.append_one_by_one(columns, self._put_slowly)
        if self._until_kernels <= 0:
            self._until_kernels = sys.maxsize
            kernels.start()
        found = put_many.append_columns(self._log, columns, self._put_slowly)
        if found.end >= 0:
            self._until_kernels -= found.end - int(found.physical_offsets[0])
        if found.end >= 0 and self._parts.options.sync:
            status = self._parts.flusher.group.wait(found.end)
            found = found if status is PutStatus.PUT_OK else found._replace(status=status)
        if self._loop.idle:
            self._loop.wake()
        return found

    def wait_flushed(self, end: int) -> PutStatus:
        """Waits until the log is durable up to a physical offset, as a put in SYNC_FLUSH mode does by itself."""
        status = self._parts.flusher.group.wait(end)
        if self._loop.idle:
            self._loop.wake()
        return status

    def _finish(self, result: PutResult, properties: bytes, *, wait: bool) -> PutResult:
        """Waits for the flush that a put asks for, and sees to it that dispatch goes on."""
        if not result.ok:
            return result
        if wait and self._sync and _waits(properties):
            status = self._parts.flusher.group.wait(result.end)
            result = result if status is PutStatus.PUT_OK else result._replace(status=status)
        if self._loop.idle:
            self._loop.wake()
        return result


def _waits(properties: bytes) -> bool:
    """Whether a message wants to wait for its flush: without the property it does (Message.isWaitStoreMsgOK)."""
    if _WAIT_MARK not in properties:
        return True
    found = property_format.decode(properties).get(property_format.WAIT)
    return found is None or java.parse_boolean(found)
