"""Conditions as text choose the rows that DuckDB chooses, and say what is wrong with them."""

import re
from datetime import datetime

import duckdb
import pyarrow as pa
import pytest

from mqtool.errors import UsageError
from mqtool.scan.conditions import parsed

TIME = 1_790_000_000_000
ROWS = pa.table(
    {
        "topic": pa.array(["a", "b", "it's", None, "a"]),
        "queue_id": pa.array([0, 1, 2, None, 4], pa.int32()),
        "queue_offset": pa.array([-1, 5, 1 << 40, 7, None], pa.int64()),
        "store_timestamp": pa.array([TIME + n * 500 for n in range(5)], pa.timestamp("ms", "UTC")),
        "body_decoded": pa.array([True, False, None, True, True]),
        "tags": pa.array(["100%", "a\nb", None, "A_b", "\U0010ffffz"]),
        "keys": pa.array([["k1", "k.2"], ["k12"], None, [], ["k1"]]),
        "properties": pa.array(
            [[("x", "1"), ("it's", "ab")], [("x", "2")], None, [], [("x", "b"), ("y", "1")]],
            pa.map_(pa.string(), pa.string()),
        ),
    }
)
SCHEMA = ROWS.schema.append(pa.field("body", pa.binary()))


@pytest.mark.parametrize(
    "condition",
    [
        "topic = 'a'",
        "topic <> 'a' and Queue_Id != 1",
        "topic = 'it''s' OR queue_offset < 0",
        "NOT (topic = 'a' OR queue_id = 1)",
        "NOT topic = 'a' OR queue_id = 4",
        "queue_id IN (0, 4, 99999999999)",
        "queue_id NOT IN (0, 4)",
        "topic IN ('b', 'it''s') AND queue_offset >= 5",
        "queue_offset BETWEEN 5 AND 7",
        "queue_offset NOT BETWEEN 5 AND 7",
        "topic IS NULL",
        "topic IS NOT NULL AND NOT queue_id IS NULL",
        "queue_offset = 1099511627776",
        "body_decoded = TRUE",
        "store_timestamp >= TIMESTAMP '2026-09-21T14:13:20.5Z'",
        "store_timestamp IN ('2026-09-21T14:13:21+00:00')",
        "store_timestamp < '2026-09-21T14:13:20.000500Z'",
        "'a' = topic",
        "5 <= queue_offset AND NOT (2 < queue_id OR 1 != queue_id)",
        "TIMESTAMP '2026-09-21T14:13:21Z' > store_timestamp OR TRUE <> body_decoded",
        "topic LIKE 'it''%' OR topic LIKE 'b'",
        "topic NOT LIKE 'a%' AND queue_id >= 1",
        "tags LIKE 'a%b'",
        "tags LIKE '%_b' AND tags LIKE 'A%'",
        "tags LIKE '\U0010ffff%'",
        "properties['x'] = '1'",
        "'2' <= properties['x'] AND topic <> 'c'",
        "properties['x'] IN ('1', 'b') AND queue_id = 0",
        "properties['it''s'] LIKE 'a%' OR properties['x'] IS NULL",
        "NOT properties['y'] = '1'",
        "array_contains(keys, 'k1') AND topic = 'a'",
        "array_contains(keys, 'k.2') OR queue_id = 1",
        "array_contains(keys, 'k1') AND array_contains(keys, 'k.2')",
        "NOT array_contains(keys, 'k1')",
        "array_contains(keys, 'k1 k.2')",
        "array_contains(keys, '')",
    ],
)
def test_a_condition_chooses_the_rows_that_duckdb_chooses(condition):
    connection = duckdb.connect()
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("t", ROWS)
    expected = connection.sql(f"SELECT * FROM t WHERE {condition}").to_arrow_table()
    rows, implied = expected.to_pylist(), parsed(condition, SCHEMA)
    assert ROWS.filter(implied.expression).to_pylist() == rows
    bounds = {name: found for name, found in implied.facts.columns.items() if name != "key"}
    assert all(found.admits(in_millis(row[name])) for row in rows for name, found in bounds.items())
    named = {name for name in SCHEMA.names if re.search(rf"\b{name}\b", condition.lower())}
    assert implied.columns == named


def in_millis(value):
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


