"""SQL92 expressions of consumers, over a message's properties, parsed as the broker parses them.

Expressions are evaluated in `sql92_values`. Some peculiarities of the broker are reproduced: NOT binds more tightly
than a comparison, text after a complete expression is ignored, and invalid constants make the broker refuse the
subscription. CONTAINS, STARTSWITH and ENDSWITH are keywords since 5.0; up to 4.9 they are property names. Source:
SelectorParser, ComparisonExpression, LogicExpression, UnaryExpression, ConstantExpression (filter module, 4.9.7,
5.5.0).
"""

import re

from mqtool.errors import UsageError
from mqtool.formats import java
from mqtool.formats import sql92_values as values
from mqtool.formats.release import V5_5, Release
from mqtool.formats.sql92_values import Long, Node, NotComparableError

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


class Expression:
    """A compiled expression.

    Attributes:
        text: as given.
    """

    def __init__(self, text: str, *, release: Release = V5_5) -> None:
        """Compiles an expression.

        Args:
            text: from a consumer's subscription.
            release: whose grammar applies; 4.9 does not know CONTAINS and similar keywords.

        Raises:
            UsageError: the broker would refuse the subscription; states what was expected at which position.
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
        self._words = _WORDS | _TEXT_WORDS if release >= (5, 5) else _WORDS
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
            return values.cast(node)
        raise self._unexpected("a condition, not a value, before this token")

    def _or(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._unexpected(f"at most {_DEEPEST} levels")
        node = self._and()
        while self._accept("OR"):
            node = values.either(self._truth(node), self._truth(self._and()), decisive=True)
        self._depth -= 1
        return node

    def _and(self) -> Node:
        node = self._equality()
        while self._accept("AND"):
            node = values.either(self._truth(node), self._truth(self._equality()), decisive=False)
        return node

    def _equality(self) -> Node:
        node = self._comparison()
        while sign := self._accept(*_EQUALITIES, "IS"):
            if sign == "IS":
                inverted = bool(self._accept("NOT"))
                self._expect("NULL")
                node = values.equal(node, values.constant(None))
            else:
                inverted = sign == "<>"
                node = self._equal(node, self._comparison())
            node = values.negated(node) if inverted else node
        return node

    def _equal(self, left: Node, right: Node) -> Node:
        for node in (left, right):
            if node.is_constant and node.constant is None:
                raise self._unexpected("something that can be compared, not NULL, before this token")
        if left.is_constant and right.is_constant and left.is_boolean and not right.is_boolean:
            raise self._unexpected("TRUE or FALSE next to the other, before this token")
        return values.equal(left, right)

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
        return values.ordered(left, right, sign)

    def _membership(self, left: Node, *, inverted: bool) -> Node:
        word = self._accept("BETWEEN", "IN", *(self._words & _TEXT_WORDS))
        if word == "BETWEEN":
            return self._between(left, inverted=inverted)
        if word == "IN":
            if not left.is_property:
                raise self._unexpected("a property before IN, before this token")
            return values.member(left, self._strings(), inverted=inverted)
        if not word:
            raise self._unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
        return values.text_test(left, self._string(), word, inverted=inverted)

    def _between(self, node: Node, *, inverted: bool) -> Node:
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        if inverted:
            below, above = self._ordered(node, low, "<"), self._ordered(node, high, ">")
            return values.either(below, above, decisive=True)
        if low.is_constant and high.is_constant and not values.in_order(low.constant, high.constant):
            raise self._unexpected("a lower and a higher value before this token")
        return values.either(self._ordered(node, low, ">="), self._ordered(node, high, "<="), decisive=False)

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
            return values.negated(self._truth(node))
        return values.minus(node) if sign == "-" else node

    def _primary(self) -> Node:
        if self._accept("("):
            node = self._or()
            self._expect(")")
            return node
        word = self._accept("TRUE", "FALSE", "NULL")
        if word:
            return values.constant({"TRUE": True, "FALSE": False, "NULL": None}[word])
        if self._kind == "string":
            return values.constant(self._string())
        kind, text = self._kind, self._token
        if kind == "name":
            self._move()
            return values.property_of(text)
        if kind not in ("int", "float"):
            raise self._unexpected("a property, a number or a string")
        number = self._number(kind, text)
        self._move()
        return values.constant(number)

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
