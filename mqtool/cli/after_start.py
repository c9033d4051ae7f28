"""What a broker loses after its start: expired messages that somebody needs, and timer messages that it skips."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mqtool.commands import Opened, command
from mqtool.formats.release import Release
from mqtool.formats.timer import first_slot_after_start
from mqtool.words import moment

if TYPE_CHECKING:
    from mqtool.store import Store


def now_ms() -> int:
    """Returns the time of the start, ms since the epoch."""
    return time.time_ns() // 1_000_000


def losses_after_start(store: Store, release: Release, kept: int | None = None) -> list[str]:
    """Returns what a broker that is started now loses afterwards, and how to prevent it; a line each.

    The start leaves all segments, or the first `kept`. Raises StoreError.
    """
    from mqtool.engine.retention.forecast import expiry_after_start

    now = now_ms()
    return list(filter(None, [expiry_after_start(store, now, kept), _skipped(store, release, now)]))


def _skipped(store: Store, release: Release, now: int) -> str:
    """Returns how many timer messages are skipped, and how to deliver them; "" for none, and on a slave."""
    from mqtool.recovery.settings import has_timer
    from mqtool.store.waiting.held_back import skipped_timers

    delivers = has_timer(store.config, release) and store.config.text("brokerRole") != "SLAVE"
    count = skipped_timers(store, now) if delivers else 0
    if not count:
        return ""
    before = first_slot_after_start(now, store.config.timer_precision)
    named = Opened(store.path, store.config.file)
    return (
        f"the timer then skips {count} message(s) that were due before {moment(before)} UTC, and never delivers them; "
        f"to deliver them, first run `{command('serve', named)}` until `{command('pending', named)}` lists none of them"
    )
