r"""Java's arithmetic, strings and properties files, as far as the broker's files depend on them.

Integers wrap, strings are sequences of UTF-16 units, `split` drops trailing empty strings. Everything here is tested
against known results of the JVM. Properties files are `broker.conf`, `namesrv.properties` and a DLedger checkpoint:
blanks after a value belong to it, blanks before it do not; a backslash escapes a character or continues a line; bytes
are ISO-8859-1, so other characters need `\uXXXX` (java.util.Properties.load).
"""

import re
import unicodedata
from collections.abc import Iterator

from mqtool.errors import FormatError

INT_MIN = -(1 << 31)
INT_MAX = (1 << 31) - 1
LONG_MIN = -(1 << 63)
LONG_MAX = (1 << 63) - 1
_LONG_DIGITS, _INT_DIGITS = 19, 10
"""Fewer digits than that always fit."""
_TOO_MANY_DIGITS = 20
"""No Java number has so many, but for zeros in front."""

_BLANKS = "".join(map(chr, range(0x21)))
_WHITESPACE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a"
    "\u2028\u2029\u205f\u3000"
)
"""The characters of `Character.isWhitespace`: unlike in Python, no non-breaking spaces, and not U+0085."""

_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")

_UNWRAPPED = 64
"""Units after which a hash is wrapped: at each one costs a third more, later the numbers become long."""

_PROPERTY_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_HEX = frozenset("0123456789abcdefABCDEF")


def to_int32(value: int) -> int:
    """Returns the result of the Java cast `(int)`."""
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def to_int64(value: int) -> int:
    """Returns the result of the Java cast `(long)`."""
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def divide(dividend: int, divisor: int) -> int:
    """Returns the quotient truncated toward zero, as Java's `/`; Python's `//` rounds down."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def utf16_units(text: str) -> bytes:
    """Returns the UTF-16 units of a string, big-endian, two bytes each; lone surrogates are kept."""
    return text.encode("utf-16-be", "surrogatepass")


def length(text: str) -> int:
    """Returns `String.length()`: UTF-16 units, so that a character beyond U+FFFF counts twice."""
    return len(text) + sum(character > "\uffff" for character in text)


def decode_utf8(data: bytes) -> str:
    """Returns `new String(data, UTF_8)`: malformed bytes become U+FFFD, so encoding again may differ.

    Python agrees with the JVM in how many U+FFFD stand for malformed bytes, except for encoded
    surrogates, of which the JVM makes one.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


def encode_utf8(text: str) -> bytes:
    """Returns `text.getBytes(UTF_8)`: a lone surrogate becomes '?'."""
    try:
        return text.encode()
    except UnicodeEncodeError:  # only surrogates cannot be encoded: those in pairs are joined, lone ones replaced
        pass
    joined = utf16_units(text).decode("utf-16-be", "surrogatepass")
    return joined.encode("utf-8", "replace")


def string_hash(text: str) -> int:
    """Returns `String.hashCode()`: Horner's rule with 31 over UTF-16 units, wrapped to 32 bits."""
    value = 0
    if text.isascii():
        units = text.encode("ascii")
        for start in range(0, len(units), _UNWRAPPED):
            for unit in units[start : start + _UNWRAPPED]:
                value = 31 * value + unit
            value &= 0xFFFFFFFF
    else:
        units = utf16_units(text)
        for high, low in zip(units[::2], units[1::2], strict=True):
            value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return to_int32(value)


def index_hash(text: str) -> int:
    """Returns the non-negative key hash of an index entry (IndexFile.indexKeyHashMethod).

    `Math.abs` leaves the smallest int negative; the broker replaces it by 0.
    """
    value = abs(string_hash(text))
    return 0 if value > INT_MAX else value


def split_drop_trailing(text: str, separator: str) -> list[str]:
    """Returns `text.split(separator)` of Java for a literal separator.

    Trailing empty strings are dropped, leading ones kept; the empty string gives `[""]`.
    """
    if separator not in text:
        return [text]
    parts = text.split(separator)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def trim(text: str) -> str:
    """Returns the result of `String.trim()`, which removes blanks and control characters only."""
    return text.strip(_BLANKS)


def is_blank(text: str) -> bool:
    """Returns `StringUtils.isBlank(text)` of Apache Commons: whether there is nothing but whitespace."""
    return not text.strip(_WHITESPACE)


