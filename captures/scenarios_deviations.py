"""Recordings of other brokers: where each of them does not do what MQTT demands, with clients that do.

The broker runs already, as docs/brokers.md starts it: `python captures/record.py --running PORT NAME`.  A client waits
for each answer, acknowledges what it gets, and takes its leave, so that every error in these captures is the broker's.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress

import mqttbytes as mb
from clients import Bare
from rig import Rig
from scenario import scenario

QUIET = 0.4
"""How long a broker has for what nobody can wait for."""
SETTLED = 1.2
"""How long after its SUBACK the linter takes a subscription as known to all parts of a broker."""
PATIENCE = 11.0
"""Longer than the linter waits for further copies of a message."""
DISCONNECT = b"\xe0\x00"
PINGREQ = b"\xc0\x00"
NO_PROPERTIES = b"\x00"


class Honest(Bare):
    """A client that answers every packet as it should."""

    def __init__(
        self,
        rig: Rig,
        identifier: str,
        version: str = "3.1.1",
        *,
        clean: bool = True,
        will: tuple[str, bytes, int] | None = None,
        user: str = "",
        declared: bytes = NO_PROPERTIES,
    ) -> None:
        super().__init__(rig)
        self.version = version
        self.identifier = 0
        flags = clean << 1
        fields = [mb.string(identifier)]
        if will is not None:
            topic, payload, qos = will
            flags |= 4 | qos << 3
            fields += [mb.string(topic), mb.string(payload)]
        if user:
            flags |= 0xC0
            fields += [mb.string(user), mb.string("x")]
        block = declared if version == "5.0" else b""
        level = 5 if version == "5.0" else 4
        self.send(mb.packet(0x10, mb.string("MQTT"), bytes([level, flags, 0, 60]), block, *fields))
        self.receive()

    @property
    def block(self) -> bytes:
        """The properties of a packet that has none."""
        return NO_PROPERTIES if self.version == "5.0" else b""

    def _next(self) -> int:
        self.identifier += 1
        return self.identifier

    def subscribe(self, *filters: tuple[str, int]) -> None:
        """Subscribe, and answer what comes after the SUBACK."""
        self.send(mb.subscribe(self._next(), *filters, declared=self.block))
        self.settle()

    def unsubscribe(self, *filters: str) -> None:
        """Unsubscribe."""
        self.send(mb.packet(0xA2, self._next().to_bytes(2, "big"), self.block, *map(mb.string, filters)))
        self.settle()

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        """Publish, and complete the exchange."""
        identifier = self._next() if qos else 0
        self.send(mb.publish(topic, payload, qos=qos, identifier=identifier, retain=retain, declared=self.block))
        self.settle()

    def settle(self, seconds: float = QUIET, *, acknowledge: bool = True) -> None:
        """Read for a while, and answer PUBLISH, PUBREC and PUBREL."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            with suppress(TimeoutError):
                for packet in self.receive():
                    if acknowledge:
                        self._answer(packet)
        self.socket.settimeout(10)

    def _answer(self, packet: bytes) -> None:
        kind, qos = packet[0] >> 4, packet[0] >> 1 & 3
        if kind == 3 and qos:
            at = 2 + int.from_bytes(packet[2:4], "big") + 2
            self.socket.sendall(mb.ack(0x40 if qos == 1 else 0x50, int.from_bytes(packet[at : at + 2], "big")))
        elif kind == 5:
            self.socket.sendall(mb.ack(0x62, int.from_bytes(packet[2:4], "big")))
        elif kind == 6:
            self.socket.sendall(mb.ack(0x70, int.from_bytes(packet[2:4], "big")))

    def leave(self) -> None:
        """DISCONNECT and FIN."""
        self.send(DISCONNECT)
        self.socket.shutdown(socket.SHUT_WR)
        self.until_closed()


@scenario(
    "deviations-mosquitto",
    "Deviations of mosquitto",
    "`worker` subscribes to $share/crew/plant/# alone and gets the retained message of plant/job, which 5.0 4.8.2"
    " forbids. `both`, which speaks 3.1.1, has plant/1 with QoS 0 and plant/# with QoS 1 and gets QoS 0.",
    clients=("bare socket",),
)
def deviations_mosquitto(rig: Rig) -> None:
    """Two of them."""
    both = Honest(rig, "both")
    both.subscribe(("plant/1", 0), ("plant/#", 1))
    boss = Honest(rig, "boss", "5.0")
    boss.publish("plant/job", b"weld", 1, retain=True)
    worker = Honest(rig, "worker", "5.0")
    worker.subscribe(("$share/crew/plant/#", 1))
    worker.leave()
    time.sleep(SETTLED)
    boss.publish("plant/1", b"first", 1)
    both.settle(PATIENCE)
    both.send(PINGREQ)
    both.settle()
    both.leave()
    boss.leave()


