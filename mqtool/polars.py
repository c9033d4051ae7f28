"""Stores as lazy frames of Polars; column selection, conditions and row limits are pushed down into the scan.

Guide: docs/sql.md.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mqtool.choices import Trust
from mqtool.commands import with_extra
from mqtool.errors import UnavailableError
from mqtool.export.schema import BATCH_ROWS
from mqtool.export.sources import resolve
from mqtool.scan.bounds import IMPOSSIBLE, NO_FACTS, Facts, Moment, bounds_of
from mqtool.scan.dataset import Stores
from mqtool.scan.messages import Options, Where, schema_of

if TYPE_CHECKING:
    import polars as pl

_OPERATORS = {"Eq": "==", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_MIRRORED = {"Eq": "Eq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
_MICROS = {"Microseconds": 1, "Milliseconds": 1000}


def scan_store(
    *stores: str | Path,
    config: str | Path | None = None,
    trust: Collection[Trust | str] = (),
    every_class: bool = False,
    keyed: bool = False,
) -> "pl.LazyFrame":
    """Returns the messages of stores as a lazy frame; the stores are opened when it is collected.

    Args:
        stores: roots, `NAME=ROOT`, or globs.
        config: a broker.conf of the stores.
        trust: what need not be proved: "queues", "index", "clock", "bodies".
        every_class: include half, rolled-back and system records.
        keyed: return one row for each key of each message, with the key in column `key`.

    Raises:
        UnavailableError: polars is not installed.
        UsageError: no store was given, or one was given twice.
    """
    try:
        import polars as pl  # noqa: PLC0415 - an extra
        from polars.io.plugins import register_io_source  # noqa: PLC0415
    except ImportError as error:
        raise UnavailableError(f"lazy frames need polars: {with_extra('polars')}") from error
    sources = tuple(resolve(stores, config))
    full_schema = schema_of(keyed=keyed)
    schema = pl.DataFrame(pl.from_arrow(full_schema.empty_table())).schema

    def batches(
        with_columns: list[str] | None, predicate: "pl.Expr | None", n_rows: int | None, batch_size: int | None
    ) -> Iterator["pl.DataFrame"]:
        names = (
            full_schema.names if with_columns is None else [name for name in full_schema.names if name in with_columns]
        )
        options = Options(every_class, keyed, frozenset(map(Trust, trust)), None, n_rows, batch_size or BATCH_ROWS)
        late = predicate if n_rows is not None else None  # the limit counts rows before the condition
        needed = {*names, *(late.meta.root_names() if late is not None else ())}
        read = [name for name in full_schema.names if name in needed]
        for batch in Stores(sources).messages(read, _where(None if n_rows is not None else predicate), options):
            frame = pl.DataFrame(pl.from_arrow(batch)).cast({name: schema[name] for name in read})
            yield frame if late is None else frame.filter(late).select(names)

    return register_io_source(batches, schema=schema)


def _where(predicate: "pl.Expr | None") -> Where:
    """Returns the scan condition of a Polars predicate: its bounds, and a test that Polars evaluates."""
    if predicate is None:
        return Where()
    import polars as pl  # noqa: PLC0415 - an extra

    def test(batch: Any) -> Any:
        keep = pl.DataFrame(pl.from_arrow(batch)).select(predicate.alias("keep"))["keep"].fill_null(value=False)
        return batch.filter(pa.array(keep.to_list(), pa.bool_()))

    return Where(facts_of(predicate), frozenset(predicate.meta.root_names()), test)


def facts_of(predicate: "pl.Expr") -> Facts:
    """Returns the bounds that a Polars predicate implies; none if its form is not recognised."""
    import warnings  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the form may change with a release: then there are no bounds
            tree = json.loads(predicate.meta.serialize(format="json"))
        return _facts(tree)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, IndexError):
        return NO_FACTS


def _facts(node: Mapping[str, Any]) -> Facts:
    if "BinaryExpr" in node:
        parts = node["BinaryExpr"]
        left, operator, right = parts["left"], parts["op"], parts["right"]
        if operator in ("And", "LogicalAnd"):
            return _facts(left) & _facts(right)
        if operator in ("Or", "LogicalOr"):
            return _facts(left) | _facts(right)
        if "Column" in right and operator in _MIRRORED:
            left, operator, right = right, _MIRRORED[operator], left
        return _comparison(left, operator, right)
    if "Function" in node:
        return _call(node["Function"])
    return NO_FACTS


def _comparison(left: Mapping[str, Any], operator: str, right: Mapping[str, Any]) -> Facts:
    if operator not in _OPERATORS or "Column" not in left or "Literal" not in right:
        return NO_FACTS
    return bounds_of(left["Column"], _OPERATORS[operator], _value(right["Literal"]))


def _call(call: Mapping[str, Any]) -> Facts:
    function, arguments = call["function"].get("Boolean"), call["input"]
    if not isinstance(function, dict):
        return NO_FACTS
    if "IsBetween" in function and function["IsBetween"]["closed"] in ("Both", "Left", "Right", "None"):
        value, low, high = arguments
        return _comparison(value, "GtEq", low) & _comparison(value, "LtEq", high)
    if "IsIn" in function and not function["IsIn"]["nulls_equal"]:
        return _listed(arguments[0]["Column"], arguments[1]["Literal"]["Scalar"]["List"])
    return NO_FACTS


def _listed(column: str, stream: list[int]) -> Facts:
    """Returns the bounds of an IN condition, whose list Polars serialises as an Arrow stream with one column."""
    table = pa.ipc.open_stream(bytes(stream)).read_all()
    if table.num_columns != 1:
        return NO_FACTS
    values = table.column(0).to_pylist()
    if any(not isinstance(value, str | int) for value in values):
        return NO_FACTS
    return reduce(Facts.__or__, (bounds_of(column, "==", value) for value in values), IMPOSSIBLE)


def _value(literal: Mapping[str, Any]) -> Any:
    kind, value = next(iter(literal["Scalar"].items() if "Scalar" in literal else literal["Dyn"].items()))
    if kind == "Datetime":
        count, unit, _ = value
        return Moment(count * _MICROS[unit]) if unit in _MICROS else None
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None
