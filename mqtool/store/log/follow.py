"""Follows a log: yields messages as a broker appends them."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mqtool.records.damage import Damage, DamageKind
from mqtool.store.log.message import Message
from mqtool.store.store import open_store

INTERVAL = 0.2
"""Seconds between two looks."""


def follow(
    path: Path, config: Path | None = None, *, wait: Callable[[], None] | None = None, **conditions: object
) -> Iterator[Message | Damage]:
    """Yields existing messages and then new ones; ends at the end of the range, otherwise never.

    An unfinished record at the end does not count yet. If the log is cut meanwhile, as by a recovering broker, that
    is reported as damage, and following continues from the new end.

    Args:
        wait: called when there is nothing new; None sleeps for `INTERVAL`. An exception that it raises ends the
            following.
        conditions: as for `Store.messages`, without limit.
    """
    pause = wait or (lambda: time.sleep(INTERVAL))
    at, until = conditions.pop("start", None), conditions.pop("end", None)
    position = at if isinstance(at, int) else None
    while True:
        with open_store(path, config) as store:
            log = store.commit_log
            end = log.max_offset
            if position is not None and position > end:
                detail = f"the log was cut from physical offset {position} while it was followed"
                yield Damage(end, position, DamageKind.MISSING, detail)
                position = end
            low = log.min_offset if position is None else position
            stop = min(end, until) if isinstance(until, int) else end
            if low < stop:
                yield from store.messages(start=low, end=stop, **conditions)
                position = stop
        if isinstance(until, int) and position is not None and position >= until:
            return
        pause()
