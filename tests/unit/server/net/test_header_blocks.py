"""Header blocks, judged by the decoder and encoder of the library hpack."""

import hpack
import pytest
from hpack.exceptions import HPACKError
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtool.server.net.header_blocks import EMPTY_TABLE, HeaderDecoder, constant_block

LIMIT = 1 << 16
texts = st.binary(max_size=200)
blocks = st.lists(st.lists(st.tuples(st.binary(min_size=1, max_size=20), texts), max_size=12), max_size=6)


@settings(max_examples=150, deadline=None)
@given(blocks, st.booleans(), st.lists(st.integers(0, 4096), max_size=6))
def test_blocks_are_decoded_as_by_the_library(found, huffman, sizes):
    encoder, ours, theirs = hpack.Encoder(), HeaderDecoder(LIMIT), hpack.Decoder()
    for place, headers in enumerate(found):
        if place < len(sizes):
            encoder.header_table_size = sizes[place]
        block = encoder.encode(headers, huffman=huffman)
        expected = [tuple(one) for one in theirs.decode(block, raw=True)]
        assert ours.decode(block) == expected == headers
        assert ours.entries == theirs.header_table.dynamic_entries


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_end_as_with_the_library(block):
    def outcome(decode):
        try:
            return [tuple(one) for one in decode()]
        except HPACKError:
            return "refused"

    theirs = hpack.Decoder()
    assert outcome(lambda: HeaderDecoder(LIMIT).decode(block)) == outcome(lambda: theirs.decode(block, raw=True))


@pytest.mark.parametrize(
    "block",
    [
        b"\xff\xff\xff\xff\xff\x7f",  # an index of six bytes
        b"\x00\x84\xff\xff\xff\xff\x01v",  # a name of the end of Huffman's table
        b"\x00\x81\x00\x01v",  # a name that ends inside of a letter
        b"\x00\x05ab",  # a name that is cut
        b"\x3f\xe2\x1f",  # a table of 4,097 bytes
        b"\x82\x20",  # a size update after a header
    ],
    ids=["index", "end of table", "padding", "cut", "table", "late update"],
)
def test_an_invalid_block_is_refused_as_by_the_library(block):
    for decoder in (HeaderDecoder(LIMIT), hpack.Decoder()):
        with pytest.raises(HPACKError):
            decoder.decode(block)


def test_a_list_of_headers_that_is_too_long_is_refused():
    encoder, decoder = hpack.Encoder(), HeaderDecoder(10_000)
    decoder.decode(encoder.encode([("k", "v" * 3000)]))
    with pytest.raises(HPACKError):
        decoder.decode(encoder.encode([("k", "v" * 3000)] * 4))


def test_a_constant_block_is_the_same_at_any_point_of_a_connection():
    headers = [(b":status", b"200"), (b"grpc-message", b"caf%C3%A9 " * 50)]
    block, client = constant_block(headers), hpack.Decoder()
    client.max_allowed_table_size = 0  # it accepts no block before the table is empty
    for start in (EMPTY_TABLE, b"", b""):
        assert [tuple(one) for one in client.decode(start + block, raw=True)] == headers
    assert not client.header_table.dynamic_entries
