"""Clients of the laboratory: one of our own over sockets, which does exactly what it is told, paho, and mosquitto's."""

from __future__ import annotations

import base64
import os
import select
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from mqttscope.mqtt import (
    Connack,
    Connect,
    ControlPacket,
    Disconnect,
    Pingreq,
    Properties,
    ProtocolVersion,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
    decode,
    encode,
)
from tests.tools import program

ANSWER_S = 8.0
"""Seconds for which a client waits for an answer."""
V5 = ProtocolVersion.V5
PLAIN, WEBSOCKET, TLS = "plain", "websocket", "tls"
Enter = Callable[[], AbstractContextManager[None]]


class NotPlantedError(Exception):
    """The fault did not take effect: the case is drawn again."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a client connects to, and how."""

    host: str
    port: int
    version: ProtocolVersion
    transport: str = PLAIN
    authority: str = ""
    key_log: Path | None = None
    highest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3

    def context(self) -> ssl.SSLContext:
        """The TLS of a client that trusts the authority of the broker."""
        context = ssl.create_default_context(cafile=self.authority)
        context.check_hostname = False
        context.maximum_version = self.highest
        if self.key_log is not None:
            context.keylog_filename = str(self.key_log)
        return context


@dataclass(frozen=True, slots=True)
class Setup:
    """What a client says in its CONNECT, and how it behaves afterwards."""

    name: str
    clean: bool = True
    keep_alive: int = 60
    user: str | None = None
    password: str | None = None
    will: str | None = None
    session_s: int | None = None
    receive_maximum: int | None = None
    maximum_packet_size: int | None = None
    pings: bool = True
    acknowledges: bool = True
    source_port: int = 0
    buffer: int = 0
    """Size of the receive buffer; 0 for the usual one."""


class Client(Protocol):
    """What every client can do."""

    setup: Setup
    messages: list[tuple[str, bytes]]

    def connect(self) -> int: ...
    def subscribe(self, topic_filter: str, qos: int = 0) -> int: ...
    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> None: ...
    def disconnect(self) -> None: ...
    def kill(self) -> None: ...
    def is_closed(self) -> bool: ...


def wait(happened: Callable[[], object], what: str, seconds: float = ANSWER_S) -> None:
    """Wait until something is true; the fault was not planted otherwise."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            raise NotPlantedError(what)
        time.sleep(0.02)


class Bytes:
    """A byte stream over TCP, TLS or WebSocket."""

    def __init__(self, target: Target, enter: Enter, source_port: int = 0, buffer: int = 0) -> None:
        with enter():
            self.tcp = socket.socket()
        self.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if buffer:
            self.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.tcp.settimeout(ANSWER_S)
        if source_port:
            self.tcp.bind(("0.0.0.0", source_port))
        self.tcp.connect((target.host, target.port))
        self.port = int(self.tcp.getsockname()[1])
        self._socket: socket.socket = self.tcp
        self._is_web = target.transport == WEBSOCKET
        self._left = b""
        self._secure: ssl.SSLSocket | None = None
        self._lock = threading.Lock()
        if target.transport == TLS:
            self._socket = self._secure = target.context().wrap_socket(self.tcp)
            self._secure.setblocking(False)
            return
        if self._is_web:
            self._upgrade(target)
        self._socket.settimeout(None)

    def _upgrade(self, target: Target) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            f"GET /mqtt HTTP/1.1\r\nHost: {target.host}:{target.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n".encode()
        )
        data = b""
        while b"\r\n\r\n" not in data:
            part = self._socket.recv(4096)
            if not part:
                raise ConnectionError("the server closed before it upgraded to WebSocket")
            data += part
        head, _, self._left = data.partition(b"\r\n\r\n")
        if b" 101 " not in head.splitlines()[0]:
            raise ConnectionError("no WebSocket")

    def send(self, data: bytes) -> None:
        if self._is_web:
            size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
            mask = os.urandom(4)
            data = b"\x82" + size + mask + bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
        if self._secure is None:
            self._socket.sendall(data)
            return
        while data:
            with self._lock, suppress(ssl.SSLWantWriteError):
                data = data[self._secure.send(data) :]

    def _receive(self) -> bytes:
        if self._secure is None:
            return self._socket.recv(65536)
        # OpenSSL does not read and write at once, so that a thread must not wait inside of it.
        while True:
            with self._lock, suppress(ssl.SSLWantReadError):
                return self._secure.recv(65536)
            select.select([self._secure], [], [], 0.2)

    def chunks(self) -> Iterator[bytes]:
        """What comes, until the other side closes."""
        if not self._is_web:
            while data := self._receive():
                yield data
            return
        buffer = self._left
        while True:
            while (result := _frame(buffer)) is not None:
                kind, data, buffer = result
                if kind == 8:
                    return
                yield data
            data = self._receive()
            if not data:
                return
            buffer += data

    def close(self) -> None:
        """Close with FIN."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def abort(self) -> None:
        """Close with RST."""
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # Nothing is sent, and a thread that reads lets go: the kernel closes only then.
            self._socket.shutdown(socket.SHUT_RD)
        time.sleep(0.3)
        self._socket.close()


