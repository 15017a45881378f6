"""The command as users start it, with real clients in front of it; one device does not harm the others."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqttscope.cli.main import LIMIT_S
from mqttscope.cli.serving import COMPARE_S, JUDGE_S, MAX_COMPARED
from mqttscope.mqtt import Connect, Disconnect, ProtocolVersion, Publish, Subscribe, Subscription, encode
from mqttscope.transport.recording import GRACE_S
from tests import tools
from tests.cli.running import capture, command, environment, invoke
from tests.conftest import ROOT
from tests.each import some
from tests.forked import Forked
from tests.proxy import rig
from tests.proxy.hostile import PING, Client, announced, memory_mib
from tests.proxy.rig import PATIENCE_S, is_unwritten, until
from tests.replay.recordings import EXHAUSTIVE

V3_1_1 = ProtocolVersion.V3_1_1
SCENARIO = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import scenarios_basic, scenarios_reasons, scenarios_transport, scenarios_v5
from rig import Rig
from scenario import SCENARIOS

with Rig(int(sys.argv[3]), Path(sys.argv[4]), "", "127.0.0.1") as made:
    SCENARIOS[sys.argv[2]].run(made)
"""
"""Runs the very script that a capture was recorded with, without its broker."""
CLEAN = (
    "v31-qos", "v311-qos", "v5-qos", "mixed-versions", "v311-qos-downgrade", "v311-will", "v311-retained",
    "v311-session-present", "v311-redelivery", "v311-many-filters", "v5-many-filters", "keep-alive",
    "v5-will-delay", "v5-retain-handling", "v5-topic-alias-client", "v5-shared-subscription", "v5-publish-properties",
    "v5-connect-properties", "v5-subscription-identifiers", "v5-limits", "v5-flow-control", "v5-message-expiry",
    "v5-session-present", "v5-request-response", "big-payload", "many-in-one-segment", "ipv6", "port-18830",
    "websocket-v311", "websocket-v5",
)  # fmt: skip
FEW = ("v311-redelivery", "v5-topic-alias-client", "v5-shared-subscription", "websocket-v5")
"""Those that are always tried: every capture goes through a stand-in in replay/drivers/test_serve.py as well."""
GUILTY = {
    "refused-protocol-level": {"CON102"},
    "refused-connect": {"CON106"},
    "v5-reason-codes": {"ACK203", "ACK208"},
    "v5-server-disconnect": {"FLW202", "PRP105", "PUB103", "PUB210"},
    "v5-closed-without-reason": {"CON212"},
    "v5-enhanced-auth": {"AUT203"},
}
"""Scenarios whose clients break the protocol, and some of what is found of that."""


@dataclass(slots=True)
class Running:
    """``mqttscope serve`` at work."""

    process: subprocess.Popen[str]
    port: int
    out: str = ""
    err: str = ""

    def finish(self, ask: signal.Signals | None = None) -> int:
        """Wait until it ends by itself, or ask it to with a signal; returns the exit code."""
        if ask is not None:
            self.process.send_signal(ask)
        self.out, self.err = self.process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in self.err
        return self.process.returncode

    @property
    def lines(self) -> list[dict[str, object]]:
        """Its output as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    def kinds(self) -> list[tuple[object, object]]:
        """Kinds and fields of the differences."""
        return [(line["kind"], line["field"]) for line in self.lines if line["event"] == "difference"]


@contextmanager
def serving(folder: Path, name: str, *options: str | Path, stdout: int = subprocess.PIPE) -> Iterator[Running]:
    """A stand-in for the broker of a capture; it is ended with the test."""
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    words = ("--no-config", "--listen", "127.0.0.1:0", "--ready-file", ready, *options)
    process = Forked(
        command("serve", capture(name), *words), stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment()
    )
    try:
        until(lambda: ready.exists() or process.poll() is not None, "the start of serve")
        assert ready.exists(), process.communicate()
        yield Running(process, int(ready.read_text("utf-8").strip().rpartition(":")[2]))
    finally:
        rig.end(process)
        for stream in filter(None, (process.stdout, process.stderr)):
            stream.close()


def repeating(folder: Path, *options: str | Path, stdout: int = subprocess.PIPE) -> AbstractContextManager[Running]:
    """A stand-in that goes on until it is asked to end."""
    return serving(folder, "v311-qos", "--repeat", *options, stdout=stdout)


def play(name: str, port: int, folder: Path) -> None:
    """Run a scenario against a port; the test is skipped without paho."""
    tools.package("paho.mqtt.client")
    done = subprocess.run(
        [sys.executable, "-c", SCENARIO, str(ROOT / "captures"), name, str(port), str(folder)],
        capture_output=True, text=True, env=environment(), timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.broker
@pytest.mark.parametrize("name", CLEAN if EXHAUSTIVE else some(FEW, 3))
def test_real_clients_find_the_recorded_broker(tmp_path: Path, name: str) -> None:
    tools.program("mosquitto_sub")
    websocket = ("--websocket",) if name.startswith("websocket") else ()
    # On a busy machine paho is late with its PINGREQ.
    with serving(tmp_path, name, "--verify", "--lint", "--ignore", "KAL201", *websocket) as running:
        play(name, running.port, tmp_path)
        assert running.finish() == 0, running.out + running.err

    assert "no differences" in running.out


@pytest.mark.broker
@pytest.mark.parametrize("name", GUILTY if EXHAUSTIVE else ["v5-server-disconnect"])
def test_clients_that_break_the_protocol_as_recorded_are_found_by_the_linter_alone(tmp_path: Path, name: str) -> None:
    with serving(tmp_path, name, "--verify", "--lint", "--write", str(tmp_path / "live.pcapng")) as running:
        play(name, running.port, tmp_path)
        assert running.finish() == 1, running.out + running.err

    assert "no differences" in running.out
    assert all(f"[{code}]" in running.out for code in GUILTY[name])
    assert invoke("inspect", tmp_path / "live.pcapng").code == 0


def test_our_replay_plays_the_devices(tmp_path: Path) -> None:
    with serving(tmp_path, "v5-qos", "--verify", "--pace", "causal", "--format", "jsonl") as running:
        broker = f"mqtt://127.0.0.1:{running.port}"
        done = invoke("replay", capture("v5-qos"), "--broker", broker, "--pace", "causal", "--verify")
        assert done.code == 0, done.text
        assert running.finish() == 0, running.out
    summary = running.lines[-1]
    assert summary["event"] == "serve"
    assert summary["complete"] is True
    assert summary["never_connected"] == []


def talk(port: int, *packets: bytes, leave: bool = True) -> None:
    """A client that says all of it and leaves."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        for packet in packets:
            client.sendall(packet)
        if leave:
            client.sendall(encode(Disconnect(), V3_1_1))
        while client.recv(1000):
            pass


