"""The compiled appends of plain messages, bound to one log: what `single` and `batch` do, in a fifth of the time.

Source: CommitLog.asyncPutMessage (4.9.7, 5.5.0).
"""

import ctypes
from collections.abc import Callable
from time import time_ns

from mqtool.engine.clock import Clock, SystemClock
from mqtool.engine.flags import RunningFlags
from mqtool.engine.statuses import AppendStatus, PutResult, PutStatus
from mqtool.engine.write import single
from mqtool.engine.write.batch import BatchMessage
from mqtool.engine.write.commit_log import CommitLog
from mqtool.kernels import Kernels

Append = Callable[..., PutResult | None]
"""Returns None, changing nothing, if `single.append` or `batch.append_batch` must be called instead."""


def builtins(log: CommitLog, flags: RunningFlags, clock: Clock, kernels: Kernels) -> tuple[Append, Append] | None:
    """Returns the appends of a message and of a batch.

    The first takes the arguments of `MessageStore.put` except `wait`. The second takes topic, queue id, a list of
    `BatchMessage` or a client's batch, system flag, born timestamp, born host, store host and reconsume times.

    Returns:
        None if the interpreter cannot call them.
    """
    from mqtool.kernels.machine_code import address_of  # noqa: PLC0415 - is loaded with the kernels

    ticks = time_ns if isinstance(clock, SystemClock) else lambda: clock.now() * 1_000_000
    # in the order of `kernels.puts`
    sink = (
        None,
        False,
        bytes,
        ticks,
        log.lock.locked,
        flags,
        log.offsets.states,
        PutStatus.PUT_OK,
        AppendStatus.PUT_OK,
        (),
        PutResult,
        tuple.__new__,
        "refuses",
        "lead",
        "next_offset",
        "wrote",
        "store_timestamp",
        (log.born_host, log.store_host),
    )
    window, longest = ctypes.addressof(log.window), (log.longest_body, log.longest)
    put = kernels.plain_put(*sink, window, address_of(single.INNER), single.NOT_PLAIN, *longest)
    put_batch = kernels.plain_batch(*sink, window, address_of(single.INNER), list, BatchMessage, *longest)
    return (put, put_batch) if put is not None else None
