"""Runs the simulator for a time: `python -m tests.simulation --minutes 5`; a seed that fails is printed and kept.

python -m tests.simulation --minutes 480            a night
python -m tests.simulation --seed 4711 --kind engine    one run again
"""

import argparse
import sys
import time
import traceback

from tests.simulation.runs import KINDS, simulate


def main() -> int:
    """Returns 1 if a seed failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to go on")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seed", type=int, help="only this seed")
    parser.add_argument("--kind", choices=[*KINDS], help="only this kind of run")
    asked = parser.parse_args()
    kinds = [asked.kind] if asked.kind else [*KINDS]
    end, seed, failed, faults = time.monotonic() + 60 * asked.minutes, asked.first, 0, 0
    runs = dict.fromkeys(kinds, 0)
    while time.monotonic() < end:
        for kind in kinds:
            number = seed if asked.seed is None else asked.seed
            try:
                faults += simulate(kind, number)
            except Exception:  # noqa: BLE001 - whatever it is, it is a finding
                failed += 1
                print(f"FAILED --kind {kind} --seed {number}", flush=True)
                traceback.print_exc()
            runs[kind] += 1
        seed += 1
        if asked.seed is not None:
            break
    print(f"runs: {runs}, faults: {faults}, failed: {failed}, seeds: {asked.first}..{seed - 1}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
