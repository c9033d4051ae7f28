"""Parses conditions written in SQL syntax, for interfaces that can only pass strings, such as options of Spark.

    topic = 'orders' AND (queue_id IN (0, 3) OR unique_key = 'AC1D…') AND store_timestamp >= '2026-09-21T12:00:00Z'

Supported are comparisons of a column or of `properties['name']` with a constant, on either side, IN, BETWEEN, LIKE and
IS NULL, and `array_contains(keys, 'key')`, combined by AND, OR, NOT and parentheses. The rows are those that a database
would return: a comparison with null is neither true nor false.
"""

import re
from collections.abc import Callable
from datetime import UTC
from functools import reduce
from operator import eq, ge, gt, le, lt, ne, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from mqtool import words
from mqtool.errors import UsageError
from mqtool.scan.bounds import NO_FACTS, NUMBERS, TEXT, Bounds, Facts, Moment, bounds_of

_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+)|(?P<text>'(?:[^']|'')*')|(?P<word>[A-Za-z_]\w*)|(?P<sign><=|>=|<>|!=|[=<>(),\[\]])|(?P<end>$))",
    re.ASCII,
)
_WORDS = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE", "TIMESTAMP"})
_CONTAINS = "ARRAY_CONTAINS"
_DEEPEST = 100
_SUPPORTED = (
    "a condition compares columns with constants (=, <>, <, <=, >, >=, IN, BETWEEN, LIKE, IS NULL); AND, OR, NOT"
)
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


class Parsed(Struct, frozen=True):
    """A condition, and what it implies.

    Arrow could tell the latter, in Substrait, but its memory doubles with each AND and OR (pyarrow 26), and it cannot
    express LIKE and properties.
    """

    expression: Any  # a `pyarrow.compute.Expression`
    facts: Facts = NO_FACTS  # bounds of its columns
    columns: frozenset[str] = frozenset()  # that it reads; of a part of a condition, none

    def __and__(self, other: "Parsed") -> "Parsed":
        return Parsed(self.expression & other.expression, self.facts & other.facts)

    def __or__(self, other: "Parsed") -> "Parsed":
        return Parsed(self.expression | other.expression, self.facts | other.facts)

    def __invert__(self) -> "Parsed":
        return Parsed(~self.expression)


def parsed(condition: str, schema: Any) -> Parsed:
    """Parses a condition on columns of an Arrow schema.

    Its facts may be about `key`, as those of a scan of keys are: of a message that `array_contains` names. Raises
    UsageError for invalid syntax or an unknown column; it states what was expected at which position.
    """
    return _Parser(condition, schema).parse()


