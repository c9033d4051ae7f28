r"""Java's properties files: `broker.conf`, `namesrv.properties`, a DLedger checkpoint.

Source: java.util.Properties.load. Blanks after a value belong to it, blanks before it do not; a backslash escapes a
character or continues a line; bytes are ISO-8859-1, so other characters need `\uXXXX`.
"""

from collections.abc import Iterator

from mqtool.errors import FormatError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_HEX = frozenset("0123456789abcdefABCDEF")


def parse(data: bytes) -> dict[str, str]:
    r"""Returns keys and values, in file order; of duplicate keys the last one applies.

    Raises:
        FormatError: `\u` without four hexadecimal digits, at which Java rejects the whole file.
    """
    return dict(_split(line) for line in _logical_lines(data.decode("iso-8859-1")))


def _logical_lines(text: str) -> Iterator[str]:
    """Yields lines without comments, leading blanks and line ends, each joined with its continuation lines."""
    line, continued = "", False
    for natural in _natural_lines(text):
        part = natural.lstrip(_BLANKS)
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
    while at < len(line) and (escaped or line[at] not in "=:" + _BLANKS):
        escaped = line[at] == "\\" and not escaped
        at += 1
    value = line[at:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
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
