"""SQL92 expressions come to what the broker's own parser and evaluator made of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.errors import UsageError
from mqtool.formats.release import V4_9, V5_5, release_of
from mqtool.formats.sql92 import Expression
from tests.support.stores import fixture, read_lines

ANSWERS = list(read_lines(fixture("sql92.jsonl")))
TOKENS = [
    "a",
    "b",
    "5",
    "2.5",
    "'x'",
    "TRUE",
    "NULL",
    "=",
    "<>",
    "<",
    ">=",
    "(",
    ")",
    ",",
    "+",
    "-",
    "NOT",
    "AND",
    "OR",
    "BETWEEN",
    "IN",
    "IS",
    "CONTAINS",
    "STARTSWITH",
    "ENDSWITH",
    "--",
    "/*",
    "'",
    "é",
    "\n",
]


def ours(line, version):
    try:
        return Expression(line["expression"], release=release_of(version)).matches(line["properties"])
    except UsageError:
        return "refused"


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_every_recorded_expression_matches_where_the_broker_said_so(version):
    assert len(ANSWERS) > 500
    expected = {"refused": "refused", "true": True}
    wrong = [
        (line, ours(line, version)) for line in ANSWERS if ours(line, version) != expected.get(line[version], False)
    ]
    assert wrong == []


@given(
    st.lists(st.sampled_from(TOKENS), max_size=12),
    st.dictionaries(st.sampled_from("ab"), st.text(max_size=4)),
    st.sampled_from([V4_9, V5_5]),
)
def test_any_words_are_an_expression_or_are_refused_in_one_line(words, held, release):
    try:
        assert Expression(" ".join(words), release=release).matches(held) in (True, False)
    except UsageError as refused:
        assert "expected" in str(refused)
        assert "\n" not in str(refused)


@pytest.mark.parametrize(
    ("expression", "a", "b", "answer"),
    [
        ("a < b", "-0.0", "0.0", True),
        ("a > b", "0.0", "-0.0", True),
        ("a = b", "-0.0", "0.0", False),
        ("a < b", "-0", "0", True),
        ("a <= b", "0.0", "-0.0", False),
        ("a >= b", "0.0", "-0.0", True),
        ("a < b", "1.5", "10", True),
    ],
)
def test_two_properties_are_compared_as_the_brokers_did(expression, a, b, answer):
    """The answers are those of the filter classes of 4.9.7 and 5.5.0."""
    for release in (V4_9, V5_5):
        assert Expression(expression, release=release).matches({"a": a, "b": b}) is answer


@pytest.mark.parametrize("text", ["(" * 5000, "NOT " * 5000, "-" * 5000 + "1 = 1", "a = 1 or (" * 300, "'" * 9999])
def test_what_is_nested_without_end_is_refused_in_one_line(text):
    with pytest.raises(UsageError, match=r"expected .* at character"):
        Expression(text)


def test_a_refusal_says_where_and_what_was_expected():
    with pytest.raises(UsageError, match=r"expected AND at character 12 of 'a between 1'"):
        Expression("a between 1")
