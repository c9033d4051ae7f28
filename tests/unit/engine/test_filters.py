"""What a get asks of units and records."""

from mqtool.engine.dispatch.bit_maps import BitMaps, filters_of
from mqtool.engine.read.filters import SqlFilter
from mqtool.records.dispatch_request import DispatchRequest


def test_a_filter_asks_the_record_and_not_the_unit():
    found = SqlFilter("a > 5")
    assert found.by_unit(0, None)
    assert [found.by_record({"a": value}) for value in ("6", "5", "x")] == [True, False, False]


def test_only_filters_of_expressions_have_bits_and_other_topics_have_no_bit_map():
    groups = {
        "tags": {"expressionType": "TAG", "expression": "a"},
        "sql": {"expressionType": "SQL92", "expression": "a > 5", "bloomFilterData": {"bitPos": [0, 9]}},
    }
    filters = filters_of({"filterDataByTopic": {"T": {"groupFilterData": groups}}})
    assert [(one.topic, one.bits) for one in filters] == [("T", (0, 9))]
    bit_map_of = BitMaps(filters, 16)
    asked = [(topic, value) for topic in ("T", "U") for value in ("6", "5")]
    maps = [bit_map_of(DispatchRequest(topic, 0, 0, 0, 99, 0, 0, 0, {"a": value}, 0, 1)) for topic, value in asked]
    assert maps == [b"\x01\x02", b"\0\0", b"", b""]
