"""Parses the options of the data source, which Spark passes as strings, into requests."""

import json
from collections.abc import Mapping
from datetime import UTC

from msgspec import Struct
from msgspec.structs import replace

from mqtool import words
from mqtool.choices import Trust
from mqtool.errors import UsageError
from mqtool.export import redact
from mqtool.export.schema import ALL_COLUMNS, BY_NAME, Body, ReadRequest, Table, check_columns
from mqtool.export.sources import Source, resolve
from mqtool.scan.conditions import expression_of
from mqtool.scan.messages import Where, schema_of
from mqtool.store.log.selection import Selection

BATCH_BYTES, BATCH_ROWS = 4 << 20, 8192
"""Larger batches take more JVM memory and are not faster."""
SPLIT_BYTES = 128 << 20

KNOWN = (
    "path",
    "paths",
    "store",
    "config",
    "topics",
    "topic",
    "queueId",
    "startOffset",
    "endOffset",
    "startTime",
    "endTime",
    "include",
    "columns",
    "body",
    "redact",
    "mode",
    "where",
    "trust",
    "table",
    "damageColumn",
    "splitSize",
    "failOnDataLoss",
    "startingOffsets",
    "maxBytesPerTrigger",
)


class SourceOptions(Struct, frozen=True):
    """The request of a `load()`; sent to every task."""

    sources: tuple[Source, ...]  # the stores
    read: ReadRequest  # which messages and columns
    table: Table = Table.MESSAGES  # which of the tables of an export
    damage_column: str | None = None  # name of a column that reports damage among the messages, or None
    split_bytes: int = SPLIT_BYTES  # log bytes of a task
    fail_on_data_loss: bool = True  # a stream fails if the log lost messages that it had not read yet
    from_latest: bool = False  # a new stream begins at the end of the log
    max_bytes: int | None = None  # approximate bytes of log in a micro-batch; None for no limit
    condition: str = ""  # in SQL syntax (`scan.conditions`); every row of the table messages meets it. "" for none.
    trust: frozenset[Trust] = frozenset()  # what, besides the log, may be used to skip records

    @property
    def where(self) -> Where:
        """The parsed condition. The text is what is sent to tasks, because Arrow expressions cannot be pickled."""
        return where_of(self.condition)


def where_of(condition: str) -> Where:
    """Parses a condition on messages.

    Raises:
        UsageError: it is not a valid condition.
    """
    schema = schema_of()
    return Where.of(expression_of(condition, schema) if condition else None, schema)


def parse(options: Mapping[str, str]) -> SourceOptions:
    """Parses the options of a `load()`.

    Raises:
        UsageError: an unknown option, or an invalid value.
        NotAStoreError: a glob matches nothing.
    """
    given = {name.lower(): str(value) for name, value in dict(options).items()}
    known = {name.lower() for name in KNOWN}
    if {"owner", "provider"} <= set(given):  # Spark 4.3 gives the reader of such a table no options at all
        raise UsageError("a permanent table would lose these options in Spark: write CREATE TEMPORARY VIEW … USING …")
    unknown = [name for name in given if name not in known]
    if unknown:
        raise UsageError(f"unknown option {unknown[0]!r}; known: {', '.join(KNOWN)}")
    values = _Values(given)
    sources = tuple(source.absolute() for source in resolve(values.paths(), given.get("config")))
    table = Table(values.one_of("table", [str(table) for table in Table]))
    read = _read(values)
    return SourceOptions(
        sources,
        read,
        table,
        _damage_column(given.get("damagecolumn"), table),
        values.size("splitSize") or SPLIT_BYTES,
        values.one_of("failOnDataLoss", ["true", "false"]) == "true",
        values.one_of("startingOffsets", ["earliest", "latest"]) == "latest",
        values.size("maxBytesPerTrigger"),
        _condition(given.get("where", ""), table, read),
        values.trust(),
    )


