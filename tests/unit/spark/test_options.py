"""Options of the data source take the sizes and times of the command line; no Spark is needed to parse them."""

import re

import pytest

from mqtool.errors import UsageError
from mqtool.spark.options import parse
from mqtool.spark.plans import where
from tests.support.stores import FIXTURES

STORE = str(FIXTURES / "orders-5.5.0" / "store")


@pytest.mark.parametrize("size", ["67108864", "64m", "64MiB", "64 M", "65536K"])
def test_a_size_may_have_any_form_of_the_command_line(size):
    assert parse({"path": STORE, "maxBytesPerTrigger": size}).max_bytes == 64 << 20


@pytest.mark.parametrize("size", ["0", "64kk", "-1", "64 potatoes"])
def test_anything_else_is_no_size(size):
    with pytest.raises(UsageError, match=r"option 'splitSize': expected bytes, e\.g\. 67108864 or 64m"):
        parse({"path": STORE, "splitSize": size})


@pytest.mark.parametrize("time", ["1700000000000", "2023-11-14T22:13:20Z", "2023-11-14#22:13:20:000"])
def test_a_time_may_have_any_form_of_the_command_line(time):
    assert parse({"path": STORE, "startTime": time}).read.selection.begin_time == 1_700_000_000_000


@pytest.mark.parametrize("time", ["2026-W47-6", "--5", "yesterday"])
def test_anything_else_is_no_time(time):
    with pytest.raises(UsageError, match="option 'startTime': expected ms or RFC 3339"):
        parse({"path": STORE, "startTime": time})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tpcis": "a"}, "unknown option 'tpcis'; did you mean topics?"),
        ({"MaxOffsetPerTrigger": "5"}, "unknown option 'maxoffsetpertrigger'; did you mean maxOffsetsPerTrigger?"),
        ({"zzz": "red"}, "unknown option 'zzz'; known: path, paths, store"),
        (
            {"kafka.bootstrap.servers": "h:9092"},
            "'kafka.bootstrap.servers'; files are read, not a broker: give load(PATH)",
        ),
        ({"subscribe": "Orders"}, "unknown option 'subscribe'; use topic"),
        ({"subscribePattern": "Ord.*"}, "unknown option 'subscribepattern'; use topics, with globs such as Order*"),
        ({"minPartitions": "0"}, "option 'minPartitions': expected 1 to 100000, found 0"),
        ({"maxOffsetsPerTrigger": "-5"}, "option 'maxOffsetsPerTrigger': expected 1 or more, found -5"),
        ({"columns": "topic", "includeHeaders": "true"}, "option 'includeHeaders' applies to columns=kafka"),
        ({"owner": "me", "provider": "rocketmq-store"}, "write CREATE TEMPORARY VIEW … USING …"),
        ({"mode": "strict"}, "option 'mode': expected permissive or failfast, found 'strict'"),
        ({"include": "half"}, "option 'include': expected committed or all, found 'half'"),
        ({"startingOffsets": "5"}, "option 'startingOffsets': expected earliest, latest, JSON such as {"),
    ],
)
def test_an_unknown_option_or_value_is_named_with_those_that_are_known(options, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        parse({"path": STORE, **options})


def test_a_condition_may_be_on_a_column_that_is_not_redacted():
    found = parse({"path": STORE, "where": "topic = 'a'", "redact": "keys"})
    assert found.condition == "topic = 'a'"
    assert found.where.columns == {"topic"}


class Reader:
    """As Spark's: each option makes another reader."""

    def __init__(self, **options):
        self.options = options

    def option(self, name, value):
        return Reader(**self.options, **{name: value})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"columns": ["topic", "body"]}, {"columns": "topic,body"}),
        ({"trust": ["queues", "clock"]}, {"trust": "queues,clock"}),
    ],
)
def test_a_reader_gets_the_condition_and_only_what_else_is_given(given, expected):
    assert where(Reader(), "queue_id = 1", **given).options == {"where": "queue_id = 1", **expected}
