"""SQL92 filter expressions over message properties, with the broker's three-valued logic and conversions.

Only what decides the bits of a ConsumeQueueExt. Properties are strings; beside a number they are read as one, and one
that cannot be makes the whole expression fail, which counts as no match. Source: the filter module's SelectorParser,
ComparisonExpression, LogicExpression, UnaryExpression (4.9.7, 5.5.0).
"""

import operator
import re
from collections.abc import Callable, Mapping

from mqtool.errors import FormatError
from mqtool.formats import java

Value = str | int | float | bool | None
Properties = Mapping[str, str]
Evaluator = Callable[[Properties], Value]

_TOKEN = re.compile(
    r"\s+|--[^\n\r]*|/\*.*?\*/|(?P<float>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)"
    r"|(?P<int>0|[1-9]\d*)[lL]?|(?P<text>'(?:[^']|'')*')|(?P<name>[A-Za-z_$][\w$]*)|(?P<sign><>|>=|<=|[=<>(),+-])",
    re.DOTALL | re.ASCII,
)
_WORDS = {"NOT", "AND", "OR", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE"}
_UNSUPPORTED = {"CONTAINS", "STARTSWITH", "ENDSWITH", "LIKE", "NOW"}
_ORDER: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class _ComparisonError(Exception):
    """Two values cannot be compared; the broker's evaluation throws."""


def compile_filter(expression: str) -> Callable[[Properties], bool]:
    """Returns a function that says whether a message's properties match.

    Raises:
        FormatError: not an expression, or one with an operator that is not handled.
    """
    try:
        evaluate = _Parser(_tokens(expression)).whole()
    except RecursionError as error:
        raise FormatError("nested too deeply", layout="filter") from error

    def matches(properties: Properties) -> bool:
        try:
            return evaluate(properties) is True
        except _ComparisonError:
            return False

    return matches


def _tokens(expression: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None:
            raise FormatError(f"unexpected {expression[at : at + 10]!r}", layout="filter", position=at)
        at = match.end()
        kind, text = match.lastgroup, match.group(match.lastgroup) if match.lastgroup else ""
        if kind == "name" and text.upper() in _UNSUPPORTED:
            raise FormatError(f"{text} is not handled", layout="filter", position=match.start())
        if kind == "name" and text.upper() in _WORDS:
            kind, text = "word", text.upper()
        if kind:
            found.append((kind, text))
    return found


class _Parser:
    """Recursive descent; each method returns an evaluator."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0

    def whole(self) -> Evaluator:
        """An expression and nothing behind it."""
        found = self._or()
        if self._at < len(self._tokens):
            raise FormatError(f"unexpected {self._tokens[self._at][1]!r}", layout="filter")
        return found

    def _take(self, *texts: str) -> str | None:
        """Takes the next token if it is one of these words or signs."""
        if self._at < len(self._tokens):
            kind, text = self._tokens[self._at]
            if kind in ("word", "sign") and text in texts:
                self._at += 1
                return text
        return None

    def _need(self, text: str) -> None:
        if self._take(text) is None:
            raise FormatError(f"expected {text}", layout="filter")

    def _or(self) -> Evaluator:
        left = self._and()
        while self._take("OR"):
            left = _either(left, self._and())
        return left

    def _and(self) -> Evaluator:
        left = self._equality()
        while self._take("AND"):
            left = _both(left, self._equality())
        return left

    def _equality(self) -> Evaluator:
        left = self._comparison()
        while sign := self._take("=", "<>", "IS"):
            if sign == "IS":
                negated = self._take("NOT") is not None
                self._need("NULL")
                equal = _is_null(left)
            else:
                negated = sign == "<>"
                equal = _equal(left, self._comparison())
            left = _not(equal) if negated else equal
        return left

    def _comparison(self) -> Evaluator:
        left = self._unary()
        while True:
            if sign := self._take(*_ORDER):
                left = _ordered(left, self._unary(), sign)
            elif self._take("BETWEEN"):
                left = self._between(left)
            elif self._take("IN"):
                left = _in(left, self._list())
            elif self._following("NOT", "BETWEEN"):
                left = _not(self._between(left))
            elif self._following("NOT", "IN"):
                left = _not(_in(left, self._list()))
            else:
                return left

    def _following(self, *words: str) -> bool:
        ahead = [text for _, text in self._tokens[self._at : self._at + len(words)]]
        if ahead == list(words):
            self._at += len(words)
            return True
        return False

    def _between(self, value: Evaluator) -> Evaluator:
        low = self._unary()
        self._need("AND")
        return _both(_ordered(value, low, ">="), _ordered(value, self._unary(), "<="))

    def _list(self) -> tuple[str, ...]:
        self._need("(")
        found = []
        while True:
            kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
            if kind != "text":
                raise FormatError("expected a string in IN (…)", layout="filter")
            self._at += 1
            found.append(_unquoted(text))
            if not self._take(","):
                self._need(")")
                return tuple(found)

    def _unary(self) -> Evaluator:
        if self._take("+"):
            return self._unary()
        if self._take("-"):
            return _negated(self._unary())
        if self._take("NOT"):
            return _not(self._unary())
        return self._primary()

    def _primary(self) -> Evaluator:
        if self._take("("):
            inner = self._or()
            self._need(")")
            return inner
        if word := self._take("TRUE", "FALSE", "NULL"):
            constant: Value = {"TRUE": True, "FALSE": False}.get(word)
            return lambda properties: constant  # noqa: ARG005
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "the end")
        self._at += 1
        if kind == "name":
            return lambda properties: properties.get(text)
        literals: dict[str, Callable[[str], Value]] = {"int": java.parse_long, "float": float, "text": _unquoted}
        if kind not in literals:
            raise FormatError(f"unexpected {text}", layout="filter")
        value = literals[kind](text)
        return lambda properties: value  # noqa: ARG005


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _either(left: Evaluator, right: Evaluator) -> Evaluator:
    def evaluate(properties: Properties) -> Value:
        first = left(properties)
        if first is True:
            return True
        second = right(properties)
        if second is True:
            return True
        return None if first is None or second is None else False

    return evaluate


def _both(left: Evaluator, right: Evaluator) -> Evaluator:
    return _not(_either(_not(left), _not(right)))


def _not(inner: Evaluator) -> Evaluator:
    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else value is not True

    return evaluate


def _is_null(inner: Evaluator) -> Evaluator:
    return lambda properties: inner(properties) is None


def _in(inner: Evaluator, words: tuple[str, ...]) -> Evaluator:
    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return value in words if isinstance(value, str) else None

    return evaluate


def _negated(inner: Evaluator) -> Evaluator:
    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return -value if isinstance(value, int | float) and not isinstance(value, bool) else None

    return evaluate


def _equal(left: Evaluator, right: Evaluator) -> Evaluator:
    def evaluate(properties: Properties) -> Value:
        first, second = left(properties), right(properties)
        if first is None or second is None:
            return None if first is None and second is not None else first is second
        return _compare(first, second) == 0

    return evaluate


def _ordered(left: Evaluator, right: Evaluator, sign: str) -> Evaluator:
    def evaluate(properties: Properties) -> Value:
        first, second = left(properties), right(properties)
        if first is None or second is None:
            return None
        if isinstance(first, str) and isinstance(second, str):
            first, second = _number(first, 0.0), _number(second, 0.0)
        return _ORDER[sign](_compare(first, second), 0)

    return evaluate


def _compare(first: Value, second: Value) -> int:
    """Returns the sign of the comparison; a string is read as what the other side is, -1 where the kinds differ."""
    if isinstance(first, str) and not isinstance(second, str):
        first = _number(first, second)
    elif isinstance(second, str) and not isinstance(first, str):
        second = _number(second, first)
    if isinstance(first, bool) is not isinstance(second, bool):
        return -1
    assert first is not None
    assert second is not None
    return (first > second) - (first < second)  # type: ignore[operator]


def _number(text: str, like: Value) -> Value:
    try:
        if isinstance(like, bool):
            return java.parse_boolean(text)
        return java.parse_long(text) if isinstance(like, int) else float(text)
    except (FormatError, ValueError) as error:
        raise _ComparisonError from error
