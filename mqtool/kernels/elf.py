"""ELF object files of x86-64: sections joined to one block of bytes that runs wherever it is loaded.

Compiled kernels refer only to their own constants, by distances. So a linker is not needed: the sections are put one
after the other, and the distances filled in. Source: System V ABI, AMD64 supplement, "Object Files".
"""

import struct
from typing import NamedTuple

from mqtool.errors import FormatError

_FILE = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_PROGBITS, _SYMTAB, _RELA = 1, 2, 4
_ALLOCATED = 2
_DISTANCES = {2, 4}
"""R_X86_64_PC32 and R_X86_64_PLT32: symbol + addend - place, in four bytes."""
_UNWINDING = ".eh_frame"


class _Section(NamedTuple):
    """A section header."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int

    def of(self, data: bytes) -> bytes:
        """Returns its bytes."""
        return data[self.offset : self.offset + self.size]


def image_of(data: bytes) -> tuple[bytes, dict[str, int]]:
    """Returns the code and constants of an object file as one block, and the position of each symbol in it.

    The block is to be loaded at a multiple of the largest alignment, e.g. at the start of a page.

    Raises:
        FormatError: it refers to something outside itself, or by address.
    """
    header = _FILE.unpack_from(data)
    start, size, count, names = header[6], header[11], header[12], header[13]
    sections = [_Section(*_SECTION.unpack_from(data, start + at * size)) for at in range(count)]
    image, places = bytearray(), {}
    for number, section in enumerate(sections):
        name = _text(sections[names].of(data), section.name)
        if section.kind == _PROGBITS and section.flags & _ALLOCATED and not name.startswith(_UNWINDING):
            image += bytes(-len(image) % max(section.align, 1))
            places[number] = len(image)
            image += section.of(data)
    table = next(section for section in sections if section.kind == _SYMTAB)
    texts = sections[table.link].of(data)
    symbols = list(_SYMBOL.iter_unpack(table.of(data)))
    for section in sections:
        if section.kind == _RELA and section.info in places:
            for at, info, addend in _RELOCATION.iter_unpack(section.of(data)):
                name, _, _, where, value, _ = symbols[info >> 32]
                if info & 0xFFFFFFFF not in _DISTANCES or where not in places:
                    raise FormatError(
                        f"compiled code refers to {_text(texts, name)!r} (relocation {info & 0xFFFFFFFF})"
                    )
                place = places[section.info] + at
                struct.pack_into("<i", image, place, places[where] + value + addend - place)
    addresses = {
        _text(texts, name): places[where] + value for name, _, _, where, value, _ in symbols if where in places
    }
    return bytes(image), addresses


def _text(texts: bytes, at: int) -> str:
    return texts[at : texts.index(b"\0", at)].decode()
