"""Machine code of the kernels in a file: written once after compiling, mapped by whoever uses it.

The file has a JSON header in its first pages, with the position and the layouts of each kernel, and then the code.
The code refers to nothing outside itself, so that mapping it is all the loading there is: no linker and no compiler
is needed, and processes share its pages. Addresses of C functions that a kernel calls are among its arguments.
"""

import ctypes
import json
import mmap
import os
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

Layout: TypeAlias = "str | tuple[Layout, ...]"
"""How a value is laid out: `int64`, `uint64` and `bool` are one number; `uint8[]`, `int32[]`, … address and length;
`int32[,]` an address and two lengths; `@name` the address of a C function (`_external`), which callers do not pass;
`none` is not a result. A tuple is its parts. A kernel that returns an `object` is a builtin function (`_binder`)."""

MAGIC = b"MQTOOLK1"
_HEAD = struct.Struct("<8sII")
"""Magic, length of the JSON header, position of the code."""
_DIGEST = 16

BYTES, I32, I64, U32, U64 = "uint8[]", "int32[]", "int64[]", "uint32[]", "uint64[]"
I32_TABLE, I64_TABLE = "int32[,]", "int64[,]"

OBJECT = "object"
BYTES_DATA = 32
"""Position of the data in a bytes object: what a builtin kernel gets as `self`."""

PREAD = "@pread"
"""The C library's: (file, address, bytes, position)."""
CRC32 = "@crc32_gzip_refl"
"""ISA-L's own function, which the library inside isal exports: (CRC so far, address, bytes)."""


