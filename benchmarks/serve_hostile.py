"""Does `mqtool serve` harm over its protocol, and says what it cost and whether other peers were served meanwhile.

    python benchmarks/serve_hostile.py [--frames 100000] [--idle 5000] [--seed 0]

Mutated frames of every request code over many connections; connections that stay idle; a peer that asks for a hundred
thousand pulls and never reads. A second peer sends and reads what it sent all the time. Prints one JSON line for each;
a broker that ends, hangs or answers the second peer wrongly ends the script.
"""

import argparse
import json
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.hostile import Attack, idle, never_reads, resident, witness
from tests.support.remoting import Client
from tests.support.served import Served


class Witness(threading.Thread):
    """The peer that behaves, until it is told to stop."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.address, self.took, self.wrong = address, [0.0], ""
        self.stopping = threading.Event()

    def run(self) -> None:
        """Sends and reads, turn by turn."""
        try:
            with Client(self.address) as client:
                while not self.stopping.is_set():
                    began = time.perf_counter()
                    witness(client, len(self.took))
                    self.took.append(time.perf_counter() - began)
        except Exception as error:  # noqa: BLE001 - whatever it was, the broker failed it
            self.wrong = repr(error)

    def figures(self) -> dict[str, object]:
        """How many turns, how long the slowest hundredth took, and what was wrong."""
        took = sorted(self.took)
        return {
            "witness_turns": len(took),
            "witness_p99_ms": round(took[len(took) * 99 // 100] * 1000, 1),
            "witness_wrong": self.wrong,
        }


def measured(name: str, served: Served, work, **more: object) -> bool:
    """Does something beside a witness, and prints what came of it."""
    other = Witness(served.address)
    before, began = resident(served.process.pid), time.perf_counter()
    other.start()
    peak: list[int] = []
    found = work(lambda: peak.append(resident(served.process.pid)))
    other.stopping.set()
    other.join(60)
    after = resident(served.process.pid)
    print(
        json.dumps(
            {
                "what": name,
                **more,
                **found,
                "seconds": round(time.perf_counter() - began, 1),
                "resident_mb": [before >> 20, max([*peak, after]) >> 20, after >> 20],
                **other.figures(),
            }
        ),
        flush=True,
    )
    return not other.wrong and not other.is_alive() and served.process.poll() is None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=100_000, help="mutated frames in all")
    parser.add_argument("--idle", type=int, default=5_000, help="connections that stay idle")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations")
    parser.add_argument("--log", type=Path, help="where the broker's log is kept")
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * args.idle + 1000)), hard))
    with tempfile.TemporaryDirectory(prefix="mqtool-") as name:
        served = Served(Path(name) / "store", Path(name))

        def mutations(look) -> dict[str, object]:
            attack = Attack(served.address, args.seed)
            for _ in range(max(1, args.frames // 1000)):
                attack.run(min(1000, args.frames))
                look()
            unforeseen = (Path(name) / "serve.log").read_text("utf-8").count("handler failed")
            return {
                "outcomes": dict(attack.outcomes),
                "codes": dict(attack.codes.most_common(8)),
                "unforeseen": unforeseen,
            }

        def idling(look) -> dict[str, object]:
            with idle(served.address, args.idle):
                time.sleep(5)
                look()
            return {}

        def not_reading(look) -> dict[str, object]:
            with Client(served.address) as client:
                for _ in range(64):
                    assert client.put("Large", b"l" * 200_000).code == 0
            connection = never_reads(served.address, "Large", 100_000)
            time.sleep(5)
            look()
            connection.close()
            return {}

        try:
            good = measured("mutated frames", served, mutations, frames=args.frames)
            good &= measured("idle connections", served, idling, connections=args.idle)
            good &= measured("a peer that never reads", served, not_reading)
        except BaseException:
            served.stop(kill=True)
            raise
        served.stop()
        if args.log:
            args.log.write_bytes((Path(name) / "serve.log").read_bytes())
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
