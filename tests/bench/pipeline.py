"""``mqttscope pipeline ingest`` in process and with Spark: frames per second, and what each of its processes takes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.context import WIDE
from tests.bench import generate
from tests.bench.compare import ours
from tests.bench.printing import Out, heading, row

FRAMES = 1_000_000
GIANT_FRAMES = 1_750_000
"""More than a gigabyte."""
GIANT = 0.95
"""The share of one connection."""
DRIVER_MEMORY = "1g"
WAYS = {
    "in process": ("--engine", "local"),
    "Spark, one core": ("--engine", "spark", "--master", "local[1]"),
    "Spark, two cores": ("--engine", "spark", "--master", "local[2]"),
}
NARROW = ("--ignore", ",".join(sorted(code for code, rule in all_rules().items() if rule.scope in WIDE)))
"""No rules that look beyond one connection."""
_SAMPLE_SECONDS = 0.2
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Tree:
    """What a process and all that it started have taken so far."""

    processor_seconds: dict[int, float] = field(default_factory=dict)
    peak_mb: dict[str, float] = field(default_factory=dict)
    """The largest process of each kind: ``java``, ``python`` (the command itself) and ``worker``."""

    scratch_mb: float = 0.0
    """The most that lay in the folder for temporary files at a time."""

    @property
    def processor(self) -> float:
        """Seconds of processor time, of all processes."""
        return sum(self.processor_seconds.values())

    def look(self, root: int) -> None:
        """Take a sample."""
        numbers = _descendants(root)
        for pid in numbers:
            with suppress(OSError, ValueError, KeyError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self.processor_seconds[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
                kind = "python" if pid == root else "java" if _name(pid) == "java" else "worker"
                self.peak_mb[kind] = max(self.peak_mb.get(kind, 0.0), _peak_mb(pid))


@dataclass(slots=True)
class Run:
    """One ingest."""

    seconds: float
    tree: Tree
    lake_mb: float
    """All tables, and what is remembered."""


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(path.name))
    numbers = [root]
    for pid in numbers:
        numbers += children.get(pid, ())
    return numbers


def size_mb(folder: str) -> float:
    """Megabytes of the files in a folder, as far as they are still there."""
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.stat(os.path.join(path, name)).st_size
    return size / 1e6


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _peak_mb(pid: int) -> float:
    """The most memory that a process had, in megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1000
    return 0.0


def ingest(capture: Path, *arguments: str) -> Run:
    """Ingest into a new lake."""
    tree = Tree()
    with tempfile.TemporaryDirectory(prefix="mqttscope-lake-") as folder:
        lake, scratch = os.path.join(folder, "lake"), os.path.join(folder, "scratch")
        os.mkdir(scratch)
        command = [*ours("pipeline", "ingest", str(capture)), "--lake", lake, *arguments]
        if "spark" in arguments:
            command += ["--conf", f"spark.driver.memory={DRIVER_MEMORY}", "--conf", f"spark.local.dir={scratch}"]
        began = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {"TMPDIR": scratch}) as process:
            while process.poll() is None:
                tree.look(process.pid)
                tree.scratch_mb = max(tree.scratch_mb, size_mb(scratch))
                time.sleep(_SAMPLE_SECONDS)
        seconds = time.monotonic() - began
        if process.returncode:
            sys.exit(f"{' '.join(command)} ended with {process.returncode}")
        return Run(seconds, tree, size_mb(lake))


def measure(out: Out, frames: Sequence[int] = ()) -> None:
    """Print tables for a small and a large capture of many connections, where Spark begins to pay, and a table for a
    capture that is nearly all one connection."""
    many, giant = [*frames, *(FRAMES, GIANT_FRAMES)[len(frames) :]][:2]
    few = many // 10
    small, large = (_table(out, "of many connections", size, (*WAYS, *_NARROWLY)) for size in (few, many))
    out("")
    for name in WAYS:
        if name != "in process":
            there = break_even((few, small["in process"], small[name]), (many, large["in process"], large[name]))
            out(f"{name}: " + ("never faster than in process" if there is None else f"faster from {there:,} frames on"))
    if giant:
        _table(out, f"{GIANT:.0%} of them of one connection", giant, ("in process", "Spark, two cores"), GIANT)


_NARROWLY = {f"{name}, no wide rules": (*WAYS[name], *NARROW) for name in ("in process", "Spark, two cores")}


def break_even(small: tuple[int, float, float], large: tuple[int, float, float]) -> int | None:
    """How many frames take as long in both ways; ``None`` where the second is never faster.

    Takes the frames of two captures and the seconds of both ways; both are taken to grow evenly.
    """
    (few, first_few, second_few), (many, first_many, second_many) = small, large
    gain = ((first_many - first_few) - (second_many - second_few)) / (many - few)
    if gain <= 0:
        return None
    return max(0, round(few + (second_few - first_few) / gain))


def _table(out: Out, what: str, frames: int, names: Iterable[str], giant: float = 0.0) -> dict[str, float]:
    """Print a table; returns the seconds of each way."""
    capture, _ = generate.capture(frames, mix=generate.TrafficMix(giant=giant))
    size = capture.stat().st_size
    out(f"\n### {frames:,} frames, {size / 1e6:,.0f} MB, {what}\n")
    memory = "command MB", "Java MB", "worker MB", "scratch MB", "lake MB"
    heading(out, "engine", "seconds", "frames/s", "processor s", *memory)
    seconds = {}
    for name in names:
        run = ingest(capture, *{**WAYS, **_NARROWLY}[name])
        peak = run.tree.peak_mb
        peaks = [f"{peak[kind]:,.0f}" if kind in peak else "-" for kind in ("python", "java", "worker")]
        times = f"{run.seconds:.1f}", f"{frames / run.seconds:,.0f}", f"{run.tree.processor:.1f}"
        row(out, name, *times, *peaks, f"{run.tree.scratch_mb:,.0f}", f"{run.lake_mb:,.0f}")
        seconds[name] = run.seconds
    return seconds