def parse_long(text: str) -> int:
    """Returns `Long.parseLong(text)`, which takes digits of any script; FormatError is Java's NumberFormatException."""
    if text.isdecimal() and len(text) < _LONG_DIGITS and text.isascii():
        return int(text)
    return _parse(text, LONG_MIN, LONG_MAX, "long")


def parse_int(text: str) -> int:
    """Returns `Integer.parseInt(text)`; raises FormatError as `parse_long`."""
    if text.isdecimal() and len(text) < _INT_DIGITS and text.isascii():
        return int(text)
    return _parse(text, INT_MIN, INT_MAX, "int")


def parse_short(text: str) -> int:
    """Returns `Short.parseShort(text)`; raises FormatError as `parse_long`."""
    return _parse(text, -(1 << 15), (1 << 15) - 1, "short")


def json_int(value: object) -> int:
    """Returns an int field of a JSON document, or its digits as text, as fastjson does; FormatError for others."""
    return _json(value, INT_MIN, INT_MAX, "int")


def json_long(value: object) -> int:
    """Returns a long field of a JSON document; raises FormatError as `json_int`."""
    return _json(value, LONG_MIN, LONG_MAX, "long")


def _json(value: object, lowest: int, highest: int, kind: str) -> int:
    if isinstance(value, str):
        return _parse(value, lowest, highest, kind)
    if not isinstance(value, int) or isinstance(value, bool):
        raise FormatError(f"expected a Java {kind}, found {type(value).__name__}", layout="number")
    if not lowest <= value <= highest:
        raise FormatError(f"expected a Java {kind}, found a number of {value.bit_length()} bits", layout="number")
    return value


def parse_boolean(text: str | None) -> bool:
    """Returns `Boolean.parseBoolean(text)`: only "true", in any case, is true."""
    return text is not None and text.lower() == "true"


def _parse(text: str, lowest: int, highest: int, kind: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii():
        # Java looks at UTF-16 units: digits beyond U+FFFF are two units, and none of them a digit.
        values = (unicodedata.decimal(character, None) if character <= "\uffff" else None for character in digits)
        digits = "".join("?" if value is None else str(value) for value in values)
    if not digits.isdigit():
        raise FormatError(f"expected a Java {kind}, found {text[:40]!r}", layout="number")
    value = int(digits.lstrip("0")[:_TOO_MANY_DIGITS] or "0")
    signed = -value if text.startswith("-") else value
    if not lowest <= signed <= highest:
        raise FormatError(f"{text[:40]!r} does not fit a Java {kind}", layout="number")
    return signed


def parse_properties(data: bytes) -> dict[str, str]:
    r"""Returns keys and values, in file order; of duplicate keys the last one applies.

    Raises FormatError for `\u` without four hexadecimal digits, at which Java rejects the whole file.
    """
    return dict(_split(line) for line in _logical_lines(data.decode("iso-8859-1")))


def _logical_lines(text: str) -> Iterator[str]:
    """Yields lines without comments, leading blanks and line ends, each joined with its continuation lines."""
    line, continued = "", False
    for natural in _natural_lines(text):
        part = natural.lstrip(_PROPERTY_BLANKS)
        if not line and ((not part and not continued) or part[:1] in ("#", "!")):
            continued = False
            continue
        line += part
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if continued:
            line = line[:-1]
            continue
        if line:
            yield line
        line = ""
    if line:
        yield line


def _natural_lines(text: str) -> list[str]:
    """Splits at CR, LF and CR LF only."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _split(line: str) -> tuple[str, str]:
    """Splits a logical line at the first `=`, `:` or blank that no backslash escapes."""
    at, escaped = 0, False
    while at < len(line) and (escaped or line[at] not in "=:" + _PROPERTY_BLANKS):
        escaped = line[at] == "\\" and not escaped
        at += 1
    value = line[at:].lstrip(_PROPERTY_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_PROPERTY_BLANKS)
    return _unescape(line[:at]), _unescape(value)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    letters, at = [], 0
    while at < len(text):
        letter = text[at]
        at += 1
        if letter == "\\" and at < len(text):
            letter = text[at]
            at += 1
            if letter == "u":
                digits = text[at : at + 4]
                if len(digits) < 4 or not _HEX.issuperset(digits):
                    raise FormatError(
                        f"expected four hexadecimal digits after \\u, found {digits!r}", layout="properties"
                    )
                letter = chr(int(digits, 16))
                at += 4
            else:
                letter = _ESCAPES.get(letter, letter)
        letters.append(letter)
    return "".join(letters)
