"""Ask the planner many questions that nobody wrote down, and report every law that one of them
breaks.

make explore                 # 2,000 questions, about five minutes of one core
.venv/bin/python -m benchmarks.explore --questions 20000 --first 100000
"""

import argparse
import gc
import sys
import time
from collections import Counter

from tests.support.plan_laws import Finding, examine
from tests.support.questions import a_question

SHOWN = 5  # findings of one law that are printed in full


def main() -> int:
    """Ask, print what is found as it is found, then the counts; 1 where there is anything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=int, default=2000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    options = parser.parse_args()
    gc.set_threshold(
        100_000, 50, 100
    )  # hardly anything here is a cycle, and looking for some took a quarter of the time
    began, found, planned = time.process_time(), Counter[str](), 0
    for seed in range(options.first, options.first + options.questions):
        examined = examine(a_question(seed))
        planned += examined.planned
        for finding in examined.findings:
            found[finding.law] += 1
            _show(finding, found[finding.law])
    seconds = time.process_time() - began
    print(
        f"{options.questions:,} questions, {planned:,} with a plan, {seconds:,.0f} s of CPU; "
        f"findings: {dict(found) or 'none'}"
    )
    return 1 if found else 0


def _show(finding: Finding, count: int) -> None:
    if count <= SHOWN:
        print(finding, flush=True)


if __name__ == "__main__":
    sys.exit(main())
