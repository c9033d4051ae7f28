"""Java's semantics: every known answer here was given by a JVM (OpenJDK 17)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.errors import FormatError
from mqtool.formats import java


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("TAG1", 2567159),
        ("😀", 1772899),
        ("中文", 646394),
        ("polygenelubricants", -2147483648),
        ("AaAa", 2031744),
        ("BBBB", 2031744),
        ("\ufffd", 65533),
        ("𝟙", 1773124),
    ],
)
def test_known_string_hashes(text, expected):
    assert java.string_hash(text) == expected


@given(st.text())
def test_the_hash_is_horners_rule_over_utf16_units(text):
    units = [int.from_bytes(java.utf16_units(text)[at : at + 2]) for at in range(0, 2 * java.length(text), 2)]
    expected = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units)) & 0xFFFFFFFF
    assert java.string_hash(text) & 0xFFFFFFFF == expected


@given(st.text())
def test_an_index_hash_is_never_negative(text):
    assert java.index_hash(text) == abs(java.string_hash(text)) % (1 << 31)


@pytest.mark.parametrize(
    ("value", "int32", "int64"),
    [
        (127, 127, 127),
        (1 << 31, -(1 << 31), 1 << 31),
        (-1, -1, -1),
        (1 << 63, 0, -(1 << 63)),
        (-(1 << 63) - 1, -1, (1 << 63) - 1),
    ],
)
def test_casts_keep_the_low_bits(value, int32, int64):
    assert (java.to_int32(value), java.to_int64(value)) == (int32, int64)


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient"),
    [
        (7, 2, 3),
        (-7, 2, -3),
        (7, -2, -3),
        (-7, -2, 3),
        (0, 5, 0),
    ],
)
def test_division_truncates_toward_zero(dividend, divisor, quotient):
    assert java.divide(dividend, divisor) == quotient


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a  b ", ["a", "", "b"]),
        (" ", []),
        ("", [""]),
        (" a", ["", "a"]),
        ("a", ["a"]),
        ("   ", []),
    ],
)
def test_split_drops_trailing_empties(text, parts):
    assert java.split_drop_trailing(text, " ") == parts


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0a", "\ufffda"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xe0\x80\x80", "\ufffd" * 3),
        (b"\xc0\x80", "\ufffd" * 2),
        (b"\xe4\xb8a", "\ufffda"),
        (b"\xff\xfe", "\ufffd" * 2),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),
        (b"\xed\xa0\x80\xed\xb0\x80", "\ufffd\ufffd"),
        ("né😀".encode(), "né😀"),
    ],
)
def test_malformed_utf8_is_replaced_as_the_jvm_replaces_it(data, text):
    assert java.decode_utf8(data) == text


@pytest.mark.parametrize(("text", "data"), [("\ud83d", b"?"), ("a\udc00b", b"a?b"), ("\ud83d\ude00", "😀".encode())])
def test_lone_surrogates_are_encoded_as_question_marks(text, data):
    assert java.encode_utf8(text) == data


@pytest.mark.parametrize(("text", "units"), [("", 0), ("abc", 3), ("中文", 2), ("😀", 2), ("a😀b", 4)])
def test_length_counts_utf16_units(text, units):
    assert java.length(text) == units


def test_whitespace_is_that_of_the_jvm():
    """Of all characters: those for which Character.isWhitespace answers true."""
    ranges = [(0x9, 0xD), (0x1C, 0x20), (0x1680, 0x1680), (0x2000, 0x2006), (0x2008, 0x200A), (0x2028, 0x2029)]
    expected = {one for first, last in [*ranges, (0x205F, 0x205F), (0x3000, 0x3000)] for one in range(first, last + 1)}
    assert {one for one in range(0x110000) if java.is_blank(chr(one))} == expected
    assert [java.is_blank(text) for text in ("", " \t\u3000", " \u00a0 ", " a ")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("+1", 1),
        ("-1", -1),
        ("٣", 3),
        ("-٣", -3),
        ("１２", 12),
        ("0" * 40 + "1", 1),
        ("٠" * 30 + "5", 5),
        ("9223372036854775807", java.LONG_MAX),
        ("-9223372036854775808", java.LONG_MIN),
    ],
)
def test_numbers_that_java_parses(text, value):
    assert java.parse_long(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "+",
        " 1",
        "1 ",
        "1_0",
        "--1",
        "1.0",
        "𝟙",
        "x",
        "9223372036854775808",
        "-9223372036854775809",
        "9" * 100_000,
    ],
)
def test_numbers_that_java_refuses(text):
    with pytest.raises(FormatError):
        java.parse_long(text)


@pytest.mark.parametrize(
    ("parse", "lowest", "highest"),
    [
        (java.parse_short, -32768, 32767),
        (java.parse_int, java.INT_MIN, java.INT_MAX),
        (java.parse_long, java.LONG_MIN, java.LONG_MAX),
    ],
)
def test_each_width_ends_where_javas_does(parse, lowest, highest):
    assert (parse(str(lowest)), parse(str(highest))) == (lowest, highest)
    for value in (lowest - 1, highest + 1):
        with pytest.raises(FormatError, match="does not fit"):
            parse(str(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("TRUE", True),
        ("yes", False),
        ("", False),
        (None, False),
    ],
)
def test_only_true_is_true(text, value):
    assert java.parse_boolean(text) is value
