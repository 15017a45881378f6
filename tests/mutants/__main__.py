"""Draw small faults, plant each, and say which the tests find: `make mutants SEED=1 MUTANTS=300`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from tests.mutants.running import AREAS, ROOT, Verdict, drawn, equivalent, identity, judged

LEAST_FOUND = 85
LEAST_OF_AREA = 75
"""Percentages of all faults, and of the faults of each area, that tests have to find."""


def main() -> int:
    """Run, write the report, and end with 1 if too few faults are found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--area", action="append", choices=list(AREAS), help="this one alone; may be repeated")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "mutants")
    options = parser.parse_args()
    known, verdicts, survivors = equivalent(), list[Verdict](), list[str]()
    same = Counter[str]()
    rows = drawn(options.seed, options.count, options.area or list(AREAS))
    for verdict in judged(rows, options.build, options.jobs):
        source = (ROOT / verdict.mutant.path).read_text("utf-8")
        name = identity(verdict.mutant, source)
        if not verdict.found_by and name in known:
            same[verdict.area] += 1
            continue
        verdicts.append(verdict)
        if not verdict.found_by:
            survivors.append(f"{verdict.mutant.shown(source)}\n    {name}")
            _say(f"survived: {survivors[-1]}")
    text = report(verdicts, same, options.seed)
    options.build.mkdir(parents=True, exist_ok=True)
    texts = [f"{verdict.found_by}: {verdict.mutant}" for verdict in verdicts if verdict.found_by]
    lines = [text, "", "## Survivors", "", *survivors, "", "## Found", "", *texts, ""]
    (options.build / "report.md").write_text("\n".join(lines), "utf-8")
    _say(text)
    return 0 if is_good(verdicts) else 1


def percent(verdicts: list[Verdict]) -> float:
    """Share of the faults that tests found."""
    return 100 * sum(bool(verdict.found_by) for verdict in verdicts) / max(1, len(verdicts))


def is_good(verdicts: list[Verdict]) -> bool:
    """Whether enough faults were found, of all and of each area."""
    areas = {verdict.area for verdict in verdicts}
    parts = [[verdict for verdict in verdicts if verdict.area == area] for area in areas]
    return percent(verdicts) >= LEAST_FOUND and all(percent(part) >= LEAST_OF_AREA for part in parts)


def report(verdicts: list[Verdict], same: Counter[str], seed: int) -> str:
    """A table of all areas."""
    lines = [f"Seed {seed}", "", "| area | planted | found | % | equivalent |", "|---|--:|--:|--:|--:|"]
    for area in [*AREAS, "all"]:
        part = [verdict for verdict in verdicts if area in (verdict.area, "all")]
        count = same[area] if area != "all" else same.total()
        number = sum(bool(verdict.found_by) for verdict in part)
        if part:
            lines.append(f"| {area} | {len(part)} | {number} | {percent(part):.0f} | {count} |")
    return "\n".join(lines)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
