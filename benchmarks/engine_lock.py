"""The append lock: a mutex of the interpreter against a lock that spins, with one and with many producers.

    python benchmarks/engine_lock.py [--messages 40000] [--size 100] [--rounds 5]

The real store chooses between a ReentrantLock and a spinning one. Both kinds of lock are put into the same engine in
turn, in the same rounds. Prints a JSON line per number of producers: messages a second with each, and their ratio.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mqtool.engine import StoreOptions, open_store


class SpinLock:
    """Tries again until it succeeds, giving the interpreter away in between; the owner needs it to get on."""

    def __init__(self) -> None:
        self._inner = threading.Lock()
        self.release = self._inner.release
        self.locked = self._inner.locked

    def acquire(self) -> None:
        """Spins."""
        taken = self._inner.acquire
        while not taken(blocking=False):
            time.sleep(0)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def rate(lock: Any, producers: int, messages: int, body: bytes) -> float:
    """Messages a second until the last put has returned."""
    with tempfile.TemporaryDirectory() as directory:
        store = open_store(Path(directory) / "store", StoreOptions(commit_log_file_size=1 << 28), background=False)
        store._components.log.lock = lock
        store._acquire, store._release = lock.acquire, lock.release
        start = threading.Barrier(producers + 1)

        def produce(queue_id: int) -> None:
            start.wait()
            for _ in range(messages // producers):
                store.put("bench", queue_id, body)

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(producers)]
        for thread in threads:
            thread.start()
        start.wait()
        began = time.perf_counter()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
        store.close()
    return messages / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    for producers in (1, 4, 16, 64):
        found: dict[str, list[float]] = {"mutex": [], "spin": []}
        for _ in range(args.rounds):
            found["mutex"].append(rate(threading.Lock(), producers, args.messages, b"x" * args.size))
            found["spin"].append(rate(SpinLock(), producers, args.messages, b"x" * args.size))
        ratios = [spin / mutex for mutex, spin in zip(found["mutex"], found["spin"], strict=True)]
        print(
            json.dumps(
                {
                    "producers": producers,
                    "mutex": round(statistics.median(found["mutex"])),
                    "spin": round(statistics.median(found["spin"])),
                    "spin_of_mutex": round(statistics.median(ratios), 2),
                }
            )
        )


if __name__ == "__main__":
    main()
