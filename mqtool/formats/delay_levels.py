"""messageDelayLevel: the delay of each level. Source: MessageStoreConfig, DefaultMessageStore.parseDelayLevel."""

from mqtool.errors import FormatError, UsageError
from mqtool.formats import java

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""messageDelayLevel of a broker that sets none."""

_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Returns the delay of each level in ms, level 1 first.

    Raises:
        UsageError: not a list of whole numbers with s, m, h or d, or a delay of more than 64 bits; only a configuration
            states it.
    """
    delays = []
    for word in text.split():
        try:
            delay = java.parse_long(word[:-1]) * _MS[word[-1]]
        except (FormatError, KeyError):
            delay = java.LONG_MAX + 1
        if delay > java.LONG_MAX:
            raise UsageError(f"messageDelayLevel: expected delays such as 10s 5m 2h 1d, found {word[:40]!r}")
        delays.append(delay)
    return tuple(delays)


def due(store_timestamp: int, level: int, delays: tuple[int, ...]) -> int | None:
    """Returns the deliver time of a message with a delay level, ms since epoch; None if that is not a level.

    The broker writes it into the unit instead of the tag's hash (CommitLog.checkMessageAndReturnSize,
    DefaultMessageStore.computeDeliverTimestamp).

    Args:
        store_timestamp: of its record.
        level: as the record's DELAY states it; a level above the last counts as the last.
        delays: of the levels in ms.
    """
    level = min(level, len(delays))
    return java.to_int64(store_timestamp + delays[level - 1]) if level > 0 else None
