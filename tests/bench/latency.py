"""How much later messages arrive through ``mqttscope proxy``: the same clock, with the proxy and without, in turns.

A client sends PUBLISH packets at a steady rate over one connection; a listener in the same process notes when each
arrives.  Neither is a broker: what is measured is the way between them.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from mqttscope.mqtt import Connack, Connect, ProtocolVersion, Publish, encode
from tests.bench.printing import Out, heading, row, spread
from tests.bench.traffic import steadily

RATE = 2_000
SECONDS = 5.0
PAYLOAD_BYTES = 100
MODES: dict[str, tuple[str, ...]] = {"record, lint": (), "record": ("--no-lint",), "record, lint, show": ("--show",)}


def one_way(port: int, listening: socket.socket, rate: int, seconds: float) -> list[float]:
    """Milliseconds that each message took from a client at ``port`` to the one who listens."""
    client = socket.create_connection(("127.0.0.1", port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server, _ = listening.accept()
    client.sendall(encode(Connect(client_identifier="bench"), ProtocolVersion.V3_1_1))
    server.recv(1000)
    server.sendall(encode(Connack(), ProtocolVersion.V3_1_1))
    client.recv(1000)
    size = len(_message(0))
    took: list[float] = []
    count = int(rate * seconds)

    def listen() -> None:
        held = b""
        while len(took) < count and (data := server.recv(65_536)):
            now = time.perf_counter_ns()
            held += data
            while len(held) >= size:
                took.append((now - int.from_bytes(held[size - 8 : size], "big")) / 1e6)
                held = held[size:]

    thread = threading.Thread(target=listen)
    thread.start()
    for _ in steadily(count, rate):
        client.sendall(_message(time.perf_counter_ns()))
    thread.join(30)
    client.close()
    server.close()
    return took


def _message(stamp: int) -> bytes:
    payload = bytes(PAYLOAD_BYTES - 8) + stamp.to_bytes(8, "big")
    return encode(Publish(topic_name="bench/latency", payload=payload), ProtocolVersion.V3_1_1)


def through(options: tuple[str, ...], listening: socket.socket, folder: Path, rate: int, seconds: float) -> list[float]:
    """The same through a proxy of its own process."""
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    upstream = f"mqtt://127.0.0.1:{listening.getsockname()[1]}"
    arguments = ["--listen", "127.0.0.1:0", "--upstream", upstream, "--write", str(folder / "bench.pcapng")]
    proxy = subprocess.Popen(
        [sys.executable, "-m", "mqttscope", "proxy", *arguments, "--ready-file", str(ready), "--no-config", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not ready.exists():
            time.sleep(0.02)
        return one_way(int(ready.read_text().rpartition(":")[2]), listening, rate, seconds)
    finally:
        proxy.terminate()
        proxy.wait(10)


def measure(out: Out, rate: int = RATE, seconds: float = SECONDS) -> None:
    """Print medians and 99th percentiles."""
    out(f"{rate:,} messages per second, {PAYLOAD_BYTES} bytes each\n")
    heading(out, "", "median", "99 %", "added median")
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listening:
        ways = {"direct": one_way(listening.getsockname()[1], listening, rate, seconds)}
        for name, options in MODES.items():
            ways[name] = through(options, listening, Path(folder), rate, seconds)
    for name, took in ways.items():
        median, late, _ = spread(took)
        row(out, name, f"{median:.3f} ms", f"{late:.3f} ms", f"{median - spread(ways['direct'])[0]:.3f} ms")
