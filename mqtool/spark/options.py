"""The options of the data source: parsed into requests, and derived from conditions and columns of a query.

If a Python source accepts pushed filters, Spark 4.3 keeps them with the frame and applies them to later queries too.
An option belongs to one frame, so this cannot happen. `ask` derives both options from the optimized plan of a query,
so that nobody has to write them twice. Spark still evaluates the whole query on the rows, so an option only omits
rows that the query would have dropped. Why: docs/decisions/0012-spark-predicates.md.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from mqtool import words
from mqtool.choices import Trust
from mqtool.errors import UsageError
from mqtool.export import schema
from mqtool.export.schema import ALL_COLUMNS, BY_NAME, Body, ReadRequest, Table, check_columns
from mqtool.export.sources import Source, resolve
from mqtool.scan.conditions import MIRRORED, expression_of
from mqtool.scan.messages import Where, schema_of
from mqtool.store.log.selection import Selection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

    Reader = TypeVar("Reader", DataFrameReader, DataStreamReader)
else:
    Reader = TypeVar("Reader")


FORMAT = "rocketmq-store"
"""Name of the source for `spark.read.format`."""

_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_MAX_VALUES = 1000

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


def where(
    reader: "Reader", condition: str, *, columns: Collection[str] = (), trust: Collection[Trust | str] = ()
) -> "Reader":
    """Returns a reader of messages that meet a condition, for `load` or a stream.

    The reader is `spark.read.format("rocketmq-store")`, or `spark.readStream` of that format. The condition is in SQL
    syntax, e.g. `topic = 'orders' AND queue_id IN (0, 3)`; see docs/lake.md. Without names of columns, it reads all.
    `trust` ("queues", "index", "clock") is what may be used to skip records; see docs/sql.md. Raises UsageError if
    there is no condition, and for an unknown column.
    """
    expression_of(condition, schema_of())
    restricted: Any = reader.option("where", condition)
    if columns:
        restricted = restricted.option("columns", ",".join(check_columns(columns)))
    if trust:
        restricted = restricted.option("trust", ",".join(str(Trust(kind)) for kind in trust))
    return restricted


def ask(reader: "DataFrameReader", paths: str | list[str], question: "Callable[[DataFrame], DataFrame]") -> "DataFrame":
    """Returns the result of a query as a lazy frame that reads only the columns and records that it needs.

    The query is built twice: on a frame of everything, whose plan shows what is used, and on a frame restricted to
    that. The reader is `spark.read.format("rocketmq-store")` with any options except `where` and `columns`, the paths
    are those of stores. `question` builds the result frame from the frame of messages; it must not run a query itself.
    Raises UsageError for Spark Connect, which does not expose plans.
    """
    frame = reader.load(paths)
    plan = _Plan(question(frame))
    read = reader.options(**plan.options(frame.columns))
    return question(read.load(paths))


class _Plan:
    """What the optimized plan of a query shows about the messages that it reads."""

    def __init__(self, frame: "DataFrame") -> None:
        """Lets Spark optimize the query; nothing is run. Raises UsageError for Spark Connect."""
        frame_in_java = getattr(frame, "_jdf", None)
        if frame_in_java is None:
            raise UsageError("Spark Connect does not expose plans; give the condition with where(reader, condition)")
        self._root = frame_in_java.queryExecution().optimizedPlan()

    def options(self, known: list[str]) -> dict[str, str]:
        """Returns the options `columns` and `where` for what the query reads, if they restrict anything."""
        nodes = list(_nodes(self._root))
        reads = [node for node in nodes if _reads_messages(node)]
        used = {name for node in nodes if node not in reads for name in _names(node.references())}
        used |= set(_names(self._root.outputSet()))
        conditions = [self._condition(nodes, node) for node in reads]
        options = {"columns": ",".join(name for name in known if name in used) or known[0]}
        texts = list(dict.fromkeys(condition for condition in conditions if condition is not None))
        if reads and None not in conditions:
            options["where"] = " OR ".join(f"({condition})" for condition in texts)
        return options

    def _condition(self, nodes: list[Any], read: Any) -> str | None:
        """Returns a condition that every row of one read that the query uses meets; None if none is known."""
        above = [node for node in nodes if any(child.equals(read) for child in _items(node.children()))]
        conditions = [_text_of(node.condition()) if _kind(node) == "Filter" else None for node in above]
        if not above or None in conditions:
            return None
        return " OR ".join(f"({condition})" for condition in dict.fromkeys(conditions))


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _items(sequence: Any) -> Iterator[Any]:
    for number in range(sequence.size()):
        yield sequence.apply(number)


def _nodes(node: Any) -> Iterator[Any]:
    """Yields a node of a plan and all nodes below it, including those of subqueries."""
    yield node
    for inner in (*_items(node.children()), *_items(node.subqueries())):
        yield from _nodes(inner)


def _reads_messages(node: Any) -> bool:
    return _kind(node) == "DataSourceV2ScanRelation" and str(node.relation().table().name()) == FORMAT


def _names(attributes: Any) -> Iterator[str]:
    for attribute in _items(attributes.toSeq()):
        yield str(attribute.name())


def _text_of(condition: Any) -> str | None:
    """Returns a condition, in SQL syntax, that a Spark expression implies; None if none is known."""
    kind = _kind(condition)
    if kind == "And":
        both = [text for text in map(_text_of, _items(condition.children())) if text is not None]
        return " AND ".join(f"({text})" for text in both) or None
    if kind == "Or":
        either = [_text_of(child) for child in _items(condition.children())]
        return None if None in either else " OR ".join(f"({text})" for text in either)
    if kind in _COMPARISONS:
        left, right = _items(condition.children())
        sign = _COMPARISONS[kind]
        if _kind(left) == "Literal":
            left, right, sign = right, left, MIRRORED[sign]
        value = _constant(right)
        return None if value is None or not _is_column(left) else f"{left.name()} {sign} {value}"
    if kind == "In":
        value, *listed = _items(condition.children())
        return _listed(value, [_constant(item) for item in listed])
    return None


def _listed(column: Any, values: list[str | None]) -> str | None:
    if not _is_column(column) or not values or None in values or len(values) > _MAX_VALUES:
        return None
    return f"{column.name()} IN ({', '.join(map(str, values))})"


def _is_column(expression: Any) -> bool:
    return _kind(expression) == "AttributeReference"


def _constant(expression: Any) -> str | None:
    """Returns a Spark literal in the syntax of conditions; None for null and for unsupported types."""
    if _kind(expression) != "Literal" or expression.value() is None:
        return None
    kind, value = str(expression.dataType().typeName()), expression.value()
    if kind in ("integer", "long", "short", "byte"):
        return str(value)
    if kind.startswith("string"):
        return "'" + str(value).replace("'", "''") + "'"
    if kind == "timestamp":
        return _moment(int(value))
    return None


def _moment(micros: int) -> str | None:
    """Returns a moment in the syntax of conditions; None for one that Python does not know, as of the year 10000."""
    from datetime import datetime, timedelta  # noqa: PLC0415

    try:
        moment = datetime(1970, 1, 1) + timedelta(microseconds=micros)  # noqa: DTZ001 - UTC, which is written behind it
    except OverflowError:
        return None
    return f"'{moment.isoformat(timespec='microseconds')}Z'"


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
    """Parses a condition on messages; raises UsageError if it is not valid."""
    schema = schema_of()
    return Where.of(expression_of(condition, schema) if condition else None, schema)


def parse(options: Mapping[str, str]) -> SourceOptions:
    """Parses the options of a `load()`.

    Raises UsageError for an unknown option, or an invalid value, NotAStoreError if a glob matches nothing.
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
        raise UsageError(f"option 'where': column {hidden[0]!r} is redacted, so no condition can match it")
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
    hidden = schema.closure(values.names("redact"))
    return ReadRequest(
        selection,
        check_columns(values.names("columns") if values.has("columns") else ALL_COLUMNS),
        values.one_of("include", ["committed", "all"]) == "all",
        Body(values.one_of("body", [str(body) for body in Body])),
        hidden,
        schema.new_salt() if hidden else b"",
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
            raise UsageError("no path: use load(PATH) or option 'store'")
        return paths

    def names(self, name: str) -> tuple[str, ...]:
        """Returns a comma-separated list."""
        return tuple(part.strip() for part in self._given.get(name, "").split(",") if part.strip())

    def trust(self) -> frozenset[Trust]:
        """Returns what is trusted."""
        known = [str(choice) for choice in Trust if choice is not Trust.BODIES]
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
