"""``mqttscope pipeline ingest`` in process and with Spark: frames per second, and what each of its processes takes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import generate
from tests.bench.compare import ours

FRAMES = 1_000_000
GIANT_FRAMES = 1_750_000
"""More than a gigabyte."""
GIANT = 0.95
"""The share of one connection."""
DRIVER_MEMORY = "1g"
_SAMPLE_SECONDS = 0.2
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Tree:
    """What a process and all that it started have taken so far."""

    processor_seconds: dict[int, float] = field(default_factory=dict)
    peak_mb: dict[str, float] = field(default_factory=dict)
    """The largest process of each kind: ``java``, ``python`` (the command itself) and ``worker``."""

    @property
    def processor(self) -> float:
        """Seconds of processor time, of all processes."""
        return sum(self.processor_seconds.values())

    def look(self, root: int) -> None:
        """Take a sample."""
        found = _descendants(root)
        for pid in found:
            with suppress(OSError, ValueError, KeyError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self.processor_seconds[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
                kind = "python" if pid == root else "java" if _name(pid) == "java" else "worker"
                self.peak_mb[kind] = max(self.peak_mb.get(kind, 0.0), _peak_mb(pid))


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for one in Path("/proc").iterdir():
        if one.name.isdigit():
            with suppress(OSError):
                parent = int((one / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(one.name))
    found = [root]
    for pid in found:
        found += children.get(pid, ())
    return found


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _peak_mb(pid: int) -> float:
    """The most memory that a process had, in megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1000
    return 0.0


def ingest(capture: Path, *arguments: str) -> tuple[float, Tree]:
    """Ingest into a new lake; returns the seconds it took and what it needed."""
    tree = Tree()
    with tempfile.TemporaryDirectory(prefix="mqttscope-lake-") as lake:
        command = [*ours("pipeline", "ingest", str(capture)), "--lake", lake, "--quiet", *arguments]
        began = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                tree.look(process.pid)
                time.sleep(_SAMPLE_SECONDS)
        if process.returncode:
            sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return time.monotonic() - began, tree


def measure(out: Callable[[str], None], frames: int = FRAMES, giant_frames: int = GIANT_FRAMES) -> bool:
    """Print a table for a capture of many connections, and one for a capture that is nearly all one connection."""
    ways = (
        ("in process", ("--engine", "local")),
        ("Spark, one core", ("--engine", "spark", "--master", "local[1]")),
        ("Spark, two cores", ("--engine", "spark", "--master", "local[2]")),
    )
    plain, _ = generate.capture(frames)
    _table(out, f"{frames:,} frames of many connections", plain, frames, ways)
    if giant_frames:
        giant, _ = generate.capture(giant_frames, giant=GIANT)
        title = f"{giant_frames:,} frames, {giant.stat().st_size / 1e9:.2f} GB, {GIANT:.0%} of one connection"
        _table(out, title, giant, giant_frames, (ways[0], ways[2]))
    return True


def _table(
    out: Callable[[str], None], title: str, capture: Path, frames: int, ways: tuple[tuple[str, tuple[str, ...]], ...]
) -> None:
    out(f"\n### {title}\n")
    out("| engine | seconds | frames/s | processor s | command MB | Java MB | largest worker MB |")
    out("|---|--:|--:|--:|--:|--:|--:|")
    for name, arguments in ways:
        if "spark" in arguments:
            arguments = (*arguments, "--conf", f"spark.driver.memory={DRIVER_MEMORY}")
        seconds, tree = ingest(capture, *arguments)
        peaks = " | ".join(
            f"{tree.peak_mb[kind]:,.0f}" if kind in tree.peak_mb else "-" for kind in ("python", "java", "worker")
        )
        out(f"| {name} | {seconds:.1f} | {frames / seconds:,.0f} | {tree.processor:.1f} | {peaks} |")
