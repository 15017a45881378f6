"""The laboratory by itself: `make lab SEED=1 CASES=300`, or `make lab SEED=1 CASE=17`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.lab.judge import RIGHT
from tests.lab.runs import is_good, report, run


def main() -> int:
    """Run cases, write the report, and say how to repeat what is not right."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--case", type=int, help="this one alone")
    parser.add_argument("--fault", action="append", default=[], help="draw this kind alone; may be repeated")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path("build/lab"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    numbers = range(options.cases) if options.case is None else [options.case]
    cases = []
    for case in run(numbers, options.seed, options.output, min(options.jobs, len(numbers)), options.fault):
        cases.append(case)
        judgement = case.judgement
        marks = [] if judgement is None else [*judgement.shown, *judgement.contradicted, *judgement.accused]
        if case.verdict != RIGHT or marks:
            lines = [f"{case.draw.number}: {case.verdict}: {case.draw}", *marks, *(case.redrawn or []), case.failure]
            sys.stdout.write("\n    ".join(line for line in lines if line) + "\n")
            sys.stdout.flush()
        if len(cases) % 20 == 0:
            report(cases, options.output)
    path = report(cases, options.output)
    sys.stdout.write(path.read_text("utf-8").partition("\n## ")[0] + f"\n{path}\n")
    return 0 if is_good(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