def _frame(buffer: bytes) -> tuple[int, bytes, bytes] | None:
    """Opcode and payload of the first WebSocket frame of a server, and the rest."""
    if len(buffer) < 2:
        return None
    size, start = buffer[1] & 127, 2
    if size == 126:
        size, start = int.from_bytes(buffer[2:4]), 4
    elif size == 127:
        size, start = int.from_bytes(buffer[2:10]), 10
    if len(buffer) < start + size:
        return None
    return buffer[0] & 15, buffer[start : start + size], buffer[start + size :]


class Raw:
    """Our own client: it sends any bytes, and pings and acknowledges unless it is told not to."""

    def __init__(self, setup: Setup, target: Target, enter: Enter) -> None:
        self.setup, self.target, self._enter = setup, target, enter
        self.messages: list[tuple[str, bytes]] = []
        self.packets: list[ControlPacket] = []
        self.stream: Bytes | None = None
        self.port = 0
        """Of the first connection."""
        self._last_sent = 0.0
        self._closed = threading.Event()
        self._reading = threading.Event()
        self._reading.set()
        self._identifier = 0

    def open(self) -> None:
        """Open the transport."""
        self._closed.clear()
        self.stream = Bytes(self.target, self._enter, self.setup.source_port, self.setup.buffer)
        self.port = self.port or self.stream.port
        threading.Thread(target=self._read, args=(self.stream,), daemon=True).start()

    def connect(self) -> int:
        self.open()
        self.send(connect_packet(self.setup, self.target.version))
        code = int(self.answer(Connack).reason_code)
        if code == 0 and self.setup.pings and self.setup.keep_alive:
            threading.Thread(target=self._ping, args=(self.stream,), daemon=True).start()
        return code

    def send(self, *packets: ControlPacket | bytes) -> None:
        """Send packets or bytes in one segment."""
        assert self.stream is not None
        parts = [part if isinstance(part, bytes) else encode(part, self.target.version) for part in packets]
        self._last_sent = time.monotonic()
        self.stream.send(b"".join(parts))

    def answer(self, kind: type[Any]) -> Any:
        """Wait for the first packet of a type, and take it."""
        wait(lambda: self._has(kind) or self._closed.is_set(), f"{self.setup.name} got no {kind.__name__}")
        wait(lambda: self._has(kind), f"{self.setup.name} was closed before {kind.__name__}", 0.1)
        packet = next(packet for packet in self.packets if isinstance(packet, kind))
        self.packets.remove(packet)
        return packet

    def _has(self, kind: type[Any]) -> bool:
        return any(isinstance(packet, kind) for packet in self.packets)

    def subscribe(self, topic_filter: str, qos: int = 0, **options: Any) -> int:
        return self.subscribe_all([Subscription(topic_filter, maximum_qos=qos, **options)])[0]

    def subscribe_all(self, subscriptions: Sequence[Subscription]) -> list[int]:
        """Send one SUBSCRIBE and return the codes of its SUBACK."""
        self.send(Subscribe(packet_identifier=self.next_identifier(), subscriptions=list(subscriptions)))
        return list(self.answer(Suback).reason_codes)

    def unsubscribe(self, topic_filter: str) -> None:
        self.send(Unsubscribe(packet_identifier=self.next_identifier(), topic_filters=[topic_filter]))
        self.answer(Unsuback)

    def next_identifier(self) -> int:
        self._identifier += 1
        return self._identifier

    def publish(
        self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, properties: Properties | None = None
    ) -> None:
        identifier = self.next_identifier() if qos else None
        self.send(Publish(qos=qos, retain=retain, topic_name=topic, packet_identifier=identifier, payload=payload,
                          properties=properties))  # fmt: skip
        if qos == 1:
            self.answer(Puback)
        elif qos == 2 and (self.answer(Pubrec).reason_code or 0) < 0x80:
            self.send(Pubrel(packet_identifier=identifier or 0))
            self.answer(Pubcomp)

    def stop_reading(self) -> None:
        self._reading.clear()

    def disconnect(self) -> None:
        assert self.stream is not None
        self.send(Disconnect())
        self.stream.close()

    def kill(self) -> None:
        assert self.stream is not None
        self.stream.close()

    def is_closed(self) -> bool:
        return self._closed.is_set()

    def _ping(self, stream: Bytes | None) -> None:
        while not self._closed.wait(0.05) and stream is self.stream:
            if time.monotonic() - self._last_sent >= self.setup.keep_alive * 0.7:
                with suppress(OSError):
                    self.send(Pingreq())

    def _read(self, stream: Bytes) -> None:
        buffer = b""
        with suppress(OSError, ValueError):
            for chunk in stream.chunks():
                buffer += chunk
                while (size := packet_size(buffer)) and len(buffer) >= size:
                    self._take(buffer[:size])
                    buffer = buffer[size:]
                self._reading.wait()
        self._closed.set()

    def _take(self, raw: bytes) -> None:
        packet = decode(raw, self.target.version)
        if not isinstance(packet, ControlPacket):
            return
        if isinstance(packet, Publish):
            self.messages.append((packet.topic_name, packet.payload))
            identifier = packet.packet_identifier or 0
            if packet.qos and self.setup.acknowledges:
                self.send(
                    Puback(packet_identifier=identifier) if packet.qos == 1 else Pubrec(packet_identifier=identifier)
                )
        elif isinstance(packet, Pubrel) and self.setup.acknowledges:
            self.send(Pubcomp(packet_identifier=packet.packet_identifier))
        else:
            self.packets.append(packet)


