"""Configuration files: every real one is written back byte by byte; other text is a clear error."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.errors import FormatError
from mqtool.formats import config_files, config_json
from mqtool.formats.config_files import ConsumerOffsets, DataVersion, GroupConfig, TopicConfig
from mqtool.formats.config_json import JsonStyle
from tests.support.stores import FIXTURES, fixture
from tests.support.tables import in_parts
from tests.unit.formats.real import files, label

NAMES = ("*.json", "*.json.bak", "*etrics", "*etrics.bak")
DOCUMENTS = [path for name in NAMES for path in files(f"config/{name}")] + files("compaction/position-checkpoint*")
TYPED = {
    "topics": (config_files.parse_topics, config_files.build_topics),
    "subscriptionGroup": (config_files.parse_groups, config_files.build_groups),
    "consumerOffset": (config_files.parse_consumer_offsets, config_files.build_consumer_offsets),
    "lmqConsumerOffset": (config_files.parse_consumer_offsets, config_files.build_consumer_offsets),
    "delayOffset": (config_files.parse_delay_offsets, config_files.build_delay_offsets),
}
TYPED_FILES = [path for path in DOCUMENTS if path.name.partition(".")[0] in TYPED]

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | texts,
    lambda inner: (
        st.dictionaries(texts, inner, max_size=3)
        | st.dictionaries(st.integers(-9, 99), inner, max_size=3)
        | st.lists(inner, max_size=3)
    ),
    max_leaves=12,
)


COPIED_FROM_MASTER = {
    "ha-4.9.7/store-slave/config/delayOffset.json",
    "ha-4.9.7/store-slave/config/delayOffset.json.bak",
    "dledger3-5.5.0/store-n0/config/delayOffset.json.bak",
    "dledger3-5.5.0/store-n1/config/delayOffset.json.bak",
}
"""A slave writes the master's delay offsets as they came over the wire, on one line."""


def style_by_release(path) -> JsonStyle:
    if "etrics" in path.name or label(path) in COPIED_FROM_MASTER:
        return JsonStyle.COMPACT
    return JsonStyle.PRETTY_1 if "4.9.7" in label(path) else JsonStyle.PRETTY_2


@in_parts("path", DOCUMENTS, size=120)
def test_every_real_file_is_written_back_to_its_own_bytes(path):
    data = path.read_bytes()
    document = config_json.parse(data)
    assert config_json.build(document, style_by_release(path)) == data
    assert config_json.build(document, config_json.style_of(data)) == data


@in_parts("path", TYPED_FILES, size=120)
def test_typed_views_are_written_back_to_the_same_bytes(path):
    data = path.read_bytes()
    parse, build = TYPED[path.name.partition(".")[0]]
    assert build(parse(data), style_by_release(path)) == data


def test_the_fixtures_hold_every_kind_of_file():
    assert len(DOCUMENTS) > 400
    assert len(TYPED_FILES) > 200
    assert {path.name.partition(".")[0] for path in TYPED_FILES} == set(TYPED)


@in_parts("path", TYPED_FILES, size=120)
def test_only_derived_and_rare_members_are_left_to_extra(path):
    view = TYPED[path.name.partition(".")[0]][0](path.read_bytes())
    assert set(view.extra) <= {"groupTopicMap", "forbiddenTable"}


def test_topics_of_a_real_store():
    topics = config_files.parse_topics(fixture("compaction-5.5.0/store/config/topics.json").read_bytes())
    assert topics.data_version is not None
    assert topics.data_version.state_version == 0
    compact = topics.topic_config_table["Compact"]
    assert (compact.topic_name, compact.read_queue_nums, compact.write_queue_nums, compact.perm) == ("Compact", 1, 1, 6)
    assert compact.queue_type == "SimpleCQ"
    batch = config_files.parse_topics(fixture("bcq-5.5.0/store/config/topics.json").read_bytes())
    assert batch.topic_config_table["BatchTopic"].queue_type == "BatchCQ"


def test_topics_of_4_9_have_no_attributes():
    topics = config_files.parse_topics(fixture("orders-4.9.7/store/config/topics.json").read_bytes())
    assert topics.topic_config_table["Orders"] == TopicConfig("Orders", 4, 4, 6)
    assert topics.data_version == DataVersion(22, 1795219691423)


def test_groups_of_both_releases():
    old = config_files.parse_groups(fixture("orders-4.9.7/store/config/subscriptionGroup.json").read_bytes())
    new = config_files.parse_groups(fixture("orders-5.5.0/store/config/subscriptionGroup.json").read_bytes())
    assert old.subscription_group_table["pull-group"] == GroupConfig("pull-group")
    group = new.subscription_group_table["pull-group"]
    assert (group.consume_timeout_minute, group.extra) == (15, {"groupRetryPolicy": {"type": "CUSTOMIZED"}})


def test_consumer_offsets_of_a_real_store_by_group():
    found = config_files.parse_consumer_offsets(fixture("metadata-5.5.0/store/config/consumerOffset.json").read_bytes())
    assert found.by_group()["MetaGroup"] == {"Meta": {0: 5, 1: 6}}
    assert found.by_group()["CID_RMQ_SYS_TRANS"]["RMQ_SYS_TRANS_HALF_TOPIC"] == {0: 9}
    assert found.pull_offset_table["Meta@MetaGroup"] == {0: 5, 1: 6, 2: 0, 3: 0}


