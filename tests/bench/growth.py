"""How the time of each command grows with each adversarial kind of capture: no faster than n log n.

Every command runs on captures of three sizes, four times as large each.  What counts is processor time of the process
and of those it starts, less that of a capture of one connection, between the second size and the third.  A
figure that is too high is measured again, and the least time counts, since other programs only add to it.
"""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.adversarial import KINDS, Kind, Scene, generate

FACTOR = 4
"""From one size to the next."""
SIZES = 3
MARGIN = 0.25
"""How much the exponent may exceed that of n log n."""
LEAST_SECONDS = 0.5
"""What takes less at the largest size is not judged: noise would be."""
NOISE_SECONDS = 0.1
"""No time counts for less: starts of the program differ by as much."""
MOST_SECONDS = 120
"""Processor time after which a command is ended; that is a failure."""
ATTEMPTS = 3
"""How often a figure that is too high is measured."""
COMMANDS: dict[str, tuple[str, ...]] = {
    "inspect": ("inspect", "--format", "text"),
    "tree": ("inspect", "--format", "tree"),
    "ladder": ("inspect", "--format", "ladder"),
    "jsonl": ("inspect", "--format", "jsonl"),
    "csv": ("inspect", "--format", "csv"),
    "stats": ("stats",),
    "stats json": ("stats", "--format", "json"),
    "lint": ("lint", "--select", "ALL", "--exit-zero", "--format", "full"),
    "lint jsonl": ("lint", "--select", "ALL", "--exit-zero", "--format", "jsonl"),
    "ingest": ("pipeline", "ingest", "--engine", "local", "--select", "ALL", "--quiet", "--lake", "{out}"),
}
"""What is measured; ``{out}`` is a new folder."""


@dataclass(slots=True)
class Growth:
    """Times of one command and one kind."""

    kind: str
    command: str
    counts: tuple[int, ...]
    seconds: list[float] = field(default_factory=list)
    """By size, without the start of the program; fewer than sizes where one took too long."""

    @property
    def exponent(self) -> float | None:
        """How the time grows from the second size to the last one; ``None`` where there is too little to tell."""
        if len(self.seconds) < SIZES:
            return math.inf
        if self.seconds[-1] < LEAST_SECONDS:
            return None
        return math.log(self.seconds[-1] / max(self.seconds[-2], NOISE_SECONDS)) / math.log(FACTOR)

    @property
    def allowed(self) -> float:
        """The exponent of n log n between these sizes, and the margin."""
        before, last = self.counts[-2:]
        return math.log((last * math.log(last)) / (before * math.log(before))) / math.log(last / before) + MARGIN

    @property
    def fails(self) -> bool:
        """Whether it grows too fast."""
        exponent = self.exponent
        return exponent is not None and exponent > self.allowed


def run(command: Sequence[str], capture: Path) -> float | None:
    """Processor time of a command on a capture; ``None`` where it took too long."""
    with tempfile.TemporaryDirectory() as folder:
        words = [word.replace("{out}", str(Path(folder) / "lake")) for word in command]
        running = subprocess.Popen(
            [sys.executable, "-m", "mqttscope", *words, str(capture)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=_limit,
            cwd=folder,
            env=_environment(),
        )
        assert running.stderr is not None
        said = running.stderr.read()
        _, status, used = os.wait4(running.pid, 0)
    running.returncode = code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return None
    if code not in (0, 1, 3) or b"Traceback" in said or b"internal error" in said:
        raise SystemExit(f"{' '.join(words)} {capture.name} ended with {code}: {said.decode(errors='replace')[-500:]}")
    return used.ru_utime + used.ru_stime


def _environment() -> dict[str, str]:
    """Ours, so that modules are found from another folder, and compiled once."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS + 1))


def measure(
    out: Callable[[str], None], kinds: Iterable[str] = (), commands: Iterable[str] = (), scale: float = 1.0
) -> bool:
    """Measure and print a table; returns whether nothing grows too fast."""
    for name in {*kinds} - {one.__name__ for one in KINDS} | {*commands} - {*COMMANDS}:
        raise SystemExit(f"there is no {name}")
    chosen = [one for one in KINDS if not kinds or one.__name__ in kinds]
    asked = {name: words for name, words in COMMANDS.items() if not commands or name in commands}
    rows: list[list[Growth]] = []
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.pcapng"
        generate(_one_connection, 1, small)
        starts = {name: min(_sure(run(words, small)) for _ in range(ATTEMPTS)) for name, words in asked.items()}
        out(f"| kind | sizes | {' | '.join(asked)} |\n|---|---|{'--:|' * len(asked)}")
        for kind in chosen:
            counts = tuple(max(4, round(KINDS[kind] * scale)) * FACTOR**step for step in range(SIZES))
            captures = [Path(folder) / f"{count}.pcapng" for count in counts]
            for count, capture in zip(counts, captures, strict=True):
                generate(kind, count, capture)
            row = [_grown(kind, name, words, counts, captures, starts[name]) for name, words in asked.items()]
            rows.append(row)
            out(f"| {kind.__name__} | {counts[0]:,} to {counts[-1]:,} | {' | '.join(map(_cell, row))} |")
            for capture in captures:
                capture.unlink()
    failed = [one for row in rows for one in row if one.fails]
    out("")
    for one in failed:
        out(f"{one.command} grows too fast with {one.kind}: {_cell(one)}, allowed is {one.allowed:.2f}")
    judged = sum(one.exponent is not None for row in rows for one in row)
    out(f"{len(failed)} of {judged} grow faster than n log n with a margin of {MARGIN}")
    return not failed


def _grown(
    kind: Kind, name: str, words: Sequence[str], counts: tuple[int, ...], captures: Sequence[Path], start: float
) -> Growth:
    made = Growth(kind.__name__, name, counts)
    for capture in captures:
        taken = run(words, capture)
        if taken is None:
            return made
        made.seconds.append(max(0.0, taken - start))
    for _ in range(ATTEMPTS - 1):
        if not made.fails:
            break
        again = [run(words, capture) for capture in captures[1:]]
        for place, taken in enumerate(again, 1):
            made.seconds[place] = min(made.seconds[place], max(0.0, _sure(taken) - start))
    return made


def _cell(one: Growth) -> str:
    """``1.03 (2.1 s)``: the exponent, and the time of the largest size."""
    if len(one.seconds) < SIZES:
        return f"**more than {MOST_SECONDS} s**"
    exponent = one.exponent
    told = "–" if exponent is None else f"{exponent:.2f}"
    return f"{'**' * one.fails}{told} ({one.seconds[-1]:.1f} s){'**' * one.fails}"


def _sure(taken: float | None) -> float:
    return MOST_SECONDS if taken is None else taken


def _one_connection(scene: Scene, count: int) -> None:
    """What takes as long as a command needs to start."""
    scene.close(scene.connect())
