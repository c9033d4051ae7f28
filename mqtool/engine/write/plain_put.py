"""PlainPut: the append of a plain message, the commonest kind; all others take the slow path.

A message is plain if its bytes depend on nothing but its arguments and its position. Everything that does not depend
on the position is computed before the append lock is taken. Under the lock the offsets and the store timestamp become
known; body and trailer are copied into the mapping, and the fixed fields are packed in front of them last, so that a
record cut short by a kill has no magic code and is not read as a record.

`PlainPut.append` is the form to read. Where compiled loops are in use, `kernels.puts.plain_put` replaces it: the same
records and results for a fifth of the time. Source: CommitLog.asyncPutMessage (4.9.7, 5.5.0).
"""

import ctypes
from collections.abc import Callable
from time import time_ns

from mqtool.engine.clock import Clock, SystemClock
from mqtool.engine.flags import RunningFlags
from mqtool.engine.statuses import AppendFailedError, AppendStatus, PutResult, PutStatus
from mqtool.engine.write import record, slow_path
from mqtool.engine.write.batch import BatchMessage
from mqtool.engine.write.commit_log import CommitLog
from mqtool.formats import commit_log
from mqtool.kernels import Kernels
from mqtool.records.crc import body_crc

Append = Callable[..., PutResult | None]
"""Takes the arguments of `MessageStore.put` except `wait`; returns None, changing nothing, if not plain."""

_OK = PutStatus.PUT_OK
_APPENDED = AppendStatus.PUT_OK
_BODY_AT = commit_log.BODY_POSITIONS[0]
_SLOW_PATH_BITS = slow_path.BITS
_INNER = b"INNER_"
"""Prefix of the property names that need the slow path: multi-dispatch and inner batches."""
_pack_head = record.HEAD_PACKERS[0].pack_into
_new_tuple = tuple.__new__


def sink_of(log: CommitLog, flags: RunningFlags, ticks: Callable[[], int]) -> tuple[object, ...]:
    """Returns the objects to which the builtin functions of `kernels.puts` are bound, in their order."""
    return (
        None,
        False,
        bytes,
        ticks,
        log.lock.locked,
        flags,
        log.offsets.states,
        _OK,
        _APPENDED,
        (),
        PutResult,
        _new_tuple,
        "refuses",
        "lead",
        "next_offset",
        "wrote",
        "store_timestamp",
        (log.born_host, log.store_host),
    )


class PlainPut:
    """Appends plain messages to one log."""

    def __init__(self, log: CommitLog, flags: RunningFlags, clock: Clock) -> None:
        self._log = log
        self._flags = flags
        self._states = log.offsets.states
        self._acquire, self._release = log.lock.acquire, log.lock.release
        self._ticks = time_ns if isinstance(clock, SystemClock) else lambda: clock.now() * 1_000_000
        self._longest_body, self._longest = log.longest_body, log.longest

    def compiled(self, kernels: Kernels) -> tuple[Append, Append] | None:
        """Returns the compiled replacement of `append`, and an append for batches.

        The latter takes topic, queue id, a list of `BatchMessage` or a client's batch, system flag, born timestamp,
        born host, store host and reconsume times; it returns what `batch.append_batch` does, or None if that must be
        called instead.

        Returns:
            None if the interpreter cannot call them.
        """
        from mqtool.kernels.machine_code import address_of  # noqa: PLC0415 - is loaded with the kernels

        log, longest = self._log, (self._longest_body, self._longest)
        sink, window = sink_of(log, self._flags, self._ticks), ctypes.addressof(log.window)
        single = kernels.plain_put(*sink, window, address_of(_INNER), _SLOW_PATH_BITS, *longest)
        batch = kernels.plain_batch(*sink, window, address_of(_INNER), list, BatchMessage, *longest)
        return (single, batch) if single is not None else None

    def append(  # noqa: PLR0917 - the fields of a record
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        flag: int,
        sys_flag: int,
        born_timestamp: int | None,
        born_host: bytes | None,
        store_host: bytes | None,
        reconsume_times: int,
        prepared_transaction_offset: int,
    ) -> PutResult | None:
        """Appends one message; in the page cache on return, or in a pool buffer if there is a pool.

        Returns:
            The result; None, with nothing changed, for a message of another kind, and for the first one of its queue or
            with properties of this length.
        """
        size = len(body)
        try:  # KeyError: first message of a queue, or of this properties length
            state = self._states[topic, queue_id]
            pack_trailer, prefix, total = state.trailers[len(properties)]
        except KeyError:
            return None
        total += size
        if (
            sys_flag & _SLOW_PATH_BITS
            or size > self._longest_body
            or total > self._longest
            or properties.find(_INNER) >= 0  # `in` takes twice as long
            or self._flags.refuses
            or (born_host is not None and len(born_host) != record.HOST_SIZE_V4)
            or (store_host is not None and len(store_host) != record.HOST_SIZE_V4)
        ):
            return None
        crc = body_crc(body)
        log, host = self._log, store_host or self._log.store_host
        self._acquire()
        try:
            file = log.file
            if file is None or file.wrote + total > log.limit:
                file = log.make_room(total)
            now = self._ticks() // 1_000_000
            start, buffer, number = file.wrote, log.buffer, state.next_offset
            middle = start + _BODY_AT + size
            buffer[start + _BODY_AT : middle] = body
            pack_trailer(buffer, middle, prefix, properties)
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
                born_host or log.born_host,
                now,
                host,
                reconsume_times,
                prepared_transaction_offset,
                size,
            )
            file.store_timestamp = now
            file.wrote = start + total
            state.next_offset = number + 1
        except AppendFailedError as failed:
            return failed.result
        finally:
            self._release()
        return _new_tuple(PutResult, (_OK, _APPENDED, physical, total, number, now, host, ()))