def test_offsets_of_light_queues_are_those_of_queue_zero():
    found = config_files.parse_consumer_offsets(b'{"lmqOffsetTable":{"%LMQ%a@g":7},"offsetTable":{"T@g":{0:1}}}')
    assert found == ConsumerOffsets({"T@g": {0: 1}}, {"%LMQ%a@g": 7})
    assert found.by_group() == {"g": {"%LMQ%a": {0: 7}, "T": {0: 1}}}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-4.9.7", {1: 20, 2: 4, 3: 4, 4: 1}),
        ("orders-5.5.0", {1: 19, 2: 4, 3: 5, 4: 1, 5: 1} | dict.fromkeys(range(6, 19), 0)),
    ],
)
def test_delay_offsets_are_by_level(name, expected):
    found = config_files.parse_delay_offsets(fixture(f"{name}/store/config/delayOffset.json").read_bytes())
    assert found.offset_table == expected


def test_any_file_may_have_a_data_version():
    document = config_json.parse(fixture("orders-5.5.0/store/config/timermetrics").read_bytes())
    assert config_files.data_version_of(document) == DataVersion(24, 1795221673334, 0)
    assert config_files.data_version_of({}) is None


@pytest.mark.parametrize(
    "path",
    [FIXTURES / "orders-4.9.7/store/config/lmqConsumerOffset.json", FIXTURES / "orders-5.5.0/store/config/topics.json"],
    ids=label,
)
def test_every_truncation_of_a_real_file_is_an_error(path):
    data = path.read_bytes()[:1500]
    for size in range(len(data)):
        with pytest.raises(FormatError):
            config_json.parse(data[:size])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" \n",
        b"[]",
        b"1",
        b"null",
        b"{",
        b"{]",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b"\xff{}",
        b'{"a":1}x',
        b"{a:1}",
        b"\0\0\0",
        b'{"a":' + b"9" * 1_000_000,
        b'{"' + b"\\" * 1_000_001,
        b"{" + b"1 " * 500_000,
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' * 100_000,
        b"[" * 100_000,
        b'{"a":1,}',
        b'{"dataVersion":' * 20_000,
    ],
)
def test_other_text_is_an_error(data):
    with pytest.raises(FormatError) as caught:
        config_json.parse(data)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("parse", "data"),
    [
        (config_files.parse_topics, b'{"topicConfigTable":[]}'),
        (config_files.parse_topics, b'{"topicConfigTable":{"T":1}}'),
        (config_files.parse_topics, b'{"topicConfigTable":{"T":{"perm":"six"}}}'),
        (config_files.parse_topics, b'{"topicConfigTable":{"T":{"perm":{}}}}'),
        (config_files.parse_topics, b'{"topicConfigTable":{"T":{"order":"yes"}}}'),
        (config_files.parse_topics, b'{"dataVersion":7}'),
        (config_files.parse_groups, b'{"subscriptionGroupTable":{"g":{"attributes":[]}}}'),
        (config_files.parse_consumer_offsets, b'{"offsetTable":{"T@g":7}}'),
        (config_files.parse_consumer_offsets, b'{"offsetTable":{"T@g":{"x":7}}}'),
        (config_files.parse_consumer_offsets, b'{"offsetTable":{"T@g":{0:"seven"}}}'),
        (config_files.parse_consumer_offsets, b'{"lmqOffsetTable":{"T@g":{}}}'),
        (config_files.parse_delay_offsets, b'{"offsetTable":7}'),
    ],
)
def test_a_value_of_a_wrong_type_is_an_error_that_names_its_place(parse, data):
    with pytest.raises(FormatError, match="expected") as caught:
        parse(data)
    assert caught.value.field


def test_quoted_numbers_are_read_as_queue_ids_too():
    assert config_files.parse_consumer_offsets(b'{"offsetTable":{"T@g":{"0":7}}}').offset_table == {"T@g": {0: 7}}


@given(st.dictionaries(texts, documents, max_size=4), st.sampled_from(JsonStyle))
def test_a_built_document_is_parsed_to_the_same_values(document, style):
    assert config_json.parse(config_json.build(document, style)) == document


@given(st.dictionaries(texts, texts, max_size=4))
def test_a_document_without_number_keys_is_plain_json(document):
    assert json.loads(config_json.build(document, JsonStyle.PRETTY_2)) == document


@given(st.binary(max_size=60))
def test_random_bytes_never_raise_anything_else(data):
    with suppress(FormatError):
        assert isinstance(config_json.parse(b"{" + data), dict)


def topics_with(member, value):
    return json.dumps({"topicConfigTable": {"T": {"topicName": "T", member: value}}}).encode()


@pytest.mark.parametrize(
    ("member", "value", "expected"),
    [
        ("perm", "6", 6),
        ("perm", "+4", 4),
        ("perm", "06", 6),
        ("perm", 6.5, 6),
        ("perm", -6.9, -6),
        ("perm", True, 1),
        ("perm", [6], 6),
        ("order", "true", True),
        ("order", "FALSE", False),
        ("order", 1, True),
        ("order", 0, False),
    ],
)
def test_values_of_another_type_are_converted_as_by_the_broker(member, value, expected):
    """Converted by TopicConfigSerializeWrapper of 4.9.7 and 5.5.0; the list only by 5.5.0."""
    found = config_files.parse_topics(topics_with(member, value)).topic_config_table["T"]
    assert (getattr(found, member), type(getattr(found, member))) == (expected, type(expected))


@pytest.mark.parametrize(
    ("member", "value"),
    [("perm", " 6"), ("perm", "six"), ("perm", [6, 4]), ("perm", [True]), ("perm", ""), ("order", 2), ("order", "yes")],
)
def test_values_that_releases_refuse_or_read_differently_are_an_error(member, value):
    with pytest.raises(FormatError, match=member):
        config_files.parse_topics(topics_with(member, value))


def test_positions_that_are_texts_are_numbers():
    data = b'{"offsetTable":{"T@G":{0:"5",1:6}}}'
    assert config_files.parse_consumer_offsets(data).offset_table == {"T@G": {0: 5, 1: 6}}
