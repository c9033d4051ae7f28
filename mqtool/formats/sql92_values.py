"""Evaluates the parts of an SQL92 expression for a message's properties.

Three-valued logic: most operations on a missing property are unknown, which is None here. Properties are strings.
When one is compared with a number it is parsed as a number of the same type (Integer, Long or Double); if that
fails, the expression fails. Source: ComparisonExpression, LogicExpression, UnaryExpression, BooleanExpression
(filter module, 4.9.7, 5.5.0).
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats import java

Value = str | int | float | bool | None
Properties = Mapping[str, str]

_DECIMAL = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)", re.ASCII)
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+[fFdD]?", re.ASCII)
_BLANKS = "".join(map(chr, range(33)))
_ORDERS: dict[str, Callable[[int], bool]] = {
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
}
_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda text, part: part in text,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


class NotComparableError(Exception):
    """Two values have types that cannot be converted to each other; the broker's evaluation throws."""


class Long(int):
    """An integer that is a Long in the broker; one that fits into 32 bits is an Integer."""


class Node(Struct, frozen=True):
    """A part of an expression."""

    value: Callable[[Properties], Any]  # evaluates it
    is_boolean: bool = False  # it is a condition
    is_property: bool = False  # it is a property name
    is_constant: bool = False  # it is a literal; `constant` is its value
    constant: Value = None


def constant(value: Value) -> Node:
    """Returns a literal: a number, a string, TRUE, FALSE or NULL."""
    return Node(lambda _: value, is_boolean=value is None or isinstance(value, bool), is_constant=True, constant=value)


def property_of(name: str) -> Node:
    """Returns the property with a name."""
    return Node(lambda properties: properties.get(name), is_property=True)


def cast(node: Node) -> Node:
    """Returns a property as a condition: false if the property exists, since no property is a Boolean."""

    def value(properties: Properties) -> bool | None:
        result = node.value(properties)
        return None if result is None else result is True

    return Node(value, is_boolean=True)


def minus(node: Node) -> Node:
    """Returns the negative of a number; unknown for anything else."""

    def value(properties: Properties) -> Value:
        number = node.value(properties)
        if isinstance(number, bool) or not isinstance(number, int | float):
            return None
        return Long(-number) if isinstance(number, Long) else -number

    return Node(value)


def negated(node: Node) -> Node:
    """Returns NOT of a condition."""

    def value(properties: Properties) -> bool | None:
        result = node.value(properties)
        return None if result is None else not result

    return Node(value, is_boolean=True)


def either(left: Node, right: Node, *, decisive: bool) -> Node:
    """Returns OR (`decisive` is True: one true operand decides) or AND (False: one false operand decides)."""

    def value(properties: Properties) -> bool | None:
        first = left.value(properties)
        if first is decisive:
            return decisive
        second = right.value(properties)
        if second is decisive:
            return decisive
        return None if first is None or second is None else not decisive

    return Node(value, is_boolean=True)


def equal(left: Node, right: Node) -> Node:
    """Compares two values for equality: unknown if only the left one is missing, true if both are."""

    def value(properties: Properties) -> bool | None:
        first, second = left.value(properties), right.value(properties)
        if first is None:
            return True if second is None else None
        return second is not None and _compare(first, second) == 0

    return Node(value, is_boolean=True)


def ordered(left: Node, right: Node, sign: str) -> Node:
    """Compares two values by `<`, `<=`, `>` or `>=`; two strings are compared as numbers."""
    test = _ORDERS[sign]

    def value(properties: Properties) -> bool | None:
        first, second = left.value(properties), right.value(properties)
        if first is None or second is None:
            return None
        if isinstance(first, str) and isinstance(second, str):
            first, second = _double(first), _double(second)
        order = _compare(first, second)
        return False if order is None else test(order)

    return Node(value, is_boolean=True)


def member(left: Node, values: frozenset[str], *, inverted: bool) -> Node:
    """Returns whether a property is one of some strings."""

    def value(properties: Properties) -> bool | None:
        result = left.value(properties)
        return (result in values) is not inverted if isinstance(result, str) else None

    return Node(value, is_boolean=True)


def text_test(left: Node, part: str, word: str, *, inverted: bool) -> Node:
    """Tests whether a string contains, starts with or ends with another; false for an empty one, even if inverted."""
    test = _TEXT_TESTS[word]

    def value(properties: Properties) -> bool:
        result = left.value(properties)
        return isinstance(result, str) and bool(part) and test(result, part) is not inverted

    return Node(value, is_boolean=True)


def in_order(low: Value, high: Value) -> bool:
    """Whether two constants are valid bounds of a range."""
    if low is None or high is None:
        return False
    try:
        order = _compare(low, high)
    except NotComparableError:
        return False
    return order is not None and order <= 0


def _compare(first: Any, second: Any) -> int | None:
    """Returns the sign of a comparison; None for types that are neither equal nor ordered."""
    if isinstance(first, str) and not isinstance(second, str):
        first = java.parse_boolean(first) if isinstance(second, bool) else _number_like(first, second)
    elif isinstance(second, str) and not isinstance(first, str):
        if isinstance(first, bool):
            raise NotComparableError
        second = _number_like(second, first)
    if isinstance(first, bool) != isinstance(second, bool):
        return None
    if isinstance(first, float) or isinstance(second, float):
        return _sign_of_doubles(float(first), float(second))
    return int(first > second) - int(first < second)


def _sign_of_doubles(first: float, second: float) -> int:
    """Compares as Double.compare does: NaN is largest and equal to itself, -0.0 is below 0.0."""
    if math.isnan(first) or math.isnan(second):
        return int(math.isnan(first)) - int(math.isnan(second))
    if first == second == 0:
        return int(math.copysign(1, first) - math.copysign(1, second)) // 2
    return int(first > second) - int(first < second)


def _number_like(text: str, other: Any) -> int | float:
    if isinstance(other, float):
        return _double(text)
    try:
        return java.parse_long(text) if isinstance(other, Long) else java.parse_int(text)
    except FormatError:
        raise NotComparableError from None


def _double(text: str) -> float:
    """Parses a Double as Double.valueOf does."""
    stripped = text.strip(_BLANKS)
    if _HEXADECIMAL.fullmatch(stripped):
        return float.fromhex(stripped.rstrip("fFdD"))  # the exponent is decimal: a letter after it is a suffix
    if not _DECIMAL.fullmatch(stripped):
        raise NotComparableError
    return float(stripped if stripped.endswith(("NaN", "Infinity")) else stripped.rstrip("fFdD"))
