"""Events made by hand for the reporters: packets on a connection whose state moves on as it does when dissecting.

A conversation that shows every packet type and every other event, and one with hostile content.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator

from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, GapEvent, MalformedEvent, PacketEvent
from mqttscope.events import UnparsedEvent as UnparsedEvent
from mqttscope.mqtt import (
    Auth,
    Connack,
    Connect,
    ControlPacket,
    Direction,
    Disconnect,
    Malformed,
    Pingreq,
    Pingresp,
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
    Unparsed,
    Unsuback,
    Unsubscribe,
    Will,
    decode,
    encode,
)
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.report.base import Reporter, View
from mqttscope.report.tree import Tree
from mqttscope.secrets.packets import CLEAR
from mqttscope.session import Connection

C2S, S2C = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
V3_1, V3_1_1, V5 = ProtocolVersion
START_NS = 1_767_323_045_123_456_789
"""2026-01-02T03:04:05.123456789Z."""
MS = 1_000_000


class Lines:
    """A sink that keeps what was written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    @property
    def lines(self) -> list[str]:
        """Written lines; only line feeds end a line."""
        return self.data.decode().split("\n")[:-1]


class Talk:
    """One connection.  Each call makes the next event, a millisecond after the one before."""

    def __init__(
        self,
        version: ProtocolVersion = V5,
        *,
        number: int = 0,
        identifier: str | None = "dev1",
        client: str = "10.0.0.4:51234",
        known: bool = True,
        first_packet: int = 0,
    ) -> None:
        self.connection = Connection(
            number, client, "10.0.0.2:1883", "a.pcap", 1, START_NS, handshake_seen=True, client_identifier=identifier
        )
        self.connection.assume_version(version, "CONNECT" if known else "a run of packets", known=known)
        if identifier is not None:  # its CONNECT came, and other packets since
            self.connection.client_side.doubt = self.connection.server_side.doubt = CLEAR
        self.now = START_NS
        self.packets = first_packet
        self.frame = 0
        self.waiting: tuple[ControlPacket, Direction, int] | None = None

    def _next(self, after: int) -> None:
        if self.waiting is not None:
            # An event is seen before its packet is applied.
            packet, direction, number = self.waiting
            self.connection.apply(packet, direction, number, self.frame, self.now)
            self.waiting = None
        self.now += after
        self.frame += 1

    def say(self, packet: ControlPacket | bytes, direction: Direction = C2S, *, after: int = MS) -> Event:
        """The event of a packet, given by its fields or by its bytes."""
        self._next(after)
        raw = packet if isinstance(packet, bytes) else encode(packet, self.connection.version)
        actual_packet = decode(raw, self.connection.version)
        number = self.packets
        self.packets += 1
        place = (self.connection, direction, number, self.frame, self.now, "a.pcap")
        if isinstance(actual_packet, Malformed):
            return MalformedEvent(*place, actual_packet, None)
        if not isinstance(packet, bytes):
            actual_packet.missing = packet.missing
        self.connection.identify(actual_packet)
        topic = self.connection.resolve_topic(actual_packet, direction) if isinstance(actual_packet, Publish) else None
        self.waiting = actual_packet, direction, number
        return PacketEvent(*place, actual_packet, topic)

    def answer(self, packet: ControlPacket | bytes, *, after: int = MS) -> Event:
        """The event of a packet that the server sends."""
        return self.say(packet, S2C, after=after)

    def opened(self) -> Event:
        self._next(MS)
        return ConnectionOpened(self.connection, self.frame, self.now, "a.pcap")

    def closed(self, how: str = "fin", by: str | None = "client") -> Event:
        self._next(MS)
        self.connection.closed_how, self.connection.closed_by = how, by
        return ConnectionClosed(self.connection, self.frame, self.now, "a.pcap")

    def gap(self, length: int, reason: str = "not_captured") -> Event:
        self._next(MS)
        self.connection.gaps += 1
        self.connection.gap_bytes += length
        return GapEvent(self.connection, C2S, self.frame, self.now, "a.pcap", length, reason)

    def unparsed(self, actual_unparsed: Unparsed) -> Event:
        self._next(MS)
        return UnparsedEvent(self.connection, C2S, self.frame, self.now, "a.pcap", actual_unparsed)


