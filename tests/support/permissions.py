"""What a user without rights may read, although the tests may run as root."""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION = 0x20080522
_READS = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: with them root may read every file."""
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def without_rights() -> Iterator[None]:
    """While this lasts, modes of files count for this thread, as they do for any user but root."""
    header = struct.pack("Ii", _VERSION, 0)
    before = ctypes.create_string_buffer(24)
    _check(_LIBC.capget(header, before))
    effective, *others = struct.unpack("6I", before.raw)
    _check(_LIBC.capset(header, struct.pack("6I", effective & ~_READS, *others)))
    try:
        yield
    finally:
        _check(_LIBC.capset(header, before.raw))


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