@pytest.mark.parametrize(
    ("condition", "column", "low", "high", "values"),
    [
        ("topic LIKE 'Ord%' AND properties['x'] = '1'", "topic", "Ord", "Ore", None),
        ("topic = 'a' AND (tags LIKE '%a' OR properties['x'] IN ('1'))", "topic", "a", "a", {"a"}),
        ("array_contains(keys, 'k1') AND queue_id = 3", "key", "k1", "k1", {"k1"}),
        ("array_contains(keys, 'k1') AND array_contains(keys, 'k2')", "key", None, None, None),
        ("NOT array_contains(keys, 'k1')", "key", None, None, None),
    ],
)
def test_what_a_condition_implies_is_known_whatever_else_it_tests(condition, column, low, high, values):
    found = parsed(condition, SCHEMA).facts[column]
    assert (found.low, found.high, found.values) == (low, high, values)


@pytest.mark.parametrize(("pattern", "expected"), [(r"100\%", ["100%"]), (r"%\_b", ["A_b"]), (r"_\_b", ["A_b"])])
def test_a_backslash_in_a_pattern_takes_the_next_character_as_it_is(pattern, expected):
    assert ROWS.filter(parsed(f"tags LIKE '{pattern}'", SCHEMA).expression)["tags"].to_pylist() == expected


def test_times_may_be_milliseconds():
    found = ROWS.filter(parsed(f"store_timestamp > {TIME + 1000}", SCHEMA).expression)
    assert found.num_rows == 2


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("", "expected a column at character 1, found the end"),
        ("= 'a'", "expected a column at character 1, found '='; a condition compares columns with constants"),
        ("'a' topic", "expected a comparison at character 5, found 'topic'"),
        ("1 = 1", "expected a column at character 5, found '1'"),
        ("'a' > queue_id", r"expected a value for queue_id \(int32\) at character 1, found \"'a'\""),
        ("store_timestamp > topic", "expected a time, in ms or as '2026-09-21T12:00:00Z' at character 19"),
        ("tpoic = 'a'", "unknown column 'tpoic'; known: topic, "),
        ("topic = 5", r"expected a value for topic \(string\) at character 9, found '5'"),
        ("topic = ", r"expected a value for topic \(string\) at character 9, found the end"),
        ("topic LIKES 'a%'", "expected a comparison, IN, BETWEEN, LIKE or IS at character 7, found 'LIKES'"),
        ("queue_id LIKE '1%'", "expected a comparison, IN, BETWEEN, LIKE or IS at character 10, found 'LIKE'"),
        (r"topic LIKE '\O%'", "expected %, _ or a backslash after the backslash"),
        (r"topic LIKE 'a\\\'", "expected %, _ or a backslash after the backslash"),
        ("topic LIKE 5", r"expected a value for topic \(string\) at character 12, found '5'"),
        ("properties = 'a'", "column 'properties' cannot be compared in a condition"),
        ("properties[x] = 'a'", "expected a name in quotes at character 12, found 'x'"),
        ("topic['x'] = 'a'", r"expected a comparison, IN, BETWEEN, LIKE or IS at character 6, found '\['"),
        ("array_contains(topic, 'a')", "array_contains: column 'topic' is no list; expected keys"),
        ("array_contains(keys, 5)", "expected a key in quotes at character 22, found '5'"),
        ("topic = 'a' topic = 'b'", "expected AND, OR or the end at character 13"),
        ("(topic = 'a'", r"expected \) at character 13"),
        ("topic = 'a", 'expected a condition at character 9, found "\'"'),
        ("queue_id = 1; DROP", "expected a condition at character 13, found ';'"),
        ("queue_offset = 99999999999999999999", "expected a number of 64 bits"),
        ("store_timestamp > 'yesterday'", "expected a time, in ms or as '2026-09-21T12:00:00Z' at character 19"),
        (
            "store_timestamp > 99999999999999999999",
            "expected a time, in ms or as '2026-09-21T12:00:00Z' at character 19",
        ),
        ("store_timestamp > '2026-W47-6'", "expected a time, in ms or as '2026-09-21T12:00:00Z' at character 19"),
        ("body = 'a'", "column 'body' cannot be compared in a condition"),
        ("NOT " * 200 + "topic = 'a'", "nested more than 100 deep"),
    ],
)
def test_what_is_no_condition_is_said_in_one_line(condition, words):
    with pytest.raises(UsageError, match=words) as failure:
        parsed(condition, SCHEMA)
    assert "\n" not in str(failure.value)
