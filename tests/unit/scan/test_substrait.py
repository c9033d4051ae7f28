"""Bounds are derived only from what is understood of an expression; else no row is left out."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mqtool.scan.bounds import Bounds, Condition, condition_of

SCHEMA = pa.schema(
    [
        ("nested", pa.struct([("queue_offset", pa.int64()), ("queue_id", pa.int64())])),
        ("queue_offset", pa.int64()),
    ]
)


def test_a_comparison_bounds_its_column():
    found = condition_of(pc.field("queue_offset") > 5, SCHEMA)
    assert found.columns == {"queue_offset"}
    assert found.facts.columns == {"queue_offset": Bounds(low=6)}


@pytest.mark.parametrize("name", ["queue_offset", "queue_id"])
def test_a_field_of_a_field_bounds_nothing(name):
    assert condition_of(pc.field("nested", name) > 5, SCHEMA) == Condition()
