"""How the time of each command grows with each adversarial kind of capture: no faster than n log n.

Every command runs on captures of three sizes, four times as large each, in a process of its own that is forked from
this one, where all modules are loaded already.  What counts is processor time: how much more the third size takes
than the second, by how much more the second takes than the first, so that what is the same each time does not count.
A figure that is too high is measured again, and the least time counts, since other programs only add to it.
"""

from __future__ import annotations

import math
import os
import pkgutil
import resource
import sys
import tempfile
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import mqttscope.cli
import mqttscope.cli.pipeline
import mqttscope.report
import mqttscope.report.findings
from mqttscope.cli.main import main
from mqttscope.lint.catalogue import all_rules
from tests.bench.adversarial import KINDS, Kind, generate
from tests.bench.printing import Out, heading, row

FACTOR = 4
"""From one size to the next."""
SIZES = 3
MARGIN = 0.25
"""How much the exponent may exceed that of n log n."""
LEAST_SECONDS = 0.5
"""What takes less at the largest size is not judged: noise would be."""
NOISE_SECONDS = 0.1
"""No difference counts for less: equal runs differ by as much."""
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
    "triage": ("triage",),
    "lint": ("lint", "--select", "ALL", "--exit-zero", "--format", "full"),
    "lint jsonl": ("lint", "--select", "ALL", "--exit-zero", "--format", "jsonl"),
    "ingest": ("pipeline", "ingest", "--engine", "local", "--select", "ALL", "--lake", "{out}"),
}
"""What is measured; ``{out}`` is a new folder."""


@dataclass(slots=True)
class Growth:
    """Times of one command and one kind."""

    kind: str
    command: str
    counts: tuple[int, ...]
    seconds: list[float] = field(default_factory=list)
    """By size; fewer than sizes where one took too long."""

    @property
    def exponent(self) -> float | None:
        """How the time grows between the sizes; ``None`` where there is too little to tell."""
        if len(self.seconds) < SIZES:
            return math.inf
        first, second, third = self.seconds
        if third - first < LEAST_SECONDS:
            return None
        return math.log(max(third - second, NOISE_SECONDS) / max(second - first, NOISE_SECONDS)) / math.log(FACTOR)

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


def load() -> None:
    """Load what commands load when they are run, so that they need not."""
    for module in ("pyarrow", "pyarrow.parquet", "pyarrow.dataset", "mqttscope.lake.writer", "mqttscope.dissect"):
        import_module(module)
    for package in (mqttscope.cli, mqttscope.cli.pipeline, mqttscope.report, mqttscope.report.findings):
        for iter_module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            import_module(iter_module.name)
    all_rules()


def run(command: Sequence[str], capture: Path) -> float | None:
    """Processor time of a command on a capture; ``None`` where it took too long."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said"
        process = os.fork()
        if not process:
            _run([word.replace("{out}", str(Path(folder) / "lake")) for word in command], capture, path)
        _, status, used = os.wait4(process, 0)
        words = path.read_text(errors="replace")
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return None
    if code not in (0, 1, 3) or "Traceback" in words or "internal error" in words:
        raise SystemExit(f"{' '.join(command)} on {capture.name} ended with {code}: {words[-500:]}")
    return used.ru_utime + used.ru_stime


def _run(words: list[str], capture: Path, path: Path) -> NoReturn:
    """The command, in a process that ends with it."""
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS + 1))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), 2)
    sys.argv = ["mqttscope", *words, str(capture)]
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def measure(out: Out, kind: Iterable[str] = (), command: Iterable[str] = (), scale: float = 1.0) -> bool:
    """Measure and print a table; returns whether nothing grows too fast."""
    for name in {*kind} - {kind.__name__ for kind in KINDS} | {*command} - {*COMMANDS}:
        raise SystemExit(f"there is no {name}")
    chosen = [other_kind for other_kind in KINDS if not kind or other_kind.__name__ in kind]
    asked = {name: words for name, words in COMMANDS.items() if not command or name in command}
    rows: list[list[Growth]] = []
    load()
    with tempfile.TemporaryDirectory() as folder:
        heading(out, "kind", "sizes", *asked, texts=2)
        for each in chosen:
            counts = tuple(max(4, round(KINDS[each] * scale)) * FACTOR**step for step in range(SIZES))
            captures = [Path(folder) / f"{count}.pcapng" for count in counts]
            for count, capture in zip(counts, captures, strict=True):
                generate(each, count, capture)
            rows.append([_grown(each, name, words, counts, captures) for name, words in asked.items()])
            row(out, each.__name__, f"{counts[0]:,} to {counts[-1]:,}", *map(_cell, rows[-1]))
            for capture in captures:
                capture.unlink()
    figures = [figure for some in rows for figure in some]
    failed = [figure for figure in figures if figure.fails]
    out("")
    for figure in failed:
        out(f"{figure.command} grows too fast with {figure.kind}: {_cell(figure)}, allowed is {figure.allowed:.2f}")
    judged = sum(figure.exponent is not None for figure in figures)
    out(f"{len(failed)} of {judged} grow faster than n log n with a margin of {MARGIN}")
    return not failed


def _grown(kind: Kind, name: str, words: Sequence[str], counts: tuple[int, ...], captures: Sequence[Path]) -> Growth:
    growth = Growth(kind.__name__, name, counts)
    for capture in captures:
        seconds = run(words, capture)
        if seconds is None:
            return growth
        growth.seconds.append(seconds)
    for _ in range(ATTEMPTS - 1):
        if not growth.fails:
            break
        for place, capture in enumerate(captures):
            again = run(words, capture)
            growth.seconds[place] = min(growth.seconds[place], MOST_SECONDS if again is None else again)
    return growth


def _cell(growth: Growth) -> str:
    """``1.03 (2.1 s)``: the exponent, and the time of the largest size."""
    if len(growth.seconds) < SIZES:
        return f"**more than {MOST_SECONDS} s**"
    exponent = growth.exponent
    text = "–" if exponent is None else f"{exponent:.2f}"
    return f"{'**' * growth.fails}{text} ({growth.seconds[-1]:.1f} s){'**' * growth.fails}"
