"""SQL92 expressions of consumers, over a message's properties.

Comparison, BETWEEN, IN, IS NULL, CONTAINS, STARTSWITH, ENDSWITH, AND, OR, NOT; numbers, strings in single
quotes, TRUE, FALSE. Three-valued: what needs a missing property is unknown, and unknown does not match.
Source: SqlParser, ComparisonExpression, LogicExpression, UnaryExpression (filter module, 4.9.7, 5.5.0).
"""

import re
from collections.abc import Callable
from typing import Any

from mqtool.errors import UsageError

Value = str | int | float | bool | None
Node = Callable[[dict[str, str]], Any]

_TOKEN = re.compile(
    r"\s*(?:(?P<string>'(?:[^']|'')*')|(?P<number>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+(?:[eE][+-]?\d+)?)[lL]?"
    r"|(?P<word>[A-Za-z_$][\w$]*)|(?P<sign><>|>=|<=|[=<>(),+-]))"
)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
}
_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda text, part: part in text,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_RESERVED = {"AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", *_TEXT_TESTS}
_DEEPEST = 100


class _NotComparableError(Exception):
    """Two values of kinds that do not convert into each other: the whole expression fails to match."""


class Expression:
    """A compiled expression.

    Attributes:
        text: as given.
    """

    def __init__(self, text: str) -> None:
        """Compiles an expression.

        Raises:
            UsageError: it is none; says what was expected where.
        """
        self.text = text
        self._evaluate = _Parser(text).whole()

    def matches(self, properties: dict[str, str]) -> bool:
        """Whether the expression is true; neither false nor unknown."""
        try:
            return self._evaluate(properties) is True
        except _NotComparableError:
            return False


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = 0
        self._depth = 0

    def _split(self, text: str) -> list[tuple[str, str, int]]:
        found, at = [], 0
        end = len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise self._unexpected(at)
            found.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            at = match.end()
        return [*found, ("end", "", end)]

    def _unexpected(self, at: int, wanted: str = "an SQL92 expression") -> UsageError:
        return UsageError(f"expected {wanted} at character {at + 1} of {self._text[:80]!r}")

    def whole(self) -> Node:
        """Returns the whole expression."""
        node = self._or()
        if self._tokens[self._at][0] != "end":
            raise self._unexpected(self._tokens[self._at][2], "the end")
        return node

    def _accept(self, *words: str) -> str:
        kind, text, _ = self._tokens[self._at]
        word = text.upper() if kind == "word" else text if kind == "sign" else ""
        if word in words and word:
            self._at += 1
            return word
        return ""

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._unexpected(self._tokens[self._at][2], word)

    def _or(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._unexpected(self._tokens[self._at][2], f"at most {_DEEPEST} levels of parentheses")
        node = self._and()
        while self._accept("OR"):
            node = _either(node, self._and(), decisive=True)
        self._depth -= 1
        return node

    def _and(self) -> Node:
        node = self._test()
        while self._accept("AND"):
            node = _either(node, self._test(), decisive=False)
        return node

    def _test(self) -> Node:
        if self._accept("NOT"):
            return _negated(self._test())
        left = self._operand()
        sign = self._accept("=", "<>", ">", ">=", "<", "<=")
        if sign:
            right = self._operand()
            equal = _compared(left, right, "=" if sign == "<>" else sign)
            return _negated(equal) if sign == "<>" else equal
        if self._accept("IS"):
            wanted = not self._accept("NOT")
            self._expect("NULL")
            return lambda properties: (left(properties) is None) is wanted
        inverted = bool(self._accept("NOT"))
        node = self._membership(left)
        if node is None:
            if inverted:
                raise self._unexpected(self._tokens[self._at][2], "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
            return left
        return _negated(node) if inverted else node

    def _membership(self, left: Node) -> Node | None:
        if self._accept("BETWEEN"):
            lowest = self._operand()
            self._expect("AND")
            highest = self._operand()
            return _either(_compared(left, lowest, ">="), _compared(left, highest, "<="), decisive=False)
        if self._accept("IN"):
            return _member(left, self._strings())
        word = self._accept(*_TEXT_TESTS)
        if word:
            return _text_test(left, self._string(), _TEXT_TESTS[word])
        return None

    def _strings(self) -> frozenset[str]:
        self._expect("(")
        found = {self._string()}
        while self._accept(","):
            found.add(self._string())
        self._expect(")")
        return frozenset(found)

    def _string(self) -> str:
        kind, text, at = self._tokens[self._at]
        if kind != "string":
            raise self._unexpected(at, "a string")
        self._at += 1
        return text[1:-1].replace("''", "'")

    def _operand(self) -> Node:
        if self._accept("("):
            node = self._or()
            self._expect(")")
            return node
        sign = self._accept("+", "-")
        kind, text, at = self._tokens[self._at]
        if kind == "number":
            self._at += 1
            number = float(text) if re.search(r"[.eE]", text) else int(text)
            return _constant(-number if sign == "-" else number)
        if sign:
            raise self._unexpected(at, "a number")
        if kind == "string":
            return _constant(self._string())
        word = self._accept("TRUE", "FALSE", "NULL")
        if word:
            return _constant({"TRUE": True, "FALSE": False, "NULL": None}[word])
        if kind != "word" or text.upper() in _RESERVED:
            raise self._unexpected(at, "a property, a number or a string")
        self._at += 1
        return lambda properties: properties.get(text)


def _constant(value: Value) -> Node:
    return lambda _properties: value


def _negated(node: Node) -> Node:
    def evaluate(properties: dict[str, str]) -> bool | None:
        value = _truth(node(properties))
        return None if value is None else not value

    return evaluate


def _either(left: Node, right: Node, *, decisive: bool) -> Node:
    """Returns OR (one True decides) or AND (one False decides)."""

    def evaluate(properties: dict[str, str]) -> bool | None:
        first = _truth(left(properties))
        if first is decisive:
            return decisive
        second = _truth(right(properties))
        if second is decisive:
            return decisive
        return None if first is None or second is None else not decisive

    return evaluate


def _compared(left: Node, right: Node, sign: str) -> Node:
    test = _COMPARISONS[sign]

    def evaluate(properties: dict[str, str]) -> bool | None:
        first, second = left(properties), right(properties)
        if first is None or second is None:
            return None
        return test(*_alike(first, second))

    return evaluate


def _member(left: Node, wanted: frozenset[str]) -> Node:
    def evaluate(properties: dict[str, str]) -> bool | None:
        value = left(properties)
        return value in wanted if isinstance(value, str) else None

    return evaluate


def _text_test(left: Node, part: str, test: Callable[[str, str], bool]) -> Node:
    def evaluate(properties: dict[str, str]) -> bool:
        value = left(properties)
        return isinstance(value, str) and test(value, part)

    return evaluate


def _truth(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise _NotComparableError


def _alike(first: Any, second: Any) -> tuple[Any, Any]:
    """Converts a string to the kind of the other value, as a property is always a string."""
    if isinstance(first, str) and not isinstance(second, str):
        return _converted(first, second), second
    if isinstance(second, str) and not isinstance(first, str):
        return first, _converted(second, first)
    if isinstance(first, bool) != isinstance(second, bool):
        raise _NotComparableError
    return first, second


def _converted(text: str, other: Any) -> Any:
    if isinstance(other, bool):
        return text.lower() == "true"
    try:
        return int(text) if isinstance(other, int) else float(text)
    except ValueError:
        raise _NotComparableError from None
