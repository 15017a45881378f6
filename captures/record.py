"""Record the captures of this folder from real clients and a real mosquitto on loopback.

Usage: `python captures/record.py [NAME...]` with the names of scenarios, all of them without; `--list` shows them.
Capturing needs root (or the capability cap_net_raw for dumpcap). Run `derive.py` afterwards.
Scenarios named `deviations-BROKER` are recorded by name, with a broker that runs: `--running PORT`.
"""

from __future__ import annotations

import argparse
import queue
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import rig as rigs
import scenarios_basic
import scenarios_brokers
import scenarios_deliveries
import scenarios_deviations
import scenarios_practice
import scenarios_reasons
import scenarios_reconnects
import scenarios_retained
import scenarios_silence
import scenarios_sparkplug
import scenarios_transport
import scenarios_trouble
import scenarios_v5
import scenarios_wills
import servers
from about import About, Expected, folder
from mqttbytes import TYPES
from scenario import SCENARIOS, Scenario

MODULES = (
    scenarios_basic,
    scenarios_v5,
    scenarios_reasons,
    scenarios_transport,
    scenarios_trouble,
    scenarios_silence,
    scenarios_reconnects,
    scenarios_deliveries,
    scenarios_retained,
    scenarios_wills,
    scenarios_practice,
    scenarios_brokers,
    scenarios_deviations,
    scenarios_sparkplug,
)
"""Importing them registers their scenarios."""


def record(scenario: Scenario, running: int | None = None) -> str:
    """Record one scenario into its folder, with the broker that runs on a port if one is given.

    Returns a line about it.
    """
    if running is None:
        made = rigs.rig(scenario.config, scenario.port, scenario.host)
    else:
        made = rigs.beside(running, scenario.host)
    with made as rig:
        if scenario.prepare:
            scenario.prepare(rig)
        if running is not None:
            broker = scenario.running
        else:
            if scenario.proxy:
                rig.broker_port = rigs.free_port(0)
            if scenario.broker == "mosquitto":
                rig.start_broker()
                broker = rigs.version("mosquitto")
            else:
                broker = servers.start(rig, scenario.broker)
            if scenario.proxy:
                rig.start_proxy()
        raw = rig.folder / "raw.pcapng"
        with rigs.recording(rig, raw):
            scenario.run(rig)
        target = folder(scenario.name)
        frames = rigs.tidy(raw, target / "capture.pcapng")
        about = describe(scenario, rig, broker, target / "capture.pcapng", frames)
        (target / "about.toml").write_text(about.text())
    size = (target / "capture.pcapng").stat().st_size
    return f"{scenario.name}: {frames} frames, {size} bytes, {dict(about.expect.packets)}"


def describe(scenario: Scenario, rig: rigs.Rig, broker: str, capture: Path, frames: int) -> About:
    """The `about.toml` of a recording: counted by tshark, or by the clients where tshark cannot."""
    if scenario.transport == "tcp":
        packets = rigs.count_packets(capture, rig.port)
    elif scenario.transport == "websocket":
        packets = {kind: rig.logged[kind] for kind in TYPES if rig.logged[kind]}
    else:
        packets = {}
    versions = scenario.versions
    if versions is None:
        versions = rigs.versions(capture, rig.port)
    tools = [broker]
    if scenario.proxy:
        tools.append("tamper.py")
    if "paho-mqtt" in scenario.clients:
        tools.append(f"paho-mqtt {metadata.version('paho-mqtt')}")
    for name, version in (("sparkplug-client", servers.node_version), ("pysparkplug", servers.python_version)):
        if name in scenario.clients:
            tools.append(f"{name} {version(name)}")
    tools += [rigs.version(name) for name in scenario.clients if name.startswith("mosquitto_")]
    tools.append(rigs.version("dumpcap"))
    return About(
        title=scenario.title,
        shows=scenario.shows,
        origin="recorded",
        tool=", ".join(tools),
        recorded=datetime.now(UTC).date().isoformat(),
        notes=scenario.notes,
        explain=scenario.explain,
        fires=scenario.fires,
        settings=scenario.settings,
        beside=scenario.beside,
        expect=Expected(
            connections=rigs.count_connections(capture),
            frames=frames,
            versions=versions,
            packets=packets,
            malformed=scenario.malformed,
            transport=scenario.transport,
            ports=[rig.port],
            topics=scenario.topics,
        ),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; exit 1 when a recording failed, 2 for unknown names and missing programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios to record (all when none is given)")
    parser.add_argument("--list", action="store_true", help="show the scenarios and stop")
    parser.add_argument("--running", type=int, metavar="PORT", help="port of loopback where the broker runs already")
    options = parser.parse_args(arguments)
    if options.list:
        for name, scenario in SCENARIOS.items():
            sys.stdout.write(f"{name}: {scenario.title}\n")
        return 0
    unknown = [name for name in options.names if name not in SCENARIOS]
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)} (--list shows them)")
    missing = rigs.missing_tools()
    if missing:
        parser.error(missing)
    names = options.names or [name for name, one in SCENARIOS.items() if not one.running]
    others = {SCENARIOS[name].running for name in names} - {""}
    if others and (options.running is None or len({SCENARIOS[name].running for name in names}) > 1):
        parser.error(f"--running PORT says where {' or '.join(sorted(others))} runs, one broker at a time")
    failed = False
    for name in names:
        try:
            rigs.note(record(SCENARIOS[name], options.running))
        except (OSError, RuntimeError, queue.Empty, subprocess.SubprocessError) as error:
            failed = True
            rigs.note(f"{name}: not recorded: {error!r}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
