"""One scan: the messages of a store that meet a condition, as lazy Arrow batches.

Rows, columns and types are those of an export (docs/lake.md), so a query has the same result on a store and on its
export. Columns that are plain record fields are built from the arrays of frames, without building rows; `export.rows`
builds all others.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from mqtool.choices import Trust
from mqtool.errors import UsageError
from mqtool.export.rows import compact, rows_of
from mqtool.export.schema import ALL_COLUMNS, BATCH_ROWS, TIMESTAMP, ReadRequest, committed, messages_schema
from mqtool.export.sources import name_of
from mqtool.export.task import pieces
from mqtool.formats.commit_log import FIRST_MILLIS, LAST_MILLIS, SysFlag
from mqtool.records.damage import Damage
from mqtool.records.frames import Frames
from mqtool.scan.bounds import NO_FACTS, Facts, condition_of
from mqtool.scan.conditions import parsed
from mqtool.scan.paths import Path, Planner
from mqtool.scan.reading import Reading, Zones, mask_of, possible
from mqtool.store.store import Store

SIZE = "store_size"
_FIELDS = {
    "physical_offset": "physical_offset",
    SIZE: "total_size",
    "queue_id": "queue_id",
    "queue_offset": "queue_offset",
    "sys_flag": "sys_flag",
    "body_crc": "body_crc",
    "magic_code": "magic_code",
}
"""Columns that are a field as it is, and its name in a record."""
_TIMES = ("born_timestamp", "store_timestamp")
_CODED = ("topic", "broker")
_PLAIN = frozenset({*_FIELDS, *_TIMES, *_CODED})

_CODES = pa.dictionary(pa.int32(), pa.string())


KEY = "key"

_PLACE = "physical_offset"

_BODIES = frozenset({"body", "body_decoded"})
"""Columns that are made of bodies."""

_DOCS = {b"docs": b"one of the words of KEYS"}


def plain_batch(frames: Frames, facts: Facts, schema: Any, broker: str, *, every_class: bool) -> Any:
    """Returns columns of the frames that match the bounds, and `store_size`; None if fields are not sufficient.

    That is so if there is an inner batch, whose messages are separate rows, or a time outside the calendar. The
    `pa.RecordBatch` shares no memory with the frames. All columns of the schema are plain.
    """
    flags = frames.column("sys_flag")
    if (flags & SysFlag.INNER_BATCH).any():
        return None
    keep = mask_of(frames, facts)
    if not every_class:
        keep &= committed(frames)
    which: np.ndarray | slice = slice(None) if keep.all() else np.flatnonzero(keep)
    if SIZE not in schema.names:
        schema = schema.append(pa.field(SIZE, pa.int32()))
    columns = [_column(frames, name, which, broker) for name in schema.names]
    if any(column is None for column in columns):
        return None
    return typed(pa.RecordBatch.from_arrays(columns, names=schema.names), schema)


def _column(frames: Frames, name: str, which: np.ndarray | slice, broker: str) -> Any:
    """Returns a copy of a column, because the next frames may be read into the same memory."""
    if name == "topic":
        codes, names = frames.coded_topics
        return pa.DictionaryArray.from_arrays(codes[which].copy(), pa.array(names, pa.string()))
    if name == "broker":
        codes = np.zeros(len(frames.positions[which]), np.int32)
        return pa.DictionaryArray.from_arrays(codes, pa.array([broker], pa.string()))
    if name in _FIELDS:
        return pa.array(frames.column(_FIELDS[name])[which].copy())
    millis = frames.column(name)[which].copy()
    if len(millis) and (millis.min() < FIRST_MILLIS or millis.max() > LAST_MILLIS):
        return None
    return pa.array(millis).view(TIMESTAMP)


def schema_of(columns: Iterable[str] | None = None, *, keyed: bool = False, coded: bool = False) -> Any:
    """Returns the Arrow schema of some columns of a scan, in this order; None for all.

    A keyed scan has one row for each key of each message, in column `key`; a coded one has dictionaries of topics and
    brokers. Raises UsageError for an unknown column.
    """
    schema = messages_schema(ALL_COLUMNS)
    for name in _CODED if coded else ():
        index = schema.get_field_index(name)
        schema = schema.set(index, schema.field(index).with_type(_CODES))
    if keyed:
        schema = pa.schema([pa.field(KEY, pa.string(), metadata=_DOCS), *schema])
    return chosen(schema, schema.names if columns is None else columns)


def chosen(schema: Any, names: Iterable[str]) -> Any:
    """Returns some fields of an Arrow schema, in this order; raises UsageError for an unknown one."""
    known = schema.names
    fields = []
    for name in names:
        if name not in known:
            raise UsageError(f"unknown column {name!r}; known: {', '.join(known)}")
        fields.append(schema.field(name))
    return pa.schema(fields)


def typed(batch: Any, schema: Any) -> Any:
    """Returns a `pa.RecordBatch` with the types of a schema that has the same columns: text is encoded or decoded."""
    for index, kind in enumerate(schema.types):
        column = batch.column(index)
        if column.type != kind:
            column = column.dictionary_encode() if kind == _CODES else column.dictionary_decode()
            batch = batch.set_column(index, schema.field(index), column)
    return batch


class Where(Struct, frozen=True):
    """A condition on rows."""

    facts: Facts = NO_FACTS  # bounds that every matching row satisfies
    columns: frozenset[str] | None = frozenset()  # that the test reads; None if unknown, in which case all are read
    test: Callable[[Any], Any] | None = None  # returns the rows of a batch that match

    @classmethod
    def of(cls, expression: Any, schema: Any) -> "Where":
        """Returns a `pyarrow.compute.Expression` over a schema as a condition; None matches every row."""
        if expression is None:
            return cls()
        condition = condition_of(expression, schema)
        return cls(condition.facts, condition.columns, partial(_matching, expression))

    @classmethod
    def parsed(cls, text: str) -> "Where":
        """Returns a condition on messages in SQL syntax, "" for every row; raises UsageError if it is not valid."""
        if not text:
            return cls()
        condition = parsed(text, schema_of())
        return cls(condition.facts, condition.columns, partial(_matching, condition.expression))


def _matching(expression: Any, batch: Any) -> Any:
    """Returns the rows of a `pa.RecordBatch` that match."""
    return _one(pa.Table.from_batches([batch]).filter(expression))


class Options(Struct, frozen=True):
    """How a scan reads."""

    every_class: bool = False  # include half, rolled-back and system records, not only committed ones
    # Return one row for each key of each message, in a column `key`; messages without a key have none.
    keyed: bool = False
    trust: frozenset[Trust] = frozenset()  # what may be used without proof, to read or check less
    end: int | None = None  # physical offset before which to stop; None for the end of the log
    limit: int | None = None  # maximum number of rows
    batch_rows: int = BATCH_ROWS  # maximum number of rows of a batch
    coded: bool = False  # return topics and brokers as dictionaries, which DuckDB groups and compares by their codes


class Report(Struct):
    """What a scan has read; complete after its last batch was returned."""

    broker: str  # which store
    path: str = ""  # "nothing", "walk", "queues" or "index"; "" before it is chosen
    why: str = ""  # text that explains the choice of the path
    log_bytes: int = 0  # bytes of the log in use
    bytes_read: int = 0  # bytes of the log that were read, including those to find its end
    bytes_needed: int = 0  # bytes of the records that matched
    segments: int = 0  # and segments_skipped: number of segments in the log, and of those from which no record was read
    segments_skipped: int = 0
    rows: int = 0  # number of rows returned
    damage: list[Damage] = field(default_factory=list)  # found during the scan


class Scan:
    """Messages as Arrow batches, read lazily; `report` states what was read."""

    def __init__(
        self,
        store: Store,
        columns: Iterable[str] | None = None,
        where: Any = None,
        options: Options | None = None,
        *,
        broker: str = "",
        zones: Zones | None = None,
    ) -> None:
        """Reads nothing yet; raises UsageError for an unknown column. The store must stay open.

        Columns and condition are those of `scan`, or a `Where`. `broker` is the value of that column; `zones` are what
        earlier scans of this store have proved, and this scan adds to it.
        """
        self.options = options or Options()
        schema = schema_of(keyed=self.options.keyed)
        layout = partial(schema_of, keyed=self.options.keyed, coded=self.options.coded)
        self.schema = layout(columns)
        self.where = where if isinstance(where, Where) else Where.of(where, schema)
        self.report = Report(broker)
        self._store = store
        self._zones = Zones() if zones is None else zones
        tested = set(schema.names) if self.where.columns is None else set(self.where.columns)
        tested |= {_PLACE, KEY} if self.options.keyed else {_PLACE}
        self._tested = layout([name for name in schema.names if name in tested])
        needed = [*self.schema.names, *(name for name in self._tested.names if name not in self.schema.names)]
        self._needed = layout(needed)
        self._every = self.options.every_class
        self._is_plain = not self.options.keyed and _PLAIN.issuperset(self._needed.names)

    def __iter__(self) -> Iterator[Any]:
        """Yields `pa.RecordBatch`, in CommitLog order."""
        log, report = self._store.commit_log, self.report
        before, left = log.bytes_read, self.options.limit
        path = self._path()
        report.path, report.why = path.name, path.why
        report.segments = log.last_used + 1 if log.segments else 0
        report.log_bytes = log.bytes_in_use
        checks = Trust.BODIES not in self.options.trust or not _BODIES.isdisjoint(self._needed.names)
        report.why += "" if checks else "; CRCs of bodies are not checked"
        is_plain = self._is_plain and self.options.limit is None
        reading = Reading(log, self.where.facts, self._zones, crc=checks, fields=is_plain)
        for item in reading.items(path):
            report.bytes_read = log.bytes_read - before
            report.segments_skipped = report.segments - len(reading.segments_read)
            if isinstance(item, Damage):
                report.damage.append(item)
                continue
            for batch in self._batches(item):
                if left == 0:
                    return
                rows = batch if left is None else batch.slice(0, left)
                left = None if left is None else left - len(rows)
                report.rows += len(rows)
                yield rows
            if left == 0:
                return
        report.bytes_read = log.bytes_read - before
        report.segments_skipped = report.segments - len(reading.segments_read)

    def _path(self) -> Path:
        options, facts = self.options, self.where.facts
        if not facts["broker"].admits(self.report.broker):
            return Path("nothing", "the condition selects another broker")
        return Planner(self._store, facts, options.trust, options.end, self._every).path()

    def _batches(self, frames: Frames) -> Iterator[Any]:
        if self._is_plain:
            batch = plain_batch(frames, self.where.facts, self._needed, self.report.broker, every_class=self._every)
            if batch is not None:
                yield from self._plain(batch)
                return
        request = ReadRequest(columns=_stored(self._needed), batch_rows=self.options.batch_rows)
        for some in pieces(possible(frames, self.where.facts), request):
            matching = self._matching(some)
            if matching is not None and len(matching):
                yield matching

    def _plain(self, batch: Any) -> Iterator[Any]:
        """Yields the matching rows if all columns are plain fields; evaluates the test on the whole batch."""
        matching = batch if self.where.test is None else self.where.test(batch)
        self.report.bytes_needed += int(np.asarray(matching[SIZE]).sum())
        chosen = matching.select(self.schema.names)
        for start in range(0, len(chosen), self.options.batch_rows):
            yield chosen.slice(start, self.options.batch_rows)

    def _matching(self, frames: Frames) -> Any:
        """Returns the matching rows: builds the columns that the test reads, then the others for the rows that pass."""
        if self.where.test is None:
            rows = self._rows(frames, self._needed)
            self.report.bytes_needed += 0 if rows is None else int(frames.sizes.sum())
            return None if rows is None else rows.select(self.schema.names)
        rows = self._rows(frames, self._tested)
        if rows is None or not len(rows := self.where.test(rows)):
            return None
        frames = frames.select(np.isin(frames.positions + frames.base, np.asarray(rows[_PLACE])))
        self.report.bytes_needed += int(frames.sizes.sum())
        if set(self.schema.names) <= set(self._tested.names):
            return rows.select(self.schema.names)
        rows = self._rows(frames, self._needed)
        return None if rows is None else self.where.test(rows).select(self.schema.names)

    def _rows(self, frames: Frames, schema: Any) -> Any:
        """Returns all rows of frames with the columns of a schema; None if no record has a requested class."""
        request = ReadRequest(columns=_stored(schema), every_class=self.options.every_class)
        rows = rows_of(frames, self.report.broker, request)
        if rows is None:
            return None
        batch = compact(rows.batch)
        return typed(_keyed(batch, schema.names) if self.options.keyed else batch.select(schema.names), schema)


def scan(
    store: Store,
    columns: Iterable[str] | None = None,
    where: Any = None,
    *,
    trust: Collection[Trust | str] = (),
    every_class: bool = False,
    limit: int | None = None,
) -> Scan:
    """Returns the messages of a store that meet a condition; iterate over the result for `pa.RecordBatch`es.

    Args:
        store: open.
        columns: names of the messages table of docs/lake.md; None for all.
        where: a `pyarrow.compute.Expression`, e.g. `pc.field("topic") == "orders"`.
        trust: "queues", "index", "clock", "bodies": what need not be proved; see docs/sql.md.
        every_class: include half, rolled-back and system records.
        limit: maximum number of rows.

    Raises:
        UsageError: an unknown column.
    """
    options = Options(every_class=every_class, trust=frozenset(map(Trust, trust)), limit=limit)
    return Scan(store, columns, where, options, broker=name_of(str(store.path)))


def _stored(schema: Any) -> tuple[str, ...]:
    """Returns the record columns from which a schema is built."""
    names = [name for name in schema.names if name != KEY]
    if KEY in schema.names and "keys" not in names:
        names.append("keys")
    return tuple(names) or (_PLACE,)


def _keyed(batch: Any, names: list[str]) -> Any:
    """Returns some columns of a row for each key of each row."""
    keys = batch["keys"]
    wide = batch.take(pc.list_parent_indices(keys))
    arrays = [pc.list_flatten(keys) if name == KEY else wide[name] for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _one(table: Any) -> Any:
    """Returns a table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
