"""``--serve``: where it listens, what it refuses, and what ``sniff`` and ``proxy`` serve."""

from __future__ import annotations

import builtins
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqttscope.cli.metrics import is_loopback
from mqttscope.mqtt import Publish, encode
from tests import tools
from tests.cli.running import capture, command, environment, invoke
from tests.cli.terminals import in_terminal
from tests.live import V3_1_1, cat, replace_dumpcap
from tests.metrics.scraping import address_of, scraped_until
from tests.proxy import rig
from tests.proxy.hostile import Client
from tests.proxy.rig import end, free_port, until

FAILING = capture("failing-device")
LASTING = "trap 'exit 0' INT; echo File: - >&2; while :; do sleep 0.05; done"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], object]:
    """A function that puts a script in dumpcap's place."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return lambda script: replace_dumpcap(folder, monkeypatch, script)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--serve", "0.0.0.0:0"), "--serve-to-network"),
        (("--serve", "*:0"), "other hosts could read"),
        (("--serve", "[::]:0"), "--serve-to-network"),
        (("--serve", "nosuch.invalid:0"), "--serve-to-network"),
        (("--serve-to-network",), "needs --serve"),
        (("--serve", "http"), "'http' is not a port"),
        (("--serve", "70000"), "'70000' is not a port"),
        (("--serve", "::1:9464"), "goes into brackets"),
        (("--serve", ":9464"), "has no host"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], expected: str) -> None:
    for words in (("sniff", "-i", "lo"), ("proxy", "--listen", "127.0.0.1:0", "--upstream", "mqtt://127.0.0.1:1")):
        done = invoke(*words, *arguments)
        assert done.code == 2
        assert expected in done.err


def test_loopback_addresses_are_known() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "localhost")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "192.0.2.1", "nosuch.invalid")))


def test_a_port_in_use_is_named(fake: Callable[[str], object]) -> None:
    fake(LASTING)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        done = invoke("sniff", "eth9", "--serve", str(listening.getsockname()[1]), "--duration", "0.1")
    assert done.code == 3
    assert "cannot serve on" in done.err
    assert "in use" in done.err


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    fake: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(LASTING)
    usual = builtins.__import__

    def lacking(name: str, *more: Any) -> Any:
        if name.startswith(("prometheus_client", "mqttscope.metrics.server")):
            raise ImportError("No module named 'prometheus_client'", name="prometheus_client")
        return usual(name, *more)

    monkeypatch.setattr(builtins, "__import__", lacking)
    done = invoke("sniff", "eth9", "--serve", "0", "--duration", "0.1")
    assert done.code == 3
    assert "--serve needs a package that is not installed (No module named 'prometheus_client')" in done.err
    assert "[metrics]" in done.err


def test_sniff_serves_the_numbers_of_all_traffic_with_and_without_lint(fake: Callable[[str], object]) -> None:
    fake(f"{cat(FAILING)}; {LASTING}")
    seen = []
    for more in ((), ("--lint",), ("--lint", "--filter", "type != pingreq", "--format", "text")):
        running = subprocess.Popen(
            command("sniff", "eth9", "--serve", "0", *more), env=environment(), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            address = address_of(running, "capturing on eth9")
            numbers = scraped_until(address, lambda row: row.get("mqttscope_connections_opened_total"))
            numbers = scraped_until(address, lambda row: any(name.startswith("mqttscope_findings") for name in row))
            seen.append({name: value for name, value in numbers.items() if "ends" not in name})
        finally:
            running.send_signal(signal.SIGINT)
            out, _ = running.communicate(timeout=30)
        assert running.returncode == (1 if more else 0)
        assert (b"PUB103" in out, b"CONNACK" in out) == (bool(more), "--format" in more)
    assert seen[0] == seen[1] == seen[2]
    assert seen[0]["mqttscope_findings_total PUB103 error"] >= 1


def test_the_proxy_serves_live_numbers_and_the_cause_of_an_end(tmp_path: Path) -> None:
    with rig.mosquitto(tmp_path) as broker:
        running = subprocess.Popen(
            command(
                "proxy", "--no-config", "--listen", "127.0.0.1:0", "--ready-file", tmp_path / "ready", "--upstream",
                f"mqtt://127.0.0.1:{broker.port}", "--serve", "localhost:0",
            ),
            env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            address = address_of(running, "listening on")
            until((tmp_path / "ready").exists)
            port = int((tmp_path / "ready").read_text().rpartition(":")[2])
            client = Client(port, "dev1")
            client.sock.sendall(encode(Publish(topic_name="a", qos=1, packet_identifier=1, payload=b"x"), V3_1_1))
            numbers = scraped_until(address, lambda row: row.get("mqttscope_publish_ack_seconds_count"))
            assert numbers["mqttscope_connections"] == 1
            client.sock.sendall(encode(Publish(topic_name="a/+/b", payload=b"x"), V3_1_1))
            assert client.read(9)[4:] == b""  # the broker closed after its PUBACK
            client.sock.close()
            numbers = scraped_until(address, lambda row: row.get("mqttscope_ends_total protocol_violation"))
            assert numbers["mqttscope_findings_total PUB103 error"] == 1
            assert "mqttscope_connections" not in numbers
        finally:
            end(running)  # type: ignore[arg-type]
            running.communicate()


def test_browse_of_an_interface_serves_as_well(fake: Callable[[str], object]) -> None:
    tools.package("textual")
    fake(f"{cat(FAILING)}; {LASTING}")
    port = free_port()
    words = command("browse", "-i", "eth9", "--serve", str(port))
    with in_terminal(words, env={"TERM": "xterm-256color"}) as terminal:
        terminal.until("thermostat")
        numbers = scraped_until(
            f"http://127.0.0.1:{port}/", lambda row: row.get("mqttscope_findings_total PUB103 error")
        )
        assert numbers["mqttscope_frames_total"] > 5
        terminal.press(b"q")
        assert terminal.ended() == 0
