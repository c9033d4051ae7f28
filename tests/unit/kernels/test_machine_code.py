"""Compiled loops take what they were compiled for, and nothing else."""

import struct

import numpy as np
import pytest

from mqtool import kernels
from mqtool.errors import FormatError
from mqtool.kernels import elf, machine_code

compiled = kernels.load()
pytestmark = pytest.mark.skipif(compiled is None, reason="needs numba")


def test_arrays_of_another_kind_are_refused():
    for wrong in (np.zeros(4, np.int32), np.zeros((2, 2), np.int64), np.zeros(8, np.int64)[::2]):
        with pytest.raises(TypeError, match="takes int64"):
            compiled.plain_entries(np.zeros(20, np.uint8), 1, np.zeros(4, np.int32), 0, wrong, *[None] * 6)


def test_wrong_number_of_arguments():
    with pytest.raises(ValueError, match="zip"):
        compiled.compare_slots(np.zeros(4, np.uint8))


def test_an_unknown_c_function():
    with pytest.raises(OSError, match="no function nowhere_at_all"):
        machine_code._external("nowhere_at_all")


def test_read_only_memory_is_taken():
    """What is read may be read-only: a window of the log."""
    data = np.frombuffer(bytes(100), np.uint8)
    tables = np.empty((5, 3), np.int32), np.empty((10, 3), np.int64)
    assert compiled.scan(data, 0, 0, True, np.empty(3, np.int64), *tables, np.empty(3, np.int32)) == (0, True, True)


def _object(relocation: int, symbol_section: int) -> bytes:
    """An object file: 16 bytes of code with one relocation at 4 to a symbol of another or of no section."""
    names = b"\0.text\0.rela.text\0.rodata\0.symtab\0.strtab\0"
    texts = b"\0f\0c\0"
    parts = [
        (b"", 0, 0, b"", 0, 0, 0),
        (b".text", 1, 6, bytes(16), 0, 0, 16),
        (b".rela.text", 4, 0, struct.pack("<QQq", 4, 2 << 32 | relocation, -4), 4, 1, 8),
        (b".rodata", 1, 2, b"constant", 0, 0, 8),
        (
            b".symtab",
            2,
            0,
            bytes(24)
            + struct.pack("<IBBHQQ", 1, 18, 0, 1, 8, 8)
            + struct.pack("<IBBHQQ", 3, 1, 0, symbol_section, 0, 8),
            5,
            1,
            8,
        ),
        (b".strtab", 3, 0, texts, 0, 0, 1),
        (b".shstrtab", 3, 0, names, 0, 0, 1),
    ]
    names = b"\0" + b"".join(part[0] + b"\0" for part in parts[1:])
    parts[-1] = (b".shstrtab", 3, 0, names, 0, 0, 1)
    body, headers = b"", b""
    for name, kind, flags, data, link, info, align in parts:
        at = names.index(b"\0" + name + b"\0") + 1 if name else 0
        headers += struct.pack("<IIQQQQIIQQ", at, kind, flags, 0, 64 + len(body), len(data), link, info, align, 24)
        body += data
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 1, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 7, 6)
    return head + body + headers


def test_distances_inside_an_object_file_are_filled_in():
    code, symbols = elf.image_of(_object(relocation=2, symbol_section=3))
    assert symbols == {"f": 8, "c": 16}
    assert code == bytes(4) + struct.pack("<i", 16 - 4 - 4) + bytes(8) + b"constant"


@pytest.mark.parametrize(("relocation", "section"), [(1, 3), (2, 0)])
def test_an_address_or_something_outside_is_refused(relocation, section):
    with pytest.raises(FormatError, match="'c'"):
        elf.image_of(_object(relocation, section))
