"""Limits what Spark reads from a store: derives conditions and columns as options of one `load()`.

If a Python source accepts pushed filters, Spark 4.3 keeps them with the frame and applies them to later queries too.
An option belongs to one frame, so this cannot happen. `ask` derives both options from the optimized plan of a query,
so that nobody has to write them twice. Spark still evaluates the whole query on the rows, so an option only omits
rows that the query would have dropped. Why: docs/decisions/0012-spark-predicates.md.
"""

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from mqtool.choices import Trust
from mqtool.errors import UsageError
from mqtool.export.schema import check_columns
from mqtool.scan.conditions import MIRRORED, expression_of
from mqtool.scan.messages import schema_of

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


def where(
    reader: "Reader", condition: str, *, columns: Collection[str] = (), trust: Collection[Trust | str] = ()
) -> "Reader":
    """Returns a reader of messages that meet a condition, for `load` or a stream.

    Args:
        reader: `spark.read.format("rocketmq-store")`, or `spark.readStream` of that format.
        condition: in SQL syntax, e.g. `topic = 'orders' AND queue_id IN (0, 3)`; see docs/lake.md.
        columns: names; empty for all.
        trust: "queues", "index", "clock": what may be used to skip records; see docs/sql.md.

    Raises:
        UsageError: no condition, or an unknown column.
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
    that.

    Args:
        reader: `spark.read.format("rocketmq-store")` with any options except `where` and `columns`.
        paths: of stores.
        question: builds the result frame from the frame of messages; it must not run a query itself.

    Raises:
        UsageError: Spark Connect, which does not expose plans.
    """
    frame = reader.load(paths)
    plan = _Plan(question(frame))
    read = reader.options(**plan.options(frame.columns))
    return question(read.load(paths))


class _Plan:
    """What the optimized plan of a query shows about the messages that it reads."""

    def __init__(self, frame: "DataFrame") -> None:
        """Lets Spark optimize the query; nothing is run.

        Raises:
            UsageError: Spark Connect.
        """
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
