"""``python -m tests.bench [compare|stages|generate|live|soak|replay|mutate|pipeline|quiet|growth|skew]``: one, or two.

Without a name these are the first two.

compare, stages, generate: [--frames N]... [--rounds N]; generate: [--wrong SHARE] (of packets that break a rule)
live: [--rate PER_SECOND] [--seconds N] [--lint]
soak: [--connections N] [--rate PER_SECOND]
replay: [--messages N] [--rounds N]
mutate: [--cases N] [--rounds N] [--reactions N] [--seeds N]
pipeline: [--frames N [--frames N]]  (of many connections, of one giant connection; 0 for none)
quiet: [--connections N]  (a watch with so many that are open)
skew: [--frames N]  (one server and one client with nearly all traffic, on Spark)
growth: [--kind NAME]... [--command NAME]... [--scale X]  (exit code 1 where one grows faster than n log n)
"""

from __future__ import annotations

import argparse
import sys

from tests.bench import compare

STAGE_FRAMES = 250_000
WHAT = ("compare", "stages", "generate", "live", "soak", "replay", "mutate", "pipeline", "quiet", "growth", "skew")


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=WHAT)
    parser.add_argument("--frames", type=int, action="append", help="size of a capture; more than once for several")
    parser.add_argument("--wrong", type=float, default=0.0, help="share of packets that break the specification")
    parser.add_argument("--rounds", type=int, help=f"default {compare.ROUNDS}")
    parser.add_argument("--rate", type=int, help="messages (live) or connections (soak) per second")
    parser.add_argument("--seconds", type=float, help="how long messages are sent")
    parser.add_argument("--connections", type=int, help="how many there are in all")
    parser.add_argument("--messages", type=int, help="how many are published")
    parser.add_argument("--cases", type=int, help="how many are played for their speed")
    parser.add_argument("--reactions", type=int, help="how many are played for what comes back")
    parser.add_argument("--seeds", type=int, help="how many of each kind, with other choices")
    parser.add_argument("--kind", action="append", help="only this kind of adversarial capture; more than once")
    parser.add_argument("--command", action="append", help="only this command; more than once")
    parser.add_argument("--scale", type=float, default=1.0, help="make the adversarial captures so many times as large")
    parser.add_argument("--lint", action="store_true", help="with --lint of sniff")
    options = parser.parse_args()
    if options.what == "live":
        from tests.bench import live

        rate, seconds = options.rate or live.RATE, options.seconds or live.SECONDS
        return 0 if live.measure(compare.out, rate, seconds, lint=options.lint) else 1
    if options.what == "soak":
        from tests.bench import soak

        return 0 if soak.measure(compare.out, options.connections or soak.CONNECTIONS, options.rate or soak.RATE) else 1
    if options.what == "replay":
        from tests.bench import replay

        messages, rounds = options.messages or replay.MESSAGES, options.rounds or replay.ROUNDS
        return 0 if replay.measure(compare.out, messages, rounds) else 1
    if options.what == "mutate":
        from tests.bench import mutate

        counts = (options.cases or mutate.CASES, options.rounds or mutate.ROUNDS)
        more = (options.reactions or mutate.REACTION_CASES, options.seeds or mutate.SEEDS)
        return 0 if mutate.measure(compare.out, *counts, *more) else 1
    if options.what == "pipeline":
        from tests.bench import pipeline

        sizes = [*(options.frames or ()), *(pipeline.FRAMES, pipeline.GIANT_FRAMES)[len(options.frames or ()) :]]
        return 0 if pipeline.measure(compare.out, *sizes[:2]) else 1
    if options.what == "quiet":
        from tests.bench import quiet

        those = (options.connections,) if options.connections else quiet.CONNECTIONS
        return 0 if quiet.measure(compare.out, those) else 1
    if options.what == "growth":
        from tests.bench import growth

        return 0 if growth.measure(compare.out, options.kind or (), options.command or (), options.scale) else 1
    if options.what == "skew":
        from tests.bench import skew

        return 0 if skew.measure(compare.out, *(options.frames or ())[:1]) else 1
    if options.what == "generate":
        from tests.bench import generate

        for size in options.frames or compare.SIZES:
            path, truth = generate.capture(size, wrong=options.wrong)
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
