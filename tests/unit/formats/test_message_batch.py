"""Batches: real inner batches against what consumers were served; hostile lengths."""

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.errors import FormatError, TruncatedError
from mqtool.formats import codec, java, message_batch, properties
from mqtool.formats.commit_log import parse_record
from mqtool.formats.message_batch import BATCHED_MESSAGE
from tests.support.stores import answers, fixture
from tests.unit.formats.real import record_bytes, record_places

messages = st.builds(
    message_batch.make,
    body=st.binary(max_size=50),
    properties=st.binary(max_size=50),
    flag=st.integers(java.INT_MIN, java.INT_MAX),
)
SAMPLE = message_batch.build(message_batch.make(b"body", b"a\x01b\x02", 7))


def inner_batches():
    for raw in record_bytes():
        record = parse_record(raw)
        if message_batch.is_inner_batch(record.sys_flag):
            yield record


def test_every_real_inner_batch_is_split_and_joined_to_its_own_bytes():
    count = 0
    for record in inner_batches():
        parts = list(message_batch.split(record.body))
        assert b"".join(message_batch.build(part) for part in parts) == record.body
        assert len(parts) == int(properties.decode(record.properties)["INNER_NUM"])
        for part in parts:
            values = {name: getattr(part, name) for name in part.__struct_fields__}
            assert codec.parse(BATCHED_MESSAGE, message_batch.build(part)) == values
        count += 1
    assert count > 10


def test_unwrapped_messages_are_those_that_consumers_were_served():
    served = {}
    for line in answers("bcq-5.5.0", "messages"):
        if line["kind"] == "message" and line["topic"] == "BatchTopic" and line["size"] == 0:
            served[line["queueId"], line["queueOffset"]] = line
    found = 0
    for path in sorted(fixture("bcq-5.5.0/store/commitlog").iterdir()):
        data = path.read_bytes()
        for position, _ in record_places(data):
            record = parse_record(data, position)
            if message_batch.is_inner_batch(record.sys_flag):
                for queue_offset, message in message_batch.unwrap(record.body, record.queue_offset):
                    line = served[record.queue_id, queue_offset]
                    assert message.body == base64.b64decode(line["body"])
                    assert properties.decode(message.properties).items() <= line["properties"].items()
                    assert (message.flag, record.physical_offset) == (line["flag"], line["phyOffset"])
                    found += 1
    assert found == len(served) > 50


@given(st.lists(messages, max_size=5))
def test_a_built_batch_is_split_into_the_same_messages(parts):
    assert list(message_batch.split(b"".join(message_batch.build(part) for part in parts))) == parts


def test_every_truncation_is_an_error():
    for size in range(1, len(SAMPLE)):
        with pytest.raises(TruncatedError):
            list(message_batch.split(SAMPLE + SAMPLE[:size]))


@pytest.mark.parametrize("field", [0, 16])
@pytest.mark.parametrize("value", [-1, 0, 3, 5, java.INT_MAX, java.INT_MIN])
def test_hostile_sizes_and_body_lengths_are_errors(field, value):
    with pytest.raises(FormatError) as caught:
        list(message_batch.split(SAMPLE[:field] + struct.pack(">i", value) + SAMPLE[field + 4 :]))
    assert caught.value.layout == "batched message"


@pytest.mark.parametrize("value", [-1, 0, 3, 5, 32767, -32768])
def test_hostile_properties_lengths_are_errors(value):
    with pytest.raises(FormatError):
        list(message_batch.split(SAMPLE[:24] + struct.pack(">h", value) + SAMPLE[26:]))


def test_an_empty_batch_has_no_messages():
    assert list(message_batch.split(b"")) == []


def test_a_message_whose_value_does_not_fit_its_field_is_refused():
    with pytest.raises(FormatError, match="flag"):
        message_batch.build(message_batch.make(b"body", b"", flag=1 << 31))
