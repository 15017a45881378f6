"""TCP conversations made by hand, as lists of segments."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from ipaddress import ip_address
from typing import TypeVar

from mqttscope.dissect import Dissector, Options, dissect_segments
from mqttscope.events import Event
from mqttscope.mqtt import (
    Connack,
    Connect,
    ControlPacket,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    ProtocolVersion,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    encode,
)
from mqttscope.net.segment import ACK, FIN, RST, SYN, Segment, direction_key
from tests.packets import told
from tests.tables import steps

V3_1, V3_1_1, V5 = ProtocolVersion
SECOND = 1_000_000_000
START = 1_767_323_045 * SECOND
USUAL = {
    "publish": "publish a/b on qos=1 id=3",
    "puback": "puback 3",
    "subscribe": "subscribe 7 a/#",
    "suback": "suback 7 0",
}
"""Defaults of a packet without further words."""
E = TypeVar("E")


@cache
def _packed(address: str) -> bytes:
    return ip_address(address).packed


class Tape:
    """A capture in the making: one frame a millisecond."""

    def __init__(self, capture: str = "a.pcap", start_ns: int = START) -> None:
        self.capture = capture
        self.now_ns = start_ns
        self.segments: list[Segment] = []

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ns += int(seconds * SECOND)

    def add(self, key: bytes, sequence: int, acknowledgment: int, flags: int, payload: bytes, missing: int) -> int:
        """Record one segment; returns its frame number."""
        self.now_ns += SECOND // 1000
        frame = len(self.segments) + 1
        self.segments.append(
            Segment(
                key, sequence % 2**32, acknowledgment % 2**32, flags, 65_000, payload, missing, frame, self.now_ns,
                self.capture,
            )
        )  # fmt: skip
        return frame


class Talk:
    """One TCP connection.  ``client`` is the side that would send the SYN."""

    def __init__(
        self, tape: Tape | None = None, port: int = 1883, client_port: int = 50_000, client: str = "192.0.2.4"
    ) -> None:
        self.tape = tape or Tape()
        addresses = _packed(client) + _packed("192.0.2.2")
        numbers = client_port.to_bytes(2, "big") + port.to_bytes(2, "big")
        self.keys = {"client": direction_key(addresses, numbers)}
        self.keys["server"] = direction_key(addresses[4:] + addresses[:4], numbers[2:] + numbers[:2])
        self.position = {"client": 1000, "server": 5000}

    def _send(self, who: str, flags: int, payload: bytes = b"", missing: int = 0) -> int:
        other = "server" if who == "client" else "client"
        frame = self.tape.add(
            self.keys[who], self.position[who], self.position[other] if flags & ACK else 0, flags, payload, missing
        )
        self.position[who] += len(payload) + missing + bool(flags & (SYN | FIN))
        return frame

    def handshake(self) -> Talk:
        """SYN, SYN-ACK, ACK."""
        self.client_opens()
        self.server_opens()
        self.ack("client")
        return self

    def client_opens(self) -> None:
        """SYN."""
        self._send("client", SYN)

    def server_opens(self) -> None:
        """SYN-ACK."""
        self._send("server", SYN | ACK)

    def again(self) -> Talk:
        """A new connection between the same endpoints."""
        self.position = {who: at + 1_000_000 for who, at in self.position.items()}
        return self.handshake()

    def refused(self) -> None:
        """A SYN that is answered by a reset."""
        self._send("client", SYN)
        self._send("server", RST | ACK)

    def client(self, *packets: bytes | ControlPacket, version: ProtocolVersion = V3_1_1, missing: int = 0) -> int:
        """One segment of the client."""
        return self._send("client", ACK, wire(*packets, version=version), missing)

    def server(self, *packets: bytes | ControlPacket, version: ProtocolVersion = V3_1_1, missing: int = 0) -> int:
        """One segment of the server."""
        return self._send("server", ACK, wire(*packets, version=version), missing)

    def lose(self, who: str, length: int) -> None:
        """Bytes that were sent but not captured; the next segment of the other side acknowledges them."""
        self.position[who] += length

    def ack(self, who: str) -> int:
        """A bare acknowledgment."""
        return self._send(who, ACK)

    def fin(self, who: str) -> int:
        """The side ends its direction."""
        return self._send(who, FIN | ACK)

    def close(self, first: str = "client") -> int:
        """Both sides end, this one first."""
        second = "server" if first == "client" else "client"
        self.fin(first)
        self.fin(second)
        return self.ack(first)

    def reset(self, who: str) -> int:
        """The side resets the connection."""
        return self._send(who, RST | ACK)

    def tell(self, text: str, version: ProtocolVersion = V3_1_1) -> Talk:
        """Steps in words: ``> connect; < connack; +2; lose client 9; fin server``, with the packets of `USUAL`."""
        for step in steps(text):
            name, *words = step.split()
            if name[0] == "+":
                self.tape.wait(float(name))
            elif name in "<>":
                parts = [USUAL.get(part, part) for part in step[2:].split(" & ")]
                ((side, packets),) = told(f"{name} {' & '.join(parts)}", V3_1_1, client_identifier="dev", keep_alive=0)
                self._send(side, ACK, wire(*packets, version=version))
            else:
                getattr(self, name)(*(int(word) if word.lstrip("-").isdecimal() else word for word in words))
        return self

    def events(self, options: Options | None = None) -> list[Event]:
        """All events of the dissector for the tape."""
        return read(self.tape, options)


def wire(*packets: bytes | ControlPacket, version: ProtocolVersion = V3_1_1) -> bytes:
    """The bytes of packets in a row."""
    return b"".join(packet if isinstance(packet, bytes) else encode(packet, version) for packet in packets)


def read(tape: Tape, options: Options | None = None, dissector: Dissector | None = None) -> list[Event]:
    """Events of a whole tape."""
    return list(dissect_segments(tape.segments, options, dissector))


def only(events: Iterable[Event], kind: type[E]) -> list[E]:
    """Events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def names(events: Iterable[Event]) -> list[str]:
    """The kinds of events in their order."""
    return [type(event).__name__ for event in events]


