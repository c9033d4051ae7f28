"""Advice to the kernel about mapped pages: fault in, lock, drop.

`mmap.madvise` holds the interpreter lock while the kernel works; these calls release it, so that one thread can
fault in pages while another writes. All are optimisations: they return False if the kernel does not support them, and
no result depends on them. They replace DefaultMappedFile.warmMappedFile, mlock and LibC (4.9.7, 5.5.0).
"""

import contextlib
import ctypes
import mmap

PAGE_SIZE = 4096
"""Bytes of a page in the broker's flush rules (MappedFile.OS_PAGE_SIZE)."""

_POPULATE_WRITE = 23
_WILL_NEED = 3

_LIBC = ctypes.CDLL(None, use_errno=True)


def populate(mapping: mmap.mmap, start: int, end: int) -> bool:
    """Makes the pages of a range present and writable, so that writing causes no page fault (Linux 5.14)."""
    return _call("madvise", mapping, start, end, _POPULATE_WRITE)


def will_need(mapping: mmap.mmap, start: int, end: int) -> bool:
    """Asks the kernel to read a range ahead."""
    return _call("madvise", mapping, start, end, _WILL_NEED)


def buffer(size: int) -> mmap.mmap:
    """Returns zeroed private memory, in huge pages if the kernel grants them, which saves page faults."""
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError, AttributeError):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


def lock(mapping: mmap.mmap, start: int, end: int) -> bool:
    """Keeps a range in memory; False where the limit on locked memory forbids it."""
    return _call("mlock", mapping, start, end)


def unlock(mapping: mmap.mmap, start: int, end: int) -> bool:
    """Undoes `lock`."""
    return _call("munlock", mapping, start, end)


def _call(name: str, mapping: mmap.mmap, start: int, end: int, *advice: int) -> bool:
    function = getattr(_LIBC, name, None)
    start -= start % PAGE_SIZE
    end = min(end, len(mapping))
    if function is None or end <= start:
        return False
    # The mapping must not be closed while the kernel works on it: `anchor` holds it.
    anchor = ctypes.c_char.from_buffer(mapping)
    address = ctypes.c_void_p(ctypes.addressof(anchor) + start)
    done = bool(function(address, ctypes.c_size_t(end - start), *map(ctypes.c_int, advice)) == 0)
    del anchor
    return done
