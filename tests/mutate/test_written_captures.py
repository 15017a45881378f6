"""``mutate --write``: what others read in the files, and that the linter finds there what the mutations say."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mqttscope.broker_test.fit import CaseNumbering
from mqttscope.mutate import FlowVerdict, MutationCase
from mqttscope.mutate.catalogue import cited_instead
from mqttscope.mutate.flow import CLIENT, SERVER
from tests.cli.running import capture, invoke
from tests.mutate.pinned import flows_of
from tests.mutate.test_closed_loop import said_otherwise
from tests.tools import program

CASES = 150
SEED = 7
WORDS = ("--seed", str(SEED), "--cases", str(CASES))
SENT_BY = {CLIENT: "client_to_server", SERVER: "server_to_client"}


def write(path: Path, name: str, side: str) -> list[MutationCase]:
    """Write the first cases of a committed capture; the cases."""
    done = invoke("mutate", capture(name), "--write", path, "--side", side, *WORDS)
    assert done.code == 0, done.err
    flows = flows_of(name)
    every = CaseNumbering(flows, SEED, side).cases("*", range(len(flows)))
    return [numbered_case.case for numbered_case, _ in zip(every, range(CASES), strict=False)]


def findings(path: Path) -> Mapping[int, list[dict[str, Any]]]:
    """What the linter finds, by connection."""
    documents: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in invoke("lint", path, "--format", "jsonl", "--no-config", "--exit-zero").lines:
        documents[row["connection"]].append(row)
    return documents


def problem(case: MutationCase, rows: list[dict[str, Any]]) -> str | None:
    """What is wrong with the findings about one connection; ``None`` where all is well."""
    if case.verdict is FlowVerdict.LEGAL:
        wrong = [f"{row['rule']} {row['message']}" for row in rows if row["severity"] == "error"]
        return f"{case.mutation.name} is legal, found: {wrong[:3]}" if wrong else None
    if case.verdict is FlowVerdict.OPEN:
        return None
    result = {text for row in rows for text in row["statements"]}
    instead = cited_instead(case.mutation, case.version, case.flow.sender)
    if instead and result.issuperset(instead):
        return None
    missing = set(case.statements) - result - said_otherwise(case.version.text, case.mutation.name)
    return f"{case.mutation.name} breaks {sorted(missing)}, found {sorted(result)}" if missing else None


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "side"),
    [("v31-qos", CLIENT), ("v311-qos", CLIENT), ("v311-qos", SERVER), ("v5-qos", CLIENT), ("v5-qos", SERVER)],
)
def test_the_linter_finds_in_the_file_what_the_mutations_break(name: str, side: str, tmp_path: Path) -> None:
    path = tmp_path / "mutated.pcapng"
    cases = write(path, name, side)
    documents = findings(path)

    assert len(cases) == CASES
    texts = [
        problem(case, [row for row in documents[index] if row["direction"] == SENT_BY[side]])
        for index, case in enumerate(cases)
    ]
    assert [text for text in texts if text is not None] == []


@pytest.mark.long
@pytest.mark.tshark
def test_tshark_finds_nothing_wrong_below_mqtt(tmp_path: Path) -> None:
    """Checksums are right, every segment is in order, acknowledged and sent once, and each case is a connection."""
    path = tmp_path / "mutated.pcapng"
    write(path, "websocket-v311", CLIENT)
    words = [word for layer in ("ip", "tcp") for word in ("-o", f"{layer}.check_checksum:TRUE")]
    fields = ("ip.checksum.status", "tcp.checksum.status", "tcp.analysis.flags", "tcp.stream")
    words += [word for field in fields for word in ("-e", field)]
    done = subprocess.run(
        [program("tshark"), "-r", path, "-T", "fields", *words], capture_output=True, text=True, check=True
    )
    rows = [line.split("\t") for line in done.stdout.splitlines()]

    assert {tuple(row[:3]) for row in rows} == {("1", "1", "")}
    assert {int(row[3]) for row in rows} == set(range(CASES))
