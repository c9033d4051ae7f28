"""SQL92 filters answer as the broker's evaluation does."""

import pytest

from mqtool.errors import FormatError
from mqtool.rebuild.sql_filter import compile_filter

MESSAGE = {"a": "7", "b": "x", "c": "2.5", "t": "true", "e": "it's", "_n": "-3"}

MATCHING = [
    "a > 5", "a >= 7", "a <= 7", "a < 7.5", "a = 7", "a <> 8", "b = 'x'", "b <> 'y'", "a > 5 AND b = 'x'",
    "a > 9 OR b = 'x'", "not (a > 9 or b = 'y')", "a BETWEEN 5 AND 7", "a NOT BETWEEN 8 AND 9",
    "b IN ('y', 'x')", "b NOT IN ('y')", "z IS NULL", "a IS NOT NULL", "t = TRUE", "e = 'it''s'", "_n < -2", "-2 > _n",
    "+a = 7", "c = 2.5", "TRUE", "a > 5 -- it is\n", "/* why */ a>5", "a = '7'", "a > c", "a = 7L", "c < .3e1",
    "FALSE OR a=7 AND b='x'", "(z > 5) IS NULL", "NOT b",
]  # fmt: skip
OTHERS = [
    "a > 7", "a = 8", "b = 'X'", "z > 5", "NOT z > 5", "z = 5", "z <> 5", "z > 5 OR b = 'y'", "b > 5", "b = 5",
    "a > 5 AND z = 1", "b IN ('y')", "z IN ('y')", "z NOT IN ('y')", "a IS NULL", "FALSE", "NULL", "t = FALSE", "c = 2",
    "b > 5 OR TRUE", "a BETWEEN 8 AND 9", "NOT TRUE", "b", "NOT (NULL)", "a = TRUE", "c > 'y'", "c > 2",
]  # fmt: skip


@pytest.mark.parametrize("expression", MATCHING)
def test_a_message_passes(expression):
    assert compile_filter(expression)(MESSAGE) is True


@pytest.mark.parametrize("expression", OTHERS)
def test_a_message_does_not_pass(expression):
    assert compile_filter(expression)(MESSAGE) is False


@pytest.mark.parametrize("expression", [
    "", "a >", "a > 5)", "(a > 5", "a IN (5)", "a IN ('x'", "a BETWEEN 5", "a ! 5", "'open", "a LIKE 'x'",
    "a CONTAINS 'x'", "a IS 5", "a b", "AND", "9" * 30 + " > a", "(" * 100_000, "a > 5 AND", "IN ('x')",
])  # fmt: skip
def test_what_is_no_expression_is_refused(expression):
    with pytest.raises(FormatError):
        compile_filter(expression)
