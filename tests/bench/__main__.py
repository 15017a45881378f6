"""``python -m tests.bench [compare|stages|generate] [--frames N]... [--rounds N]``: both reports, or what is named."""

from __future__ import annotations

import argparse
import sys

from tests.bench import compare

STAGE_FRAMES = 250_000


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("compare", "stages", "generate"))
    parser.add_argument("--frames", type=int, action="append", help="size of a capture; more than once for several")
    parser.add_argument("--rounds", type=int, help=f"default {compare.ROUNDS}")
    options = parser.parse_args()
    if options.what == "generate":
        from tests.bench import generate

        for size in options.frames or compare.SIZES:
            path, truth = generate.capture(size)
            compare.out(str(path))
            compare.say(f"{truth.frames:,} frames, {truth.total:,} packets")
        return 0
    if options.what != "stages":
        compare.compare(options.frames or compare.SIZES, options.rounds or compare.ROUNDS)
    if options.what != "compare":
        from tests.bench import generate, stages

        for size in options.frames if options.frames and options.what else [STAGE_FRAMES]:
            path, _ = generate.capture(size)
            compare.out(f"\n### Time by stage, {size:,} frames\n")
            compare.out(stages.stages(path, size, options.rounds or stages.ROUNDS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
