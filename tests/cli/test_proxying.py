"""One client does not harm the others: hostile clients in front of the command as users start it."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from mqttscope.capture import open_capture
from mqttscope.cli.proxying import MAX_UNWRITTEN_BYTES, Background
from mqttscope.mqtt import Connect, Publish, encode
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import Segment
from mqttscope.transport.recording import MAX_STREAM_BYTES
from tests.cli.running import invoke
from tests.proxy.hostile import ACCEPTED, GARBAGE, V3_1_1, Client, announced, memory_mib, patient_server
from tests.proxy.rig import PATIENCE_S, program_proxy, until

LAST = encode(Publish(topic_name="last"), V3_1_1)
ENDS_S = 8.0
"""The end after a signal takes less than two seconds; a busy machine gets more."""


def test_who_keeps_the_linter_busy_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "all.pcapng"
    with (
        patient_server() as upstream,
        program_proxy(tmp_path, f"mqtt://127.0.0.1:{upstream}", "--write", str(path)) as proxy,
        Client(proxy.port, "good") as good,
        Client(proxy.port, "bad") as bad,
    ):
        flood = bad.flood(GARBAGE)
        for _ in range(20):
            good.ping()
        flood.join(PATIENCE_S)
        assert not flood.is_alive()
        # Of two million bytes hardly any are judged, and the answer is here.
        good.ping()
        good.sock.sendall(LAST)
        until(lambda: path.read_bytes()[-1_000:].count(LAST))
        # A busy machine may have judged nothing yet.
        assert proxy.process.stdout is not None
        first = proxy.process.stdout.readline()
        began = time.monotonic()
        assert proxy.finish() == 1
        assert time.monotonic() - began < ENDS_S
    assert "bytes forwarded but not judged; mqttscope lint " in proxy.err
    assert "error[" in first + proxy.out
    sent = b"".join(
        found.payload
        for frame in open_capture([path])
        if isinstance(frame, Frame) and isinstance(found := segment(frame), Segment)
    )
    assert sent.count(GARBAGE[:16]) == len(GARBAGE) // 16
    assert sent.endswith(LAST)


def test_silent_clients_do_not_keep_their_places(tmp_path: Path) -> None:
    with (
        patient_server() as upstream,
        program_proxy(
            tmp_path, f"mqtt://127.0.0.1:{upstream}", "--max-connections", "3", "--connect-timeout", "0.5"
        ) as proxy,
    ):
        silent = [socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) for _ in range(3)]
        for one in silent:
            with pytest.raises(ConnectionError):
                one.recv(1)
            one.close()
        until(lambda: _may_connect(proxy.port))
        assert proxy.finish() == 0, proxy.err
    assert proxy.err.count("closed: no CONNECT came within 0.5 s") == 3


def _may_connect(port: int) -> bool:
    try:
        with Client(port, "good") as good:
            good.ping()
    except (AssertionError, ConnectionError):
        return False
    return True


def test_a_connect_byte_by_byte_has_no_more_time(tmp_path: Path) -> None:
    with (
        patient_server() as upstream,
        program_proxy(tmp_path, f"mqtt://127.0.0.1:{upstream}", "--connect-timeout", "1") as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) as slow,
    ):
        sent = _byte_by_byte(slow, encode(Connect(client_identifier="x" * 1_000), V3_1_1))
        assert 5 < sent < 500
        assert proxy.finish() == 0, proxy.err
    assert "closed: no CONNECT came within 1 s" in proxy.err


def _byte_by_byte(sock: socket.socket, data: bytes) -> int:
    """Send until the other side has enough; returns how many bytes that were."""
    for sent in range(len(data)):
        try:
            sock.sendall(data[sent : sent + 1])
        except ConnectionError:
            return sent
        time.sleep(0.05)
    return len(data)


def test_a_broker_that_never_answers_does_not_keep_the_place(tmp_path: Path) -> None:
    with (
        patient_server(silent=True) as upstream,
        program_proxy(tmp_path, f"mqtt://127.0.0.1:{upstream}", "--connect-timeout", "0.5") as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) as client,
    ):
        client.sendall(encode(Connect(client_identifier="good"), V3_1_1))
        with pytest.raises(ConnectionError):
            client.recv(1)
        assert proxy.finish() == 0, proxy.err
    assert "closed: the broker did not answer the client's first packet within 0.5 s" in proxy.err


def test_no_limit_is_no_limit(tmp_path: Path) -> None:
    with (
        patient_server() as upstream,
        program_proxy(tmp_path, f"mqtt://127.0.0.1:{upstream}", "--connect-timeout", "0") as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) as client,
    ):
        time.sleep(1)
        client.sendall(encode(Connect(client_identifier="good"), V3_1_1))
        assert client.recv(4) == ACCEPTED
        assert proxy.finish() == 0


def test_a_huge_packet_is_forwarded_and_recorded_but_not_kept(tmp_path: Path) -> None:
    size = 64 << 20
    path = tmp_path / "all.pcapng"
    with (
        patient_server() as upstream,
        program_proxy(tmp_path, f"mqtt://127.0.0.1:{upstream}", "--write", str(path)) as proxy,
        Client(proxy.port, "good") as good,
        Client(proxy.port, "bad") as bad,
    ):
        flood = bad.flood(announced(size) + bytes(size - 3))
        good.ping()
        flood.join(PATIENCE_S)
        assert not flood.is_alive()
        bad.sock.sendall(encode(Publish(topic_name="behind"), V3_1_1))
        good.ping()
        until(lambda: path.stat().st_size > size)
        assert memory_mib(proxy.process.pid) < 200
        assert proxy.finish() == 0, proxy.err
    assert f"a packet of {size + 5:,} bytes was forwarded but not judged: --max-packet is 1,048,576" in proxy.err


def test_a_large_message_that_was_not_kept_accuses_nobody(tmp_path: Path) -> None:
    message = encode(Publish(topic_name="a", qos=1, packet_identifier=7, payload=bytes(300_000)), V3_1_1)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        program_proxy(
            tmp_path, f"mqtt://127.0.0.1:{listening.getsockname()[1]}", "--max-packet", "64K", "--fail-confidence",
            "heuristic", "--fail-on", "warning",
        ) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) as client,
    ):  # fmt: skip
        server, _ = listening.accept()
        with server:
            client.sendall(encode(Connect(client_identifier="good"), V3_1_1))
            assert server.recv(1_000)
            server.sendall(ACCEPTED)
            assert client.recv(4) == ACCEPTED
            client.sendall(message)
            left = len(message)
            while left:
                left -= len(server.recv(left))
            server.sendall(b"\x40\x02\0\x07")
            assert client.recv(4) == b"\x40\x02\0\x07"
            client.sendall(b"\xe0\0")
            assert server.recv(2) == b"\xe0\0"
            client.close()
            assert server.recv(1) == b""
        assert proxy.finish() == 0, proxy.out
    assert f"a packet of {len(message):,} bytes was forwarded but not judged: --max-packet is 65,536" in proxy.err


def test_who_never_reads_the_findings_holds_nobody_up(tmp_path: Path) -> None:
    with (
        patient_server() as upstream,
        program_proxy(tmp_path, f"mqtt://127.0.0.1:{upstream}", "--show") as proxy,
        Client(proxy.port, "good") as good,
        Client(proxy.port, "bad") as bad,
    ):
        bad.flood(GARBAGE).join(PATIENCE_S)
        for _ in range(20):
            good.ping()
        assert memory_mib(proxy.process.pid) < 200
        began = time.monotonic()
        proxy.process.terminate()
        assert proxy.process.wait(PATIENCE_S) in (1, 3)
        assert time.monotonic() - began < ENDS_S


@pytest.mark.parametrize("size", ["10", "300M", "much", "1.5M"])
def test_sizes_that_cannot_be_are_refused(size: str) -> None:
    done = invoke("proxy", "--upstream", "mqtt://127.0.0.1:1", "--max-packet", size)
    assert done.code == 2
    assert "--max-packet" in done.err


class Stalled:
    """An output whose reader takes nothing until it is let."""

    def __init__(self) -> None:
        import threading

        self.free = threading.Event()
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.free.wait(PATIENCE_S)
        self.written.append(data)


def test_findings_wait_for_room_and_lines_do_not() -> None:
    output = Stalled()
    sink = Background(output)  # type: ignore[arg-type]
    sink.write(bytes(MAX_UNWRITTEN_BYTES + 1))
    sink.offer(b"line")
    assert sink.left_out == 1
    sink.end(0.05)
    sink.write(b"finding")
    assert sink.left_out == 2
    output.free.set()
    until(lambda: output.written)
    sink.write(b"late")
    sink.close()
    assert output.written[1:] == [b"late"]


def test_one_stream_may_wait_with_more_than_a_packet() -> None:
    assert MAX_STREAM_BYTES >= 4 * (1 << 20)
