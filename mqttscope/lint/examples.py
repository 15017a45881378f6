"""Conversations: the examples of a rule, which are its tests and its documentation.

    conversation(
        "the client ignores the limit",
        *opened(V5, connack=Properties(maximum_qos=1)),
        client(Publish(qos=2, topic_name="a", packet_identifier=1)).marked("qos"),
    )

Steps follow each other; each side has received what the other sent before, unless a step is `crossing`.  A step is one
or more packets that arrive together, as packet objects or, where an encoder would have to lie, as their bytes.  A mark
names the field that the rule is to blame (empty for the packet as a whole); nothing else may be found by that rule.

What takes several clients has several connections to the same server, `on` the second, the third and so on:

    *opened(client_identifier="c1"),
    *on(1, *opened(client_identifier="c2"), client(Pingreq())),
    client(Pingreq(), after=30),
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connack, Connect
from mqttscope.mqtt.parts import Will
from mqttscope.mqtt.properties import Properties

V5 = ProtocolVersion.V5
CLIENT = "client"
SERVER = "server"


@dataclass(slots=True, frozen=True)
class Step:
    """Something that one side does."""

    side: str
    """``client`` or ``server``."""
    packets: tuple[ControlPacket | bytes, ...] = ()
    after: float = 0.01
    """Seconds since the step before."""
    crosses: bool = False
    """Sent before the other side's last steps had arrived."""
    is_lost: bool = False
    """The capture does not have it."""
    silent: bool = False
    """Bytes that hold no packet: an HTTP upgrade, a WebSocket ping."""
    close: str = ""
    """Ends the transport instead: ``fin`` or ``reset``."""
    connection: int = 0
    """Which of the connections it is on; each begins with its first step."""
    marks: tuple[tuple[int | None, str], ...] = ()
    """Index of the packet in the step (``None`` for the connection) and the field to blame."""

    def marked(self, *fields: str, at: int | None = -1) -> Step:
        """The rule is to blame these fields of the last packet, or of the packet with that index.

        With ``None`` it finds then what concerns the connection: what should have come before.
        """
        index = None if at is None else at if at >= 0 else len(self.packets) + at
        where = None if self.close or self.silent else index
        return replace(self, marks=(*self.marks, *((where, name) for name in fields)))


@dataclass(slots=True, frozen=True)
class Conversation:
    """One connection from its beginning, or from its middle; or several ones to one server."""

    title: str
    steps: tuple[Step, ...]
    version: ProtocolVersion = V5
    """How packets before a CONNECT are encoded."""
    handshake: bool = True
    """Whether the capture has the TCP handshake; without it the capture joins in the middle."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the rule that the example needs."""
    server: str = "10.0.0.2:1883"


def conversation(
    title: str,
    *steps: Step,
    version: ProtocolVersion | None = None,
    handshake: bool = True,
    settings: dict[str, Any] | None = None,
    server: str = "10.0.0.2:1883",
) -> Conversation:
    """A conversation; the version is that of its first CONNECT unless given (5.0 where there is none)."""
    if version is None:
        packets = [packet for step in steps for packet in step.packets]
        version = next((packet.version for packet in packets if isinstance(packet, Connect)), V5)
    return Conversation(title, steps, version, handshake, settings or {}, server)


def client(*packets: ControlPacket | bytes, after: float = 0.01) -> Step:
    """The client sends packets, in one segment."""
    return Step(CLIENT, packets, after)


def server(*packets: ControlPacket | bytes, after: float = 0.01) -> Step:
    """The server sends packets, in one segment."""
    return Step(SERVER, packets, after)


def crossing(step: Step) -> Step:
    """The step was sent before what the other side sent last had arrived."""
    return replace(step, crosses=True)


def lost(step: Step) -> Step:
    """The step happened, but the capture does not have it."""
    return replace(step, is_lost=True)


def silent(step: Step) -> Step:
    """The bytes of the step hold no MQTT Control Packet."""
    return replace(step, silent=True)


def on(connection: int, *steps: Step) -> tuple[Step, ...]:
    """The steps are on another connection, counted from 0."""
    return tuple(replace(step, connection=connection) for step in steps)


def closes(side: str, how: str = "fin", after: float = 0.01) -> Step:
    """A side ends the TCP connection: ``fin`` in good order, ``reset`` at once."""
    return Step(side, (), after, close=how)


def opened(
    version: ProtocolVersion = V5,
    *,
    client_identifier: str = "c1",
    clean_start: bool = True,
    keep_alive: int = 60,
    user_name: str | None = None,
    password: bytes | None = None,
    will: Will | None = None,
    connect: Properties | None = None,
    session_present: bool = False,
    connack: Properties | None = None,
) -> tuple[Step, Step]:
    """CONNECT and the CONNACK that accepts it."""
    request = make_connect(
        version,
        client_identifier=client_identifier,
        clean_start=clean_start,
        keep_alive=keep_alive,
        user_name=user_name,
        password=password,
        will=will,
        properties=connect,
    )
    answer = Connack(session_present=session_present, properties=connack)
    return client(request), server(answer)


def make_connect(version: ProtocolVersion = V5, **fields: Any) -> Connect:
    """A CONNECT with the protocol name and level of a version; `Connect` fields as keywords, client ``c1``."""
    name = "MQIsdp" if version is ProtocolVersion.V3_1 else "MQTT"
    fields.setdefault("client_identifier", "c1")
    fields.setdefault("keep_alive", 60)
    return Connect(protocol_name=name, protocol_level=version.value, **fields)


def hexadecimal(text: str) -> bytes:
    """Bytes of a packet written in hexadecimal, with a comment after ``#`` on each line if wanted."""
    return bytes.fromhex(" ".join(line.partition("#")[0] for line in text.splitlines()))
