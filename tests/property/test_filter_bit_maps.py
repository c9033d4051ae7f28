"""A bit map means the same whether the engine makes it at dispatch or a rebuild makes it from the log."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mqtool
from mqtool.engine.dispatch import bit_maps as engine
from mqtool.formats import config_json, properties
from mqtool.records.dispatch_request import DispatchRequest
from mqtool.store.filter_bit_maps import bit_maps_of

TOPIC = "Filtered"
BITS = 32
OPERANDS = st.sampled_from(["a", "b", "c", "5", "-3", "2.5"])
VALUES = st.sampled_from(["5", "-3", "2.5", "x", "true", "9999999999", "NaN"])
TESTS = st.one_of(
    st.builds("{} {} {}".format, st.sampled_from("abc"), st.sampled_from(["=", "<>", "<", ">="]), OPERANDS),
    st.builds("{} {}IN ('x', '5')".format, st.sampled_from("abc"), st.sampled_from(["", "NOT "])),
    st.builds("{} IS {}NULL".format, st.sampled_from("abc"), st.sampled_from(["", "NOT "])),
    st.builds("{} {} 'x'".format, st.sampled_from("abc"), st.sampled_from(["CONTAINS", "NOT STARTSWITH"])),
    st.builds("{} BETWEEN -3 AND 5".format, st.sampled_from("abc")),
)
EXPRESSIONS = st.recursive(
    TESTS,
    lambda inner: st.builds("({} {} NOT ({}))".format, inner, st.sampled_from(["AND", "OR"]), inner),
    max_leaves=4,
)
FILTERS = st.lists(
    st.tuples(EXPRESSIONS, st.sets(st.integers(0, BITS - 1), min_size=1, max_size=3)), min_size=1, max_size=4
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    made = tmp_path_factory.mktemp("filters")
    (made / "commitlog").mkdir()
    (made / "config").mkdir()
    return made


def from_engine(text, held):
    filters = engine.filters_of(config_json.parse(text))
    return engine.BitMaps(filters, BITS)(DispatchRequest(TOPIC, 0, 0, 0, 100, 0, 1, 0, held, 0, 1))


def from_rebuild(directory, text, held):
    (directory / "config" / "consumerFilter.json").write_bytes(text)
    with mqtool.open(directory) as store:
        found = bit_maps_of(store)
    assert found.problems == []
    return found(TOPIC, [properties.encode(held.items())], [1])[0]


@given(FILTERS, st.dictionaries(st.sampled_from("abc"), VALUES))
@settings(max_examples=150, deadline=None)
def test_dispatch_and_rebuild_set_the_same_bits(directory, filters, held):
    groups = {
        f"group{number}": {
            "expression": expression,
            "expressionType": "SQL92",
            "bornTime": 0,
            "bloomFilterData": {"bitNum": BITS, "bitPos": sorted(bits)},
        }
        for number, (expression, bits) in enumerate(filters)
    }
    text = json.dumps({"filterDataByTopic": {TOPIC: {"topic": TOPIC, "groupFilterData": groups}}}).encode()
    assert from_rebuild(directory, text, held) == from_engine(text, held)
