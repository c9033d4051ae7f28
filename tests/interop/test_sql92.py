"""SQL92 expressions mean what the broker's parser and evaluator make of them, refusals included."""

import random

import pytest

from mqtool.errors import UsageError
from mqtool.formats.sql92 import Expression

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PROPERTIES = [
    {}, {"a": "5"}, {"a": "5.5", "b": "x"}, {"a": "-3", "b": "xyz", "c": "true"}, {"a": "abc", "b": "", "c": "TRUE"},
    {"a": "1e3", "b": "5", "c": "no"}, {"a": "9223372036854775807", "b": "it's", "c": "false"}, {"a": " 5", "b": "5.0"},
    {"a": "05", "b": "XYZ", "d_1$": "7"}, {"a": "2147483648", "b": "NaN"}, {"a": "NaN", "b": "1"}, {"a": "+5", "b": "5d"},
    {"a": "0x1p3", "b": "Infinity"}, {"a": "é", "é": "5", "$x": "5", "_": "5"}, {"a": "x\ny", "b": "6"},
]  # fmt: skip
OPERANDS = ["a", "b", "c", "d_1$", "missing", "5", "-3", "5.5", "1000", "'x'", "'xyz'", "'5'", "'it''s'", "''", "TRUE", "false",
            "NULL", "9223372036854775807", "0", ".5", "5.", "1E3", "+5", "5L"]  # fmt: skip
SIGNS = ["=", "<>", ">", ">=", "<", "<="]
FIXED = [
    "a is null", "a IS NOT NULL", "a between 1 and 10", "a not between 1 and 10", "b in ('x', 'xyz')", "b not in ('x')",
    "b contains 'y'", "b not contains 'y'", "b startswith 'x'", "b endswith 'z'", "b not startswith 'x'", "not a = 5",
    "a = 5 or missing = 1", "a = 5 and missing = 1", "not (a = 5 and b = 'x')", "((a = 5))", "a", "c", "not c", "c = true",
    "TRUE", "not TRUE", "5", "'x'", "a =", "= a", "a == 5", "a != 5", "a = 5 b = 6", "a in ()", "a in (5)", "a like 'x'",
    "a between 10 and 1", "", " ", "(", "a = 'x", "a > 'x'", "'x' > 'w'", "a = -5", "a = - 5", "a = +5", "1 = 1", "5 = '5'",
    "a = 5 and b = 'x' or c = true", "a = 5 or b = 'x' and c = true", "a=5", "a<>5", "a>=5and b='x'", "a = 0x5", "a = 05",
    "NULL = NULL", "a = NULL", "a is TRUE", "c is true", "true = true", "true > false", "a > true", "b = true",
    "b contains ''", "missing contains 'x'", "5 contains '5'", "'xyz' contains 'y'", "a = 9223372036854775808",
    "a between missing and 5", "a between '1' and '9'", "b between 'a' and 'z'", "a = 1.5e2", "a = 1e400", "a\n=\t5",
    "a = 5 -- comment", "a /* c */ = 5", "A = 5", "a = 5;", "select = 5", "a.b = 5", "a-b = 5", "a + 1 = 6", "a * 2 = 10",
    "not not a = 5", "a not = 5", "a is not true", "b in ('x',)", "b in 'x'", "(a) = (5)", "(a = 5) = true", "é = 5",
    "b = 'é'", "contains = 5", "b startswith c", "b = \"x\"", "a between 1 and 10 and b = 'x'", "not a between 1 and 10",
    "a > 10", "a = 5", "a <> 5", "a = 10", "a=5.0", "a=0.0", "a > 0.0", "a=1", "a > b", "a < b", "a = b",
    "missing = b", "missing <> b", "5 = missing", "5 < missing", "true = c", "c = 5", "5 = true", "5.5 = true",
    "true = 5", "5 = 5.0", "5.0 = 5", "'5' = 5", "'x' = 5", "5 < 6.5", "-a = -5", "- 5 = -5", "--5 = 5", "a = --5",
    "a contains b", "a startswith ''", "a endswith ''", "a not startswith ''", "a not endswith 'x'",
    "a not contains 'x'", "(a = 5) contains 'x'", "'a' in ('a')", "(a) in ('a')", "a in ('a', 'b') = true",
    "a in ('a' 'b')", "a between 1 and 5.0", "a between 1.0 and 5.0", "a not between missing and 5",
    "a not between 1 and missing", "5 between 1 and 9", "a between b and 9", "a between null and 5", "a > 1 > 0",
    "a = 5 = true", "(a=5) > 0", "a is null = true", "a is null is null", "not true = false", "not (a = 5) = true",
    "true and 5", "a and b", "null", "not null", "null or true", "null = true", "true = null", "null is null",
    "5 is null", "a = 'é'", "a = 9223372036854775807", "a = -9223372036854775808", "a = 007", "a = 0", "a = 1l",
    "a = 1e2l", "a = 5x", "a = 'x''", "a # 5", "a = 5 #", "a = 5)", "a = 5 and", "a = 5 or (", "a = 5 /* x",
    "a = 5 -- x\n and a = 6", "a =\u00a05", "a in", "a is", "a is not", "a not", "a between 1", "a b", "not a",
    "a or true", "1.", "a=1.", "a=NaN", "a > 1.0", "a>1.0", "nULL is Null", "a contains 'é'", "a = true", "a <> true",
    "a <> 'x'", "a = 1e309", "a=1e-400", "a=1e308", "+a = 5", "+ 'x' = 'x'", "-'x' = 'x'", "-true = true", "a > -5",
    "a > - 5.5", "-5 > a", "a between -5 and -1", "a between -1 and -5", "a > (5)", "a > ('x')", "a = (null)",
    "a between 9999999999 and 5", "a not between 10 and 1", "a between 10 and 5.0", "a between 10.5 and 5.0",
    "a = 5 ) #", "a is null #", "a = 5 x #", "(a = 5) = 5", "(a = 5) = 'x'", "(a = 5) = c", "c = (a = 5)",
    "a > 9999999999", "9999999999 > 5.5", "a = -9999999999", "5 = 9999999999", "5 < 9999999999", "2147483648 = a",
    "a = 'b' > 5", "a not in ('x')", "a in ('x') is null", "a contains 'x' and true", "not a contains 'x'",
    "a contains 'x' contains 'y'", "a = 5 contains '5'", "not not true", "- - a = 5", "-(5) = -5", "+(a) in ('5')",
    "-a in ('5')", "a = (5)", "(5) = (5)", "1 < 2", "2.5 > 1", "a is not null is not null", "true is null",
    "a >= true", "a > null", "null > a", "a <> null", "a between 1 and 5 between 1 and 2", "a = 5 or 6", "a = 5 or b",
    "6 or a = 5", "(((((a))))) ", "a=5and b='x'", "a=5 AnD b='x'", "5a = 5", "$x = 5", "_ = 5", "a\r\n\x0c= 5",
    "a = 'x\ny'", "a = 5 /* x */ and b = 6", "a = 5 /* x * / */ and b = 6", "a = 5 --x", "a = 5--6", "a - 5 = 5",
    "a.5 = 5", "a = 5.x", "a = 1e+2", "a = 1e", "a = .5e1", "a = 00", "a = 0.5", "a = 05.5", "a = 08", "a = 5LL",
    "a = 12345678901234567890", "a > 'é'", "not in ('a')", "between between 1 and 2", "null contains 'x'",
    "-null is null", "a = 5 and not b", "a = 5 and not (b = 'y')", "a = -0.0", "a = -0.5", 'a in ("x")',
    "a between 5 and 5", "a = 'x' 'y'", "a = b = c", "a <> b", "5 <> missing", "=", "a < > 5", ")", "true)", "true (",
    "true 'x", "true x 'x",
]  # fmt: skip


