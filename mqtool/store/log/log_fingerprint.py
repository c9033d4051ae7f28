"""Identifies a log by some of its bytes, so that an interrupted run is not continued with another log."""

import hashlib

from msgspec import Struct

from mqtool.errors import StoreError
from mqtool.store.log.commit_log import CommitLog

PRINT_BYTES = 4096
"""Bytes that a fingerprint covers at most."""


class Fingerprint(Struct, frozen=True):
    """Identifies a log or file by bytes that do not change."""

    offset: int  # physical offset of the first byte in a log; 0 in a file
    count: int  # number of bytes
    digest: str  # BLAKE2b digest of the bytes, hexadecimal


def fingerprint_of(offset: int, data: bytes) -> Fingerprint:
    """Returns the fingerprint of bytes at an offset."""
    return Fingerprint(offset, len(data), hashlib.blake2b(data, digest_size=16).hexdigest())


def fingerprint_at_start(log: CommitLog) -> Fingerprint | None:
    """Returns the fingerprint of a log's first bytes, which stay as it grows; None if empty; raises StoreError."""
    count = min(PRINT_BYTES, log.max_offset - log.min_offset)
    return fingerprint_of(log.min_offset, log.read(log.min_offset, count)) if count else None


def fingerprint_before(log: CommitLog, end: int) -> Fingerprint | None:
    """Returns the fingerprint of a log's last bytes before a physical offset; None without any; raises StoreError."""
    segment = next((candidate for candidate in reversed(log.segments) if candidate.base < end), None)
    if segment is None:
        return None
    end = min(end, segment.end)
    first = max(segment.base, end - PRINT_BYTES)
    return fingerprint_of(first, log.read(first, end - first))


def matches(log: CommitLog, fingerprint: Fingerprint) -> bool:
    """Whether a log still has the bytes of a fingerprint; True if their segment has expired since."""
    if log.min_offset > fingerprint.offset:
        return True
    try:
        return fingerprint_of(fingerprint.offset, log.read(fingerprint.offset, fingerprint.count)) == fingerprint
    except StoreError:
        return False
