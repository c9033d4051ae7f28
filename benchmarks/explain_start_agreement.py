"""How often `mqtool explain-start` agrees with the real store, field by field, over all recorded starts.

    python benchmarks/explain_start_agreement.py [--only PART-OF-A-CASE-ID] [--fields exit,queues] [--quiet] [--more]

Each case is a base store with some bytes or files damaged; the real RocketMQ was started on it and its answer
recorded (fixtures/damage; with --more those of fixtures/damage/more, too). Exit code 1 if one of the five fields that must agree does not.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.golden.agreement import ASKED, MORE, differences, more_answers, more_cases, predicted
from tests.support.damage import CASES, damage_answers

FILES = (("4.9.7", None), ("5.5.0", None), ("5.5.0", "4.9.7"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose id contains this")
    parser.add_argument("--fields", default=",".join((*ASKED, *MORE)), help="list disagreements in these fields only")
    parser.add_argument("--quiet", action="store_true", help="no list of disagreements")
    parser.add_argument("--more", action="store_true", help="the cases that were thought of later, too")
    args = parser.parse_args()
    started, failed = time.perf_counter(), False
    cases = {name: (case, {}) for name, case in CASES.items()} | (more_cases() if args.more else {})
    for opened_by, written_by in FILES:
        answers = damage_answers(opened_by, written_by) | (more_answers(opened_by, written_by) if args.more else {})
        answers = {name: one for name, one in answers.items() if args.only in name}
        right: Counter[str] = Counter()
        for name, answer in answers.items():
            case, keys = cases[name]
            wrong = differences(predicted(case, opened_by, keys), answer, with_races=True)
            right.update(field for field in (*ASKED, *MORE) if field not in wrong)
            failed |= bool(wrong.keys() & set(ASKED))
            for field in wrong.keys() & set(args.fields.split(",")):
                if not args.quiet:
                    mine, theirs = map(json.dumps, wrong[field])
                    print(f"{name} by {opened_by}: {field}\n    predicted {mine}\n    answered  {theirs}")
        print(f"opened by {opened_by}, written by {written_by or opened_by}: {len(answers)} cases")
        for field in (*ASKED, *MORE):
            print(f"  {field:<12} {right[field]:>4} of {len(answers)}{'' if field in ASKED else '  (not required)'}")
    print(f"{time.perf_counter() - started:.1f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
