"""Computes fingerprints of files without changing their access times."""

import hashlib
from pathlib import Path

from mqtool.repair.plan import Fingerprint
from mqtool.store.files import LARGEST, ReadFile

_BLOCK = 1 << 20


def fingerprint(path: Path, *, full: bool = True) -> Fingerprint | None:
    """Returns the fingerprint of a regular file, or None if it is missing.

    Args:
        path: of the file.
        full: hash all bytes, unless the file is longer than any file of a broker; otherwise only size and time.

    Raises:
        StoreError: the file cannot be read.
    """
    if not path.exists():
        return None
    status = path.stat()
    return Fingerprint(status.st_size, status.st_mtime_ns, sha256_of(path) if full else None)


def is_left_out(fingerprint: Fingerprint) -> bool:
    """Whether a file is too long to be hashed."""
    return fingerprint.size > LARGEST


def result_of(path: Path) -> Fingerprint:
    """Returns the fingerprint of a newly built file, whose time has no meaning."""
    return Fingerprint(path.stat().st_size, None, sha256_of(path))


def sha256_of(path: Path) -> str | None:
    """Returns the SHA-256 of a file, or None if it is longer than `LARGEST`. Holes count as zeros and are not read."""
    digest = hashlib.sha256()
    zeros = bytes(_BLOCK)
    with ReadFile(path) as file:
        if file.size > LARGEST:
            return None
        at, end = 0, file.data_end()
        while at < file.size:
            count = min(_BLOCK, file.size - at)
            digest.update(file.read(at, count) if at < end else memoryview(zeros)[:count])
            at += count
    return digest.hexdigest()
