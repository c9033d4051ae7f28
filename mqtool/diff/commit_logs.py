"""Compares the CommitLogs of two stores."""

from mqtool.diff.differences import Interval, LogDifference, LogTail, UnsharedRange
from mqtool.diff.log_bytes import common, compare_bytes, coverage, same_length, without
from mqtool.diff.log_records import differing_records, regions_of
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.records.damage import Damage
from mqtool.store.log.commit_log import CommitLog


def compare_logs(a: CommitLog, b: CommitLog, on_progress: OnProgress = ignore) -> LogDifference:
    """Compares two logs.

    Args:
        a, b: the logs.
        on_progress: called with the number of bytes compared so far, and the number of bytes that both logs have.

    Raises:
        StoreError: a file cannot be read.
    """
    in_a, in_b = coverage(a), coverage(b)
    both = common(in_a, in_b)
    runs = compare_bytes(a, b, both, on_progress)
    regions = regions_of(runs, differing_records(a, runs), differing_records(b, runs))
    alone = _unshared("a", a, in_a, in_b) + _unshared("b", b, in_b, in_a)
    alone.sort(key=lambda part: (part.start, part.side))
    begins = both[0][0] if both else 0
    splits = [part.start for part in alone if part.start >= begins] if both else [part.start for part in alone]
    changed = [regions.first[0].start] if regions.first else []
    diverges_at = min(changed + splits, default=None)
    first = next((int(s) for s in runs.starts.tolist() if regions.first and s >= regions.first[0].start), None)
    agreed = None if not both else (begins, both[-1][1] if diverges_at is None else max(begins, diverges_at))
    return LogDifference(
        _bounds(a, in_a),
        _bounds(b, in_b),
        agreed,
        diverges_at,
        first,
        runs.same,
        regions.different,
        regions.filler,
        regions.first,
        regions.count,
        regions.messages_a,
        regions.messages_b,
        tuple(alone),
        _tail(a, b),
        _tail(b, a),
    )


def _bounds(log: CommitLog, covered: list[Interval]) -> Interval | None:
    if not log.segments:
        return None
    return log.min_offset, max(log.min_offset, covered[-1][1] if covered else log.min_offset)


def _unshared(side: str, log: CommitLog, mine: list[Interval], others: list[Interval]) -> list[UnsharedRange]:
    unshared = []
    for start, end in without(mine, others):
        kind = "gap"
        if not others or start >= others[-1][1]:
            kind = "end"
        elif end <= others[0][0]:
            kind = "front"
        unshared.append(UnsharedRange(side, start, end, kind, _messages(log, start, end)))
    return unshared


def _messages(log: CommitLog, start: int, end: int) -> int:
    return sum(len(item) for item in log.walk(start, end, crc=False) if not isinstance(item, Damage))


def _tail(log: CommitLog, other: CommitLog) -> LogTail | None:
    if not log.segments:
        return None
    tail = log.tail
    same = same_length(log, other, tail.end, tail.length) if tail.length else 0
    return LogTail(tail.kind, tail.end, tail.length, same, tail.detail)
