"""`spark.readStream.format("rocketmq-store")`: logs as streams.

An offset is a physical offset per store with fingerprints of the log before it (`export.state.Mark`), so a
checkpoint of another log, or of one that was truncated, is detected. A micro-batch has fixed bounds: if it is
replayed after a failure, it reads the same records. Needs Spark 4.2.
"""

import logging
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from mqtool.errors import ExportError
from mqtool.export.limits import share_of
from mqtool.export.plan import log_end
from mqtool.export.schema import Table
from mqtool.export.sources import Source
from mqtool.export.state import Mark, check_mark, mark_at, plan_since, require_new_log
from mqtool.spark.offsets import QueueBounds, between, both, from_begin
from mqtool.spark.options import SourceOptions
from mqtool.spark.reading import read_split
from mqtool.spark.splits import Split, enough, parts_of_store, splits_of, start_of
from mqtool.store import Store
from mqtool.store.log.cuts import Cuts
from mqtool.values import asdict

LOG = logging.getLogger(__name__)
VERSION = 1

Offset = dict[str, Any]
"""`{"version": 1, "stores": {broker: position}}`, and, unless the stream began with the log, `begin`, the
positions at which it did, and `condition`, which excludes the messages of queues before that."""
Position = dict[str, Any]
"""`{"offset": physical offset}`, with the mark's other fields where the log has bytes before it."""


class StoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the messages that brokers append."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        self._options = options
        self._names = names
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Returns where a new stream begins; raises UsageError if it is not in the queues."""
        begins = [self._first(source) for source in self._options.sources]
        stores = {source.broker: place for source, (place, _) in zip(self._options.sources, begins, strict=True)}
        condition = both(*(from_begin(bounds) for _, bounds in begins if bounds is not None))
        is_earliest = self._options.begin is None and not self._options.from_latest
        more = {} if is_earliest else {"begin": stores, "condition": condition}
        return {"version": VERSION, "stores": stores, **more}

    def _first(self, source: Source) -> tuple[Position, QueueBounds | None]:
        options = self._options
        with source.open() as store:
            log, cuts = store.commit_log, Cuts(store)
            end = log_end(store, cuts)
            if options.begin is None:
                return (_position(store, end) if options.from_latest else {"offset": log.min_offset}), None
            begin = options.begin.resolve(store, source, options.read, strict=options.fail_on_data_loss)
            read = replace(options, condition=both(options.condition, between(begin, None)))
            first = min([end, *map(start_of, parts_of_store(read, source, store))])
            cut = cuts.at(first) if first > log.min_offset else None
            return ({"offset": log.min_offset} if cut is None else _position(store, cut.start)), begin

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Returns the limit from the options: of messages if there is one, or else of bytes."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        return ReadAllAvailable() if self._options.max_bytes is None else ReadMaxBytes(self._options.max_bytes)

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
        ends = {source.broker: self._next(source, start, limit) for source in self._options.sources}
        return {**start, "stores": {**start["stores"], **ends}}

    def _next(self, source: Source, start: Offset, limit: ReadLimit) -> Position:
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
            stores = len(self._options.sources)
            share = share_of(None if isinstance(limit, ReadAllAvailable) else self._options.max_bytes, stores)
            if share is not None and at + share < end:
                end = _cut(store, cuts, at + share, end)
            if position is not None and end <= at:
                return position
            rows = share_of(limit.max_rows, stores) if isinstance(limit, ReadMaxRows) else None
            if rows is not None:
                end = self._end_of_rows(store, source, start, end, rows)
            return _position(store, end)

    def _end_of_rows(self, store: Store, source: Source, start: Offset, end: int, rows: int) -> int:
        """Returns where the log may be cut after a number of messages, and after one record at least; or `end`.

        Reads the messages to count them.
        """
        options = replace(self._options, table=Table.MESSAGES, damage_column=None)
        first, counted = -1, 0
        for split in self._splits(store, source, start, end):
            for batch in read_split(split, options, ["physical_offset"]):
                places = batch["physical_offset"].to_numpy()
                first = int(places[0]) if first < 0 else first
                after = places[max(0, rows - counted) :]
                after = after[after > first]  # the messages of an inner batch have one place
                cut = Cuts(store).at(int(after[0])) if len(after) else None
                if cut is not None:
                    return cut.start
                counted += len(places)
        return end

    def _checked(self, store: Store, position: Position | None, end: int) -> int:
        """Returns where reading continues, after checking that the log is still the same."""
        mark = _mark(position)
        if mark is not None:
            at = check_mark(store, mark, end, "Begin with a new checkpoint")
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
        splits = []
        start = _as_recorded(start, end)
        for source in self._options.sources:
            first, last = _position_of(start, source.broker), _position_of(end, source.broker)
            if last is None or (first is not None and first["offset"] >= last["offset"]):
                continue
            with source.open() as store:
                self._checked(store, first, last["offset"])
                splits += self._splits(store, source, start, last["offset"])
        return splits

    def _splits(self, store: Store, source: Source, start: Offset, end: int) -> list[Split]:
        """Returns the tasks that read a store from an offset of the stream to a physical offset."""
        mark = _mark(_position_of(start, source.broker))

        def cut(size: int) -> list[Split]:
            plan = plan_since(store, source, self._options.read.selection, mark, until=end, target=size)
            return splits_of([plan], size, start.get("condition", ""))

        return enough(self._options, cut)

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


def _as_recorded(start: Offset, end: Offset) -> Offset:
    """Returns the start of a micro-batch; of the first, as its end has recorded it.

    If Spark repeats the first batch, it asks for the initial offset again, which may have become another.
    """
    return {**end, "stores": end["begin"]} if "begin" in end and start.get("begin") == start["stores"] else start


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