class _Parser:
    """Recursive descent parser with one token of lookahead."""

    def __init__(self, text: str, schema: Any) -> None:
        self._text, self._schema = text, schema
        self._used: set[str] = set()
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

    def parse(self) -> Parsed:
        condition = self._or()
        if self._kind != "end":
            raise self._unexpected("AND, OR or the end")
        return Parsed(condition.expression, condition.facts, frozenset(self._used))

    def _or(self) -> Parsed:
        condition = self._and()
        while self._accept("OR"):
            condition = condition | self._and()
        return condition

    def _and(self) -> Parsed:
        condition = self._not()
        while self._accept("AND"):
            condition = condition & self._not()
        return condition

    def _not(self) -> Parsed:
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

    def _test(self) -> Parsed:
        if self._kind in ("number", "text") or self._is("TRUE", "FALSE", "TIMESTAMP"):
            return self._mirrored()
        if self._accept(_CONTAINS):
            return self._contains()
        operand = self._operand()
        if sign := self._accept(*_SIGNS):
            return operand.compared(sign, self._constant(operand.field))
        if self._accept("IS"):
            inverted = bool(self._accept("NOT"))
            self._expect("NULL")
            is_null = operand.expression.is_null()
            return Parsed(~is_null if inverted else is_null)
        inverted = bool(self._accept("NOT"))
        if self._accept("IN"):
            condition = self._listed(operand)
        elif self._accept("BETWEEN"):
            low = self._constant(operand.field)
            self._expect("AND")
            condition = operand.compared(">=", low) & operand.compared("<=", self._constant(operand.field))
        elif pa.types.is_string(operand.field.type) and self._accept("LIKE"):
            condition = operand.like(self._constant(operand.field).as_py())
        else:
            raise self._unexpected("a comparison, IN, BETWEEN, LIKE or IS")
        return ~condition if inverted else condition

    def _contains(self) -> Parsed:
        """Parses what follows `array_contains`; a key is a word between spaces, and never empty."""
        self._expect("(")
        field = self._field()
        if not pa.types.is_list(field.type):
            raise UsageError(f"array_contains: column {field.name!r} is no list; expected keys")
        self._expect(",")
        if self._kind != "text":
            raise self._unexpected("a key in quotes")
        key = self._text_here()
        self._expect(")")
        keys = pc.field(field.name)
        if not key or " " in key:
            return Parsed(pc.if_else(keys.is_null(), pa.scalar(None, pa.bool_()), pa.scalar(False)))
        is_only = self._text.upper().count(_CONTAINS) == 1  # a message may have both of two keys
        facts = bounds_of("key", "==", key) if is_only else NO_FACTS
        return Parsed(pc.match_substring_regex(pc.binary_join(keys, " "), f"(^| ){re.escape(key)}( |$)"), facts)

    def _mirrored(self) -> Parsed:
        """Parses a comparison whose constant is on the left; its type is that of the column, which follows."""
        start = self._at
        self._accept("TIMESTAMP")
        self._move()
        sign = self._accept(*_SIGNS)
        if not sign:
            raise self._unexpected("a comparison")
        operand, after = self._operand(), self._at
        self._next = start
        self._move()
        constant = self._constant(operand.field)
        self._next = after
        self._move()
        return operand.compared(MIRRORED[sign], constant)

    def _listed(self, operand: "_Operand") -> Parsed:
        self._expect("(")
        values = [self._constant(operand.field)]
        while self._accept(","):
            values.append(self._constant(operand.field))
        self._expect(")")
        kind, column = operand.field.type, operand.expression
        if pa.types.is_timestamp(kind):
            return reduce(or_, [operand.compared("=", value) for value in values])
        known = [value.as_py() for value in values]
        facts = Facts({operand.name: Bounds.of(known)}) if operand.name in TEXT | NUMBERS else NO_FACTS
        if pa.types.is_integer(kind):
            limit = 1 << kind.bit_width - 1
            known = [value for value in known if -limit <= value < limit]
        listed = column.isin(pa.array(known, kind))
        # in SQL, null is neither IN a list nor NOT IN it
        return Parsed(pc.if_else(column.is_null(), pa.scalar(None, pa.bool_()), listed), facts)

    def _operand(self) -> "_Operand":
        """Parses a column, or the value of a property."""
        field = self._field()
        if not pa.types.is_map(field.type) or not self._accept("["):
            return _Operand(field, pc.field(field.name), field.name)
        if self._kind != "text":
            raise self._unexpected("a name in quotes")
        name = self._text_here()
        self._expect("]")
        value = pc.map_lookup(pc.field(field.name), name, "last")
        return _Operand(pa.field(field.name, field.type.item_type), value)

    def _field(self) -> Any:
        if self._kind != "word" or self._token.upper() in _WORDS:
            raise self._unexpected("a column")
        name = self._token.lower()
        if name not in self._schema.names:
            raise UsageError(f"unknown column {self._token!r}; known: {', '.join(self._schema.names)}")
        self._move()
        self._used.add(name)
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


class _Operand(Struct, frozen=True):
    """What a condition tests."""

    field: Any  # Arrow field, for name and type
    expression: Any
    name: str = ""  # of the column; "" for a property, which has no bounds

    def compared(self, sign: str, constant: Any) -> Parsed:
        """Returns a comparison with a `pa.Scalar`."""
        operator = "==" if sign == "=" else sign
        facts = NO_FACTS if sign in ("<>", "!=") else bounds_of(self.name, operator, _literal(constant))
        return Parsed(_SIGNS[sign](self.expression, constant), facts)

    def like(self, pattern: str) -> Parsed:
        """Returns LIKE a pattern; raises UsageError unless %, _ or a backslash follows each backslash in it."""
        if re.search(r"(?<!\\)(\\\\)*\\(?![%_\\])", pattern):
            raise UsageError(f"LIKE {pattern!r}: expected %, _ or a backslash after the backslash")
        prefix = re.split(r"[%_\\]", pattern, maxsplit=1)[0]
        facts = NO_FACTS
        if prefix and prefix[-1] not in ("\ud7ff", "\U0010ffff"):  # there is a character that follows
            facts = bounds_of(self.name, ">=", prefix)
            facts &= bounds_of(self.name, "<", prefix[:-1] + chr(ord(prefix[-1]) + 1))
        return Parsed(pc.match_like(self.expression, pattern), facts)


def _literal(constant: Any) -> Any:
    """Returns a `pa.Scalar` as `bounds_of` takes it."""
    if not pa.types.is_timestamp(constant.type):
        return constant.as_py()
    return Moment(constant.value * (1000 if constant.type.unit == "ms" else 1))
