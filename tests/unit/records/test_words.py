"""Columns of hashes are held to the string hash, one string at a time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mqtool.formats import index_file, java
from mqtool.records import words

characters = st.characters(codec="utf-8")
columns = st.lists(st.text(characters, max_size=30) | st.text(st.sampled_from("aZ0|"), max_size=300), max_size=20)


def column(blocks):
    """Strings in a buffer, each after another byte, with what `java_hashes` asks for around them."""
    data, starts = bytearray(words.PAD), []
    for block in blocks:
        data += b"#"
        starts.append(len(data))
        data += block
    data += bytes(words.PAD)
    return (
        np.frombuffer(bytes(data), np.uint8),
        np.array(starts, np.int64),
        np.array([len(b) for b in blocks], np.int64),
    )


def hashes_of(blocks):
    found, lengths = words.java_hashes(*column(blocks))
    assert found.dtype == np.uint32
    return found, lengths


@given(columns)
def test_hashes_and_lengths_are_those_of_each_string(strings):
    found, lengths = hashes_of([text.encode() for text in strings])
    assert found.view(np.int32).tolist() == [java.string_hash(text) for text in strings]
    assert lengths.tolist() == [java.length(text) for text in strings]


@given(columns)
def test_index_hashes_are_those_of_each_string(strings):
    found, _ = hashes_of([text.encode() for text in strings])
    assert words.index_hashes(found).tolist() == [index_file.key_hash(text) for text in strings]


@given(st.lists(st.binary(max_size=9), max_size=9))
def test_malformed_strings_are_hashed_as_java_decodes_them(blocks):
    found, _ = hashes_of(blocks)
    assert found.view(np.int32).tolist() == [java.string_hash(java.decode_utf8(block)) for block in blocks]


def test_strings_of_the_largest_size_that_properties_have():
    strings = ["x" * 32767, "y", "z" * 32760, "", "é" * 16383]
    found, lengths = hashes_of([text.encode() for text in strings])
    assert found.view(np.int32).tolist() == [java.string_hash(text) for text in strings]
    assert lengths.tolist() == [len(text) for text in strings]


def test_the_smallest_int_becomes_zero():
    found, _ = hashes_of([b"polygenelubricants"])
    assert found.view(np.int32).tolist() == [java.INT_MIN]
    assert words.index_hashes(found).tolist() == [0]


def test_values_that_share_a_place_in_the_table_keep_their_numbers():
    values = np.random.default_rng(1).integers(1, 1 << 63, 1000).astype(np.uint64)
    table = words.WordTable()
    assert len(np.unique(table._slots(values))) < len(values)
    assert table.numbers_of(values).tolist() == list(range(len(values)))
    assert table.numbers_of(values[::-1]).tolist() == list(range(len(values)))[::-1]
    assert table.values == values.tolist()
