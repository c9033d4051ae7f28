"""Properties strings: the broker's rules one by one, and every real string."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.formats import properties
from mqtool.formats.commit_log import parse_record
from tests.unit.formats.real import files, record_bytes, record_places

words = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), min_size=1)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"a\x01\x02", {}),
        (b"\x01b\x02", {}),
        (b"\x01\x02\x02", {}),
        (b"a\x02b\x01c\x02", {"b": "c"}),
        (b"ab\x02", {}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01\x01\x02", {"a": "\x01"}),
        (b"a\x01b\x02a\x01c\x02", {"a": "c"}),
        (b"\xc3\xa9\x01\xe4\xb8\xad\x02", {"é": "中"}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
        (b"a\x01\xe4\x02b\x01c", {"a": "\ufffd", "b": "c"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
    ],
)
def test_decoding_follows_the_brokers_rules(data, expected):
    assert properties.decode(data) == expected


def test_of_equal_names_the_last_value_stands_at_the_first_place():
    assert list(properties.decode(b"a\x011\x02b\x012\x02a\x013\x02").items()) == [("a", "3"), ("b", "2")]


def test_pairs_keep_every_repetition_in_stored_order():
    assert properties.pairs(b"a\x011\x02b\x01\x02a\x012") == [(b"a", b"1"), (b"a", b"2")]


@given(st.dictionaries(words, words), st.booleans())
def test_encoded_pairs_are_decoded_to_the_same_pairs(mapping, trailing):
    data = properties.encode(mapping.items(), trailing_separator=trailing)
    assert properties.decode(data) == mapping
    assert data.endswith(b"\x02") is (trailing and bool(mapping))


def test_every_real_string_is_encoded_to_its_own_bytes():
    with_tail = without_tail = repeated = 0
    for raw in record_bytes():
        data = parse_record(raw).properties
        if not data or b"\x01\x02" in data:  # an empty value is not a property, and is not encoded
            continue
        trailing = data.endswith(b"\x02")
        with_tail, without_tail = with_tail + trailing, without_tail + (not trailing)
        pairs = [(name.decode(), value.decode()) for name, value in properties.pairs(data)]
        assert properties.encode(pairs, trailing_separator=trailing) == data
        repeated += len(pairs) > len(properties.decode(data))
    assert with_tail > 1000
    assert without_tail > 1000
    assert repeated, "4.9 appends the batch's properties to those of each message"


@pytest.mark.parametrize(
    ("value", "keys"),
    [
        (None, ()),
        ("", ()),
        ("k", ("k",)),
        ("k1 k2  k3 ", ("k1", "k2", "k3")),
        (" ", ()),
        ("k k", ("k", "k")),
    ],
)
def test_keys_are_words(value, keys):
    assert properties.keys_of({} if value is None else {"KEYS": value}) == keys


@pytest.mark.parametrize(
    ("crc", "digits"),
    [
        (907060870, b"0780607090"),
        (123, b"3210000000"),
        (1132326231, b"1326232311"),
        (0, b"0000000000"),
    ],
)
def test_crc_digits_are_written_from_the_least_significant(crc, digits):
    tail = properties.crc32_tail(crc)
    assert tail == b"__CRC32#\x01" + digits + b"\x02"
    assert len(tail) == properties.CRC32_TAIL_SIZE


def crc_records():
    for path in files("commitlog/" + "0" * 20):
        if "propcrc" in path.as_posix():
            data = path.read_bytes()
            yield from (data[at : at + size] for at, size in record_places(data))


def test_every_real_crc_of_a_whole_record_is_rebuilt():
    records = list(crc_records())
    assert len(records) > 50
    for raw in records:
        assert properties.crc32_tail(zlib.crc32(raw[:-20]) & 0x7FFFFFFF) == raw[-20:]
        assert properties.with_crc32(raw[:-20] + bytes(20)) == raw


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", b""),
        (b"UNIQ_KEY\x01abc\x02TAGS\x01a\x02", b"abc"),
        (b"TAGS\x01a\x02UNIQ_KEY\x01abc", b"abc"),
        (b"TAGS\x01a\x02", b""),
        (b"UNIQ_KEY\x01\x02", b""),
        (b"MY_UNIQ_KEY\x01abc\x02", b""),
        (b"UNIQ_KEY\x01abc\x02MY_UNIQ_KEY\x01no\x02", b"abc"),
        (b"a\x01UNIQ_KEY\x01no\x02", b""),
        (b"UNIQ_KEY\x01a\x01UNIQ_KEY\x01b\x02", b"a\x01UNIQ_KEY\x01b"),
        (b"UNIQ_KEY\x01first\x02UNIQ_KEY\x01last\x02", b"last"),
        (b"UNIQ_KEY\x01first\x02UNIQ_KEY\x01\x02", b"first"),
    ],
)
def test_the_value_of_a_name_is_the_one_that_decode_finds(data, expected):
    assert properties.value(data, properties.mark(properties.UNIQUE_KEY)) == expected
    assert properties.decode(data).get(properties.UNIQUE_KEY, "").encode() == expected


@pytest.mark.parametrize(("data", "expected"), [(b"", b""), (b"a\x01b", b"a\x01b\x02"), (b"a\x01b\x02", b"a\x01b\x02")])
def test_a_string_is_terminated_once(data, expected):
    assert properties.terminated(data) == expected


def test_all_properties_of_a_name_are_left_out():
    assert properties.without(b"a\x011\x02b\x012\x02a\x013", "a") == b"b\x012\x02"


def test_a_changed_record_gets_its_own_crc_only_if_it_has_one():
    plain = b"a record without a CRC at its end"
    assert properties.renew_crc32(plain) == plain
    stale = plain + properties.crc32_tail(1)
    renewed = properties.renew_crc32(stale)
    assert renewed[:-20] == plain
    assert (
        renewed[-20:] == b"__CRC32#\x01" + str(zlib.crc32(plain) & 0x7FFFFFFF)[::-1].ljust(10, "0").encode() + b"\x02"
    )
