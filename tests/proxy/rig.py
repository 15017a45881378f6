"""What tests of the proxy need: a real mosquitto, certificates, clients, proxies as programs, and ways to wait."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mqttscope.cli.main import EXIT_FAILED, UNWRITTEN
from mqttscope.mqtt.constants import ProtocolVersion
from tests.forked import Forked, environment
from tests.tools import package, program

PATIENCE_S = 20.0
"""How long a test waits for what has to come."""


def until(happened: Callable[[], object], what: str = "it") -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


def is_waiting(process: subprocess.Popen[Any]) -> bool:
    """Whether a program waits for something outside of it, and has acted on every signal that was sent to it."""
    status = _status(process)
    pending = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
    return status["State"].startswith("S") and not pending


@contextmanager
def held(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Hold a program, so that its limits of time begin after what is done meanwhile."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def is_unwritten(process: subprocess.Popen[Any], err: str) -> bool:
    """Whether the limit after a signal ended a program before its reports were written, as on a busy machine."""
    return process.returncode == EXIT_FAILED and err.endswith(f"mqttscope: {UNWRITTEN}\n")


def is_catching(process: subprocess.Popen[Any], number: int) -> bool:
    """Whether a program has a handler of its own for a signal."""
    return bool(int(_status(process)["SigCgt"], 16) >> number - 1 & 1)


def _status(process: subprocess.Popen[Any]) -> dict[str, str]:
    lines = Path(f"/proc/{process.pid}/status").read_text("utf-8").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def processor_seconds(process_id: int) -> float:
    """User and system time of a process; 0 if it has ended."""
    try:
        # The name of the program is in brackets and may hold blanks.
        words = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def need_address(host: str) -> None:
    """Skip the calling test where nothing can listen at an address of this machine, such as ``::1`` without IPv6."""
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        pytest.skip(f"there is no {host} here")


def free_port() -> int:
    """A port where nobody listens."""
    # Without SO_REUSEADDR, as mosquitto binds for WebSocket: some ports still belong to connections that are over.
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def end(process: subprocess.Popen[str]) -> None:
    """End one process that a test started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@dataclass(slots=True)
class Broker:
    """A running mosquitto."""

    port: int
    process: subprocess.Popen[str]


@contextmanager
def mosquitto(folder: Path, listener: str = "", *, verbose: bool = True) -> Iterator[Broker]:
    """A broker on loopback; ``listener`` are further lines about its listener, ``verbose`` logs each packet."""
    port = free_port()
    config = folder / f"mosquitto-{port}.conf"
    config.write_text(
        f"user root\npersistence false\nlistener {port} 127.0.0.1\n{listener}\n"
        # mosquitto 2.0.11 does not start with WebSocket listeners alone.
        f"listener {free_port()} 127.0.0.1\nallow_anonymous true\n",
        "utf-8",
    )
    with (folder / f"mosquitto-{port}.log").open("w") as log:
        words = [program("mosquitto"), *(["-v"] if verbose else []), "-c", str(config)]
        process = subprocess.Popen(words, stdout=log, stderr=log, text=True)
    try:
        until(lambda: process.poll() is not None or _listens(port), "the start of mosquitto")
        assert process.poll() is None, (folder / f"mosquitto-{port}.log").read_text()
        yield Broker(port, process)
    finally:
        end(process)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass(slots=True)
class Certificates:
    """A CA, a certificate of it for 127.0.0.1 and localhost, and one for another name."""

    folder: Path
    ca: str
    cert: str
    key: str
    client_cert: str
    client_key: str
    other_ca: str


