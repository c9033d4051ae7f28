"""Compares logs by content, because exporting the same log twice would duplicate every message."""

import hashlib

from mqtool.errors import UsageError
from mqtool.store import Store

_BYTES = 4096


def require_different_logs(stores: list[Store]) -> None:
    """Checks that no two stores of an export have the same log.

    Raises:
        UsageError: two stores contain the same segment: copies, or master and slave.
    """
    seen: dict[tuple[int, bytes], Store] = {}
    for store in stores:
        for segment in store.commit_log.segments:
            head = store.commit_log.read(segment.base, _BYTES)
            if not any(head):
                continue
            key = segment.base, hashlib.blake2b(head, digest_size=16).digest()
            other = seen.setdefault(key, store)
            if other is not store:
                raise UsageError(
                    f"{other.path} and {store.path} contain the same log (segment {segment.path.name}): "
                    "they are copies, or master and slave; export one of them"
                )
