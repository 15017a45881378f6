"""Real mosquittos to replay captures against, each with the configuration that a capture was recorded with."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE
from tests import tools
from tests.cli.running import Done, capture, inspected, invoke
from tests.conftest import ROOT
from tests.corpus.tshark import tshark
from tests.proxy.rig import free_port, need_address
from tests.tools import program

FOLDER = ROOT / "captures"
MODULES = (
    "scenarios_basic", "scenarios_v5", "scenarios_reasons", "scenarios_transport", "scenarios_trouble",
    "scenarios_silence", "scenarios_reconnects", "scenarios_deliveries", "scenarios_retained", "scenarios_wills",
    "scenarios_practice", "scenarios_brokers", "scenarios_deviations", "scenarios_sparkplug",
)  # fmt: skip
PLAIN = "v5-qos"
"""The scenario of a mosquitto as it comes."""
WAIT_S = 1.5
"""How long the broker has for each answer: what never comes is waited for as long."""


@cache
def _recording() -> tuple[Any, dict[str, Any]]:
    """The rig of the recording scripts and their scenarios: they are programs, not modules of a package."""
    sys.path.insert(0, str(FOLDER))
    try:
        for name in MODULES:
            importlib.import_module(name)
        return importlib.import_module("rig"), importlib.import_module("scenario").SCENARIOS
    finally:
        sys.path.remove(str(FOLDER))


def origin(name: str) -> str:
    """``recorded``, ``synthesised`` or ``derived from NAME``."""
    text: str = tomllib.loads((FOLDER / name / "about.toml").read_text("utf-8"))["origin"]
    return text


def scenario(name: str) -> Any:
    """How a capture was recorded, or the one that it was derived from."""
    text = origin(name)
    if text.startswith("derived from "):
        return scenario(text.removeprefix("derived from "))
    return _recording()[1][name if text == "recorded" else PLAIN]


@contextmanager
def recorded_with(name: str) -> Iterator[str]:
    """The URL of a broker as the one of a capture; the test is skipped without mosquitto or paho."""
    program("mosquitto")
    tools.package("paho.mqtt.client")
    argument = scenario(name)
    need_address(argument.host)
    with _recording()[0].rig(argument.config, free_port(), argument.host) as rig:
        if argument.prepare is not None:
            argument.prepare(rig)
        rig.start_broker()
        host = f"[{argument.host}]" if ":" in argument.host else argument.host
        yield f"{'ws' if argument.transport == 'websocket' else 'mqtt'}://{host}:{rig.port}"


@dataclass(slots=True)
class Replayed:
    """What one replay said."""

    done: Done
    file: Path
    """The record of the live run."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Differences by kind."""
    findings: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def told(self) -> list[str]:
        """Differences as people read them."""
        return [f"{line['kind']}: {line['message']}" for line in self.done.lines if line.get("event") == "difference"]

    @property
    def expected_code(self) -> int:
        """The exit code that fits what was found."""
        counting = any(
            finding["severity"] == "error" and finding["confidence"] == "certain" for finding in self.findings
        )
        if self.kinds or counting:
            return EXIT_FINDINGS
        nothing = any(line.get("event") == "verification" and line["nothing"] for line in self.done.lines)
        return EXIT_UNREADABLE if nothing else EXIT_CLEAN

    @property
    def failures(self) -> list[str]:
        """Why connections failed."""
        return [row["reason"] for row in self.summary["failures"]]


def replay(name: str, url: str, folder: Path, *options: str, env: dict[str, str | None] | None = None) -> Replayed:
    """Replay a capture in this process: compared, judged and recorded."""
    file = folder / "live.pcapng"
    done = invoke(
        "replay", capture(name), "--broker", url, "--verify", "--lint", "--no-config",
        "--write", file, "--wait", str(WAIT_S), "--format", "jsonl", *options, env=env,
    )  # fmt: skip
    replayed = Replayed(done, file)
    for line in done.lines:
        if line.get("event") == "difference":
            replayed.kinds[line["kind"]] += 1
        elif line.get("event") == "replay":
            replayed.summary = line
        elif "rule" in line:
            replayed.findings.append(line)
    return replayed


def check_record(replayed: Replayed, port: int) -> int:
    """The file of ``--write`` holds what was sent and received; how many packets that are."""
    result = inspected("--port", str(port), replayed.file)
    packets = [line for line in result.lines if line["event"] in ("packet", "malformed")]
    directions = Counter(line["direction"] for line in packets)

    assert directions["client_to_server"] == replayed.summary["packets_sent"]
    # What comes after the client's last word is in the file alone.
    assert directions["server_to_client"] >= replayed.summary["packets_received"]
    opened = [line for line in result.lines if line["event"] == "connection_opened"]
    assert len(opened) == replayed.summary["connected"]
    return len(packets)


def check_with_tshark(records: dict[Path, tuple[str, int, int]]) -> None:
    """tshark sees as many packets in each file, with its name, the port of its broker and their number."""
    if records:
        ports = {port for _, port, _ in records.values()}
        seen = tshark((*records,), "tcp.reassemble_out_of_order:TRUE", decode_as=(*sorted(ports),))
        counts = {name: len(seen[file]) for file, (name, _, _) in records.items()}
        assert counts == {name: count for name, _, count in records.values()}


def client_errors(findings: Iterable[dict[str, Any]]) -> set[str]:
    """Rules that clients broke."""
    return {
        finding["rule"]
        for finding in findings
        if finding["severity"] == "error" and finding.get("direction") != "server_to_client"
    }


@cache
def recorded_errors(name: str) -> frozenset[str]:
    """Rules that the clients of a capture broke when it was recorded."""
    done = invoke("lint", capture(name), "--no-config", "--format", "jsonl")
    return frozenset(client_errors(line for line in done.lines if "rule" in line))
