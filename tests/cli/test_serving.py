"""One device does not harm the others: hostile devices in front of the stand-in as users start it."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mqttscope.mqtt import Connect, ProtocolVersion, Publish, Subscribe, Subscription, encode
from tests.cli.running import capture, command, environment
from tests.proxy.hostile import GARBAGE, PING, V3_1_1, Client, announced, memory_mib
from tests.proxy.rig import PATIENCE_S, end, until

ENDS_S = 8.0
"""The end after a signal takes less than two seconds; a busy machine gets more."""
V5 = ProtocolVersion.V5


@dataclass(slots=True)
class ServerRun:
    """``mqttscope serve`` at work."""

    process: subprocess.Popen[str]
    port: int
    out: str = ""
    err: str = ""

    def finish(self) -> int:
        """Ask it to end; returns the exit code."""
        began = time.monotonic()
        self.process.terminate()
        self.out, self.err = self.process.communicate(timeout=PATIENCE_S)
        assert time.monotonic() - began < ENDS_S
        assert "Traceback" not in self.err
        return self.process.returncode


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[ServerRun]:
    """A stand-in that listens; it is ended with the test."""
    ready = folder / "ready"
    words = command(
        "serve", capture("v311-qos"), "--listen", "127.0.0.1:0", "--ready-file", ready, "--keep-running",
        "--no-config", *options,
    )  # fmt: skip
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        until(lambda: ready.exists() or process.poll() is not None, "the start of serve")
        assert process.poll() is None, process.communicate()
        yield ServerRun(process, int(ready.read_text().strip().rpartition(":")[2]))
    finally:
        end(process)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()


def test_a_flood_of_pings_that_nobody_reads_the_answers_of(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--lint") as served,
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
        served.finish()


def test_the_report_of_a_comparison_is_written_in_a_flood(tmp_path: Path) -> None:
    """It says what there was no time to compare, and is no success then."""
    report = tmp_path / "report.jsonl"
    with (
        serving(tmp_path, "--verify", "--format", "jsonl", "--output", str(report)) as served,
        Client(served.port, "bad") as bad,
    ):
        flood = bad.flood(encode(Publish(topic_name="a", payload=b"b")) * 1_000_000)
        time.sleep(3)
        code = served.finish()
        assert code in (1, 3), served.err
        assert (code == 3) is ("mqttscope: not compared: " in served.err)
        flood.join(PATIENCE_S)
    told = json.loads(report.read_text().splitlines()[-1])
    assert told["event"] == "serve"
    assert told["packets_received"] > 1_000


def test_who_is_answered_gets_all_answers(tmp_path: Path) -> None:
    with serving(tmp_path) as served, Client(served.port, "busy") as busy:
        flood = busy.flood(PING * 20_000)
        assert busy.read(40_000) == b"\xd0\0" * 20_000
        flood.join(PATIENCE_S)
        served.finish()


def test_bad_packets_hold_no_other_device_up(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--lint", "--unexpected", "ignore") as served,
        socket.create_connection(("127.0.0.1", served.port), PATIENCE_S) as bad,
    ):
        # Who is ignored is listened to forever.
        bad.sendall(encode(Connect(client_identifier="bad"), V3_1_1) + GARBAGE)
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", served.port), PATIENCE_S) as other:
                other.sendall(PING)
                assert other.recv(1) == b""
        assert served.finish() in (1, 3)
    assert "bytes forwarded but not judged" in served.err


def test_a_packet_that_is_too_large_ends_its_own_connection(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--max-packet", "64K") as served,
        Client(served.port, "good") as good,
        socket.create_connection(("127.0.0.1", served.port), PATIENCE_S) as bad,
    ):
        bad.sendall(encode(Connect(client_identifier="bad", protocol_level=5), V5))
        assert bad.recv(100)[0] == 0x20
        bad.sendall(announced(70_000))
        assert bad.recv(100)[:3] == b"\xe0\x01\x95"
        good.ping()
        served.finish()
    assert "closed: a packet of 70,004 bytes: --max-packet is 65,536" in served.err


def test_more_subscriptions_than_there_is_room_for_end_the_connection(tmp_path: Path) -> None:
    with serving(tmp_path) as served, socket.create_connection(("127.0.0.1", served.port), PATIENCE_S) as bad:
        bad.sendall(encode(Connect(client_identifier="bad", protocol_level=5), V5))
        assert bad.recv(100)[0] == 0x20
        for part in range(2):
            filters = [Subscription(f"{part}/{number}", 0) for number in range(6_000)]
            bad.sendall(encode(Subscribe(packet_identifier=1, subscriptions=filters), V5))
        data = b""
        while got := bad.recv(65_536):
            data += got
        assert data[-3:] == b"\xe0\x01\x97"
        served.finish()
    assert "closed: more than 10,000 subscriptions" in served.err
