"""The project's own captures: each folder is complete and says the truth about itself."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import dpkt

from tests import tools
from tests.conftest import ROOT
from tests.each import each

CAPTURES = ROOT / "captures"
FOLDERS = sorted(path for path in CAPTURES.iterdir() if path.is_dir() and path.name != "__pycache__")
NAMES = {path.name for path in FOLDERS}

AT_LEAST = 70
LARGEST = 60 * 1024
ALL_TOGETHER = 1536 * 1024

TYPES = (
    "connect", "connack", "publish", "puback", "pubrec", "pubrel", "pubcomp", "subscribe",
    "suback", "unsubscribe", "unsuback", "pingreq", "pingresp", "disconnect", "auth",
)  # fmt: skip
VERSIONS = {"3.1", "3.1.1", "5.0"}
REQUIRED = {"title": str, "shows": str, "origin": str, "tool": str, "licence": str, "expect": dict}
OPTIONAL = {"recorded": str, "notes": str, "explain": list, "fires": dict, "beside": dict}
EXPECT = {
    "connections": int, "frames": int, "versions": list, "transport": str, "ports": list,
    "malformed": int, "gaps": int, "packets": dict,
}  # fmt: skip

each_capture = each("folder", FOLDERS, ids=lambda folder: str(folder.name))


def about(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "about.toml").read_text(encoding="utf-8"))


def frames(folder: Path) -> list[bytes]:
    with (folder / "capture.pcapng").open("rb") as file:
        return [data for _, data in dpkt.pcapng.Reader(file)]


def test_there_are_many_captures_which_stay_small_together() -> None:
    assert len(FOLDERS) >= AT_LEAST
    assert sum((folder / "capture.pcapng").stat().st_size for folder in FOLDERS) < ALL_TOGETHER


def test_beside_the_captures_lie_only_the_scripts_and_their_page() -> None:
    loose = {path.name for path in CAPTURES.iterdir() if path.is_file()}

    assert {name for name in loose if not name.endswith(".py")} == {"README.md"}


def test_every_version_transport_and_packet_type_occurs() -> None:
    expected = [about(folder)["expect"] for folder in FOLDERS]

    assert {version for row in expected for version in row["versions"]} == VERSIONS
    assert {row["transport"] for row in expected} == {"tcp", "websocket", "tls"}
    assert {kind for row in expected for kind in row["packets"]} == set(TYPES)
    assert any(row["malformed"] for row in expected)
    assert any(row["gaps"] for row in expected)


@each_capture
def test_a_folder_holds_the_capture_and_its_description_and_nothing_else(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {"capture.pcapng", "about.toml"}
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", folder.name)
    assert (folder / "capture.pcapng").stat().st_size < LARGEST


@each_capture
def test_the_description_is_complete(folder: Path) -> None:
    described = about(folder)

    assert set(REQUIRED) <= set(described) <= set(REQUIRED) | set(OPTIONAL)
    for key, kind in {**REQUIRED, **OPTIONAL}.items():
        if key in described:
            assert isinstance(described[key], kind), key
            assert described[key], key
    assert described["licence"] == "Apache-2.0"
    assert described["shows"].endswith(".")


@each_capture
def test_the_origin_is_known_and_a_recording_has_its_day_and_programs(folder: Path) -> None:
    described = about(folder)
    origin = described["origin"]

    if origin == "recorded":
        assert date.fromisoformat(described["recorded"]) > date(2026, 1, 1)
        assert re.search(r"^(mosquitto|Aedes|amqtt|ejabberd|RabbitMQ) \d+\.\d+", described["tool"])
        assert re.search(r"dumpcap \d+\.\d+", described["tool"])
    else:
        assert "recorded" not in described
        assert "dpkt" in described["tool"]
        base = origin.removeprefix("derived from ")
        assert origin == "synthesised" or (base in NAMES and about(CAPTURES / base)["origin"] == "recorded")


@each_capture
def test_the_expectation_is_complete_and_of_the_right_kinds(folder: Path) -> None:
    expect = about(folder)["expect"]

    assert set(EXPECT) <= set(expect) <= {*EXPECT, "topics"}
    for key, kind in EXPECT.items():
        assert type(expect[key]) is kind, key
    assert expect["connections"] > 0
    assert expect["versions"] == sorted(set(expect["versions"]))
    assert set(expect["versions"]) <= VERSIONS
    assert expect["transport"] in ("tcp", "websocket", "tls")
    assert all(type(port) is int for port in expect["ports"])
    assert list(expect["packets"]) == [kind for kind in TYPES if kind in expect["packets"]]
    assert all(type(number) is int and number > 0 for number in expect["packets"].values())
    assert bool(expect["packets"]) == (expect["transport"] != "tls")
    if "topics" in expect:
        assert len(expect["topics"]) == expect["packets"]["publish"]


@each_capture
def test_dpkt_reads_the_stated_number_of_frames(folder: Path) -> None:
    assert len(frames(folder)) == about(folder)["expect"]["frames"]


@each_capture
def test_the_frames_are_tcp_on_loopback_or_documentation_addresses(folder: Path) -> None:
    ports: set[int] = set()
    harmless = (bytes([127]), bytes(15) + b"\x01", bytes([192, 0, 2]), bytes([198, 51, 100]))
    for data in frames(folder):
        network = dpkt.ethernet.Ethernet(data).data
        assert network.src.startswith(harmless)
        assert network.dst.startswith(harmless)
        ports |= {network.data.sport, network.data.dport}

    assert set(about(folder)["expect"]["ports"]) <= ports


@each_capture
def test_the_stated_number_of_connections_is_there_and_recorded_ones_begin_with_their_handshake(folder: Path) -> None:
    reused = 1 if folder.name in ("port-reused", "device-restarts") else 0
    first: dict[frozenset[tuple[bytes, int]], int] = {}
    for data in frames(folder):
        network = dpkt.ethernet.Ethernet(data).data
        tcp = network.data
        first.setdefault(frozenset([(network.src, tcp.sport), (network.dst, tcp.dport)]), tcp.flags)

    assert len(first) + reused == about(folder)["expect"]["connections"]
    # Derived captures may begin anywhere.
    if about(folder)["origin"] == "recorded":
        assert all(flags & dpkt.tcp.TH_SYN for flags in first.values())


@each_capture
def test_nothing_in_the_file_names_the_machine_it_was_made_on(folder: Path) -> None:
    raw = (folder / "capture.pcapng").read_bytes()
    section_length = int.from_bytes(raw[4:8], "little")

    assert b"Linux" not in raw[:section_length]
    assert b"/tmp/" not in raw
    assert b"/home/" not in raw or folder.name == "example-leading-slash"


def test_the_derived_captures_are_what_their_script_makes_now() -> None:
    done = subprocess.run(
        [sys.executable, str(CAPTURES / "derive.py"), "--check"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_each_capture_is_made_by_one_of_the_scripts() -> None:
    tools.package("paho.mqtt.client")
    listed = subprocess.run(
        [sys.executable, str(CAPTURES / "record.py"), "--list"], capture_output=True, text=True, check=True
    )
    recorded = {line.split(":")[0] for line in listed.stdout.splitlines()}
    sources = "".join(path.read_text(encoding="utf-8") for path in CAPTURES.glob("derived_*.py"))

    assert recorded == {folder.name for folder in FOLDERS if about(folder)["origin"] == "recorded"}
    assert all(f'"{name}"' in sources for name in NAMES - recorded)
