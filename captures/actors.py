"""A client of bare packets that keeps to the protocol as long as a scenario does not say otherwise."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress

import mqttbytes as mb
from clients import Bare
from rig import Rig

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: close with RST."""
KEPT = mb.properties(b"\x11" + (3600).to_bytes(4, "big"))
"""A Session Expiry Interval of an hour."""


def expiry(seconds: int) -> bytes:
    """Message Expiry Interval, as the properties of a message."""
    return mb.properties(b"\x02" + seconds.to_bytes(4, "big"))


class Actor(Bare):
    """One connection of one client, accepted when it is made."""

    def __init__(
        self,
        rig: Rig,
        name: str,
        version: str = "5.0",
        *,
        clean: bool = True,
        keep_alive: int = 60,
        declared: bytes = b"\x00",
        will: bytes = b"",
        will_flags: int = 0,
        user: tuple[str, str] | None = None,
        answered: bool = True,
        source: str = "",
    ) -> None:
        super().__init__(rig, source=source)
        self.version = version
        self.no_properties = b"\x00" if version == "5.0" else b""
        self.connack = b""
        self.send(
            mb.connect(
                name, version, clean=clean, keep_alive=keep_alive, declared=declared, will=will, will_flags=will_flags,
                user=user,
            )
        )  # fmt: skip
        if answered:
            self.connack = self.receive()[0]

    def message(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        identifier: int = 1,
        declared: bytes | None = None,
        *,
        dup: bool = False,
        retain: bool = False,
    ) -> bytes:
        """A PUBLISH of the version that is spoken."""
        block = self.no_properties if declared is None else declared
        return mb.publish(topic, payload, qos=qos, identifier=identifier, declared=block, dup=dup, retain=retain)

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        identifier: int = 1,
        declared: bytes | None = None,
        *,
        dup: bool = False,
        retain: bool = False,
    ) -> None:
        """Publish and wait for the last acknowledgement."""
        self.send(self.message(topic, payload, qos, identifier, declared, dup=dup, retain=retain))
        if qos:
            self.receive()
        if qos == 2:
            self.send(mb.ack(0x62, identifier))
            self.receive()

    def subscribe(self, *filters: tuple[str, int], identifier: int = 1) -> None:
        """Subscribe with one SUBSCRIBE and wait for SUBACK."""
        self.send(mb.subscribe(identifier, *filters, declared=self.no_properties))
        while self.receive()[0][0] >> 4 != 9:
            pass

    def take(self, number: int = 1) -> list[bytes]:
        """Wait for so many messages and acknowledge them."""
        messages: list[bytes] = []
        while len(messages) < number:
            (packet,) = self.receive()
            messages.append(packet)
            qos = packet[0] >> 1 & 3
            if qos:
                self.send(mb.ack(0x40 if qos == 1 else 0x50, mb.packet_identifier(packet)))
            if qos == 2:
                self.receive()
                self.send(mb.ack(0x70, mb.packet_identifier(packet)))
        return messages

    def ping(self, *, answered: bool = True) -> None:
        """PINGREQ, and its answer."""
        self.send(mb.PINGREQ)
        while answered:
            found = self.receive()
            answered = bool(found) and found[0] != mb.PINGRESP

    def leave(self) -> None:
        """Leave with DISCONNECT."""
        self.send(mb.DISCONNECT)
        self.until_closed()

    def vanish(self) -> None:
        """Reset the connection."""
        time.sleep(0.15)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.socket.close()


def pause(seconds: float, *pinging: Actor) -> None:
    """Time passes; those who are named ping every ten seconds, so that they and the server are seen to live."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(10.0, left))
        for one in pinging:
            one.ping()


def leave(actors: Sequence[Actor]) -> None:
    """All of them leave; those whose connection is broken already just close."""
    for one in actors:
        with suppress(OSError):
            one.leave()
