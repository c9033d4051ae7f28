"""Tables of stores as `pyarrow.dataset.Dataset`, which DuckDB, DataFusion, pandas and others read lazily.

Engines request a scanner for some columns and a condition, and rely on all its rows meeting the condition. The
scanner opens the stores when its first batch is requested, so each query sees them as they are at that time.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.choices import Trust
from mqtool.errors import MqtoolError, UsageError
from mqtool.export.sources import Source, resolve
from mqtool.scan.messages import Options, Report, Scan, Where, chosen, schema_of
from mqtool.scan.reading import Zones

LOG = logging.getLogger(__name__)


class Stores(Struct):
    """Stores that are queried together."""

    sources: tuple[Source, ...]  # the stores
    options: Options = field(default_factory=Options)  # how scans of messages read
    # Of all scans of messages so far, in the order in which they started.
    reports: list[Report] = field(default_factory=list)
    # The last mqtool error that was raised into an engine, since engines pass on only its message.
    failure: MqtoolError | None = None
    zones: dict[str, Zones] = field(default_factory=dict)  # what scans have proved about complete segments, by store
    # Whether a scan that finds damage logs a warning; most engines do not show reports to their users.
    logs: bool = True

    def messages(self, names: list[str], where: Where, options: Options) -> Iterator[Any]:
        """Yields the messages of all stores that meet a condition."""
        for source in self.sources:
            with source.open() as store:
                zones = self.zones.setdefault(source.path, Zones())
                scan = Scan(store, names, where, options, broker=source.broker, zones=zones)
                self.reports.append(scan.report)
                try:
                    yield from scan
                finally:
                    if self.logs and (damage := scan.report.damage):
                        LOG.warning(
                            "skipped %d damaged ranges broker=%s first=%s", len(damage), source.broker, damage[0]
                        )

    def guarded(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yields the same batches; stores an error in `failure` before raising it."""
        try:
            yield from batches
        except MqtoolError as error:
            self.failure = error
            raise


class _Scanner:
    """The part of the `pyarrow.dataset.Scanner` interface that engines use.

    A real Scanner reads ahead in a thread, which may still run Python code when the interpreter exits: an engine
    that has enough rows does not wait for it.
    """

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    @property
    def projected_schema(self) -> Any:
        return self._reader.schema

    def to_reader(self) -> Any:
        return self._reader

    def to_batches(self) -> Iterator[Any]:
        yield from self._reader

    def to_table(self) -> Any:
        return self._reader.read_all()

    def head(self, count: int) -> Any:
        batches, left = [], count
        for batch in self._reader:
            batches.append(batch.slice(0, left))
            left -= len(batches[-1])
            if left <= 0:
                break
        return pa.Table.from_batches(batches, self._reader.schema)

    def count_rows(self) -> int:
        return sum(len(batch) for batch in self._reader)


class _Fragment:
    """A dataset as its only fragment, for engines that read datasets by fragment, such as DataFusion."""

    def __init__(self, dataset: "_LazyDataset") -> None:
        self._dataset = dataset

    def scanner(self, _schema: Any = None, **options: Any) -> Any:
        return self._dataset.scanner(**options)


class _LazyDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset whose rows are produced by a function: it yields some columns of the rows that meet a condition."""

    def __init__(self, stores: Stores, schema: Any, batches: Callable[[list[str], Any], Iterator[Any]]) -> None:
        self._stores = stores
        self._schema = schema
        self._batches = batches

    @property
    def schema(self) -> Any:
        """Arrow schema of all columns."""
        return self._schema

    def scanner(self, columns: Any = None, filter: Any = None, **_: Any) -> Any:  # noqa: A002 - Arrow's name
        """Returns a scanner over some columns of the rows that meet an Arrow expression; it can be read once.

        Options for reading files are ignored. Raises UsageError for an unknown column, a computed one, or a condition
        that Arrow cannot evaluate.
        """
        if isinstance(columns, dict):
            raise UsageError("select columns of a store by name; compute on the batches")
        names = self._schema.names if columns is None else list(columns)
        schema = chosen(self._schema, names)
        if isinstance(filter, pa.Scalar):  # DataFusion's form of a condition that is always true or never
            filter = pc.scalar(filter)  # noqa: A001
        if filter is not None:
            _require_computable(filter, self._schema)
        batches = self._stores.guarded(self._batches(names, filter))
        return _Scanner(pa.RecordBatchReader.from_batches(schema, batches))

    def get_fragments(self, filter: Any = None) -> Iterator[Any]:  # noqa: A002, ARG002 - Arrow's name
        """Returns one fragment; the condition passed to its scanner decides which bytes are read."""
        return iter([_Fragment(self)])


def _require_computable(condition: Any, schema: Any) -> None:
    """Raises a one-line error now, instead of Arrow's error during reading, which would list the whole schema."""
    try:
        schema.empty_table().filter(condition)
    except (pa.ArrowException, TypeError) as error:
        if unknown := re.match(r"No match for FieldRef\.Name\((.*?)\) in", str(error)):
            chosen(schema, [unknown[1]])
        raise UsageError(f"condition {condition}: {str(error).splitlines()[0]}") from error


class MessagesDataset(_LazyDataset):
    """The table of messages; conditions limit what is read. A keyed one has one row for each key, in column `key`."""

    def __init__(self, stores: Stores, *, keyed: bool = False) -> None:
        self._options = replace(stores.options, keyed=keyed)
        super().__init__(stores, schema_of(keyed=keyed, coded=self._options.coded), self._matching)

    def _matching(self, names: list[str], where: Any) -> Iterator[Any]:
        plain = schema_of(keyed=self._options.keyed)  # Substrait has no dictionaries
        return self._stores.messages(names, Where.of(where, plain), self._options)


class TableDataset(_LazyDataset):
    """A table that is always read completely, batch by batch."""

    def __init__(self, stores: Stores, schema: Any, make_batches: Callable[[Stores], Iterator[Any]]) -> None:
        super().__init__(stores, schema, self._chosen)
        self._make_batches = partial(make_batches, stores)

    def _chosen(self, names: list[str], where: Any) -> Iterator[Any]:
        for batch in self._make_batches():
            table = pa.Table.from_batches([batch], self._schema)
            yield from (table if where is None else table.filter(where)).select(names).to_batches()


def dataset(
    *stores: str | Path,
    config: str | Path | None = None,
    trust: Collection[Trust | str] = (),
    every_class: bool = False,
    keyed: bool = False,
) -> MessagesDataset:
    """Returns the messages of stores as a `pyarrow.dataset.Dataset`; each query opens the stores again.

    Args:
        stores: roots, `NAME=ROOT`, or globs.
        config: a broker.conf of the stores.
        trust: what need not be proved: "queues", "index", "clock", "bodies".
        every_class: include half, rolled-back and system records.
        keyed: return one row for each key of each message, with the key in column `key`.

    Raises:
        UsageError: no store was given, or one was given twice.
    """
    options = Options(every_class=every_class, trust=frozenset(map(Trust, trust)))
    sources = resolve(stores, config)
    return MessagesDataset(Stores(tuple(sources), options), keyed=keyed)