@scenario(
    "deviations-aedes",
    "Deviations of Aedes",
    "`plus` was granted QoS 1 for plant/+ and gets QoS 2. `both` has plant/1 with QoS 0 and plant/# with QoS 1 and gets"
    " QoS 0. `again` breaks off without having acknowledged, and gets the message with DUP 0. `away` comes back and"
    " gets the message that deleted a retained one, with RETAIN 1. `bare` had a session without subscriptions, of which"
    " the second CONNACK does not know.",
    clients=("bare socket",),
    running="Aedes 1.2.0",
    explain={3: "client_closed"},
)
def deviations_aedes(rig: Rig) -> None:
    """Five of them."""
    sender = Honest(rig, "sender")
    plus = Honest(rig, "plus")
    plus.subscribe(("plant/+", 1))
    sender.publish("plant/2", b"first", 2)
    plus.settle()
    plus.leave()
    both = Honest(rig, "both")
    both.subscribe(("plant/1", 0), ("plant/#", 1))
    time.sleep(SETTLED)
    sender.publish("plant/1", b"second", 1)
    both.settle()
    again = Honest(rig, "again", clean=False)
    again.subscribe(("again/1", 1))
    sender.publish("again/1", b"third", 1)
    again.settle(acknowledge=False)
    again.close()
    again = Honest(rig, "again", clean=False)
    again.settle()
    again.leave()
    away = Honest(rig, "away", clean=False)
    away.subscribe(("old/1", 1))
    away.leave()
    sender.publish("old/1", b"", 1, retain=True)
    away = Honest(rig, "away", clean=False)
    away.settle()
    away.leave()
    for _ in range(2):
        bare = Honest(rig, "bare", clean=False)
        bare.leave()
    time.sleep(PATIENCE)
    both.send(PINGREQ)
    both.settle()
    both.leave()
    sender.leave()
    for name in ("again", "away", "bare"):
        Honest(rig, name).leave()


@scenario(
    "deviations-amqtt",
    "Deviations of amqtt",
    "`reader` gets with QoS 1 what was published with QoS 0, `low` the will of `gone` with QoS 1 where QoS 0 was"
    " granted. `stranger` has subscribed to nothing and gets a retained message. `less` has replaced QoS 1 by QoS 0"
    " and still gets QoS 1. `away` comes back, and its session is lost with what was published meanwhile.",
    clients=("bare socket",),
    running="amqtt 0.12.1",
    explain={4: "client_closed"},
)
def deviations_amqtt(rig: Rig) -> None:
    """Five of them."""
    sender = Honest(rig, "sender")
    reader = Honest(rig, "reader")
    reader.subscribe(("plant/1", 1))
    less = Honest(rig, "less")
    less.subscribe(("less/1", 1))
    less.subscribe(("less/1", 0))
    time.sleep(SETTLED)
    sender.publish("plant/1", b"first", 0)
    reader.settle()
    low = Honest(rig, "low")
    low.subscribe(("wills/1", 0))
    gone = Honest(rig, "gone", will=("wills/1", b"gone", 1))
    gone.close()
    low.settle()
    low.leave()
    sender.publish("plant/1", b"second", 1, retain=True)
    reader.settle()
    stranger = Honest(rig, "stranger")
    stranger.settle()
    stranger.leave()
    sender.publish("plant/1", b"", 1, retain=True)
    reader.settle()
    away = Honest(rig, "away", clean=False)
    away.subscribe(("away/1", 1))
    time.sleep(SETTLED)
    away.leave()
    sender.publish("away/1", b"missed", 1)
    away = Honest(rig, "away", clean=False)
    away.settle(PATIENCE)
    away.send(PINGREQ)
    away.settle()
    away.leave()
    sender.publish("less/1", b"third", 1)
    less.settle()
    less.leave()
    reader.send(PINGREQ)
    reader.settle()
    reader.leave()
    sender.leave()
    Honest(rig, "away").leave()


@scenario(
    "deviations-rabbitmq",
    "Deviations of RabbitMQ",
    "QoS 2 is answered with PUBACK. `less` has replaced QoS 1 by QoS 0 and gets each message twice, with both."
    " `again` has acknowledged the first of two messages; the second comes again with the packet identifier of the"
    " first. `bare` had a session without subscriptions; the second CONNACK reports Session Present 0.",
    clients=("bare socket",),
    running="RabbitMQ 3.10.8",
    explain={2: "client_closed"},
)
def deviations_rabbitmq(rig: Rig) -> None:
    """Four of them."""
    sender = Honest(rig, "sender")
    less = Honest(rig, "less")
    less.subscribe(("less/1", 1))
    less.subscribe(("less/1", 0))
    sender.publish("other/1", b"first", 2)
    again = Honest(rig, "again", clean=False)
    again.subscribe(("again/1", 1))
    sender.publish("again/1", b"second", 1)
    again.settle()
    sender.publish("again/1", b"third", 1)
    again.settle(acknowledge=False)
    again.close()
    again = Honest(rig, "again", clean=False)
    again.settle()
    again.leave()
    for _ in range(2):
        bare = Honest(rig, "bare", clean=False)
        bare.leave()
    time.sleep(QUIET)
    sender.publish("less/1", b"fourth", 1)
    less.settle()
    less.leave()
    sender.leave()
    for name in ("again", "bare"):
        Honest(rig, name).leave()


@scenario(
    "deviations-ejabberd",
    "Deviations of ejabberd",
    "`small` accepts packets of 100 bytes and gets one of 217. The UNSUBACK for a filter that was never subscribed has"
    " reason code 0x00, not 0x11.",
    clients=("bare socket",),
    running="ejabberd 23.01",
)
def deviations_ejabberd(rig: Rig) -> None:
    """Two of them."""
    user = "x@localhost"
    sender = Honest(rig, "sender", "5.0", user=user)
    small = Honest(rig, "small", "5.0", user=user, declared=mb.properties(b"\x27\x00\x00\x00\x64"))
    small.subscribe(("plant/1", 0))
    small.unsubscribe("plant/2")
    sender.publish("plant/1", b"x" * 205, 0)
    small.settle()
    small.leave()
    sender.leave()