def generated(count):
    chance = random.Random(92)

    def test():
        kind = chance.randrange(9)
        left = chance.choice(OPERANDS)
        if kind < 5:
            return f"{left} {chance.choice(SIGNS)} {chance.choice(OPERANDS)}"
        if kind == 5:
            return f"{left} {chance.choice(['', 'NOT '])}BETWEEN {chance.choice(OPERANDS)} AND {chance.choice(OPERANDS)}"
        if kind == 6:
            return f"{left} {chance.choice(['', 'NOT '])}IN ('x', {chance.choice(OPERANDS)})"
        if kind == 7:
            word = chance.choice(["CONTAINS", "STARTSWITH", "ENDSWITH", "NOT CONTAINS"])
            return f"{left} {word} {chance.choice(OPERANDS)}"
        return f"{left} IS {chance.choice(['', 'NOT '])}NULL"

    for _ in range(count):
        text = test()
        while chance.random() < 0.4:
            text = chance.choice([f"({text}) {chance.choice(['AND', 'OR'])} {test()}", f"NOT ({text})", f"{text} AND {test()}"])
        yield text


def ours(text, held, version):
    try:
        return Expression(text, v4=version == "4.9.7").matches(held)
    except UsageError:
        return "refused"


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_every_expression_matches_where_the_broker_says_so(version, rocketmq, tmp_path):
    questions = [(text, held) for text in FIXED for held in PROPERTIES]
    questions += [(text, held) for text in generated(700) for held in PROPERTIES[:: 3]]
    answers = rocketmq(version).expressions(questions, work=tmp_path / "work")
    assert len(answers) == len(questions)
    wrong = [
        (text, held, answer, ours(text, held, version)) for (text, held), answer in zip(questions, answers, strict=True)
        if ours(text, held, version) != ("refused" if answer == "refused" else answer == "true")
    ]
    assert wrong == []
