"""Stores as tables of DuckDB: SQL that reads only the columns and parts of the log that a query needs.

DuckDB passes columns and simple conditions to a `pyarrow.dataset.Dataset` (comparisons with constants, IN, BETWEEN,
IS NULL, AND, OR) and evaluates the rest itself. Guide: docs/sql.md.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from mqtool.choices import Trust
from mqtool.commands import with_extra
from mqtool.errors import UnavailableError, UsageError
from mqtool.export.sources import resolve
from mqtool.scan.dataset import Stores
from mqtool.scan.messages import Options, Report
from mqtool.scan.tables import tables_of

if TYPE_CHECKING:
    import duckdb

_BATCH_ROWS = 2048


class Session:
    """A DuckDB connection in which stores are tables; a context manager.

    Attributes:
        connection: DuckDB's connection, in memory.
        stores: the stores that were given, with a report for each scan.
        names: of all tables and columns.
    """

    def __init__(
        self,
        *stores: str | Path,
        config: str | Path | None = None,
        trust: Collection[Trust | str] = (),
        every_class: bool = False,
        zone: str = "UTC",
        logs: bool = True,
    ) -> None:
        """Opens the connection; each query opens the stores.

        Args:
            stores: roots, `NAME=ROOT`, or globs.
            config: a broker.conf of the stores.
            trust: what need not be proved: "queues", "index", "clock", "bodies".
            every_class: include half, rolled-back and system records in `messages`.
            zone: time zone of times.
            logs: whether a scan that finds damage logs a warning.

        Raises:
            UnavailableError: duckdb is not installed.
            UsageError: no store was given, or one was given twice.
        """
        try:
            import duckdb  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise UnavailableError(f"SQL needs duckdb: {with_extra('sql')}") from error
        sources = resolve(stores, config)
        options = Options(every_class=every_class, trust=frozenset(map(Trust, trust)), coded=True)
        self._error: type[Exception] = duckdb.Error
        self.stores = Stores(tuple(sources), options, logs=logs)
        for source in sources:  # so that what is not a store is reported before anything is asked
            source.open(needs_log=False).close()
        self.connection: duckdb.DuckDBPyConnection = duckdb.connect(":memory:")
        self.connection.execute("SET autoinstall_known_extensions = false")
        self.connection.execute("SET TimeZone = ?", [zone])
        tables = tables_of(self.stores)
        for name, table in tables.items():
            self.connection.register(name, table)
        self.names = {*tables, *(name for table in tables.values() for name in table.schema.names)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.connection.close()

    @property
    def reports(self) -> list[Report]:
        """Returns what each scan of messages has read, in the order in which the scans started."""
        return self.stores.reports

    def ask(self, sql: str) -> tuple[Any, Iterator[Any]]:
        """Runs a statement.

        Returns:
            Arrow schema of the result, and an iterator that computes its batches; no columns if the statement has no
            result.

        Raises:
            UsageError: DuckDB does not accept the statement.
            MqtoolError: a store cannot be read.
        """
        self.stores.failure = None
        try:
            relation: Any = self.connection.sql(sql)
            reader = None if relation is None else relation.to_arrow_reader(_BATCH_ROWS)
        except (self._error, OSError, RuntimeError) as error:
            raise self._reason(error) from error
        return (pa.schema([]), iter(())) if reader is None else (reader.schema, self._taken(reader))

    def statements(self, text: str) -> list[str]:
        """Splits text into SQL statements; raises UsageError if DuckDB cannot parse it."""
        try:
            return [statement.query for statement in self.connection.extract_statements(text)]
        except self._error as error:
            raise self._reason(error) from error

    def _taken(self, reader: Any) -> Iterator[Any]:
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            except (self._error, OSError, RuntimeError) as error:
                raise self._reason(error) from error
            yield batch

    def _reason(self, error: Exception) -> Exception:
        if self.stores.failure is not None:
            return self.stores.failure
        reason, _, _ = str(error).partition("\n\nLINE ")
        return UsageError(f"DuckDB: {' '.join(reason.split())}")


def connect(
    *stores: str | Path,
    config: str | Path | None = None,
    trust: Collection[Trust | str] = (),
    every_class: bool = False,
) -> "duckdb.DuckDBPyConnection":
    """Returns a DuckDB connection in which stores are tables; arguments and errors as for `Session`."""
    return Session(*stores, config=config, trust=trust, every_class=every_class).connection