HELLO = encode(Connect(client_identifier="example", keep_alive=60), V3_1_1)


def message(topic: str = "a/b", qos: int = 1, payload: bytes = b"c") -> bytes:
    number = 7 if qos else None
    return encode(Publish(qos=qos, topic_name=topic, packet_identifier=number, payload=payload), V3_1_1)


def recorded_message() -> tuple[str, bytes]:
    """Topic and payload of the one message of the capture."""
    done = invoke("inspect", capture("example-a-b-v311"), "--format", "jsonl")
    packet = next(document for document in done.packets if document["type"] == "publish")
    return packet["topic"], packet["publish"]["payload"]["text"].encode()


@pytest.mark.parametrize("more", [False, True], ids=["another topic", "one more packet"])
def test_a_client_that_misbehaves_is_reported_by_kind(more: bool, tmp_path: Path) -> None:
    topic, payload = recorded_message()
    packets = [message(topic, 1, payload), message("new", 0)] if more else [message("x/y", 1, payload)]
    with serving(tmp_path, "example-a-b-v311", "--verify", "--format", "jsonl") as running:
        talk(running.port, HELLO, *packets)
        assert running.finish() == 1, running.out + running.err
    assert running.kinds() == [("extra-packet", None) if more else ("field", "topic")]


def test_violations_are_found_while_it_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path, "example-a-b-v311", "--lint", "--output", str(tmp_path / "report")) as running:
        talk(running.port, HELLO, message("a/+"), leave=False)
        assert running.finish() == 1, running.err

    assert "error[PUB103]" in (tmp_path / "report").read_text("utf-8")
    assert "closed: PUBLISH that breaks the protocol" in running.err


@pytest.mark.parametrize(("options", "code"), [((), 1), (("--exit-zero",), 0)])
def test_who_never_connects_is_told_at_the_end(options: tuple[str, ...], code: int, tmp_path: Path) -> None:
    with serving(tmp_path, "v311-qos", "--verify", "--client", "sensor-*", *options) as running:
        assert running.finish(signal.SIGINT) == code

    assert "never-connected: No device made this connection." in running.out
    assert "never connected: sensor-1" in running.out
    assert "1 difference" in running.out
    assert "logger" not in running.out


@pytest.mark.broker
def test_tls(tmp_path: Path) -> None:
    with rig.certificates(tmp_path) as certificates:
        options = ("--listen-cert", str(tmp_path / "server.pem"), "--listen-key", str(tmp_path / "server.key"))
        with serving(tmp_path, "v5-qos", "--verify", "--pace", "asap", *options) as running:
            broker = f"mqtts://127.0.0.1:{running.port}"
            done = invoke(
                "replay",
                capture("v5-qos"),
                "--broker",
                broker,
                "--ca",
                certificates.ca,
                "--pace",
                "asap",
                "--verify",
            )
            assert done.code == 0, done.text
            assert running.finish() == 0, running.out


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("v311-qos", ("--listen", "nowhere"), 2),
        ("v311-qos", ("--listen-key", "x"), 2),
        ("v311-qos", ("--write", str(capture("v311-qos")), "--listen", "127.0.0.1:0"), 2),
        ("server-side-only", ("--listen", "127.0.0.1:0"), 3),
    ],
)
def test_what_cannot_be_is_refused(name: str, options: tuple[str, ...], code: int) -> None:
    assert invoke("serve", capture(name), *options).code == code


