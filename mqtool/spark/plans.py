"""Conditions and columns of a query, found in the plan that Spark made of it, as options of the data source.

If a Python source accepts pushed filters, Spark 4.3 keeps them with the frame and applies them to later queries too.
An option belongs to one frame, so this cannot happen. Spark still evaluates the whole query on the rows, so an option
only omits rows that the query would have dropped. Why: docs/decisions/0012-spark-predicates.md.
"""

import re
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from pyarrow.types import is_nested

from mqtool.choices import Trust
from mqtool.errors import UsageError
from mqtool.export.schema import check_columns
from mqtool.scan.conditions import MIRRORED, parsed
from mqtool.scan.messages import schema_of
from mqtool.spark.kafka import source_of_column
from mqtool.spark.options import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

    Reader = TypeVar("Reader", DataFrameReader, DataStreamReader)
else:
    Reader = TypeVar("Reader")

_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_PATTERNS = {"StartsWith": ("", "%"), "EndsWith": ("%", ""), "Contains": ("%", "%")}
"""By expression that Spark makes of a LIKE, what is before and after its text in the pattern."""
_MAX_VALUES = 1000


def where(
    reader: "Reader", condition: str, *, columns: Collection[str] = (), trust: Collection[Trust | str] = ()
) -> "Reader":
    """Returns a reader of messages that meet a condition, for `load` or a stream.

    The reader is `spark.read.format("rocketmq-store")`, or `spark.readStream` of that format. The condition is in SQL
    syntax, e.g. `topic = 'orders' AND queue_id IN (0, 3)`; see docs/spark.md. Without names of columns, it reads all.
    `trust` ("queues", "index", "clock") is what may be used to skip records; see docs/sql.md. Raises UsageError if
    there is no condition, and for an unknown column.
    """
    parsed(condition, schema_of())
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


def explain(frame: "DataFrame") -> str:
    """Returns the options of each read of messages in the plan of a frame, a line each; Spark's `explain` omits them.

    Raises UsageError for Spark Connect, which does not expose plans.
    """
    options = [dict(node.relation().options()) for node in _Plan(frame).reads]
    return "\n".join(
        " ".join([FORMAT, *(f"{name}={value!r}" for name, value in sorted(each.items()))]) for each in options
    )


class _Plan:
    """What the optimized plan of a query shows about the messages that it reads."""

    def __init__(self, frame: "DataFrame") -> None:
        """Lets Spark optimize the query; nothing is run. Raises UsageError for Spark Connect."""
        frame_in_java = getattr(frame, "_jdf", None)
        if frame_in_java is None:
            raise UsageError("Spark Connect does not expose plans; give the condition with where(reader, condition)")
        self._root = frame_in_java.queryExecution().optimizedPlan()

    @property
    def reads(self) -> list[Any]:
        """The nodes that read messages."""
        return [node for node in _nodes(self._root) if _reads_messages(node)]

    def options(self, known: list[str]) -> dict[str, str]:
        """Returns the options `columns` and `where` for what the query reads, if they restrict anything."""
        nodes = list(_nodes(self._root))
        reads = self.reads
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
        return _joined(_operand(left), sign, _constant(right))
    if kind in _PATTERNS or kind == "Like":
        value, pattern = _items(condition.children())
        return _joined(_operand(value), "LIKE", _pattern(condition, kind, pattern))
    if kind == "ArrayContains":
        array, value = _items(condition.children())
        key = _constant(value)
        return f"array_contains(keys, {key})" if _is_column(array, "keys") and key is not None else None
    if kind == "In":
        value, *listed = _items(condition.children())
        return _listed(value, [_constant(item) for item in listed])
    if kind == "InSet" and condition.hset().size() <= _MAX_VALUES:
        value, values = condition.child(), condition.hset().iterator()
        written = []
        while values.hasNext():
            written.append(_written(str(value.dataType().typeName()), values.next()))
        return _listed(value, written)
    return None


def _joined(operand: str | None, sign: str, value: str | None) -> str | None:
    return None if operand is None or value is None else f"{operand} {sign} {value}"


def _pattern(condition: Any, kind: str, pattern: Any) -> str | None:
    """Returns the pattern of a LIKE, or of what Spark makes of one without `_`; None for another escape character."""
    text = _constant(pattern)
    if text is None or kind == "Like":
        return text if kind == "Like" and str(condition.escapeChar()) == "\\" else None
    before, after = _PATTERNS[kind]
    escaped = re.sub(r"([%_\\])", r"\\\1", text[1:-1])
    return f"'{before}{escaped}{after}'"


def _listed(value: Any, values: list[str | None]) -> str | None:
    operand = _operand(value)
    if operand is None or not values or None in values or len(values) > _MAX_VALUES:
        return None
    return f"{operand} IN ({', '.join(map(str, values))})"


def _is_column(expression: Any, name: str) -> bool:
    return _kind(expression) == "AttributeReference" and str(expression.name()) == name


def _operand(expression: Any) -> str | None:
    """Returns a column that conditions may have, or a property, in their syntax; None for anything else."""
    kind = _kind(expression)
    if kind == "AttributeReference":
        name = source_of_column(str(expression.name()))
        known = schema_of()
        return name if name in known.names and not is_nested(known.field(name).type) and name != "body" else None
    if kind in ("GetMapValue", "ElementAt"):
        values, name = _items(expression.children())
        key = _constant(name)
        return f"properties[{key}]" if _is_column(values, "properties") and key is not None else None
    return None


def _constant(expression: Any) -> str | None:
    """Returns a Spark literal in the syntax of conditions; None for null and for unsupported types."""
    if _kind(expression) != "Literal":
        return None
    return _written(str(expression.dataType().typeName()), expression.value())


def _written(kind: str, value: Any) -> str | None:
    """Returns a value of a type of Spark in the syntax of conditions; None for null and for unsupported types."""
    if value is None:
        return None
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
