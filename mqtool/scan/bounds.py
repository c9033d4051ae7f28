"""What a condition implies about single columns: a set or range that contains the value of every matching row.

Bounds are necessary, not sufficient: they decide what need not be read, and the condition itself is evaluated on the
rest. A condition that is not understood has no bounds, so no matching row is lost. Conditions of Arrow are read in
Substrait, the only form in which Arrow exports an expression. Source of the layout: substrait.io,
extended_expression.proto, algebra.proto, type.proto.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

_MAX_ALTERNATIVES = 16

TEXT = frozenset({"broker", "topic", "unique_key", "key", "tags", "record_class"})

NUMBERS = frozenset({"queue_id", "queue_offset", "physical_offset"})

TIME = "store_timestamp"

_OPERATORS = {"equal": "==", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}

_MIRRORED = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_VARINT, _BYTES = 0, 2

_FIXED_SIZES = {1: 8, 5: 4}
"""Wire types of numbers with a fixed size, and the size in bytes."""

_MICROS_A_MILLI = 1000


class Bounds(Struct, frozen=True):
    """Possible values of one column."""

    low: Any = None  # and high: minimum and maximum, both inclusive; None for no limit
    high: Any = None
    values: frozenset[Any] | None = None  # the only possible values; None if any value between low and high is possible

    @classmethod
    def of(cls, values: Iterable[Any]) -> "Bounds":
        """Returns the bounds of a few values."""
        few = frozenset(values)
        return cls(min(few, default=None), max(few, default=None), few)

    @property
    def is_empty(self) -> bool:
        """Whether no value is possible."""
        if self.values is not None:
            return not self.values
        return self.low is not None and self.high is not None and self.low > self.high

    def admits(self, value: Any) -> bool:
        """Whether a value is possible."""
        if self.values is not None:
            return value in self.values
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def overlaps(self, low: Any, high: Any) -> bool:
        """Whether a value from low to high, both inclusive, is possible."""
        if self.values is not None:
            return any(low <= value <= high for value in self.values)
        return (self.low is None or high >= self.low) and (self.high is None or low <= self.high)

    def mask(self, values: np.ndarray) -> np.ndarray:
        """Returns which of some integers are possible."""
        if self.values is not None:
            return np.isin(values, list(self.values))
        mask = np.ones(len(values), bool)
        if self.low is not None:
            mask &= values >= self.low
        if self.high is not None:
            mask &= values <= self.high
        return mask

    def __and__(self, other: "Bounds") -> "Bounds":
        if self.values is not None:
            return Bounds.of(value for value in self.values if other.admits(value))
        if other.values is not None:
            return other & self
        lows = [bound for bound in (self.low, other.low) if bound is not None]
        highs = [bound for bound in (self.high, other.high) if bound is not None]
        return Bounds(max(lows, default=None), min(highs, default=None))

    def __or__(self, other: "Bounds") -> "Bounds":
        if self.values is not None and other.values is not None:
            return Bounds.of(self.values | other.values)
        low = None if self.low is None or other.low is None else min(self.low, other.low)
        high = None if self.high is None or other.high is None else max(self.high, other.high)
        return Bounds(low, high)


NO_BOUNDS = Bounds()


class Facts(Struct, frozen=True):
    """Bounds by column, for one condition."""

    columns: Mapping[str, Bounds]  # bounds of the columns that are bounded; `store_timestamp` in ms since epoch
    # Alternatives of which every matching row satisfies at least one, if that is more specific than `columns`; else
    # empty.
    either: tuple["Facts", ...] = ()

    def __getitem__(self, column: str) -> Bounds:
        return self.columns.get(column, NO_BOUNDS)

    @property
    def is_impossible(self) -> bool:
        """Whether no row can match."""
        return any(bounds.is_empty for bounds in self.columns.values())

    def __and__(self, other: "Facts") -> "Facts":
        columns = {name: self[name] & other[name] for name in {*self.columns, *other.columns}}
        if not self.either and not other.either:
            return Facts(columns)
        both = [facts & another for facts in self._alternatives for another in other._alternatives]
        return Facts(columns, _few(facts for facts in both if not facts.is_impossible))

    def __or__(self, other: "Facts") -> "Facts":
        if self.is_impossible or other.is_impossible:
            return other if self.is_impossible else self
        columns = {name: self[name] | other[name] for name in self.columns.keys() & other.columns.keys()}
        if not self.either and not other.either and len({*self.columns, *other.columns}) == 1:
            return Facts(columns)
        return Facts(columns, _few((*self._alternatives, *other._alternatives)))

    @property
    def _alternatives(self) -> tuple["Facts", ...]:
        return self.either or (self,)


def _few(alternatives: Iterable[Facts]) -> tuple[Facts, ...]:
    """Returns alternatives if they are few enough to examine each, else none."""
    facts = tuple(alternatives)
    return facts if len(facts) <= _MAX_ALTERNATIVES else ()


NO_FACTS = Facts({})
IMPOSSIBLE = Facts({"topic": Bounds.of(())})


def compared(column: str, operator: str, low: Any, high: Any) -> Facts:
    """Returns the bounds that a comparison of a column with a constant implies: "==", "<", "<=", ">" or ">=".

    `low` and `high` are the values next below and above the constant; both the constant itself if the column can
    contain it.
    """
    match operator:
        case "==":
            return Facts({column: Bounds.of([low]) if low == high else Bounds(low, high)})
        case "<" | "<=":
            return Facts({column: Bounds(high=high)})
    return Facts({column: Bounds(low=low)})


class Condition(Struct, frozen=True):
    """What a condition reads and implies."""

    facts: Facts = NO_FACTS  # bounds of its columns
    columns: frozenset[str] | None = None  # that it reads; None if unknown


def condition_of(expression: Any, schema: Any) -> Condition:
    """Returns what a `pyarrow.compute.Expression` over a schema implies; nothing if it is not understood."""
    try:
        data = bytes(expression.to_substrait(schema))
        return _Reader(data).condition()
    except (pa.ArrowException, _UnknownError, IndexError, KeyError, UnicodeDecodeError):
        return Condition()


class _UnknownError(Exception):
    """The expression contains an element that this parser does not support."""


class Moment(Struct, frozen=True):
    """A timestamp literal, in microseconds."""

    micros: int


class _Null:
    """The literal null."""


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yields number and value of each field of a message in the protobuf wire format."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
        elif kind == _BYTES:
            size, at = _varint(data, at)
            yield tag >> 3, data[at : at + size]
            at += size
        else:
            size = _FIXED_SIZES[kind]
            yield tag >> 3, data[at : at + size]
            at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


class _Reader(Struct):
    data: bytes
    functions: dict[int, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def condition(self) -> Condition:
        expressions = []
        for number, value in _fields(self.data):
            if number == 2:
                self._function(value)
            elif number == 3:
                expressions += [inner for at, inner in _fields(value) if at == 1]
            elif number == 4:
                self.names = [inner.decode() for at, inner in _fields(value) if at == 1]
        if len(expressions) != 1:
            raise _UnknownError
        self._collect(expressions[0])
        return Condition(self._facts(expressions[0]), frozenset(self.used))

    def _function(self, declaration: bytes) -> None:
        for number, value in _fields(declaration):
            if number == 3:
                parts = dict(_fields(value))
                self.functions[parts.get(2, 0)] = parts[3].decode().partition(":")[0]

    def _collect(self, expression: bytes) -> None:
        """Records the columns that an expression reads."""
        for number, value in _fields(expression):
            if number == 1:
                continue
            if number == 2:
                self.used.add(self._column(expression))
            elif number == 3:
                for argument in (inner for at, inner in _fields(value) if at == 4):
                    for inner in (inner for at, inner in _fields(argument) if at == 3):
                        self._collect(inner)
            elif number == 6:
                for clause in self._clauses(value):
                    self._collect(clause)
            elif number == 8:
                for _, inner in _fields(value):
                    self._collect(inner)
            elif number == 11:
                self._collect(dict(_fields(value))[2])
            else:
                raise _UnknownError

    def _clauses(self, if_then: bytes) -> Iterator[bytes]:
        for number, value in _fields(if_then):
            if number == 1:
                yield from (inner for _, inner in _fields(value))
            else:
                yield value

    def _column(self, expression: bytes) -> str:
        """Returns the column if an expression is a column reference, with or without a cast."""
        parts = dict(_fields(expression))
        if 11 in parts:
            return self._column(dict(_fields(parts[11]))[2])
        direct = dict(_fields(dict(_fields(parts[2]))[1]))
        segment = dict(_fields(direct[2]))
        if 2 in segment:  # a field of a field
            raise _UnknownError
        return self.names[segment.get(1, 0)]

    def _facts(self, expression: bytes) -> Facts:
        parts = dict(_fields(expression))
        if 1 in parts:
            return NO_FACTS if _literal(parts[1]) is True else IMPOSSIBLE
        if 3 in parts:
            return self._call(parts[3])
        if 6 in parts:
            return self._choice(parts[6])
        if 8 in parts:
            return self._listed(parts[8])
        return NO_FACTS

    def _call(self, call: bytes) -> Facts:
        fields = list(_fields(call))
        name = self.functions[dict(fields).get(1, 0)]
        arguments = [dict(_fields(value))[3] for number, value in fields if number == 4]
        combine: dict[str, Callable[[Facts, Facts], Facts]] = {"and": Facts.__and__, "or": Facts.__or__}
        if name in combine:
            return reduce(combine[name], map(self._facts, arguments))
        if name in _OPERATORS and len(arguments) == 2:
            return self._comparison(_OPERATORS[name], *arguments)
        return NO_FACTS

    def _choice(self, if_then: bytes) -> Facts:
        """Returns the bounds of `if a then b else c`, which is true if a and b are, or if c is."""
        facts = IMPOSSIBLE
        for number, value in _fields(if_then):
            if number == 1:
                clause = dict(_fields(value))
                facts |= self._facts(clause[1]) & self._facts(clause[2])
            else:
                facts |= self._facts(value)
        return facts

    def _listed(self, in_list: bytes) -> Facts:
        fields = list(_fields(in_list))
        value = dict(fields)[1]
        options = [option for number, option in fields if number == 2]
        if any(isinstance(_literal(dict(_fields(option))[1]), _Null) for option in options):
            return NO_FACTS  # Arrow lets a null in the list match a null in the column
        return reduce(Facts.__or__, (self._comparison("==", value, option) for option in options), IMPOSSIBLE)

    def _comparison(self, operator: str, left: bytes, right: bytes) -> Facts:
        if _constant(left) is not None:
            left, right, operator = right, left, _MIRRORED[operator]
        literal = _constant(right)
        if literal is None or 1 in dict(_fields(left)):
            return NO_FACTS
        try:
            column = self._column(left)
        except KeyError:
            return NO_FACTS
        if not _keeps_value(left) or not _keeps_value(right):
            return NO_FACTS
        return bounds_of(column, operator, _literal(literal))


def _keeps_value(expression: bytes) -> bool:
    """Whether casts around a column or literal can represent every value: 64-bit integers, or microseconds."""
    parts = dict(_fields(expression))
    if 11 not in parts:
        return True
    cast = dict(_fields(parts[11]))
    kind = dict(_fields(cast[1]))
    return (7 in kind or 29 in kind) and _keeps_value(cast[2])


def bounds_of(column: str, operator: str, value: Any) -> Facts:
    """Returns the bounds that the comparison of a column with a literal implies, if both have the same kind of type."""
    if isinstance(value, _Null):
        return IMPOSSIBLE
    if column in TEXT and isinstance(value, str):
        return compared(column, operator, value, value)
    if column in NUMBERS and isinstance(value, int) and not isinstance(value, bool):
        return _of_number(column, operator, value)
    if column == TIME and isinstance(value, Moment):
        low, rest = divmod(value.micros, _MICROS_A_MILLI)
        return compared(column, operator, low, low + bool(rest))
    return NO_FACTS


def _of_number(column: str, operator: str, value: int) -> Facts:
    if operator in ("<", ">"):
        value += 1 if operator == ">" else -1
    return compared(column, operator, value, value)


def _constant(expression: bytes) -> bytes | None:
    """Returns the literal if an expression is one, possibly cast to another precision of the same kind."""
    parts = dict(_fields(expression))
    if 11 in parts:
        return _constant(dict(_fields(parts[11]))[2])
    return parts.get(1)


def _literal(literal: bytes) -> Any:
    """Returns the value of a literal; None for a kind from which no bounds can be derived."""
    for number, value in _fields(literal):
        match number:
            case 1:
                return bool(value)
            case 2 | 3 | 5 | 7:
                return _signed(value)
            case 12:
                return value.decode()
            case 27:
                return Moment(_signed(value))
            case 29:
                return _Null()
    return None