def connect(level: int = 4, client_identifier: str = "dev") -> Connect:
    """A CONNECT."""
    new_connect = Connect(
        protocol_level=level, protocol_name="MQIsdp" if level == 3 else "MQTT", client_identifier=client_identifier
    )
    if level == 5:
        new_connect.properties = Properties()
    return new_connect


def publish(topic: str = "a/b", payload: bytes = b"hello", **values: object) -> Publish:
    """A PUBLISH with QoS 0; keywords are properties."""
    return Publish(topic_name=topic, payload=payload, properties=Properties(**values))


CONNACK = Connack()
PINGREQ = Pingreq()
PINGRESP = Pingresp()
PUBLISH_1 = Publish(qos=1, topic_name="a/b", packet_identifier=3, payload=b"on")
PUBACK_3 = Puback(3)
SUBSCRIBE = Subscribe(7, subscriptions=[Subscription("a/#", 0)])
SUBACK = Suback(7, reason_codes=[0])
SUBSCRIBE_5 = Subscribe(7, Properties(), [Subscription("a/#", 0)])
SUBACK_5 = Suback(7, Properties(), [0])


def finish(talk: Talk, end: str, lost: ControlPacket) -> None:
    """End a conversation in one of the usual ways of devices and networks; ``lost`` is under way in an outage."""
    match end:
        case "fin by both":
            talk.client(Disconnect())
            talk.close("client")
        case "fin by both, server first":
            talk.client(Disconnect())
            talk.close("server")
        case "fin by the server":
            talk.fin("server")
        case "reset by the client":
            talk.reset("client")
        case "reset by the server":
            talk.reset("server")
        case "outage with data under way":
            talk.client(lost)
