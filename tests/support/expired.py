"""A store with a queue whose messages have all expired: only its file still shows where it continues."""

import json
from pathlib import Path

from tests.support.builder import StoreBuilder

KEYS = {"mappedFileSizeConsumeQueue": 1000, "maxHashSlotNum": 50, "maxIndexNum": 200}


def store_with_expired_queue(root: Path) -> Path:
    """Queue Quiet/0 ends at 10 and has no message; group G consumed all of it. Queue Gone/0 does not exist."""
    builder = StoreBuilder()
    for number in range(10):
        builder.put(b"quiet %d" % number, topic="Quiet")
    for number in range(150):
        builder.put(b"busy %d" % number * 40, topic="Busy")
    builder.write(root)
    (root / "commitlog" / f"{0:020d}").unlink()
    positions = {"Quiet@G": {"0": 10}, "Busy@G": {"0": 5}, "Gone@G": {"0": 7}}
    document = {"dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 0}, "offsetTable": positions}
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text(json.dumps(document))
    return root
