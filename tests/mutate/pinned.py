"""What the whole catalogue makes of committed captures, as hashes: ``python -m tests.mutate.pinned [CAPTURE...]``.

It needs nothing but the standard library, so that it runs wherever a Python does.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from mqttscope.broker_test.fit import CaseNumbering, capture_hash, flow_of
from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.mutate import MutationCase, RecordedFlow
from mqttscope.mutate.flow import SIDES
from mqttscope.replay.script import read_scripts

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
NAMES = ("v31-qos", "v311-qos", "v5-qos")
SEEDS = (1, 2)
"""Each with another connection of the capture."""


def flows_of(name: str) -> list[RecordedFlow]:
    """The connections of a committed capture."""
    captured = open_capture([str(CAPTURES / name / "capture.pcapng")])
    scripts = [read_script for read_script in read_scripts(dissect(captured)) if read_script.connect is not None]
    text = capture_hash(scripts)
    return [flow_of(script, text, script.connection.number) for script in scripts]


def digest(name: str, seed: int) -> str:
    """Hash of all cases of one connection: what both sides send in them, when, and what they wait for."""
    total = hashlib.sha256()
    flows = flows_of(name)
    for side in SIDES:
        for numbered_case in CaseNumbering(flows, seed, side).cases("*", [SEEDS.index(seed) % len(flows)]):
            total.update(
                f"{numbered_case.number} {numbered_case.case.mutation.name} {numbered_case.case.connection}\n".encode()
            )
            total.update(said(numbered_case.case))
    return total.hexdigest()[:16]


def said(case: MutationCase) -> bytes:
    """All that a case says, so that no two cases say the same by chance."""
    parts = []
    for step in case.flow.steps:
        awaits = "" if step.awaits is None else step.awaits.name
        parts.append(f"{step.action} {step.nanoseconds} {awaits} {step.packet_identifier} {len(step.data)}:".encode())
        parts.append(step.data)
    return b"".join(parts)


def main() -> None:
    """Print the hashes, as the test has them."""
    sys.stdout.write(f"    # Python {sys.version}\n")
    for name in sys.argv[1:] or NAMES:
        for seed in SEEDS:
            sys.stdout.write(f'    ("{name}", {seed}): "{digest(name, seed)}",\n')


if __name__ == "__main__":
    main()
