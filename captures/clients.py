"""Clients for the recordings: paho-mqtt with waiting, the mosquitto programs, and a bare socket."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import mqttbytes
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions
from rig import Rig

PROTOCOLS = {"3.1": mqtt.MQTTv31, "3.1.1": mqtt.MQTTv311, "5.0": mqtt.MQTTv5}
BUFFER = 2048
"""Loopback hands over many segments as one frame; buffers this small leave room for few at a time."""
COMMAND_LINE = {"3.1": "mqttv31", "3.1.1": "mqttv311", "5.0": "mqttv5"}
WAIT = 10.0
SETTLE = 0.15
"""Enough for the last acknowledgement to cross loopback, so that packets come in the same order each time."""


def declare(packet: str, **values: Any) -> Properties:
    """5.0 properties for a packet type, by paho's names; a list of pairs for UserProperty."""
    made = Properties(getattr(PacketTypes, packet.upper()))
    for name, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            setattr(made, name, one)
    return made


@dataclass(slots=True)
class Client:
    """A paho client that waits for each answer, so that a scenario reads from top to bottom."""

    rig: Rig
    identifier: str
    version: str = "3.1.1"
    clean: bool = True
    transport: Literal["tcp", "websockets"] = "tcp"
    manual_ack: bool = False
    segment_size: int | None = None
    """Largest TCP payload either side may send (TCP_MAXSEG); None for loopback's own, about 64 KiB."""
    paho: mqtt.Client = field(init=False)
    messages: queue.Queue[mqtt.MQTTMessage] = field(init=False, default_factory=queue.Queue)
    codes: queue.Queue[int] = field(init=False, default_factory=queue.Queue)
    acknowledged: queue.Queue[int] = field(init=False, default_factory=queue.Queue)
    closed: threading.Event = field(init=False, default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.paho = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.identifier,
            clean_session=None if self.version == "5.0" else self.clean,
            protocol=PROTOCOLS[self.version],
            transport=self.transport,
            reconnect_on_failure=False,
            manual_ack=self.manual_ack,
        )
        self.paho.on_connect = lambda client, data, flags, code, declared: self.codes.put(code.value)
        self.paho.on_message = lambda client, data, message: self.messages.put(message)
        self.paho.on_subscribe = lambda client, data, mid, codes, declared: self.acknowledged.put(mid)
        self.paho.on_unsubscribe = lambda client, data, mid, codes, declared: self.acknowledged.put(mid)
        self.paho.on_disconnect = lambda client, data, flags, code, declared: self.closed.set()
        self.paho.on_log = lambda client, data, level, text: self._log(text)

    def _log(self, text: str) -> None:
        words = text.split()
        if len(words) > 1 and words[0] in ("Sending", "Received"):
            kind = words[1].strip("(,").lower()
            if kind in mqttbytes.TYPES:
                self.rig.logged[kind] += 1

    def connect(self, keep_alive: int = 60, declared: Properties | None = None) -> int:
        """Connect; returns the code of CONNACK."""
        self.closed.clear()
        if self.segment_size is not None:
            self._limit_segments(self.segment_size)
        if self.version == "5.0":
            self.paho.connect(self.rig.host, self.rig.port, keep_alive, clean_start=self.clean, properties=declared)
        else:
            self.paho.connect(self.rig.host, self.rig.port, keep_alive)
        self.paho.loop_start()
        return self.codes.get(timeout=WAIT)

    def _limit_segments(self, size: int) -> None:
        # The option has to be there before the handshake, which announces it to the peer; paho has no hook that early.
        def opened() -> socket.socket:
            made = socket.socket()
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, size)
            for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                made.setsockopt(socket.SOL_SOCKET, buffer, BUFFER)
            made.connect((self.rig.host, self.rig.port))
            return made

        self.paho._create_socket_connection = opened  # type: ignore[method-assign]

    def subscribe(
        self,
        *filters: tuple[str, int] | tuple[str, SubscribeOptions],
        identifier: int = 0,
        user: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Subscribe with one SUBSCRIBE and wait for SUBACK; a 5.0 one may carry an identifier and user properties."""
        values: dict[str, Any] = {"UserProperty": list(user)} if user else {}
        if identifier:
            values["SubscriptionIdentifier"] = identifier
        declared = declare("subscribe", **values) if values else None
        self.paho.subscribe(list(filters), properties=declared)  # type: ignore[arg-type]
        self.acknowledged.get(timeout=WAIT)
        time.sleep(SETTLE)

    def unsubscribe(self, *filters: str, declared: Properties | None = None) -> None:
        """Unsubscribe with one UNSUBSCRIBE and wait for UNSUBACK."""
        self.paho.unsubscribe(list(filters), properties=declared)
        self.acknowledged.get(timeout=WAIT)

    def publish(
        self, topic: str, payload: str | bytes = b"", qos: int = 0, retain: bool = False, **values: Any
    ) -> None:
        """Publish and wait for the last acknowledgement; further arguments are properties."""
        declared = declare("publish", **values) if values else None
        self.paho.publish(topic, payload, qos, retain, declared).wait_for_publish(WAIT)
        time.sleep(SETTLE)

    def receive(self, number: int = 1) -> list[mqtt.MQTTMessage]:
        """Wait for so many messages."""
        received = [self.messages.get(timeout=WAIT) for _ in range(number)]
        time.sleep(SETTLE)
        return received

    def disconnect(self, reason: int = 0, declared: Properties | None = None) -> None:
        """Leave with DISCONNECT."""
        time.sleep(SETTLE)
        if self.version == "5.0":
            code = mqtt.ReasonCode(PacketTypes.DISCONNECT, identifier=reason)
            self.paho.disconnect(reasoncode=code, properties=declared)
        else:
            self.paho.disconnect()
        self.closed.wait(WAIT)
        self.paho.loop_stop()

    def vanish(self, reset: bool = False) -> None:
        """Close the TCP connection without DISCONNECT: with FIN, or with RST."""
        self.paho.loop_stop()
        raw = self.paho.socket()
        assert isinstance(raw, socket.socket)
        if reset:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        raw.close()

    def gone(self) -> None:
        """Wait until the broker closed the connection."""
        self.closed.wait(WAIT)
        self.paho.loop_stop()


class Bare:
    """A bare socket for what client libraries refuse to send."""

    def __init__(self, rig: Rig, port: int | None = None, source: str = "") -> None:
        self.socket = socket.create_connection((rig.host, port or rig.port), WAIT, (source, 0) if source else None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def send(self, *packets: bytes) -> None:
        """Send bytes in one segment."""
        self.socket.sendall(b"".join(packets))
        time.sleep(SETTLE)

    def receive(self, number: int = 1) -> list[bytes]:
        """Wait for so many packets; fewer when the broker closes."""
        packets: list[bytes] = []
        while len(packets) < number:
            found = mqttbytes.split(self.buffer)
            if found:
                packets.append(found[0])
                self.buffer = self.buffer[len(found[0]) :]
                continue
            data = self.socket.recv(65536)
            if not data:
                break
            self.buffer += data
        return packets

    def until_closed(self) -> None:
        """Read until the broker closes, then close too."""
        with suppress(ConnectionResetError):
            while self.socket.recv(65536):
                pass
        self.socket.close()

    def close(self) -> None:
        """Close with FIN."""
        time.sleep(SETTLE)
        self.socket.close()


def command(rig: Rig, name: str, version: str, *arguments: str) -> None:
    """Run mosquitto_pub or mosquitto_rr to its end."""
    rig.run(name, "-h", rig.host, "-p", str(rig.port), "-V", COMMAND_LINE[version], *arguments)


def listener(rig: Rig, version: str, *arguments: str) -> None:
    """Start mosquitto_sub and give it time to subscribe."""
    rig.start("mosquitto_sub", "-h", rig.host, "-p", str(rig.port), "-V", COMMAND_LINE[version], *arguments)
    time.sleep(0.5)
