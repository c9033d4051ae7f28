"""Conditions as text choose the rows that DuckDB chooses, and say what is wrong with them."""

import duckdb
import pyarrow as pa
import pytest

from mqtool.errors import UsageError
from mqtool.scan.conditions import expression_of

TIME = 1_790_000_000_000
ROWS = pa.table(
    {
        "topic": pa.array(["a", "b", "it's", None, "a"]),
        "queue_id": pa.array([0, 1, 2, None, 4], pa.int32()),
        "queue_offset": pa.array([-1, 5, 1 << 40, 7, None], pa.int64()),
        "store_timestamp": pa.array([TIME + n * 500 for n in range(5)], pa.timestamp("ms", "UTC")),
        "body_decoded": pa.array([True, False, None, True, True]),
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
    ],
)
def test_a_condition_chooses_the_rows_that_duckdb_chooses(condition):
    connection = duckdb.connect()
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("t", ROWS)
    expected = connection.sql(f"SELECT * FROM t WHERE {condition}").to_arrow_table()
    assert ROWS.filter(expression_of(condition, SCHEMA)).to_pylist() == expected.to_pylist()


def test_times_may_be_milliseconds():
    found = ROWS.filter(expression_of(f"store_timestamp > {TIME + 1000}", SCHEMA))
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
        ("topic LIKE 'a%'", "expected a comparison, IN, BETWEEN or IS at character 7, found 'LIKE'"),
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
        expression_of(condition, SCHEMA)
    assert "\n" not in str(failure.value)
