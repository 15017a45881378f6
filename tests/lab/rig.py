"""One case of the laboratory: a broker, its clients, and a recording on one of two hosts."""

from __future__ import annotations

import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from mqttscope.mqtt import ProtocolVersion
from tests.lab.clients import (
    PLAIN,
    TLS,
    V5,
    WEBSOCKET,
    Client,
    Command,
    NotPlantedError,
    Paho,
    Raw,
    Setup,
    Target,
    wait,
)
from tests.lab.wire import CLIENT, SERVER, Network, Wire
from tests.proxy.rig import free_port
from tests.tools import program

RAW, PAHO, COMMAND = "raw", "paho", "mosquitto_sub"
MOSQUITTO, AMQTT = "mosquitto", "amqtt"
PORTS = {PLAIN: 1883, TLS: 8883, WEBSOCKET: 9001}
START_S = 15.0
EMPTY = "(empty)"
"""The name of a client with an empty Client Identifier."""


@dataclass(frozen=True, slots=True)
class Draw:
    """What was drawn for one case."""

    seed: int
    number: int
    attempt: int
    fault: str
    broker: str
    client: str
    version: str
    transport: str
    has_keys: bool
    recorded_at: str
    delay_ms: int
    damage: str
    """What is done to the recording afterwards: nothing, or its begin, its lengths or its clock."""

    @property
    def chance(self) -> random.Random:
        """The numbers that belong to this case."""
        return random.Random(f"{self.seed}/{self.number}/{self.attempt}")

    def __str__(self) -> str:
        keys = " without keys" if self.transport == TLS and not self.has_keys else ""
        damage = f", {self.damage}" if self.damage else ""
        return (
            f"{self.fault}: {self.client} {self.version} over {self.transport}{keys} to {self.broker}, "
            f"recorded at the {self.recorded_at}, delay {self.delay_ms} ms{damage}"
        )


@cache
def authority(folder: Path) -> Path:
    """Certificates for all cases of a process."""
    folder.mkdir(parents=True, exist_ok=True)
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    for name in ("ca", "other"):
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN=lab {name}"]
        _openssl(folder, "req", "-x509", *curve, *files, *usage)
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", "server.key", "-out", "server.pem", "-subj", "/CN=broker"]
    _openssl(folder, "req", "-x509", *curve, *signed, "-addext", "basicConstraints=critical,CA:FALSE")
    return folder


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run([program("openssl"), *words], cwd=folder, check=True, capture_output=True, timeout=60)


