"""Properties files as java.util.Properties.load reads them; tests/interop/test_configurations.py asks the real one."""

import pytest

from mqtool.errors import FormatError
from mqtool.formats.java import parse_properties


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a=1", {"a": "1"}),
        (b"a = 1 \n", {"a": "1 "}),
        (b"\t a\t1\t\r\nb:2\rc 3", {"a": "1\t", "b": "2", "c": "3"}),
        (b"# a=1\n  ! b=2\n\n \nc=3\n", {"c": "3"}),
        (b"a=1\\\n   2\\\r\n\t3\nb=4", {"a": "123", "b": "4"}),
        (b"a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        (b"a=\\\n#1\n", {"a": "#1"}),
        (b"a=\\u0041\\t\\n\\x\\\\\\ ", {"a": "A\t\nx\\ "}),
        (b"a\\=b\\ c=1", {"a=b c": "1"}),
        (b"a = = 1", {"a": "= 1"}),
        (b"a  =  :1", {"a": ":1"}),
        (b"a", {"a": ""}),
        (b"a=1\na=2", {"a": "2"}),
        (b"a=\xc3\xa9", {"a": "\u00c3\u00a9"}),
        (b"a=1\x0b\x1c2", {"a": "1\x0b\x1c2"}),
        (b"", {}),
    ],
)
def test_a_file_is_read_as_java_reads_it(data, expected):
    assert parse_properties(data) == expected


@pytest.mark.parametrize("data", [b"a=\\u", b"a=\\u12", b"a=\\u12g4\n", b"\\uxyza=1"])
def test_an_escape_without_four_digits_is_an_error(data):
    with pytest.raises(FormatError, match="four hexadecimal digits"):
        parse_properties(data)
