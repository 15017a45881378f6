"""Plant faults one by one, each in a copy of the product, and run the tests that should find it.

Mutation testers from PyPI do not fit: mutmut puts a function in the place of every other one, which objects that are
compared or stored by their class do not bear, and neither it nor cosmic-ray chooses the tests by the module.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from random import Random

from tests.mutants.points import Mutant, mutants_in

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
TIMEOUT_SECONDS = 300
"""Timeout of one run of tests; a fault that makes it longer is found."""
SURVIVED, NO_TESTS = (0, 5)
"""Exit codes of pytest."""


@dataclass(frozen=True)
class Area:
    """A part of the product, and the tests beside its own folder that concern it."""

    folder: str
    modules: tuple[str, ...] = ("**/*.py",)
    elsewhere: tuple[str, ...] = ()

    def paths(self) -> list[Path]:
        """Its modules."""
        actual_paths = {path for pattern in self.modules for path in (ROOT / "mqttscope" / self.folder).glob(pattern)}
        return sorted(path for path in actual_paths if path.name != "__init__.py")


_PACKETS = ("tests/lint", "tests/dissect", "tests/session", "tests/corpus", "tests/explain")
AREAS = {
    "mqtt": Area("mqtt", elsewhere=_PACKETS),
    "net": Area("net", elsewhere=_PACKETS),
    "session": Area("session", elsewhere=_PACKETS),
    "dissect": Area("dissect", elsewhere=("tests/net", "tests/kernel", *_PACKETS)),
    "filter": Area("filter", elsewhere=("tests/cli/test_inspect.py",)),
    "lint": Area("lint", ("*.py",), ("tests/corpus", "tests/explain", "tests/report/findings")),
    "secrets": Area("secrets", elsewhere=("tests/report", "tests/redact", "tests/payloads", "tests/corpus")),
    "lake": Area("lake", elsewhere=("tests/analysis", "tests/cli/pipeline")),
    "explain": Area("explain", ("causes/*.py", "book.py", "segments.py", "story.py"), ("tests/triage", "tests/corpus")),
}


@dataclass(frozen=True)
class Verdict:
    """Whether tests found a fault."""

    area: str
    mutant: Mutant
    found_by: str
    """The tests that failed; empty if none did."""


def drawn(seed: int, count: int, areas: Sequence[str]) -> list[tuple[str, Mutant]]:
    """Faults of each area, as many of one as of another."""
    random = Random(seed)
    rows: list[tuple[str, Mutant]] = []
    for number, name in enumerate(areas):
        points = mutants_in(ROOT, AREAS[name].paths())
        share = count // len(areas) + (number < count % len(areas))
        rows += [(name, mutant) for mutant in random.sample(points, min(share, len(points)))]
    random.shuffle(rows)
    return rows


def stages(area: str, mutant: Mutant) -> list[list[str]]:
    """Arguments of the runs of pytest that may find a fault, the nearest tests first."""
    relative = Path(mutant.path).relative_to("mqttscope")
    mirror = ROOT / "tests" / relative.with_name(f"test_{relative.name}")
    near = [[mirror.relative_to(ROOT).as_posix()]] if mirror.exists() else []
    return [*near, *_all_stages(area)]


def _all_stages(area: str) -> list[list[str]]:
    """The same for all modules of an area."""
    folder = (ROOT / "tests" / AREAS[area].folder).relative_to(ROOT).as_posix()
    return [[folder], ["tests/test_limits.py", "-k", area], list(AREAS[area].elsewhere)]


class BrokenTestsError(Exception):
    """Tests fail although nothing was planted, so that they prove nothing."""


def judged(rows: Sequence[tuple[str, Mutant]], build: Path, jobs: int) -> Iterator[Verdict]:
    """Verdicts in the order of the rows, each fault in a copy of the product of its own."""
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(jobs):
        copies.put(_copy(build / f"copy-{number}"))

    def judge(row: tuple[str, Mutant]) -> Verdict:
        copy = copies.get()
        try:
            return _judge(*row, copy)
        finally:
            copies.put(copy)

    def check(area: str) -> str:
        copy = copies.get()
        try:
            return next(filter(None, (_run(arguments, copy) for arguments in _all_stages(area))), "")
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(jobs) as pool:
        for failed in pool.map(check, dict.fromkeys(area for area, _ in rows)):
            if failed:
                raise BrokenTestsError(failed)
        yield from pool.map(judge, rows)


def _copy(folder: Path) -> Path:
    """A copy of the product, with links to all else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copytree(ROOT / "mqttscope", folder / "mqttscope", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.name not in ("mqttscope", "tests", "build", ".git", ".venv"):
            (folder / path.name).symlink_to(path)
    return folder


def _judge(area: str, mutant: Mutant, copy: Path) -> Verdict:
    path = copy / mutant.path
    source = path.read_text("utf-8")
    path.write_text(mutant.apply(source), "utf-8")
    try:
        for arguments in stages(area, mutant):
            failed = _run(arguments, copy)
            if failed:
                return Verdict(area, mutant, failed)
        return Verdict(area, mutant, "")
    finally:
        path.write_text(source, "utf-8")


def _run(arguments: list[str], copy: Path) -> str:
    """The first test that failed; empty if none did."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-m", "not long", "-p", "no:randomly", "-p",
               "no:cacheprovider", "--no-header", "--tb=no", *arguments]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"timeout of {' '.join(arguments)}"
    if done.returncode in (SURVIVED, NO_TESTS):
        return ""
    failed = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else f"exit code {done.returncode} of {' '.join(arguments)}"


def equivalent() -> dict[str, str]:
    """Faults that change nothing that can be seen, each with the reason, by path, kind, changed line and new text."""
    if not EQUIVALENT.exists():
        return {}
    rows = [line.split(" :: ") for line in EQUIVALENT.read_text("utf-8").splitlines() if line]
    return {" :: ".join(row[:-1]): row[-1] for row in rows}


def identity(mutant: Mutant, source: str) -> str:
    """What names a fault in ``equivalent.txt``, whatever lines are before it."""
    line = source.splitlines()[mutant.line - 1].strip()
    column = mutant.start - (source.rfind("\n", 0, mutant.start) + 1)
    return f"{mutant.path} :: {mutant.kind} :: {line} :: {column} -> {mutant.new}"
