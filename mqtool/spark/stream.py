"""`spark.readStream.format("rocketmq-store")`: logs as streams.

An offset is a physical offset per store with fingerprints of the log before it (`export.state.Mark`), so a
checkpoint of another log, or of one that was truncated, is detected. A micro-batch has fixed bounds: if it is
replayed after a failure, it reads the same records. Needs Spark 4.2.
"""

import logging
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from mqtool.errors import ExportError
from mqtool.export.plan import StorePlan, log_end
from mqtool.export.sources import Source
from mqtool.export.state import Mark, check_mark, mark_at, plan_since, require_new_log
from mqtool.spark.options import SourceOptions
from mqtool.spark.reading import Split, read_split, splits_of
from mqtool.store import Store
from mqtool.store.log.cuts import Cuts
from mqtool.values import asdict

LOG = logging.getLogger(__name__)
VERSION = 1

Offset = dict[str, Any]
"""`{"version": 1, "stores": {broker: position}}`."""
Position = dict[str, Any]
"""`{"offset": physical offset}`, with the mark's other fields where the log has bytes before it."""


class StoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the messages that brokers append."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        self._options = options
        self._names = names
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Returns where a new stream begins."""
        return _offset({source.broker: self._first(source) for source in self._options.sources})

    def _first(self, source: Source) -> Position:
        with source.open() as store:
            if self._options.from_latest:
                return _position(store, log_end(store, Cuts(store)))
            return {"offset": store.commit_log.min_offset}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Returns the limit from the options."""
        limit = self._options.max_bytes
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fixes the current end of the logs, at which the stream will end."""
        self._target = {}
        for source in self._options.sources:
            with source.open() as store:
                self._target[source.broker] = log_end(store, Cuts(store))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Returns the end of the next micro-batch: at a record, within the limit, and at least one record further.

        Raises ExportError if a log was truncated, or lost messages that were not read yet.
        """
        share = max(1, limit.max_bytes // len(self._options.sources)) if isinstance(limit, ReadMaxBytes) else None
        ends = {source.broker: self._next(source, start, share) for source in self._options.sources}
        return _offset({**start["stores"], **ends})

    def _next(self, source: Source, start: Offset, share: int | None) -> Position:
        position = _position_of(start, source.broker)
        with source.open() as store:
            if position is None:
                marks = {broker: _mark(position) for broker, position in start["stores"].items()}
                require_new_log(store, source.broker, {name: mark for name, mark in marks.items() if mark is not None})
            cuts = Cuts(store)
            end = log_end(store, cuts)
            at = self._checked(store, position, end)
            if self._target is not None:
                end = min(end, self._target[source.broker])
            if share is not None and at + share < end:
                end = _cut(store, cuts, at + share, end)
            if position is not None and end <= at:
                return position
            return _position(store, end)

    def _checked(self, store: Store, position: Position | None, end: int) -> int:
        """Returns where reading continues, after checking that the log is still the same."""
        mark = _mark(position)
        if mark is not None:
            at = check_mark(store, mark, end)
            self._require_unexpired(store, mark.offset, at)
            return at
        at = store.commit_log.min_offset
        if position is not None:
            self._require_unexpired(store, position["offset"], at)
        return at

    def _require_unexpired(self, store: Store, read: int, first: int) -> None:
        if first <= read:
            return
        lost = f"data loss: {first - read} bytes of the log expired unread, from physical offset {read} to {first}"
        if self._options.fail_on_data_loss:
            raise ExportError(f"{lost}; set failOnDataLoss=false to continue without them", store.path)
        LOG.warning("%s path=%s", lost, store.path)

    def partitions(self, start: Offset, end: Offset) -> list[Split]:
        """Returns the tasks of a micro-batch; raises as `latestOffset`."""
        plans: list[StorePlan] = []
        for source in self._options.sources:
            first, last = _position_of(start, source.broker), _position_of(end, source.broker)
            if last is None or (first is not None and first["offset"] >= last["offset"]):
                continue
            with source.open() as store:
                self._checked(store, first, last["offset"])
                plans.append(
                    plan_since(
                        store,
                        source,
                        self._options.read.selection,
                        _mark(first),
                        until=last["offset"],
                        target=self._options.split_bytes,
                    )
                )
        return splits_of(plans, self._options.split_bytes)

    def read(self, partition: Any) -> Iterator[Any]:
        """Yields the Arrow batches of a partition."""
        if isinstance(partition, Split):
            lossless = self._options.fail_on_data_loss
            yield from read_split(partition, self._options, self._names, fail_on_loss=lossless)

    def commit(self, end: Offset) -> None:
        """Does nothing: the log belongs to its broker."""


def _cut(store: Store, cuts: Cuts, target: int, end: int) -> int:
    """Returns where the log may be cut, or the end of a segment, after an offset; the end of the log if it is nearer.

    Where the segment of the offset is missing, this is in the next one, and not at its start: a mark needs a byte
    before it.
    """
    following = next((segment for segment in store.commit_log.segments if segment.end > target), None)
    if following is None:
        return end
    target, limit = max(target, following.base + 1), min(end, following.end)
    cut = cuts.first_at(target, limit)
    return limit if cut is None else cut.start


def _offset(positions: dict[str, Position]) -> Offset:
    return {"version": VERSION, "stores": positions}


def _position(store: Store, offset: int) -> Position:
    mark = mark_at(store, offset)
    return {"offset": offset} if mark is None else asdict(mark)


def _position_of(offset: Offset, broker: str) -> Position | None:
    """Returns a store's part of an offset; None if the store joined the stream later.

    Raises ExportError if the checkpoint was written by another release.
    """
    if offset.get("version") != VERSION:
        raise ExportError(f"expected version {VERSION}, found {offset.get('version')}", "checkpoint")
    position: Position | None = offset["stores"].get(broker)
    return position


def _mark(position: Position | None) -> Mark | None:
    return None if position is None or "base" not in position else Mark(**position)
