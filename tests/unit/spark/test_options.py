"""Options of the data source take the sizes and times of the command line; no Spark is needed to parse them."""

import pytest

from mqtool.errors import UsageError
from mqtool.spark.options import parse
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
