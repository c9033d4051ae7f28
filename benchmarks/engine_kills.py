"""Kills writing processes at random points, again and again, and checks what they had acknowledged.

    python benchmarks/engine_kills.py [--runs 1000] [--seed 0] [--directory DIR]

Each run: a process opens the store (recovering it), three producers put under SYNC_FLUSH, and at a random moment it
gets SIGKILL; then the store is opened, every acknowledged message is read at its place, it is closed, and `verify`
must find nothing. A store is taken through twenty kills, then a new one begins. Prints one JSON line; an
acknowledged message that is gone ends the script with the seed of its store.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.engine_kills import Victim

KILLS_A_STORE = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="kills in all")
    parser.add_argument("--seed", type=int, default=0, help="of the first store; the next has the next")
    parser.add_argument("--directory", type=Path, help="where stores are made; default: the system's temporary one")
    args = parser.parse_args()
    began, killed, acknowledged, seed = time.perf_counter(), 0, 0, args.seed
    while killed < args.runs:
        directory = Path(tempfile.mkdtemp(prefix="mqtool-", dir=args.directory))
        victim = Victim(directory / "store", random.Random(seed))
        try:
            for _ in range(min(KILLS_A_STORE, args.runs - killed)):
                victim.run()
                killed += 1
        except AssertionError as error:
            print(json.dumps({"seed": seed, "kill": killed, "wrong": str(error), "left": str(directory)}))
            return 1
        acknowledged += sum(map(len, victim.acknowledged.values()))
        shutil.rmtree(directory)
        seed += 1
    seconds = round(time.perf_counter() - began, 1)
    print(json.dumps({"kills": killed, "acknowledged": acknowledged, "lost": 0, "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