def test_a_missing_capture_and_a_port_in_use_are_said(tmp_path: Path) -> None:
    assert invoke("serve", tmp_path / "none.pcapng", "--listen", "127.0.0.1:0").code == 3
    with socket.create_server(("127.0.0.1", 0)) as used_socket:
        port = used_socket.getsockname()[1]
        done = invoke("serve", capture("v311-qos"), "--listen", f"127.0.0.1:{port}")
    assert done.code == 3
    assert f"port {port} is in use" in done.err


V5 = ProtocolVersion.V5


@pytest.mark.long
def test_a_flood_of_pings_that_nobody_reads_the_answers_of(tmp_path: Path) -> None:
    with (
        repeating(tmp_path, "--lint") as served,
        Client(served.port, "good") as good,
        Client(served.port, "bad") as bad,
    ):
        # More than the system keeps for a connection.
        flood = bad.flood(PING * 10_000_000)
        for _ in range(50):
            good.ping()
        # The flood waits for its own answers.
        assert flood.is_alive()
        assert memory_mib(served.process.pid) < 200
        served.finish(signal.SIGTERM)


@pytest.mark.long
def test_the_report_of_a_comparison_is_written_in_a_flood(tmp_path: Path) -> None:
    """It says what there was no time to compare, and is no success then."""
    report = tmp_path / "report.jsonl"
    with (
        repeating(tmp_path, "--verify", "--format", "jsonl", "--output", str(report)) as served,
        Client(served.port, "bad") as bad,
    ):
        message = encode(Publish(topic_name="a", payload=b"b"))
        bad.sock.sendall(message * MAX_COMPARED)
        bad.ping()
        flood = bad.flood(message * 1_000_000)
        assert served.finish(signal.SIGTERM) == 3
        flood.join(PATIENCE_S)
    if not is_unwritten(served.process, served.err):
        assert "mqttscope: not compared: " in served.err
        summary = json.loads(report.read_text("utf-8").splitlines()[-1])
        assert summary["event"] == "serve"
        assert summary["packets_received"] > MAX_COMPARED


def test_the_waits_after_a_signal_leave_time_for_the_report() -> None:
    assert JUDGE_S + GRACE_S < LIMIT_S - 0.5
    assert COMPARE_S < LIMIT_S - 0.5
    assert LIMIT_S < 2


def test_a_report_that_nobody_reads_is_no_success(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        with suppress(BlockingIOError):
            while True:
                os.write(writing, bytes(4_096))
        os.set_blocking(writing, True)
        with repeating(tmp_path, stdout=writing) as served:
            assert served.finish(signal.SIGTERM) == 3
    finally:
        os.close(reading)
        os.close(writing)
    assert is_unwritten(served.process, served.err)


def test_who_is_answered_gets_all_answers(tmp_path: Path) -> None:
    with repeating(tmp_path) as served, Client(served.port, "busy") as busy:
        flood = busy.flood(PING * 20_000)
        assert busy.read(40_000) == b"\xd0\0" * 20_000
        flood.join(PATIENCE_S)
        served.finish(signal.SIGTERM)


@contextmanager
def bad_client(port: int) -> Iterator[socket.socket]:
    """A client of 5.0 that was accepted."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as bad:
        bad.sendall(encode(Connect(client_identifier="bad", protocol_level=5), V5))
        assert bad.recv(100)[0] == 0x20
        yield bad


def test_a_packet_that_is_too_large_ends_its_own_connection(tmp_path: Path) -> None:
    with (
        repeating(tmp_path) as served,
        Client(served.port, "good") as good,
        bad_client(served.port) as bad,
    ):
        bad.sendall(announced(1_100_000))
        assert bad.recv(100)[:3] == b"\xe0\x01\x95"
        good.ping()
        served.finish(signal.SIGTERM)
    assert "closed: a packet of 1,100,004 bytes: the limit is 1,048,576" in served.err


def test_more_subscriptions_than_there_is_room_for_end_the_connection(tmp_path: Path) -> None:
    with repeating(tmp_path) as served, bad_client(served.port) as bad:
        for part in range(2):
            filters = [Subscription(f"{part}/{number}", 0) for number in range(6_000)]
            bad.sendall(encode(Subscribe(packet_identifier=1, subscriptions=filters), V5))
        data = b""
        while got := bad.recv(65_536):
            data += got
        assert data[-3:] == b"\xe0\x01\x97"
        served.finish(signal.SIGTERM)
    assert "closed: more than 10,000 subscriptions" in served.err
