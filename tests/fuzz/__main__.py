"""No matter which targets run and how they end, the summary says how often each ran and what was found.

``python -m tests.fuzz [TARGET...] [--seconds N] [--corpus DIR]`` needs atheris (``make fuzz`` installs it).
``--replay FILE`` runs one target over saved inputs without it.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.target import NAMES, load

SECONDS = 60
TIMEOUT_S = 20
"""An input that takes longer is a finding."""
MEMORY_MB = 1_500
"""So is one that takes more memory; the corpus itself and the coverage tables take about a tenth of this."""


@dataclass(slots=True)
class Outcome:
    """What came of one target."""

    name: str
    executions: int = 0
    seconds: int = 0
    peak_mb: int = 0
    corpus: int = 0
    findings: list[Path] = field(default_factory=list)


def main(arguments: list[str] | None = None) -> int:
    """Fuzz targets one after the other; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(NAMES)}; all when none is named")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="for each target (default %(default)s)")
    parser.add_argument(
        "--corpus",
        type=Path,
        default=Path(tempfile.gettempdir()) / "mqttscope-fuzz",
        help="where inputs that reach new code, and findings, are kept (default %(default)s)",
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", action="append", help="run one target over this input")
    options = parser.parse_args(arguments)
    unknown = set(options.targets) - set(NAMES)
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    if options.replay:
        if len(options.targets) != 1:
            parser.error("--replay needs the name of one target")
        return _replay(options.targets[0], options.replay)
    if importlib.util.find_spec("atheris") is None:
        parser.error("atheris is not installed; make fuzz installs it")
    outcomes = [_fuzz(name, options.seconds, options.corpus / name) for name in options.targets or NAMES]
    print(f"\n{'target':10} {'executions':>12} {'seconds':>8} {'peak MB':>8} {'corpus':>7}  findings")  # noqa: T201
    for outcome in outcomes:
        text = ", ".join(map(str, outcome.findings)) or "none"
        numbers = f"{outcome.executions:12,} {outcome.seconds:8,} {outcome.peak_mb:8,} {outcome.corpus:7,}"
        print(f"{outcome.name:10} {numbers}  {text}")  # noqa: T201
    return 1 if any(outcome.findings for outcome in outcomes) else 0


def _replay(name: str, paths: list[Path]) -> int:
    target = load(name)
    for path in paths:
        target.check(path.read_bytes())
        print(f"{path}: holds")  # noqa: T201
    return 0


def _fuzz(name: str, seconds: int, directory: Path) -> Outcome:
    """Run one target in a process of its own; its output passes through."""
    corpus, findings = directory / "corpus", directory / "findings"
    for path in (corpus, findings):
        path.mkdir(parents=True, exist_ok=True)
    before = set(findings.iterdir())
    command = [
        *(sys.executable, "-m", "tests.fuzz.child", name, str(directory), str(corpus)),
        *(f"-max_total_time={seconds}", f"-timeout={TIMEOUT_S}", f"-rss_limit_mb={MEMORY_MB}"),
        *(f"-artifact_prefix={findings}/", "-print_final_stats=1", "-len_control=20"),
    ]
    outcome = Outcome(name)
    begun = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            if result := re.match(r"stat::number_of_executed_units: *(\d+)", line):
                outcome.executions = int(result[1])
            elif result := re.match(r"stat::peak_rss_mb: *(\d+)", line):
                outcome.peak_mb = int(result[1])
    outcome.seconds = round(time.monotonic() - begun)
    outcome.corpus = sum(1 for _ in corpus.iterdir())
    outcome.findings = sorted(set(findings.iterdir()) - before)
    if run.returncode and not outcome.findings:
        raise SystemExit(f"{name}: the fuzzer ended with {run.returncode} and saved nothing")
    return outcome


if __name__ == "__main__":
    sys.exit(main())