def _condition(condition: str, table: Table, read: ReadRequest) -> str:
    if not condition.strip():
        return ""
    if table is not Table.MESSAGES:
        raise UsageError(f"option 'where' applies to the table messages, not to {table}; leave it out")
    hidden = sorted((where_of(condition).columns or frozenset(BY_NAME)) & read.redact)
    if hidden:
        raise UsageError(f"option 'where': column {hidden[0]!r} is redacted, so no condition on it can be met")
    return condition


def _damage_column(name: str | None, table: Table) -> str | None:
    if name is not None and (not name.strip() or name.lower() in BY_NAME):
        raise UsageError(f"option 'damageColumn': expected a name that no column has, found {name!r}")
    if name is not None and table is not Table.MESSAGES:
        raise UsageError(f"option 'damageColumn' applies to the table messages, not to {table}; leave it out")
    return name


def _read(values: "_Values") -> ReadRequest:
    selection = Selection.of(
        start=values.integer("startOffset"),
        end=values.integer("endOffset"),
        queue_id=values.integer("queueId"),
        topics=values.names("topics") + values.names("topic"),
        begin_time=values.time("startTime"),
        end_time=values.time("endTime"),
    )
    hidden = redact.closure(values.names("redact"))
    return ReadRequest(
        selection,
        check_columns(values.names("columns") if values.has("columns") else ALL_COLUMNS),
        values.one_of("include", ["committed", "all"]) == "all",
        Body(values.one_of("body", [str(body) for body in Body])),
        hidden,
        redact.new_salt() if hidden else b"",
        values.one_of("mode", ["permissive", "failfast"]) == "failfast",
        BATCH_BYTES,
        BATCH_ROWS,
    )


def narrowed(options: SourceOptions, columns: tuple[str, ...]) -> SourceOptions:
    """Returns the options for reading fewer columns."""
    return replace(options, read=replace(options.read, columns=columns))


class _Values:
    """Typed access to the options, whose keys are in lower case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = options

    def has(self, name: str) -> bool:
        """Whether an option is given."""
        return name in self._given

    def paths(self) -> list[str]:
        """Returns all paths: `load(one)`, `load([some])`, or option `store`."""
        paths = [self._given[name] for name in ("path", "store") if name in self._given]
        try:
            paths.extend(json.loads(self._given.get("paths", "[]")))
        except ValueError as error:
            raise UsageError(f"option 'paths': expected a JSON list: {error}") from error
        if not paths:
            raise UsageError("no path: load(PATH), or option 'store'")
        return paths

    def names(self, name: str) -> tuple[str, ...]:
        """Returns a comma-separated list."""
        return tuple(part.strip() for part in self._given.get(name, "").split(",") if part.strip())

    def trust(self) -> frozenset[Trust]:
        """Returns what is trusted."""
        known = [str(choice) for choice in Trust]
        for name in self.names("trust"):
            if name not in known:
                raise UsageError(f"option 'trust': expected {' or '.join(known)}, found {name!r}")
        return frozenset(map(Trust, self.names("trust")))

    def one_of(self, name: str, values: list[str]) -> str:
        """Returns one of the allowed values; the first if the option is not set."""
        value = self._given.get(name.lower(), values[0]).lower()
        if value not in values:
            raise UsageError(f"option {name!r}: expected {' or '.join(values)}, found {value!r}")
        return value

    def integer(self, name: str) -> int | None:
        """Returns an integer."""
        text = self._given.get(name.lower())
        try:
            return None if text is None else int(text)
        except ValueError as error:
            raise UsageError(f"option {name!r}: expected a whole number, found {text!r}") from error

    def size(self, name: str) -> int | None:
        """Returns a number of bytes of 1 or more, as `words.parse_size` reads it."""
        text = self._given.get(name.lower())
        size = None if text is None else words.parse_size(text)
        if text is not None and not size:
            raise UsageError(f"option {name!r}: expected bytes, e.g. 67108864 or 64m, found {text!r}")
        return size

    def time(self, name: str) -> int | None:
        """Returns ms since the epoch, as `words.parse_time` reads them; UTC if no zone is given."""
        text = self._given.get(name.lower())
        time = None if text is None else words.parse_time(text, UTC)
        if text is not None and time is None:
            raise UsageError(f"option {name!r}: expected ms or RFC 3339, found {text!r}")
        return time
