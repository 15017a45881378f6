"""``python -m tests.bench [NAME]``: one measurement; without a name compare.

compare: [--frames N] [--rounds N] [--figures FILE]  (writes docs/performance.md, or only figures into the file)
generate: [--frames N]... [--traffic clean|unfriendly|short]
live: [--rate PER_SECOND] [--seconds N] [--lint]
soak: [--connections N] [--rate PER_SECOND]
latency: [--rate PER_SECOND] [--seconds N]  (of a proxy)
replay: [--messages N] [--rounds N]
mutate: [--cases N] [--rounds N] [--reactions N] [--seeds N]
pipeline: [--frames N [--frames N]]  (of many connections, of one giant connection; 0 for none)
quiet: [--connections N]  (a watch with so many that are open)
skew: [--frames N]  (one server and one client with nearly all traffic, on Spark)
growth: [--kind NAME]... [--command NAME]... [--scale X]  (exit code 1 where one grows faster than n log n)
"""

from __future__ import annotations

import argparse
import inspect
import sys
from importlib import import_module
from typing import Any

from tests.bench import printing

NAMES = (
    "compare", "generate", "live", "soak", "latency", "replay", "mutate", "pipeline", "quiet", "skew",
    "growth",
)  # fmt: skip
"""Modules with a function `measure`, whose parameters are the options of these names."""


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=NAMES)
    parser.add_argument("--frames", type=int, action="append", help="size of a capture; more than once for several")
    parser.add_argument("--traffic", help="kind of the generated capture")
    parser.add_argument("--figures", help="file of the figures")
    parser.add_argument("--rounds", type=int, help="how often everything is measured")
    parser.add_argument("--rate", type=int, help="messages (live, latency) or connections (soak) per second")
    parser.add_argument("--seconds", type=float, help="how long messages are sent")
    parser.add_argument("--connections", type=int, help="how many there are in all")
    parser.add_argument("--messages", type=int, help="how many are published")
    parser.add_argument("--cases", type=int, help="how many are played for their speed")
    parser.add_argument("--reactions", type=int, help="how many are played for what comes back")
    parser.add_argument("--seeds", type=int, help="how many of each kind, with other choices")
    parser.add_argument("--kind", action="append", help="only this kind of adversarial capture; more than once")
    parser.add_argument("--command", action="append", help="only this command; more than once")
    parser.add_argument("--scale", type=float, help="make the adversarial captures so many times as large")
    parser.add_argument("--lint", action="store_const", const=True, help="with --lint of sniff")
    options = vars(parser.parse_args())
    what = options.pop("what")
    verdicts = [measured(name, options) for name in ([what] if what else NAMES[:1])]
    return 0 if all(verdicts) else 1


def measured(name: str, options: dict[str, Any]) -> bool:
    """Measure with the options that are given; whether everything is as it should be."""
    measure = import_module(f"tests.bench.{name}").measure
    wanted = inspect.signature(measure).parameters
    document = {option: value for option, value in options.items() if option in wanted and value is not None}
    return measure(printing.out, **document) is not False


if __name__ == "__main__":
    sys.exit(main())
