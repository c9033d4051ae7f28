"""How bodies become text."""

import base64

import pytest

from mqtool.cli.message_rows import BodyView, Redaction
from mqtool.cli.options import Body

BINARY = b"\xff\x00\x80"


@pytest.mark.parametrize(
    ("mode", "body", "expected"),
    [
        (Body.NONE, b"x", (None, "none")),
        (Body.TEXT, b"", ("", "text")),
        (Body.TEXT, "Straße 订单 🎈\0".encode(), ("Straße 订单 🎈\0", "text")),
        (Body.TEXT, BINARY, (base64.b64encode(BINARY).decode(), "base64")),
        (Body.TEXT, "\ud800".encode("utf-8", "surrogatepass"), ("7aCA", "base64")),
        (Body.HEX, BINARY, ("ff0080", "hex")),
        (Body.BASE64, b"abc", ("YWJj", "base64")),
        (Body.JSON, b'{"a": [1, null, "x"]}', ({"a": [1, None, "x"]}, "json")),
        (Body.JSON, b"12", (12, "json")),
        (Body.JSON, b"[1.5, -2e3]", ([1.5, -2000.0], "json")),
        (Body.JSON, b"no json", ("no json", "text")),
        (Body.JSON, b"NaN", ("NaN", "text")),
        (Body.JSON, b"[" * 100_000, ("[" * 100_000, "text")),
        (Body.JSON, BINARY, (base64.b64encode(BINARY).decode(), "base64")),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_body_in_each_mode(mode, body, expected):
    assert BodyView(mode).encode(body) == expected


@pytest.mark.parametrize(
    ("mode", "body", "most", "expected"),
    [
        (Body.TEXT, b"abcdef", 3, ("abc", "text")),
        (Body.TEXT, "aßb".encode(), 2, ("a", "text")),
        (Body.TEXT, b"abc", 3, ("abc", "text")),
        (Body.TEXT, b"ab\xff", 2, ("YWI=", "base64")),
        (Body.HEX, b"abcdef", 2, ("6162", "hex")),
        (Body.JSON, b"[1, 2]", 3, ("[1,", "text")),
    ],
)
def test_a_cut_body_stays_what_it_is(mode, body, most, expected):
    assert BodyView(mode, max_bytes=most).encode(body) == expected


@pytest.mark.parametrize(
    "body", [b"1" * 10_000, b"18446744073709551616", b"1e999", b"[" * 300 + b"]" * 300, rb'"\ud800"'], ids=len
)
def test_json_that_could_not_be_written_again_stays_text(body):
    assert BodyView(Body.JSON).encode(body) == (body.decode(), "text")


def test_equal_values_stay_equal_under_one_salt_only():
    one, other = Redaction(), Redaction()
    assert one.text("a") == one.text(b"a") != one.text("b")
    assert one.text("a") != other.text("a")
