"""SQL92 expressions of consumers, over a message's properties, parsed and evaluated as by the broker.

Some peculiarities of the broker are reproduced: NOT binds more tightly than a comparison, text after a complete
expression is ignored, and invalid constants make the broker refuse the subscription. CONTAINS, STARTSWITH and
ENDSWITH are keywords since 5.0; up to 4.9 they are property names.

Logic is three-valued: most operations on a missing property are unknown, which is None here. Properties are strings.
When one is compared with a number it is parsed as a number of the same type (Integer, Long or Double); if that
fails, the expression fails. Source: SelectorParser, ComparisonExpression, LogicExpression, UnaryExpression,
ConstantExpression, BooleanExpression (filter module, 4.9.7, 5.5.0).
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from mqtool.errors import FormatError, UsageError
from mqtool.formats import java
from mqtool.formats.release import V5_5, Release

Value = str | int | float | bool | None
Properties = Mapping[str, str]

_DECIMAL = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)", re.ASCII)
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+[fFdD]?", re.ASCII)
_BLANKS = "".join(map(chr, range(33)))
_ORDER_TESTS: dict[str, Callable[[int], bool]] = {
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

_TOKEN = re.compile(
    r"(?P<float>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)|(?P<int>0|[1-9]\d*)[lL]?"
    r"|(?P<string>'(?:[^']|'')*')|(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)|(?P<sign><>|>=|<=|[=<>(),+-])",
    re.ASCII | re.DOTALL,
)
_SKIPPED = re.compile(r"(?:[ \t\n\r\f]+|--[^\n\r]*[\n\r]|/\*.*?\*/)*", re.DOTALL)
_WORDS = {"AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE"}
_TEXT_WORDS = {"CONTAINS", "STARTSWITH", "ENDSWITH"}
_EQUALITIES, _ORDERS = ("=", "<>"), (">", ">=", "<", "<=")
_DEEPEST = 100


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
    test = _ORDER_TESTS[sign]

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


class Expression:
    """A compiled expression."""

    def __init__(self, text: str, *, release: Release = V5_5) -> None:
        """Compiles an expression of a consumer's subscription by the grammar of a release.

        Raises UsageError where the broker would refuse the subscription; it states what was expected at which position.
        """
        self.text = text
        self._node = _Parser(text, release=release).parse()

    def matches(self, properties: dict[str, str]) -> bool:
        """Whether the expression is true; false and unknown results count as no match."""
        try:
            return self._node.value(properties) is True
        except NotComparableError:
            return False


class _Parser:
    """Recursive descent parser with one token of lookahead: only one token after the expression is read."""

    def __init__(self, text: str, *, release: Release) -> None:
        self._text = text
        self._words = _WORDS | _TEXT_WORDS if release >= (5, 0) else _WORDS
        self._end = 0
        self._depth = 0
        self._at, self._kind, self._token = 0, "", ""
        self._move()

    def _move(self) -> None:
        """Advances to the next token."""
        match = _SKIPPED.match(self._text, self._end)
        assert match is not None
        self._at = match.end()
        if self._at == len(self._text):
            self._kind, self._token = "end", ""
            return
        token = _TOKEN.match(self._text, self._at)
        if token is None or token.lastgroup is None:
            raise self._unexpected("an SQL92 expression")
        self._end = token.end()
        self._kind, self._token = token.lastgroup, token[token.lastgroup]
        if self._kind == "word":
            upper = self._token.upper()
            self._kind, self._token = ("key", upper) if upper in self._words else ("name", self._token)

    def _unexpected(self, expected: str) -> UsageError:
        return UsageError(f"expected {expected} at character {self._at + 1} of {self._text[:80]!r}")

    def _accept(self, *words: str) -> str:
        token = self._token
        if self._kind not in ("key", "sign") or token not in words:
            return ""
        self._move()
        return token

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._unexpected(word)

    def parse(self) -> Node:
        """Returns the expression at the beginning of the text."""
        return self._truth(self._or())

    def _truth(self, node: Node) -> Node:
        if node.is_boolean:
            return node
        if node.is_property:
            return cast(node)
        raise self._unexpected("a condition, not a value, before this token")

    def _or(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._unexpected(f"at most {_DEEPEST} levels")
        node = self._and()
        while self._accept("OR"):
            node = either(self._truth(node), self._truth(self._and()), decisive=True)
        self._depth -= 1
        return node

    def _and(self) -> Node:
        node = self._equality()
        while self._accept("AND"):
            node = either(self._truth(node), self._truth(self._equality()), decisive=False)
        return node

    def _equality(self) -> Node:
        node = self._comparison()
        while sign := self._accept(*_EQUALITIES, "IS"):
            if sign == "IS":
                inverted = bool(self._accept("NOT"))
                self._expect("NULL")
                node = equal(node, constant(None))
            else:
                inverted = sign == "<>"
                node = self._equal(node, self._comparison())
            node = negated(node) if inverted else node
        return node

    def _equal(self, left: Node, right: Node) -> Node:
        for node in (left, right):
            if node.is_constant and node.constant is None:
                raise self._unexpected("something that can be compared, not NULL, before this token")
        if left.is_constant and right.is_constant and left.is_boolean and not right.is_boolean:
            raise self._unexpected("TRUE or FALSE next to the other, before this token")
        return equal(left, right)

    def _comparison(self) -> Node:
        node = self._unary()
        while True:
            if sign := self._accept(*_ORDERS):
                node = self._ordered(node, self._unary(), sign)
            elif self._kind == "key" and self._token in {"NOT", "BETWEEN", "IN", *_TEXT_WORDS}:
                node = self._membership(node, inverted=bool(self._accept("NOT")))
            else:
                return node

    def _ordered(self, left: Node, right: Node, sign: str) -> Node:
        for node in (left, right):
            is_number = isinstance(node.constant, int | float) and not isinstance(node.constant, bool)
            if node.is_boolean or (node.is_constant and not is_number):
                raise self._unexpected("values that have an order before this token")
        return ordered(left, right, sign)

    def _membership(self, left: Node, *, inverted: bool) -> Node:
        word = self._accept("BETWEEN", "IN", *(self._words & _TEXT_WORDS))
        if word == "BETWEEN":
            return self._between(left, inverted=inverted)
        if word == "IN":
            if not left.is_property:
                raise self._unexpected("a property before IN, before this token")
            return member(left, self._strings(), inverted=inverted)
        if not word:
            raise self._unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
        return text_test(left, self._string(), word, inverted=inverted)

    def _between(self, node: Node, *, inverted: bool) -> Node:
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        if inverted:
            below, above = self._ordered(node, low, "<"), self._ordered(node, high, ">")
            return either(below, above, decisive=True)
        if low.is_constant and high.is_constant and not in_order(low.constant, high.constant):
            raise self._unexpected("a lower and a higher value before this token")
        return either(self._ordered(node, low, ">="), self._ordered(node, high, "<="), decisive=False)

    def _strings(self) -> frozenset[str]:
        self._expect("(")
        strings = {self._string()}
        while self._accept(","):
            strings.add(self._string())
        self._expect(")")
        return frozenset(strings)

    def _string(self) -> str:
        if self._kind != "string":
            raise self._unexpected("a string")
        text = self._token[1:-1].replace("''", "'")
        self._move()
        return text

    def _unary(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._unexpected(f"at most {_DEEPEST} levels")
        sign = self._accept("+", "-", "NOT")
        node = self._unary() if sign else self._primary()
        self._depth -= 1
        if sign == "NOT":
            return negated(self._truth(node))
        return minus(node) if sign == "-" else node

    def _primary(self) -> Node:
        if self._accept("("):
            node = self._or()
            self._expect(")")
            return node
        word = self._accept("TRUE", "FALSE", "NULL")
        if word:
            return constant({"TRUE": True, "FALSE": False, "NULL": None}[word])
        if self._kind == "string":
            return constant(self._string())
        kind, text = self._kind, self._token
        if kind == "name":
            self._move()
            return property_of(text)
        if kind not in ("int", "float"):
            raise self._unexpected("a property, a number or a string")
        number = self._number(kind, text)
        self._move()
        return constant(number)

    def _number(self, kind: str, text: str) -> int | float:
        if kind == "int":
            integer = int(text) if len(text) < 20 else java.LONG_MAX + 1
            if integer > java.LONG_MAX:
                raise self._unexpected("a number of 64 bits")
            return integer if integer <= java.INT_MAX else Long(integer)
        number = float(text)
        if not 0 < number < float("inf"):  # the broker takes the least positive number for the least of all
            raise self._unexpected("a positive number that a double can hold")
        return number