def publish(topic: str = "a/b", payload: bytes = b"hi", **fields: object) -> Publish:
    """A PUBLISH."""
    return Publish(topic_name=topic, payload=payload, **fields)  # type: ignore[arg-type]


def shown(kind: type[Reporter], events: Iterable[Event], **view: object) -> list[str]:
    """Lines that a reporter writes for events; ``view`` are fields of `View`."""
    sink = Lines()
    reporter = kind(sink, View(**view))  # type: ignore[call-arg, arg-type]
    for event in events:
        reporter.feed(event)
    reporter.close()
    return sink.lines


def block_of(raw: bytes | Publish, version: int = 5, **view: object) -> list[str]:
    """Lines of one packet."""
    talk = Talk(V5 if version == 5 else V3_1_1)
    return shown(Tree, [talk.say(raw)], **{"width": 80, **view})[0 if view.get("width") == 0 else 1 :]


SECRET = b"correct horse"


def conversation() -> Iterator[Event]:
    """Client ``dev1`` over MQTT 5.0, from opening to closing."""
    talk = Talk()
    yield talk.opened()
    yield talk.say(
        Connect(
            protocol_level=5,
            client_identifier="dev1",
            keep_alive=60,
            user_name="alice",
            password=SECRET,
            will=Will("status/dev1", b"offline", 1, True, Properties(will_delay_interval=5)),
            properties=Properties(session_expiry_interval=3600, receive_maximum=20),
        )
    )
    yield talk.answer(Connack(session_present=True, properties=Properties(topic_alias_maximum=10, retain_available=0)))
    yield talk.say(
        Subscribe(
            packet_identifier=1,
            subscriptions=[Subscription("a/#", 1), Subscription("$share/g/b", 2, True, True, 2)],
            properties=Properties(subscription_identifier=7),
        )
    )
    yield talk.answer(Suback(packet_identifier=1, reason_codes=[1, 0x87]))
    sets_alias = Properties(topic_alias=1, content_type="application/json", user_property=[("k", "v"), ("k", "w")])
    yield talk.say(publish("sensors/temp", b'{"t": 21.5}', qos=1, packet_identifier=10, properties=sets_alias))
    yield talk.answer(Puback(packet_identifier=10, reason_code=0x10), after=12 * MS)
    yield talk.say(publish("", b"\x00\x01\xfe", retain=True, properties=Properties(topic_alias=1)))
    yield talk.say(publish("", b"?", properties=Properties(topic_alias=9)))
    yield talk.say(publish("two", gzip.compress(b'{"z":1}', mtime=0), qos=2, packet_identifier=11))
    yield talk.answer(Pubrec(packet_identifier=11))
    yield talk.say(Pubrel(packet_identifier=11))
    yield talk.answer(Pubcomp(packet_identifier=11))
    yield talk.say(publish("three", b"", qos=2, packet_identifier=12))
    yield talk.answer(Pubrec(packet_identifier=12, reason_code=0x97, properties=Properties(reason_string="full")))
    yield talk.say(publish("lost", b"x", qos=1, packet_identifier=13))
    yield talk.say(publish("lost", b"x", qos=1, packet_identifier=13, dup=True))
    yield talk.say(publish("cut", b"half", missing=96))
    yield talk.say(Unsubscribe(packet_identifier=14, topic_filters=["a/#", "b"]))
    yield talk.answer(Unsuback(packet_identifier=14, reason_codes=[0, 0x11]))
    yield talk.say(Auth(reason_code=0x19, properties=Properties(authentication_method="SCRAM-SHA-256")))
    yield talk.say(Pingreq())
    yield talk.answer(Pingresp(), after=2 * MS)
    yield talk.say(bytes.fromhex("30 07 00 02 c3 28 00 78 79"))
    yield talk.say(bytes.fromhex("82 06 00 0f 00 00 00 02"))
    yield talk.gap(1460)
    yield talk.unparsed(Unparsed("resynchronised", 300, b"junk" * 5, 280))
    yield talk.answer(Disconnect(reason_code=0x8E, properties=Properties(server_reference="other.example")))
    yield talk.closed("reset", "server")
    yield CaptureError("b.pcap", "the file ends inside a block", 4096, 12)
    yield CaptureDrops("a.pcap", 0, 100, 7)