def packet_size(buffer: bytes) -> int:
    """Size of the first packet of a buffer; 0 when it does not show it."""
    size = 0
    for place, byte in enumerate(buffer[1:5]):
        size |= (byte & 127) << 7 * place
        if byte < 128:
            return size + place + 2
    return 0


def connect_packet(setup: Setup, version: ProtocolVersion) -> Connect:
    """The CONNECT of a client."""
    properties = None
    if version == V5:
        values = {
            "session_expiry_interval": setup.session_s,
            "receive_maximum": setup.receive_maximum,
            "maximum_packet_size": setup.maximum_packet_size,
        }
        properties = Properties(**{name: value for name, value in values.items() if value is not None})
    will = None if setup.will is None else Will(setup.will, b"gone", properties=Properties() if version == V5 else None)
    return Connect(
        protocol_level=version, clean_start=setup.clean, keep_alive=setup.keep_alive, properties=properties,
        client_identifier=setup.name, will=will, user_name=setup.user,
        password=None if setup.password is None else setup.password.encode(),
    )  # fmt: skip


class Paho:
    """paho-mqtt, with waiting."""

    def __init__(self, setup: Setup, target: Target, enter: Enter) -> None:
        import paho.mqtt.client as mqtt

        self.setup, self.target, self._enter = setup, target, enter
        self.messages: list[tuple[str, bytes]] = []
        self._codes: list[int] = []
        self._granted: list[list[int]] = []
        self.port = 0
        self._is_closed = False
        five = target.version == V5
        self.paho = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,  # type: ignore[attr-defined]
            client_id=setup.name,
            clean_session=None if five else setup.clean,
            protocol=mqtt.MQTTv5 if five else mqtt.MQTTv311,
            transport="websockets" if target.transport == WEBSOCKET else "tcp",
            reconnect_on_failure=False,
        )
        self.paho.on_connect = lambda client, data, flags, code, declared: self._codes.append(code.value)
        self.paho.on_message = lambda client, data, message: self.messages.append(
            (message.topic, bytes(message.payload))
        )
        self.paho.on_subscribe = lambda client, data, mid, codes, declared: self._granted.append(
            [code.value for code in codes]
        )
        self.paho.on_disconnect = lambda *_: setattr(self, "_is_closed", True)
        if target.transport == TLS:
            self.paho.tls_set_context(target.context())
            self.paho.tls_insecure_set(True)
        if setup.user is not None:
            self.paho.username_pw_set(setup.user, setup.password)
        if setup.will is not None:
            self.paho.will_set(setup.will, b"gone")

    def connect(self) -> int:
        self._is_closed = False
        words: dict[str, Any] = {}
        if self.target.version == V5:
            from paho.mqtt.packettypes import PacketTypes
            from paho.mqtt.properties import Properties as PahoProperties

            words = {"clean_start": self.setup.clean}
            if self.setup.session_s is not None:
                words["properties"] = PahoProperties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
                words["properties"].SessionExpiryInterval = self.setup.session_s
        with self._enter():
            self.paho.connect(self.target.host, self.target.port, self.setup.keep_alive, **words)
            opened: Any = self.paho.socket()
            # Of WebSocket, it is wrapped.
            self.port = self.port or int(getattr(opened, "_socket", opened).getsockname()[1])
            self.paho.loop_start()
        wait(lambda: self._codes, f"{self.setup.name} got no CONNACK")
        return self._codes.pop()

    def subscribe(self, topic_filter: str, qos: int = 0) -> int:
        self.paho.subscribe(topic_filter, qos)
        wait(lambda: self._granted, f"{self.setup.name} got no SUBACK")
        return self._granted.pop()[0]

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> None:
        sent = self.paho.publish(topic, payload, qos, retain)
        with suppress(RuntimeError):
            sent.wait_for_publish(ANSWER_S)
        time.sleep(0.05)

    def disconnect(self) -> None:
        self.paho.disconnect()
        wait(self.is_closed, f"{self.setup.name} did not disconnect")
        self.paho.loop_stop()

    def kill(self) -> None:
        self.paho.loop_stop()
        raw = self.paho.socket()
        if raw is not None:
            raw.close()

    def is_closed(self) -> bool:
        return self._is_closed


