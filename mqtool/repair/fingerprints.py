"""Fingerprints of files, taken without a trace."""

import hashlib
from pathlib import Path

from mqtool.repair.plan import Fingerprint
from mqtool.store.files import ReadFile

_BLOCK = 1 << 20


def fingerprint(path: Path, *, full: bool = True) -> Fingerprint | None:
    """Returns what a file is like, None if there is none.

    Args:
        path: of a regular file.
        full: read all of it; else size and time only.

    Raises:
        StoreError: it cannot be read.
    """
    if not path.exists():
        return None
    status = path.stat()
    return Fingerprint(status.st_size, status.st_mtime_ns, sha256_of(path) if full else None)


def result_of(path: Path) -> Fingerprint:
    """Returns the fingerprint of a file that was built aside: its time tells nothing."""
    return Fingerprint(path.stat().st_size, None, sha256_of(path))


def sha256_of(path: Path) -> str:
    """Returns the sum of all bytes; holes count as zeros and cost little."""
    digest = hashlib.sha256()
    zeros = bytes(_BLOCK)
    with ReadFile(path) as file:
        at, end = 0, file.data_end()
        while at < file.size:
            count = min(_BLOCK, file.size - at)
            digest.update(file.read(at, count) if at < end else memoryview(zeros)[:count])
            at += count
    return digest.hexdigest()