@dataclass(slots=True)
class Lab:
    """What a fault is planted in."""

    draw: Draw
    network: Network
    folder: Path
    certificates: Path
    config: str = ""
    broker: subprocess.Popen[bytes] | None = None
    actors: list[Any] = field(default_factory=list)
    cleanup: list[Callable[[], object]] = field(default_factory=list)
    port: int = 0
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = self.draw.chance
        self.port = self.port_of(self.draw.transport)

    def port_of(self, transport: str) -> int:
        """The usual port, or a free one where hosts share loopback with others."""
        return PORTS[transport] if self.network.obeys else free_port()

    @property
    def version(self) -> ProtocolVersion:
        return ProtocolVersion.V5 if self.draw.version == "5.0" else ProtocolVersion.V3_1_1

    @property
    def is_five(self) -> bool:
        return self.version == V5

    @property
    def wire(self) -> Wire:
        """The wire, where there is one."""
        if not isinstance(self.network, Wire):
            raise NotPlantedError("loopback does not obey")
        return self.network

    @property
    def is_blind(self) -> bool:
        """Whether the recording is encrypted, and there are no keys."""
        return self.draw.transport == TLS and not self.draw.has_keys

    @property
    def log(self) -> str:
        """What the broker has logged."""
        path = self.folder / "broker.txt"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    @property
    def keys(self) -> Path | None:
        """The key log of the clients; a handshake that failed leaves no more than a comment."""
        path = self.folder / "keys.txt"
        return path if self.draw.has_keys and path.exists() else None

    @property
    def places(self) -> dict[str, str]:
        """Where clients connected from the first time, by Client Identifier."""
        places: dict[str, str] = {}
        for actor in self.actors:
            if getattr(actor, "port", 0):
                places.setdefault(actor.setup.name or EMPTY, f"{self.network.client_address}:{actor.port}")
        return places

    def target(self, **changes: Any) -> Target:
        """The broker as clients reach it."""
        values: dict[str, Any] = {
            "host": self.network.server_address,
            "port": self.port,
            "version": self.version,
            "transport": self.draw.transport,
            "authority": str(self.certificates / "ca.pem"),
            "key_log": self.folder / "keys.txt" if self.draw.has_keys else None,
        }
        return Target(**{**values, **changes})

    def client(self, name: str, **setup: Any) -> Client:
        """A client of the kind that was drawn."""
        if self.draw.client == RAW:
            return self.raw(name, **setup)
        enter, target = partial(self.network.on, CLIENT), self.target()
        client: Client
        if self.draw.client == PAHO:
            client = Paho(Setup(name, **setup), target, enter)
        else:
            output = self.folder / f"{name}.txt"
            client = Command(
                Setup(name, **setup), target, enter, output, lambda: f"Sending SUBACK to {name}" in self.log
            )
        self.actors.append(client)
        return client

    def raw(self, name: str, target: Target | None = None, **setup: Any) -> Raw:
        """Our own client."""
        client = Raw(Setup(name, **setup), target or self.target(), partial(self.network.on, CLIENT))
        self.actors.append(client)
        return client

    def subscribed(self, name: str, topic_filter: str, qos: int = 0, **setup: Any) -> Client:
        """A client of the kind that was drawn, connected, with a subscription."""
        client = self.client(name, **setup)
        self.need(client.connect() == 0, f"{name} was refused")
        self.need(client.subscribe(topic_filter, qos) < 0x80, f"the subscription of {name} was refused")
        return client

    def connected(self, name: str, **setup: Any) -> Raw:
        """Our own client, connected."""
        client = self.raw(name, **setup)
        self.need(client.connect() == 0, f"{name} was refused")
        return client

    def publish(self, topic: str, qos: int = 0, payload: bytes = b"21.5", **options: Any) -> None:
        """A client that comes to publish, and leaves."""
        client = self.connected("sender")
        client.publish(topic, payload, qos, **options)
        time.sleep(0.1)
        client.disconnect()

    def need(self, condition: object, what: str) -> None:
        """Without this, the fault was not planted."""
        if not condition:
            raise NotPlantedError(what)

    def logged(self, pattern: str, seconds: float = 5.0) -> None:
        """Wait until the broker has logged something."""
        wait(lambda: re.search(pattern, self.log), f"the broker did not log {pattern!r}", seconds)

    def start_broker(self) -> None:
        """Start the broker and wait until it listens."""
        log = self.folder / "broker.txt"
        before = len(self.log)
        with self.network.on(SERVER), log.open("ab") as output:
            self.broker = subprocess.Popen(self._command(), stdout=output, stderr=output)
        ready = "mosquitto version .* running" if self.draw.broker == MOSQUITTO else "Broker started|bind to address"
        wait(lambda: re.search(ready, self.log[before:]) or self.is_down(), "the broker did not start", START_S)
        self.need(not self.is_down(), f"the broker ended: {self.log[before:]}")

    def is_down(self) -> bool:
        return self.broker is not None and self.broker.poll() is not None

    def _command(self) -> list[str]:
        host, port = self.network.server_address, self.port
        if self.draw.broker == AMQTT:
            path = self.folder / "amqtt.yaml"
            path.write_text(
                f"listeners:\n  default:\n    type: tcp\n    bind: {host}:{port}\n"
                "plugins:\n  amqtt.plugins.authentication.AnonymousAuthPlugin:\n    allow_anonymous: true\n"
            )
            return [program("amqtt"), "-c", str(path), "-d"]
        lines = ["user root", "persistence false", "log_type all"]
        if self.draw.transport == WEBSOCKET:
            # mosquitto 2.0.11 does not start with a listener for WebSocket alone.
            lines.append(f"listener {self.port_of(PLAIN)} 127.0.0.1")
        lines.append(f"listener {port} {host}")
        if self.draw.transport == WEBSOCKET:
            lines.append("protocol websockets")
        elif self.draw.transport == TLS:
            lines += [
                f"{kind} {self.certificates}/{name}.pem" for kind, name in (("cafile", "ca"), ("certfile", "server"))
            ]
            lines.append(f"keyfile {self.certificates}/server.key")
        if "allow_anonymous" not in self.config:
            lines.append("allow_anonymous true")
        path = self.folder / "mosquitto.conf"
        path.write_text("\n".join([*lines, self.config.format(folder=self.folder)]) + "\n")
        return [program("mosquitto"), "-v", "-c", str(path)]

    def stop_broker(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the broker."""
        assert self.broker is not None
        self.broker.send_signal(number)
        self.broker.wait(10)

    @contextmanager
    def recording(self, path: Path) -> Iterator[None]:
        """Record with dumpcap, on the host that was drawn."""
        log = self.folder / "dumpcap.txt"
        chosen = f"tcp port {self.port}" if not self.network.obeys else "tcp"
        command = [program("dumpcap"), "-q", "-P", "-i", self.network.device, "-f", chosen, "-w", str(path)]
        with self.network.on(self.draw.recorded_at), log.open("wb") as errors:
            dumpcap = subprocess.Popen(command, stderr=errors)
        try:
            wait(lambda: "File:" in log.read_text() or dumpcap.poll() is not None, "dumpcap did not start", START_S)
            self.need(dumpcap.poll() is None, log.read_text())
            # It names the file before it listens.
            time.sleep(0.4)
            yield
            time.sleep(0.7)
        finally:
            end(dumpcap, signal.SIGINT)

    def close(self) -> None:
        """End all that was started."""
        if isinstance(self.network, Wire):
            self.network.mend()
        for action in reversed(self.cleanup):
            with suppress(OSError, NotPlantedError):
                action()
        for actor in reversed(self.actors):
            with suppress(Exception):
                actor.kill()
        if self.broker is not None and self.broker.poll() is None:
            self.broker.send_signal(signal.SIGCONT)
            end(self.broker, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """End one program that was started here."""
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class IdleProxy:
    """A load balancer: it carries bytes, and closes connections on which nothing is sent for some time."""

    def __init__(self, lab: Lab, port: int, idle_s: float) -> None:
        self._lab, self._idle_s = lab, idle_s
        with lab.network.on(SERVER):
            self._listener = socket.create_server((lab.network.server_address, port))
        self.silences: list[float] = []
        """Before the connections that it closed."""
        lab.cleanup.append(self._listener.close)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lab.network.on(SERVER):
                    server = socket.create_connection((self._lab.network.server_address, self._lab.port))
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        last = [time.monotonic()]
        pairs = ((client, server), (server, client))
        for source, target in pairs:
            threading.Thread(target=self._pump, args=(source, target, last), daemon=True).start()
        while time.monotonic() - last[0] < self._idle_s:
            time.sleep(0.01)
        silence = time.monotonic() - last[0]
        for side, _ in pairs:
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()
        self.silences.append(silence)

    def _pump(self, source: socket.socket, target: socket.socket, last: list[float]) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                last[0] = time.monotonic()
                target.sendall(data)