EVIL = "\x1b[2J\u202eevil\n\x07\u2028\x9b31m日本語" + "\u0301" * 9 + "\udcff"


def hostile() -> Iterator[Event]:
    """Everything that can carry text carries what a terminal must not get, as UTF-8 and not."""
    yield from _hostile(EVIL)
    yield from _hostile(EVIL[:-1])


def _hostile(evil: str) -> Iterator[Event]:
    talk = Talk(V5, identifier=None, client="x")
    yield talk.say(
        Connect(
            protocol_level=5,
            client_identifier=evil,
            user_name=evil,
            password=evil.encode("utf-8", "surrogateescape"),
            will=Will(evil, evil.encode("utf-8", "surrogateescape"), 0, False, None),
            properties=Properties(user_property=[(evil, evil)], authentication_method=evil),
        )
    )
    talk.connection.client_identifier = evil
    properties = Properties(reason_string=evil, response_information=evil, server_reference=evil)
    yield talk.answer(Connack(reason_code=0x88, properties=properties))
    about = Properties(content_type=evil, response_topic=evil, correlation_data=evil.encode("utf-8", "surrogateescape"))
    yield talk.say(publish(evil, evil.encode("utf-8", "surrogateescape"), properties=about))
    yield talk.say(publish(evil * 40, ("\u202e" * 4000).encode(), qos=1, packet_identifier=1))
    yield talk.say(publish("j", ('{"\u202e":"\x1b[0m\\u001b", "x":[1,2]}').encode()))
    yield talk.say(
        publish("j", '["\u2028\u202e", {"k\u0085": 1}]'.encode(), properties=Properties(content_type="text/json"))
    )
    yield talk.say(publish("z", gzip.compress(evil.encode("utf-8", "surrogateescape"), mtime=0)))
    yield talk.say(Subscribe(packet_identifier=2, subscriptions=[Subscription(evil, 1)] * 60))
    yield talk.answer(Suback(packet_identifier=2, reason_codes=[0, 1] * 30))
    yield talk.say(Unsubscribe(packet_identifier=3, topic_filters=[evil] * 60))
    yield talk.answer(Disconnect(reason_code=0x98, properties=Properties(reason_string=evil)))
    yield talk.say(b"\x10\x10\x00\x06\x1b[2J\n\x07" + b"\x04\x02\x00\x3c\x00\x00")
    yield talk.unparsed(Unparsed("resynchronised", 30, b"\x1b[2J" * 10))
    talk.connection.transport = "websocket"
    talk.connection.details = {"path": evil, "host": evil, "extensions": [evil]}
    yield talk.opened()
    yield talk.closed()
    yield CaptureError(evil, evil, None, 0)
    old = Talk(
        V3_1_1, number=12345, identifier=None, client="[2001:db8:1111:2222:3333:4444:5555:6666]:65535", known=False
    )
    old.connection.version_evidence = evil
    yield old.say(publish(evil, b"x"))
    yield old.say(Connect(client_identifier="", password=SECRET, user_name=None, protocol_name="MQTT"))
    yield old.say(publish("a", b"x"), S2C)


class Answers:
    """Says of packets by their frames whether TCP acknowledged them (`dissect.acknowledgments`)."""

    def __init__(self, answers: dict[int, bool], *, after_fin: int = -1, is_done: bool = True) -> None:
        self.answers, self.after_fin, self.is_done = answers, after_fin, is_done

    def of(self, event: PacketEvent | MalformedEvent) -> bool | None:
        return self.answers.get(event.frame)

    def is_after_fin(self, event: PacketEvent | MalformedEvent) -> bool:
        return event.frame == self.after_fin


def acknowledged(*, is_done: bool = True) -> list[Event]:
    """Packets in frames 1 to 4: acknowledged, after the FIN of the server, never, and unknown."""
    talk = Talk(V3_1_1)
    talk.connection.acknowledgments = Answers({1: True, 2: True, 3: False}, after_fin=2, is_done=is_done)
    return [talk.say(Pingreq()), talk.say(Pingreq()), talk.say(Pingreq()), talk.answer(Pingresp())]
