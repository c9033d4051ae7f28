"""Compressed bodies: the real ones, judged by what the broker's decoder made of them, and hostile ones."""

import base64
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.errors import FormatError, TruncatedError
from mqtool.formats import compression
from mqtool.formats.commit_log import SysFlag
from mqtool.formats.compression import CompressionType
from tests.support.compressed import compress
from tests.support.stores import answers

KINDS = tuple(CompressionType)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def compressed(name):
    return [line for line in answers(name, "messages") if line["decodedBody"] is not None]


@pytest.mark.parametrize("name", ["orders-4.9.7", "orders-5.5.0"])
def test_every_real_body_decodes_to_what_the_broker_decodes(name):
    kinds = set()
    for line in compressed(name):
        stored, expected = base64.b64decode(line["body"]), base64.b64decode(line["decodedBody"])
        assert compression.decode(stored, line["sysFlag"]) == expected
        kinds.add(compression.compression_type(line["sysFlag"]))
    assert kinds == set(KINDS)


@each_kind
def test_every_truncation_of_a_real_body_is_an_error(kind):
    bodies = [
        base64.b64decode(line["body"])
        for line in compressed("orders-5.5.0")
        if compression.compression_type(line["sysFlag"]) is kind
    ]
    stored = min(bodies, key=len)
    for size in range(len(stored)):
        with pytest.raises(FormatError):
            compression.decompress(stored[:size], kind)


@each_kind
@given(data=st.binary(max_size=5000))
def test_a_compressed_body_decompresses_to_itself(kind, data):
    packed = compress(data, kind)
    assert compression.decompress(packed, kind) == data
    assert compression.decode(packed, SysFlag.COMPRESSED | kind << 8) == data
    for size in range(len(packed) - 20, len(packed)):
        with pytest.raises(TruncatedError):
            compression.decompress(packed[: max(size, 0)], kind)


@each_kind
@given(data=st.binary(max_size=200))
def test_random_bytes_are_an_error_or_a_body(kind, data):
    with suppress(FormatError):
        assert len(compression.decompress(data, kind)) <= compression.DEFAULT_MAX_SIZE


@each_kind
def test_a_bomb_is_stopped_at_the_limit(kind):
    packed = compress(bytes(100 << 20), kind)
    with pytest.raises(FormatError, match="more than 1000 bytes"):
        compression.decompress(packed, kind, max_size=1000)


@each_kind
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 200_000])
def test_a_body_of_just_the_limit_is_decoded(kind, size):
    packed = compress(b"x" * size, kind)
    assert compression.decompress(packed, kind, max_size=size) == b"x" * size
    if size:
        with pytest.raises(FormatError, match="more than"):
            compression.decompress(packed, kind, max_size=size - 1)


@pytest.mark.parametrize("kind", [CompressionType.LZ4, CompressionType.ZSTD], ids=lambda kind: kind.name)
def test_frames_that_follow_each_other_are_one_body(kind):
    packed = compress(b"one", kind) + compress(b"two" * 1000, kind)
    assert compression.decompress(packed, kind) == b"one" + b"two" * 1000
    with pytest.raises(FormatError):
        compression.decompress(packed + b"garbage", kind)


def test_bytes_behind_a_zlib_stream_are_ignored_as_in_java():
    assert compression.decompress(zlib.compress(b"body") + b"garbage", CompressionType.ZLIB) == b"body"


@pytest.mark.parametrize(
    ("sys_flag", "kind"),
    [
        (0, None),
        (0x300, None),
        (0x1, CompressionType.ZLIB),
        (0x101, CompressionType.LZ4),
        (0x201, CompressionType.ZSTD),
        (0x301, CompressionType.ZLIB),
        (0x31 | 0x201, CompressionType.ZSTD),
    ],
)
def test_the_type_is_in_the_sys_flag(sys_flag, kind):
    assert compression.compression_type(sys_flag) is kind


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_an_unknown_type_is_an_error(number):
    with pytest.raises(FormatError, match=f"found {number}"):
        compression.decode(b"body", 1 | number << 8)


def test_a_body_that_is_not_compressed_is_given_back():
    assert compression.decode(b"\x00body", 0) == b"\x00body"
