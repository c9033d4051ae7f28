"""Tables of stores as `pyarrow.dataset.Dataset`: what DuckDB, pandas and others read lazily.

Engines ask a dataset for a scanner of some columns and a condition, and trust that all its rows meet the condition.
Here a scanner opens the stores when its first batch is taken, so each question sees them as they are then.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from mqtool.errors import MqtoolError, UsageError
from mqtool.export.sources import Source
from mqtool.scan.messages import Options, Report, Scan, Where, schema_of
from mqtool.scan.zones import Zones


@dataclass
class Stores:
    """Stores that are asked together.

    Attributes:
        sources: the stores.
        options: how scans of messages read.
        reports: of all scans of messages so far, in the order in which they began.
        failure: the last error of ours that an engine was given; engines pass only its words on.
    """

    sources: tuple[Source, ...]
    options: Options = field(default_factory=Options)
    reports: list[Report] = field(default_factory=list)
    failure: MqtoolError | None = None
    zones: dict[str, Zones] = field(default_factory=dict)

    def messages(self, names: list[str], where: Where, options: Options) -> Iterator[Any]:
        """Yields the messages of all stores that meet a condition."""
        for source in self.sources:
            with source.open() as store:
                zones = self.zones.setdefault(source.path, Zones())
                found = Scan(store, names, where, options, broker=source.broker, zones=zones)
                self.reports.append(found.report)
                yield from found

    def guarded(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yields the same, and keeps the error that ends it."""
        try:
            yield from batches
        except MqtoolError as error:
            self.failure = error
            raise


class _Scanner:
    """What engines use of a `pyarrow.dataset.Scanner`, which itself would read ahead in a thread of its own.

    Such a thread may still run Python when the interpreter ends: an engine that has enough rows does not wait for it.
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
        found, left = [], count
        for batch in self._reader:
            found.append(batch.slice(0, left))
            left -= len(found[-1])
            if left <= 0:
                break
        return pa.Table.from_batches(found, self._reader.schema)

    def count_rows(self) -> int:
        return sum(len(batch) for batch in self._reader)


class _Lazy(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset whose rows a function makes."""

    def __init__(self, stores: Stores, schema: Any, batches: Callable[[list[str], Any], Iterator[Any]]) -> None:
        """Reads nothing.

        Args:
            stores: to read.
            schema: of all columns.
            batches: yields some columns of the rows that meet a condition.
        """
        self._stores = stores
        self._schema = schema
        self._batches = batches

    @property
    def schema(self) -> Any:
        """Arrow schema of all columns."""
        return self._schema

    def scanner(self, columns: Any = None, filter: Any = None, **_: Any) -> Any:  # noqa: A002 - Arrow's name
        """Returns what reads some columns of the rows that meet a condition, once.

        Args:
            columns: names; None for all.
            filter: a `pyarrow.compute.Expression`.
            _: how Arrow would read files; without meaning here.

        Raises:
            UsageError: an unknown column, or a computed one.
        """
        if isinstance(columns, dict):
            raise UsageError("columns of a store are chosen by name; compute on the batches")
        names = self._schema.names if columns is None else list(columns)
        unknown = [name for name in names if name not in self._schema.names]
        if unknown:
            raise UsageError(f"unknown column {unknown[0]!r}; known: {', '.join(self._schema.names)}")
        schema = pa.schema([self._schema.field(name) for name in names])
        batches = self._stores.guarded(self._batches(names, filter))
        return _Scanner(pa.RecordBatchReader.from_batches(schema, batches))


class MessagesDataset(_Lazy):
    """The table of messages; conditions decide what is read."""

    def __init__(self, stores: Stores, *, keyed: bool = False) -> None:
        """Takes the stores.

        Args:
            stores: to read.
            keyed: a row for each key of each message, in the column `key`.
        """
        super().__init__(stores, schema_of(keyed=keyed), self._matching)
        options = stores.options
        self._options = Options(options.every_class, keyed, options.trust, options.end, options.limit)

    def _matching(self, names: list[str], where: Any) -> Iterator[Any]:
        return self._stores.messages(names, Where.of(where, self._schema), self._options)


class TableDataset(_Lazy):
    """A table that is made whole when it is asked for, batch by batch."""

    def __init__(self, stores: Stores, schema: Any, made: Callable[[Stores], Iterator[Any]]) -> None:
        """Takes the table.

        Args:
            stores: to read.
            schema: of the table.
            made: yields its `pa.RecordBatch`es.
        """
        super().__init__(stores, schema, self._chosen)
        self._made = partial(made, stores)

    def _chosen(self, names: list[str], where: Any) -> Iterator[Any]:
        for batch in self._made():
            table = pa.Table.from_batches([batch], self._schema)
            yield from (table if where is None else table.filter(where)).select(names).to_batches()


def dataset(*stores: str, options: Options | None = None) -> MessagesDataset:
    """Returns the messages of stores as a `pyarrow.dataset.Dataset`.

    Args:
        stores: roots, `NAME=ROOT`, or globs.
        options: how it reads.
    """
    from mqtool.export.sources import resolve  # noqa: PLC0415

    return MessagesDataset(Stores(tuple(resolve(stores)), options or Options()))
