"""Columns of hashes are held to the string hash, one string at a time."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.formats import index_file, java
from mqtool.formats.consume_queue import tags_code
from mqtool.records import hashes

characters = st.characters(codec="utf-8")
columns = st.lists(st.text(characters, max_size=30) | st.text(st.sampled_from("aZ0|"), max_size=300), max_size=20)


def column(strings):
    encoded = [text.encode() for text in strings]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), offsets


@given(columns)
def test_hashes_are_those_of_each_string(strings):
    found = hashes.java_hash(*column(strings))
    assert found.dtype == np.int32
    assert found.tolist() == [java.string_hash(text) for text in strings]


@given(columns)
def test_index_hashes_and_tags_codes_are_those_of_each_string(strings):
    assert hashes.index_hash(*column(strings)).tolist() == [index_file.key_hash(text) for text in strings]
    assert hashes.tags_codes(*column(strings)).tolist() == [tags_code(text) for text in strings]


@given(columns)
def test_lengths_are_those_of_each_string(strings):
    assert hashes.utf16_lengths(*column(strings)).tolist() == [java.length(text) for text in strings]


@given(st.lists(st.tuples(st.text(characters, max_size=9), st.text(characters, max_size=9)), max_size=9))
def test_a_joined_hash_is_that_of_the_joined_strings(pairs):
    left, right = column([pair[0] for pair in pairs]), column([pair[1] for pair in pairs])
    found = hashes.joined_hash(hashes.java_hash(*left), hashes.java_hash(*right), hashes.utf16_lengths(*right))
    assert found.tolist() == [java.string_hash("".join(pair)) for pair in pairs]


@given(st.lists(st.binary(max_size=9), max_size=9))
def test_malformed_strings_are_hashed_as_java_decodes_them(blocks):
    offsets = np.cumsum([0, *map(len, blocks)]).astype(np.int64)
    found = hashes.java_hash(np.frombuffer(b"".join(blocks), np.uint8), offsets)
    assert found.tolist() == [java.string_hash(java.decode_utf8(block)) for block in blocks]


def test_strings_around_the_size_of_a_chunk():
    chunk = hashes._CHUNK_SIZE
    strings = ["x" * (chunk - 1), "y", "z" * chunk, "", "w" * (chunk + 1), "v" * (3 * chunk), "", "u"]
    assert hashes.java_hash(*column(strings)).tolist() == [java.string_hash(text) for text in strings]


def test_the_offsets_need_not_begin_at_zero():
    data, offsets = column(["skipped", "TagA", "TagB"])
    assert hashes.java_hash(data, offsets[1:]).tolist() == [2598919, 2598920]


def test_the_smallest_int_becomes_zero():
    assert hashes.java_hash(*column(["polygenelubricants"])).tolist() == [java.INT_MIN]
    assert hashes.index_hash(*column(["polygenelubricants"])).tolist() == [0]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@given(strings=columns, start=st.integers(0, 5))
def test_arrow_columns_are_hashed_whole_and_sliced(kind, strings, start):
    texts = pa.large_string() if str(kind).startswith("large") else pa.string()
    array = pa.array([*strings, None, "TagA"], texts).cast(kind)
    expected = [java.string_hash(text) for text in [*strings, "", "TagA"]]
    assert hashes.java_hash(*hashes.bytes_and_offsets(array[start:])).tolist() == expected[start:]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()])
def test_an_empty_arrow_column_has_no_hashes(kind):
    assert hashes.java_hash(*hashes.bytes_and_offsets(pa.array([], kind))).tolist() == []
