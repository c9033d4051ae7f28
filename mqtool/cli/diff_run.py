"""What `mqtool diff` does once its options are read."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from mqtool.cli.diff_schema import DIFF
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.options import ProgressMode
from mqtool.cli.output import Output
from mqtool.cli.progress import progress
from mqtool.cli.verify_text import counted
from mqtool.diff import Difference, LogDifference, QueueDifference, Region, compare
from mqtool.diff.stores import PARTS
from mqtool.store import open_store

Given = tuple[Path, Path | None]
"""A store and its configuration."""


def run(
    invocation: Invocation, a: Given, b: Given, parts: tuple[str, ...] | None, output_format: Format, mode: ProgressMode
) -> ExitCode:
    """Compares and prints."""
    with open_store(*a) as left, open_store(*b) as right:
        size = min(sum(segment.size for segment in store.commit_log.segments) for store in (left, right))
        done = 0

        def move(count: int) -> None:
            nonlocal done
            done += count
            bar.update(done)

        with progress(mode, "diff", 0, size) as bar:
            found = compare(left, right, parts or PARTS, move)
    document = {
        "verdict": _verdict(found),
        "a": str(a[0]),
        "b": str(b[0]),
        "equal": found.equal,
        "log": None if found.log is None else _log(found.log),
        "queues_compared": found.queues_compared,
        "queues": [_queue(one) for one in found.queues],
        "offsets_compared": found.offsets_compared,
        "offsets": [{**asdict(one), "ahead": _ahead(one.offset_a, one.offset_b)} for one in found.offsets],
        "not_compared": list(found.not_compared),
    }
    return Output(invocation, DIFF, output_format).document(document, ExitCode.OK if found.equal else ExitCode.NO)


def _verdict(found: Difference) -> str:
    if found.equal:
        return "equal"
    parts = []
    if found.log is not None and not found.log.equal:
        parts.append(_of_log(found.log))
    if found.queues:
        parts.append(f"{counted(len(found.queues), 'queue')} of {found.queues_compared}")
    if found.offsets:
        parts.append(f"{counted(len(found.offsets), 'consumer offset')} of {found.offsets_compared}")
    words = f"different: {'; '.join(parts)}" if parts else "no difference found"
    return f"{words}; not all could be compared" if found.not_compared else words


def _of_log(log: LogDifference) -> str:
    if log.common is None:
        return "the logs have no byte in common"
    words = [] if log.diverges_at is None else [f"the logs part at physical offset {log.diverges_at}"]
    if log.region_count:
        words.append(f"{counted(log.different_bytes, 'byte')} differ")
    for side in ("a", "b"):
        mine = [one for one in log.alone if one.side == side]
        if mine:
            messages = counted(sum(one.messages for one in mine), "message")
            words.append(f"{side} has {messages}, {counted(sum(one.end - one.start for one in mine), 'byte')} alone")
    return ", ".join(words)


def _log(log: LogDifference) -> dict[str, Any]:
    ends = (log.a, log.b, log.common)
    bounds = [bound for interval in ends for bound in (interval or (None, None))]
    names = ("min_a", "max_a", "min_b", "max_b", "common_start", "common_end")
    tails = [{"side": side, **asdict(tail)} for side, tail in (("a", log.tail_a), ("b", log.tail_b)) if tail]
    return {
        **dict(zip(names, bounds, strict=True)),
        "diverges_at": log.diverges_at,
        "first_byte": log.first_byte,
        "same_bytes": log.same_bytes,
        "different_bytes": log.different_bytes,
        "filler_bytes": log.filler_bytes,
        "messages_a": log.messages_a,
        "messages_b": log.messages_b,
        "region_count": log.region_count,
        "regions": [_region(one) for one in log.regions],
        "alone": [asdict(one) for one in log.alone],
        "tails": tails,
    }


def _region(region: Region) -> dict[str, Any]:
    details = [f"{side}: {one.detail}" for side, one in (("a", region.a), ("b", region.b)) if one.detail]
    return {
        "start": region.start,
        "end": region.end,
        "bytes": region.bytes,
        "messages_a": region.a.messages,
        "messages_b": region.b.messages,
        "damaged_a": region.a.damaged_bytes,
        "damaged_b": region.b.damaged_bytes,
        "detail": "; ".join(details),
    }


def _queue(queue: QueueDifference) -> dict[str, Any]:
    (min_a, max_a), (min_b, max_b) = queue.bounds_a or (None, None), queue.bounds_b or (None, None)
    return {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "min_a": min_a,
        "max_a": max_a,
        "min_b": min_b,
        "max_b": max_b,
        "messages_a": queue.messages_a,
        "messages_b": queue.messages_b,
        "different": queue.different,
        "first_different": queue.first_different,
        "only_a": queue.only_a,
        "only_b": queue.only_b,
    }


def _ahead(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else b - a