@dataclass(slots=True)
class Command:
    """mosquitto_sub, a client that subscribes as it starts, and comes back by itself."""

    setup: Setup
    target: Target
    enter: Enter
    output: Path
    is_subscribed: Callable[[], bool]
    """Whether the broker has answered its SUBSCRIBE."""
    process: subprocess.Popen[bytes] | None = None
    messages: list[tuple[str, bytes]] = field(default_factory=list)

    def words(self) -> list[str]:
        """Options of all of mosquitto's clients."""
        setup, target = self.setup, self.target
        words = ["-h", target.host, "-p", str(target.port), "-i", setup.name, "-k", str(max(setup.keep_alive, 5))]
        words += ["-V", "mqttv5" if target.version == V5 else "mqttv311"]
        if setup.user is not None:
            words += ["-u", setup.user, "-P", setup.password or ""]
        if setup.will is not None:
            words += ["--will-topic", setup.will, "--will-payload", "gone"]
        return words

    def connect(self) -> int:
        """Nothing yet: it connects to subscribe."""
        return 0

    def subscribe(self, topic_filter: str, qos: int = 0) -> int:
        stay = [] if self.setup.clean else ["-c"]
        words = [program("mosquitto_sub"), *self.words(), *stay, "-t", topic_filter, "-q", str(qos), "-v"]
        with self.enter(), self.output.open("wb") as output:
            self.process = subprocess.Popen(words, stdout=output, stderr=output)
        wait(self.is_subscribed, f"{self.setup.name} did not subscribe")
        return 0

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> None:
        name = replace(self.setup, name=self.setup.name + "-pub")
        words = [
            program("mosquitto_pub"),
            *Command(name, self.target, self.enter, self.output, bool).words(),
            "-t",
            topic,
        ]
        words += ["-m", payload.decode(), "-q", str(qos), *(["-r"] if retain else [])]
        with self.enter():
            subprocess.run(words, capture_output=True, check=False, timeout=ANSWER_S)

    def disconnect(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(5)

    def is_closed(self) -> bool:
        return self.process is not None and self.process.poll() is not None
