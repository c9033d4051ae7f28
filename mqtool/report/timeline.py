"""The chart of messages over time: one row of bars per topic, on a common time axis. Heights, no markup."""

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from mqtool import words
from mqtool.verify.timeline import MINUTE_MS, Timeline

BINS = 60
_FEWEST = 12
MAX_TOPICS = 24
"""Maximum number of topics drawn, largest first; the table lists all."""
_OUTSIDE = 0.001
"""Share of the messages at either end that may lie outside of the axis: a broken clock must not squeeze the rest."""


class Row(Struct, frozen=True):
    """One topic."""

    topic: str  # name
    messages: int  # and bytes: totals
    bytes: int
    # (position counted from 0, height as a fraction of the row's highest bar) of the bars that are not empty.
    bars: tuple[tuple[int, float], ...]
    first: str  # and last: times of its first and last message, to the minute
    last: str
    words: str  # the same as text, for readers who cannot see the bars


class Chart(Struct, frozen=True):
    """All topics."""

    rows: tuple[Row, ...]  # ordered by number of messages, largest first
    start: str  # and end: of the axis
    end: str
    bins: int  # and minutes: number of bars on the axis, and the minutes that one bar covers
    minutes: int
    outside: int  # number of messages before or after the axis
    more: int  # number of topics that are not drawn


def chart(timeline: Timeline) -> Chart | None:
    """Returns the chart; None if there are no messages."""
    if not timeline.messages:
        return None
    counts: dict[int, int] = {}
    by_topic: dict[str, list[tuple[int, int]]] = {}
    for (topic, minute), count in timeline.messages.items():
        counts[minute] = counts.get(minute, 0) + count
        by_topic.setdefault(topic, []).append((minute, count))
    low, high = _axis(counts)
    step = -(-(high - low + 1) // BINS)
    bins = max(_FEWEST, -(-(high - low + 1) // step))
    order = sorted(timeline.records.items(), key=lambda item: (-item[1], item[0]))
    rows = tuple(
        _row(topic, total, timeline.bytes[topic], by_topic.get(topic, []), low, step, bins)
        for topic, total in order[:MAX_TOPICS]
    )
    outside = sum(count for minute, count in counts.items() if not low <= minute <= high)
    ends = _time(low), _time(low + step * bins)
    return Chart(rows, *ends, bins, step, outside, max(0, len(order) - MAX_TOPICS))


def _axis(counts: dict[int, int]) -> tuple[int, int]:
    """Returns the first and the last minute of the axis."""
    minutes = np.array(sorted(counts))
    share = np.cumsum([counts[minute] for minute in minutes.tolist()]) / sum(counts.values())
    low = int(minutes[int(np.searchsorted(share, _OUTSIDE))])
    high = int(minutes[min(len(minutes) - 1, int(np.searchsorted(share, 1 - _OUTSIDE)))])
    reach = max(BINS, 2 * (high - low))
    near = minutes[(minutes >= low - reach) & (minutes <= high + reach)]
    return int(near[0]), int(near[-1])


def _row(
    topic: str, total: int, volume: int, minutes: Iterable[tuple[int, int]], low: int, step: int, bins: int
) -> Row:
    given = sorted(minutes)
    heights = np.zeros(bins, np.int64)
    for minute, count in given:
        place = (minute - low) // step
        if 0 <= place < bins:
            heights[place] += count
    top = int(heights.max(initial=0))
    bars = tuple((place, round(int(count) / top, 4)) for place, count in enumerate(heights.tolist()) if count)
    if not given:
        return Row(topic, total, volume, bars, "", "", "when is not known")
    first, last = _time(given[0][0]), _time(given[-1][0])
    words_ = f"{words.counted(total, 'message')}, " + (f"all at {first}" if first == last else f"{first} to {last}")
    if top and first != last:
        peak = _time(low + step * int(heights.argmax()))
        words_ += f", at most {words.number(top)} in {words.counted(step, 'minute')}, at {peak}"
    return Row(topic, total, volume, bars, first, last, words_)


def _time(minute: int) -> str:
    return words.moment(minute * MINUTE_MS)[:16]
