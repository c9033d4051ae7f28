"""The messages of StoreBench.java, for the engine's benchmarks: same sizes, topics, queues, keys and tags."""

import argparse
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqtool.engine import FlushMode, MessageStore
from mqtool.engine.write.columns import MessageColumns

TOPICS = QUEUES = 4
_TAGS = pa.array([f"\x02TAGS\x01Tag{number}\x02" for number in range(8)])


class Shape:
    """What message number i looks like, and which queue takes it.

    Attributes:
        queues: topic and queue id by slot, `i % 16`.
        bodies: 1,024 different ones; message i has number `i & 1023`.
    """

    def __init__(self, size: int, *, text: bool = False) -> None:
        """Makes the bodies, of any bytes or of text as `dump` and its rival print it."""
        self.size = size
        self.queues = [(f"bench-{slot // QUEUES}", slot % QUEUES) for slot in range(TOPICS * QUEUES)]
        self.bodies = [os.urandom(size) for _ in range(1024)]
        if text:
            self.bodies = [body.hex()[:size].encode() for body in self.bodies]

    def units(self, store: MessageStore) -> int:
        """Units in all queues."""
        return sum(store.queue_bounds(*queue)[1] for queue in self.queues)

    def wait_for(self, store: MessageStore, expected: int) -> None:
        """Waits until the queues hold so many units and nothing is behind."""
        limit = time.monotonic() + 120
        while self.units(store) != expected or store.dispatch_behind:
            fail_unless(time.monotonic() < limit, f"{self.units(store)} units, expected {expected}")
            time.sleep(0.001)

    def columns(self, first: int, count: int) -> MessageColumns:
        """Messages first … first + count - 1 as columns."""
        numbers = np.arange(first, first + count)
        slots = numbers % len(self.queues)
        held = pc.binary_join_element_wise(
            "KEYS\x01k", pa.array(numbers).cast(pa.string()), _TAGS.take(numbers & 7), ""
        )
        return MessageColumns(
            [f"bench-{n}" for n in range(TOPICS)],
            slots // QUEUES,
            slots % QUEUES,
            [self.bodies[i] for i in (numbers & 1023).tolist()],
            held.cast(pa.binary()),
            born_timestamp=time.time_ns() // 1_000_000,
        )


def arguments(about: str, names: tuple[str, ...]) -> tuple[Path, dict[str, str]]:
    """Returns the directory of a run and its settings: words NAME=VALUE, as StoreBench takes them, of these names."""

    def setting(word: str) -> tuple[str, str]:
        name, equals, value = word.partition("=")
        if not equals or name not in names:
            raise argparse.ArgumentTypeError(f"expected NAME=VALUE with one of {', '.join(names)}, found {word}")
        return name, value

    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, metavar="DIR", help="a new directory, on the disk that is measured")
    parser.add_argument("settings", type=setting, nargs="*", metavar="NAME=VALUE", help=", ".join(names))
    given = parser.parse_args()
    return given.directory, dict(given.settings)


def options_from(given: Mapping[str, str]) -> dict[str, Any]:
    """Options of the store that are given by name."""
    found: dict[str, Any] = {}
    if "sync" in given:
        found["flush_mode"] = FlushMode.SYNC_FLUSH
    if "reserve" in given:
        found["reserve_bytes"] = int(given["reserve"])
    return found


def fail_unless(holds: bool, otherwise: str) -> None:
    """Ends a run whose counts are off."""
    if not holds:
        raise SystemExit(otherwise)
