"""Parses conditions written in SQL syntax, for interfaces that can only pass strings, such as options of Spark.

    topic = 'orders' AND (queue_id IN (0, 3) OR unique_key = 'AC1D…') AND store_timestamp >= '2026-09-21T12:00:00Z'

Supported are comparisons of a column with a constant, on either side, IN, BETWEEN and IS NULL, combined by AND, OR,
NOT and parentheses. The rows are those that a database would return: a comparison with null is neither true nor false.
"""

import re
from collections.abc import Callable
from datetime import UTC
from functools import reduce
from operator import eq, ge, gt, le, lt, ne, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mqtool import words
from mqtool.errors import UsageError

_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+)|(?P<text>'(?:[^']|'')*')|(?P<word>[A-Za-z_]\w*)|(?P<sign><=|>=|<>|!=|[=<>(),])|(?P<end>$))",
    re.ASCII,
)
_WORDS = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "IS", "NULL", "TRUE", "FALSE", "TIMESTAMP"})
_DEEPEST = 100
_SUPPORTED = "a condition compares columns with constants (=, <>, <, <=, >, >=, IN, BETWEEN, IS NULL); AND, OR, NOT"
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "=": eq,
    "<>": ne,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}
MIRRORED = {"=": "=", "<>": "<>", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""By sign, the one that has the same meaning if both sides are exchanged."""


def expression_of(condition: str, schema: Any) -> Any:
    """Returns a condition as a `pyarrow.compute.Expression` over columns of an Arrow schema.

    Raises UsageError for invalid syntax or an unknown column; it states what was expected at which position.
    """
    return _Parser(condition, schema).parse()


class _Parser:
    """Recursive descent parser with one token of lookahead."""

    def __init__(self, text: str, schema: Any) -> None:
        self._text, self._schema = text, schema
        self._next = self._depth = 0
        self._at, self._kind, self._token = 0, "", ""
        self._move()

    def _move(self) -> None:
        match = _TOKEN.match(self._text, self._next)
        if match is None or match.lastgroup is None:
            self._at = len(self._text) - len(self._text[self._next :].lstrip())
            self._token = self._text[self._at : self._at + 1]
            raise self._unexpected("a condition")
        self._at, self._next, self._kind = match.start(match.lastgroup), match.end(), match.lastgroup
        self._token = match[match.lastgroup]

    def _unexpected(self, expected: str) -> UsageError:
        actual = repr(self._token) if self._token else "the end"
        return UsageError(
            f"condition {self._text!r}: expected {expected} at character {self._at + 1}, found {actual}; {_SUPPORTED}"
        )

    def _is(self, *tokens: str) -> bool:
        return self._kind in ("word", "sign") and self._token.upper() in tokens

    def _accept(self, *tokens: str) -> str:
        if not self._is(*tokens):
            return ""
        token = self._token.upper()
        self._move()
        return token

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self._unexpected(token)

    def parse(self) -> Any:
        condition = self._or()
        if self._kind != "end":
            raise self._unexpected("AND, OR or the end")
        return condition

    def _or(self) -> Any:
        condition = self._and()
        while self._accept("OR"):
            condition = condition | self._and()
        return condition

    def _and(self) -> Any:
        condition = self._not()
        while self._accept("AND"):
            condition = condition & self._not()
        return condition

    def _not(self) -> Any:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UsageError(f"condition: nested more than {_DEEPEST} deep; use fewer brackets")
        if self._accept("NOT"):
            condition = ~self._not()
        elif self._accept("("):
            condition = self._or()
            self._expect(")")
        else:
            condition = self._test()
        self._depth -= 1
        return condition

    def _test(self) -> Any:
        if self._kind in ("number", "text") or self._is("TRUE", "FALSE", "TIMESTAMP"):
            return self._mirrored()
        field = self._field()
        column = pc.field(field.name)
        if sign := self._accept(*_SIGNS):
            return _SIGNS[sign](column, self._constant(field))
        if self._accept("IS"):
            inverted = bool(self._accept("NOT"))
            self._expect("NULL")
            return ~column.is_null() if inverted else column.is_null()
        inverted = bool(self._accept("NOT"))
        if self._accept("IN"):
            condition = self._listed(field, column)
        elif self._accept("BETWEEN"):
            low = self._constant(field)
            self._expect("AND")
            condition = (column >= low) & (column <= self._constant(field))
        else:
            raise self._unexpected("a comparison, IN, BETWEEN or IS")
        return ~condition if inverted else condition

    def _mirrored(self) -> Any:
        """Parses a comparison whose constant is on the left; its type is that of the column, which follows."""
        start = self._at
        self._accept("TIMESTAMP")
        self._move()
        sign = self._accept(*_SIGNS)
        if not sign:
            raise self._unexpected("a comparison")
        field, after = self._field(), self._at
        self._next = start
        self._move()
        constant = self._constant(field)
        self._next = after
        self._move()
        return _SIGNS[MIRRORED[sign]](pc.field(field.name), constant)

    def _listed(self, field: Any, column: Any) -> Any:
        self._expect("(")
        values = [self._constant(field)]
        while self._accept(","):
            values.append(self._constant(field))
        self._expect(")")
        if pa.types.is_timestamp(field.type):
            return reduce(or_, [column == value for value in values])
        known = [value.as_py() for value in values]
        if pa.types.is_integer(field.type):
            limit = 1 << field.type.bit_width - 1
            known = [value for value in known if -limit <= value < limit]
        listed = column.isin(pa.array(known, field.type))
        # in SQL, null is neither IN a list nor NOT IN it
        return pc.if_else(column.is_null(), pa.scalar(None, pa.bool_()), listed)

    def _field(self) -> Any:
        if self._kind != "word" or self._token.upper() in _WORDS:
            raise self._unexpected("a column")
        name = self._token.lower()
        if name not in self._schema.names:
            raise UsageError(f"unknown column {self._token!r}; known: {', '.join(self._schema.names)}")
        self._move()
        return self._schema.field(name)

    def _constant(self, field: Any) -> Any:
        """Parses a constant as a value of a column's type."""
        kind = field.type
        if pa.types.is_timestamp(kind):
            return self._moment()
        if pa.types.is_boolean(kind) and self._is("TRUE", "FALSE"):
            return pa.scalar(self._accept("TRUE", "FALSE") == "TRUE")
        if pa.types.is_string(kind) and self._kind == "text":
            return pa.scalar(self._text_here(), kind)
        if pa.types.is_integer(kind) and self._kind == "number":
            value = int(self._token)
            if not -(1 << 63) <= value < 1 << 63:
                raise self._unexpected("a number of 64 bits")
            self._move()
            return pa.scalar(value, pa.int64())
        if pa.types.is_nested(kind) or pa.types.is_binary(kind):
            raise UsageError(f"column {field.name!r} cannot be compared in a condition; test its rows afterwards")
        raise self._unexpected(f"a value for {field.name} ({kind})")

    def _text_here(self) -> str:
        text = self._token[1:-1].replace("''", "'")
        self._move()
        return text

    def _moment(self) -> Any:
        """Parses a time: ms since the epoch, or RFC 3339 in quotes; UTC if no zone is given."""
        self._accept("TIMESTAMP")
        expected = "a time, in ms or as '2026-09-21T12:00:00Z'"
        if self._kind not in ("number", "text"):
            raise self._unexpected(expected)
        try:
            if self._kind == "number":
                scalar = pa.scalar(int(self._token), pa.timestamp("ms", "UTC"))
            else:
                moment = words.parse_moment(self._token[1:-1], UTC)
                if moment is None:
                    raise self._unexpected(expected)
                scalar = pa.scalar(moment, pa.timestamp("us", "UTC"))
        except (ValueError, OverflowError) as error:
            raise self._unexpected(expected) from error
        self._move()
        return scalar