class Image(NamedTuple):
    """Compiled kernels.

    Attributes:
        code: machine code that runs at any address that is a multiple of a page.
        kernels: position in the code, layout of the result, and layouts of the arguments, by name.
    """

    code: bytes
    kernels: Mapping[str, tuple[int, Layout, Layout]]

    def to_bytes(self) -> bytes:
        """Returns the file."""
        about = {"size": len(self.code), "digest": _digest(self.code), "kernels": self.kernels}
        header = json.dumps(about).encode()
        at = -(-(_HEAD.size + len(header)) // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        return (_HEAD.pack(MAGIC, len(header), at) + header).ljust(at, b"\0") + self.code


def _digest(code: bytes) -> str:
    return blake2b(code, digest_size=_DIGEST).hexdigest()


def functions_of(path: Path) -> dict[str, Any]:
    """Returns the kernels in a file as functions.

    Raises:
        OSError: it cannot be read or mapped as code.
        ValueError: it is not what `Image.to_bytes` returned.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD.size).ljust(_HEAD.size, b"\0")
        magic, length, at = _HEAD.unpack(head)
        if magic != MAGIC:
            raise ValueError(f"{path}: no compiled kernels")
        about = json.loads(file.read(length))
        state = os.fstat(file.fileno())
        key = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)
        if key not in _mapped:
            file.seek(at)
            if _digest(file.read()) != about["digest"]:
                raise ValueError(f"{path}: the code is not what was written")
            _mapped[key] = mmap.mmap(
                file.fileno(), about["size"], mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC, offset=at
            )
    start = np.frombuffer(_mapped[key], np.uint8).__array_interface__["data"][0]
    return functions_at(
        {name: (start + place, returns, takes) for name, (place, returns, takes) in about["kernels"].items()}
    )


_mapped: dict[tuple[int, int, int, int], mmap.mmap] = {}
"""Files with code by device, inode, size and change time. Each is mapped once, since every mapping has an open file.

Kept for the life of the process: another thread may be inside.
"""


def functions_at(kernels: Mapping[str, tuple[int, Layout, Layout]]) -> dict[str, Any]:
    """Returns the kernels at some addresses as functions; address, layouts of result and arguments by name.

    Raises:
        OSError: a C function that one of them calls is not in this process.
    """
    return {name: _function(*kernel) for name, kernel in kernels.items()}


def _function(address: int, returns: Layout, takes: Layout) -> Callable[..., Any] | None:
    """Returns a kernel as a function of what it takes, functions of C excepted.

    The interpreter's lock is released while it runs, unless it calls the interpreter itself.
    """
    if returns == OBJECT:
        return _binder(address, takes)
    prototype = ctypes.PYFUNCTYPE if any(str(kind).startswith("@Py") for kind in takes) else ctypes.CFUNCTYPE
    call = prototype(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(address)
    externals = [_external(kind[1:]) for kind in takes if isinstance(kind, str) and kind.startswith("@")]
    fill = _tuple_filler([kind for kind in takes if not (isinstance(kind, str) and kind.startswith("@"))])
    results = [] if returns == "none" else [returns] if isinstance(returns, str) else list(returns)
    casts = [bool if kind == "bool" else int for kind in results]

    def kernel(*arguments: Any) -> Any:
        values = externals.copy()
        fill(values, arguments)
        size = len(values) + 2
        block = (ctypes.c_int64 * size)(*values)
        at = ctypes.addressof(block)
        # numba's own convention: where a result and an error go, of which there are none, and the arguments
        if call(at + 8 * (size - 2), at + 8 * (size - 1), at):
            raise RuntimeError("a compiled loop failed")
        if isinstance(returns, str):
            return casts[0](block[0]) if casts else None
        return tuple(cast(value) for cast, value in zip(casts, block, strict=False))

    return kernel


class _MethodDefinition(ctypes.Structure):
    """PyMethodDef of the interpreter's C API."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_METH_FASTCALL = 0x80
_new_builtin = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


def _binder(address: int, takes: Layout) -> Callable[..., Any] | None:
    """Returns a function that makes a builtin function of a kernel; the builtin itself if it has no fixed arguments.

    Such a call costs some 50 ns, one through ctypes 700. The interpreter keeps its lock during the call. The kernel
    may use objects only through functions of the C API, which hold for every release since 3.11.

    The function that is returned takes the fixed arguments of the kernel: objects, which are kept alive as long as the
    builtin, or numbers. Instead of a builtin there is None where the interpreter has no lock, or lays out bytes objects
    in another way.
    """
    leaves = list(_leaves(takes))
    externals = [_external(kind[1:]) for kind in leaves if kind.startswith("@")]
    kinds = leaves[len(externals) :]
    definition = _MethodDefinition(b"kernel", address, _METH_FASTCALL, None)

    def bind(*fixed: Any) -> Callable[..., Any] | None:
        pairs = zip(kinds, fixed, strict=True)
        numbers = [id(value) if kind == "uint64" else int(value) for kind, value in pairs]
        block = struct.pack(f"={len(externals) + len(numbers)}q", *externals, *numbers)
        if address_of(block) != id(block) + BYTES_DATA or not _has_lock():
            return None
        # `fixed` is in the place of the module, so that the builtin keeps the objects alive
        return cast("Callable[..., Any]", _new_builtin(ctypes.addressof(definition), block, fixed))

    _definitions.append(definition)
    return bind if kinds else bind()


def _leaves(layout: Layout) -> Iterator[str]:
    if isinstance(layout, str):
        yield layout
    else:
        for part in layout:
            yield from _leaves(part)


_definitions: list[_MethodDefinition] = []
"""Builtins refer to them as long as they live."""


def _has_lock() -> bool:
    """Whether only one thread at a time runs the interpreter; builds of 3.13 and later may do without."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


_bytes_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyBytes_AsString", ctypes.pythonapi))


def address_of(data: bytes) -> int:
    """Returns where the bytes of an object are, as long as it lives; for kernels that take nothing but numbers."""
    return _bytes_at(data) or 0


def _tuple_filler(layouts: Any) -> Callable[[list[int], Any], None]:
    fillers = [_filler(layout) for layout in layouts]

    def fill(values: list[int], arguments: Any) -> None:
        for filler, argument in zip(fillers, arguments, strict=True):
            filler(values, argument)

    return fill


def _filler(layout: Layout) -> Callable[[list[int], Any], None]:
    """Returns the function that appends the numbers of an argument to those before."""
    if not isinstance(layout, str):
        return _tuple_filler(layout)
    if "[" not in layout:
        return lambda values, argument: values.append(int(argument))
    kind, _, dimensions = layout.partition("[")
    dtype, count = np.dtype(kind), len(dimensions)

    def fill(values: list[int], array: np.ndarray) -> None:
        if array.dtype != dtype or array.ndim != count or not array.flags.c_contiguous:
            raise TypeError(f"a compiled loop takes {layout}, not {array.dtype} of shape {array.shape}")
        values.append(array.__array_interface__["data"][0])
        values.extend(array.shape)

    return fill


def _external(name: str) -> int:
    """Returns the address of a C function by name."""
    try:
        if name == CRC32[1:]:
            from isal import isal_zlib  # noqa: PLC0415 - is not installed everywhere

            library: Any = ctypes.CDLL(isal_zlib.__file__)
        else:
            library = ctypes.pythonapi if name.startswith("Py") else ctypes.CDLL(None)
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except (ImportError, AttributeError) as error:
        raise OSError(f"no function {name}") from error
