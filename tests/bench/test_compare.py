"""The benchmark runs, and each program that counts packets finds the generated ones; no times are asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mqttscope.dev.performance import page
from tests.bench.compare import CAPTURES, FEW_FIELDS, TSHARK, Program, Usage, _types
from tests.conftest import ROOT

COMMANDS = (
    "inspect --format jsonl", "inspect", "stats", "lint", "lint --select ALL", "explain --all",
    "compare (twice the capture)", "redact", "pipeline ingest",
)  # fmt: skip


@pytest.mark.long
def test_a_short_run(tmp_path: Path) -> None:
    target = tmp_path / "figures.json"
    words = ("--frames", "1000", "--rounds", "1", "--figures", str(target))
    subprocess.run([sys.executable, "-m", "tests.bench", *words], cwd=ROOT, check=True, capture_output=True)

    figures = json.loads(target.read_text())
    assert tuple(figures["captures"]) == CAPTURES
    for capture in figures["captures"].values():
        programs = capture["programs"]
        ours = [(program["name"], program["kernel"]) for program in programs if program["kernel"] is not None]
        assert ours == [(name, kernel) for name in COMMANDS for kernel in (False, True)]
        counts = {program["packets"] for program in programs if program["name"] != TSHARK}
        assert counts == {capture["packets"], None}
    assert figures["captures"]["unfriendly"]["findings"] > 1000 // 20
    assert all(f"| `{name}` |" in page(figures) for name in COMMANDS)


def test_the_minimum_of_the_rounds() -> None:
    program = Program("a", [], usages=[Usage(1, 3, 2, 10), Usage(9, 2, 1, 20)])

    assert program.figures() == {"name": "a", "kernel": None, "seconds": 3, "megabytes": 20, "packets": None}


def test_all_packets_of_a_frame_are_counted() -> None:
    rows = [["x"] * len(FEW_FIELDS) for _ in range(2)]
    rows[1][FEW_FIELDS.index("mqtt.msgtype")] = "3,3,4"

    assert _types("".join("\t".join(row) + "\n" for row in rows)) == 4
