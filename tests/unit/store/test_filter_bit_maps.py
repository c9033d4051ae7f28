"""Filter bit maps of extensions: who is in them, and what is done about filters that cannot be followed."""

import json

import pytest

import mqtool
from mqtool.store.queues.filter_bit_maps import bit_maps_of

TOPIC = "Ext"


def group(expression="a > 5", bits=(0, 9), born=100, **more):
    return {
        "expression": expression,
        "expressionType": "SQL92",
        "bornTime": born,
        "bloomFilterData": {"bitNum": 16, "bitPos": list(bits)},
    } | more


def bit_maps(tmp_path, groups, config=None):
    (tmp_path / "commitlog").mkdir(exist_ok=True)
    (tmp_path / "config").mkdir(exist_ok=True)
    whole = {"filterDataByTopic": {TOPIC: {"topic": TOPIC, "groupFilterData": groups}}}
    (tmp_path / "config" / "consumerFilter.json").write_text(json.dumps(whole))
    with mqtool.open(tmp_path, config) as store:
        return bit_maps_of(store)


def batch(found, topic, times, stored=b"a\x017\x02"):
    return found(topic, [stored] * len(times), times)


def test_each_filter_that_a_message_passes_sets_its_bits_lowest_first(tmp_path):
    found = bit_maps(tmp_path, {"g": group(), "h": group("a = 7", (1,)), "i": group("a < 5", (15,))})
    assert batch(found, TOPIC, [200]) == [bytes([0b11, 0b10])]


def test_a_filter_registered_later_sets_no_bits(tmp_path):
    assert batch(bit_maps(tmp_path, {"g": group(born=100)}), TOPIC, [99, 100, 101]) == [bytes(2), bytes(2), b"\1\2"]


def test_filters_of_consumers_that_left_count(tmp_path):
    assert batch(bit_maps(tmp_path, {"g": group(dead=True)}), TOPIC, [200]) == [b"\1\2"]


def test_a_topic_without_filters_gets_no_bit_maps(tmp_path):
    assert batch(bit_maps(tmp_path, {"g": group()}), "Other", [200, 201]) == [b"", b""]
    assert batch(bit_maps(tmp_path, {}), TOPIC, [200]) == [b""]


@pytest.mark.parametrize(
    "wrong",
    [
        group("a IN (5)"),
        group(bits=(16,)),
        group(bits=(-1,)),
        group(expressionType="TAG"),
        {"expressionType": "SQL92"},
        group(bornTime="soon"),
        group(bloomFilterData={"bitNum": 1 << 40, "bitPos": [3]}),
    ],
    ids=range(7),
)
def test_one_filter_that_cannot_be_followed_leaves_its_topic_without_bit_maps(tmp_path, wrong):
    found = bit_maps(tmp_path, {"g": group(), "bad": wrong})
    assert batch(found, TOPIC, [200]) == [b""]
    assert "bad" in found.problems[0]


def test_filters_of_different_widths_leave_their_topic_without_bit_maps(tmp_path):
    wider = group(bloomFilterData={"bitNum": 32, "bitPos": [3]})
    assert batch(bit_maps(tmp_path, {"g": group(), "h": wider}), TOPIC, [200]) == [b""]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"filterDataByTopic":[]}', '{"filterDataByTopic":{"Ext":[1]}}'])
def test_a_file_that_cannot_be_read_is_reported(tmp_path, text):
    bit_maps(tmp_path, {})
    (tmp_path / "config" / "consumerFilter.json").write_text(text)
    with mqtool.open(tmp_path) as store:
        found = bit_maps_of(store)
    assert batch(found, TOPIC, [200]) == [b""]
    assert found.problems or text == '{"filterDataByTopic":[]}'


def test_without_a_file_there_are_no_filters(tmp_path):
    (tmp_path / "commitlog").mkdir()
    with mqtool.open(tmp_path) as store:
        assert bit_maps_of(store).filters == {}


def test_a_broker_that_calculates_none_makes_none(tmp_path):
    assert batch(bit_maps(tmp_path, {"g": group()}, {"enableCalcFilterBitMap": "false"}), TOPIC, [200]) == [b""]