def openssl(folder: Path, *words: str) -> None:
    """Run openssl in a folder."""
    done = subprocess.run([program("openssl"), *words], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr


@contextmanager
def certificates(folder: Path) -> Iterator[Certificates]:
    """Made by openssl."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    for name in ("ca", "other"):
        # From 3.13 on, Python refuses a CA whose certificate does not say what its key is for.
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        files = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
        openssl(folder, "req", "-x509", *curve, *files, "-subj", f"/CN=test {name}", *usage)
    for name, valid in (("server", "IP:127.0.0.1,DNS:localhost"), ("client", "DNS:client.example")):
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", f"{name}.key", "-out", f"{name}.pem")
        names = ("-addext", f"subjectAltName={valid}", "-addext", "basicConstraints=critical,CA:FALSE")
        openssl(folder, "req", "-x509", *curve, *signed, "-subj", f"/CN={name}", *names)
    paths = ("ca.pem", "server.pem", "server.key", "client.pem", "client.key", "other.pem")
    yield Certificates(folder, *(str(folder / path) for path in paths))


def expired(folder: Path, new_certificates: Certificates) -> str:
    """A certificate with the server's key whose time is over."""
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    openssl(folder, "req", "-new", "-key", new_certificates.key, "-subj", "/CN=localhost", "-out", "it.csr")
    authority = (
        "-CA",
        new_certificates.ca,
        "-CAkey",
        str(new_certificates.folder / "ca.key"),
        "-set_serial",
        "7",
        "-days",
        "-1",
    )
    openssl(folder, "x509", "-req", "-in", "it.csr", *authority, "-out", "expired.pem", "-extfile", "names")
    return str(folder / "expired.pem")


def is_reset(port: int) -> bool:
    """Whether a client that connects is reset, perhaps before it knows that it is connected."""
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
            return client.recv(1) == b"never"
    except ConnectionError:
        return True


@dataclass(slots=True)
class Talk:
    """What a client did."""

    received: list[bytes] = field(default_factory=list)
    reason: str = ""


def talk(
    port: int,
    *,
    version: ProtocolVersion = ProtocolVersion.V3_1_1,
    transport: str = "tcp",
    ca: str | None = None,
    messages: int = 6,
    identifier: str = "paho",
) -> Talk:
    """A client that subscribes, publishes to itself at every QoS, gets all of it, and leaves."""
    package("paho.mqtt.client")
    import paho.mqtt.client as mqtt
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

    talked = Talk()
    subscribed, complete, left = threading.Event(), threading.Event(), threading.Event()
    client = mqtt.Client(
        CallbackAPIVersion.VERSION2,
        identifier,
        protocol=MQTTProtocolVersion(version),
        transport="websockets" if transport == "websockets" else "tcp",
    )
    if ca is not None:
        client.tls_set(ca)

    def on_connect(client: mqtt.Client, *_: object) -> None:
        client.subscribe("test/#", 2)

    def on_message(client: mqtt.Client, _: object, message: mqtt.MQTTMessage) -> None:
        talked.received.append(bytes(message.payload))
        if len(talked.received) == messages:
            complete.set()

    client.on_connect = on_connect
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = on_message
    client.on_disconnect = lambda *_: left.set()
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        assert subscribed.wait(PATIENCE_S)
        sent = [client.publish("test/topic", b"message %d" % number, number % 3) for number in range(messages)]
        assert complete.wait(PATIENCE_S)
        for info in sent:
            info.wait_for_publish(PATIENCE_S)
        client.disconnect()
        assert left.wait(PATIENCE_S)
    finally:
        client.loop_stop()
    return talked


@dataclass(slots=True)
class Program:
    """``mqttscope proxy`` as users start it."""

    process: subprocess.Popen[str]
    port: int
    out: str = ""
    err: str = ""

    def finish(self, *, ask: bool = True) -> int:
        """Ask it to end, or wait until it does by itself; returns the exit code."""
        if ask:
            self.process.terminate()
        self.out, self.err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode


@contextmanager
def program_proxy(
    folder: Path, upstream: str, *options: str, before: tuple[str, ...] = (), listen: str = "127.0.0.1:0"
) -> Iterator[Program]:
    """A proxy that listens; it is ended with the test."""
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    process = Forked(
        [
            *before, sys.executable, "-m", "mqttscope", "proxy", "--no-config", "--listen", listen,
            "--upstream", upstream, "--ready-file", str(ready), *options,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    try:
        until(lambda: ready.exists() or process.poll() is not None, "the start of the proxy")
        if not ready.exists():
            raise AssertionError(process.communicate())
        yield Program(process, int(ready.read_text().strip().rpartition(":")[2]))
    finally:
        end(process)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()
