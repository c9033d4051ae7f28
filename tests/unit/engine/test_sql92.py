"""SQL92 expressions come to what the broker's own parser and evaluator made of them."""

import pytest

from mqtool.engine.filters import SqlFilter
from mqtool.engine.sql92 import Expression
from mqtool.errors import UsageError
from tests.support.stores import fixture, read_lines

ANSWERS = list(read_lines(fixture("sql92.jsonl")))


def ours(line, version):
    try:
        return Expression(line["expression"], v4=version == "4.9.7").matches(line["properties"])
    except UsageError:
        return "refused"


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_every_recorded_expression_matches_where_the_broker_said_so(version):
    assert len(ANSWERS) > 500
    expected = {"refused": "refused", "true": True}
    wrong = [(line, ours(line, version)) for line in ANSWERS if ours(line, version) != expected.get(line[version], False)]
    assert wrong == []


@pytest.mark.parametrize("text", ["(" * 5000, "NOT " * 5000, "-" * 5000 + "1 = 1", "a = 1 or (" * 300, "'" * 9999])
def test_what_is_nested_without_end_is_refused_in_one_line(text):
    with pytest.raises(UsageError, match=r"expected .* at character"):
        Expression(text)


def test_a_refusal_says_where_and_what_was_expected():
    with pytest.raises(UsageError, match=r"expected AND at character 12 of 'a between 1'"):
        Expression("a between 1")


def test_a_filter_asks_the_record_and_not_the_unit_where_there_is_no_bit_map():
    found = SqlFilter("a > 5")
    assert found.by_unit(0, None)
    assert [found.by_record({"a": value}) for value in ("6", "5", "x")] == [True, False, False]
