"""Captures that are made to be slow: each kind grows one thing, and nothing else.

A kind is a function that writes a capture with ``count`` of that thing.  What is grown is in one packet
(identifiers, filters, properties), in one connection (topics, aliases, malformed packets, gaps) or in the capture
(clients, connections).  The same arguments give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from itertools import accumulate
from pathlib import Path
from struct import pack

from tests.bench.frames import ACK, FIN, MSS, PSH, SYN, Link, Writer, link, writing
from tests.mqtt.octets import block, framed, string, varint
from tests.net.framing import frame, request, response

STEP_NS = 100_000
CLIENT, SERVER = 0, 1
WINDOW = 32
"""Segments that one side sends before the other one acknowledges them."""
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"
"""Looks like a JSON Web Token."""
SERVER_ADDRESS = b"\x0a\x80\0\x02"
OPEN = framed(0x10, string("MQTT") + bytes((5, 2, 0, 0)) + block(), string("dev"))
OPENED = b"\x20\3\0\0\0"


class Talk:
    """A connection in a capture in the making."""

    def __init__(self, writer: Writer, link: Link) -> None:
        self.writer = writer
        self.link = link

    def bare(self, side: int, flags: int) -> None:
        """A segment without data."""
        self.writer.bare(self.link, side, flags, STEP_NS)

    def send(self, side: int, data: bytes, size: int = MSS) -> None:
        """A part of a stream in segments, acknowledged now and then."""
        for number, at in enumerate(range(0, len(data), size)):
            self.writer.data(self.link, side, data[at : at + size], STEP_NS)
            if number % WINDOW == WINDOW - 1:
                self.bare(1 - side, ACK)
        self.bare(1 - side, ACK)

    def client(self, *packets: bytes) -> None:
        """Packets of the client that share segments."""
        self.send(CLIENT, b"".join(packets))

    def server(self, *packets: bytes) -> None:
        """Packets of the server that share segments."""
        self.send(SERVER, b"".join(packets))

    def subscribe(
        self, identifier: int, filters: Iterable[str], codes: bytes = b"", *, properties: bytes = b"", options: int = 0
    ) -> None:
        """SUBSCRIBE and SUBACK of 5.0; without ``codes`` everything is granted."""
        rows = [string(name) + bytes((options,)) for name in filters]
        self.client(framed(0x82, pack("!H", identifier) + block(properties), *rows))
        self.server(suback(identifier, codes or bytes(len(rows))))

    def unsubscribe(self, identifier: int, filters: Iterable[str], codes: bytes = b"") -> None:
        """UNSUBSCRIBE and UNSUBACK of 5.0; without ``codes`` everything succeeds."""
        number, rows = pack("!H", identifier) + b"\0", [string(name) for name in filters]
        self.client(framed(0xA2, number, *rows))
        self.server(framed(0xB0, number, codes or bytes(len(rows))))

    def subscribe_all(self, filters: Sequence[str], *, numbered: bool = False) -> None:
        """Subscribe to all filters, fifty in a SUBSCRIBE."""
        for place, at in enumerate(range(0, len(filters), 50)):
            properties = b"\x0b" + varint(1 + place % 268_435_455) if numbered else b""
            self.subscribe(place % 65_535 + 1, filters[at : at + 50], properties=properties)

    def close(self) -> None:
        """DISCONNECT and the end of both streams."""
        self.client(b"\xe0\0")
        self.bare(CLIENT, FIN | ACK)
        self.bare(SERVER, FIN | ACK)
        self.bare(CLIENT, ACK)


class Scene:
    """A capture in the making."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.opened = 0

    def unopened(self, address: int, client_number: int, server_number: int) -> Talk:
        """A connection without its handshake, between port 4000 of a host and the server."""
        pair = pack("!I", address), SERVER_ADDRESS
        return Talk(self.writer, link(4, pair, (4_000, 1883), 0, (client_number, server_number)))

    def open(self, client: int = 0) -> Talk:
        """A connection of a host: only TCP's handshake."""
        self.opened += 1
        # A host uses one port after the other, so that no two connections have the same endpoints.
        port = 1_024 + self.opened // 60_000 + (self.opened * 7) % 60_000
        pair = pack("!I", 0x0A000100 + client), SERVER_ADDRESS
        talk = Talk(self.writer, link(4, pair, (port, 1883), 0, (1_000 + self.opened, 9_000)))
        self.writer.handshake(talk.link, STEP_NS)
        return talk

    def connect(self, name: str = "dev", client: int = 0, *, alias_maximum: int = 65_535) -> Talk:
        """A connection with CONNECT and CONNACK."""
        talk = self.open(client)
        properties = block(b"\x22" + pack("!H", alias_maximum))
        talk.client(framed(0x10, string("MQTT") + bytes((5, 2, 0, 0)) + properties, string(name)))
        talk.server(framed(0x20, b"\0\0", properties))
        return talk


Kind = Callable[[Scene, int], None]
KINDS: dict[Kind, int] = {}
"""All kinds, and the smallest ``count`` that is measured of each."""


def kind(least: int) -> Callable[[Kind], Kind]:
    """Declare a kind."""

    def declare(write: Kind) -> Kind:
        KINDS[write] = least
        return write

    return declare


def in_connection(least: int) -> Callable[[Callable[[Talk, int], None]], Kind]:
    """Declare a kind that is one connection, from CONNECT to DISCONNECT."""

    def declare(write: Callable[[Talk, int], None]) -> Kind:
        @wraps(write)
        def whole(scene: Scene, count: int) -> None:
            talk = scene.connect()
            write(talk, count)
            talk.close()

        return kind(least)(whole)

    return declare


def publish(
    topic: str, payload: bytes = b"1", *, flags: int = 0, identifier: int = 0, properties: bytes = b""
) -> bytes:
    """A PUBLISH of 5.0; ``flags`` are those of its fixed header."""
    number = pack("!H", identifier) if flags & 6 else b""
    return framed(0x30 | flags, string(topic) + number + block(properties), payload)


def suback(identifier: int, codes: bytes) -> bytes:
    """A SUBACK of 5.0."""
    return framed(0x90, pack("!H", identifier) + b"\0", codes)


def user_property(name: str, value: str) -> bytes:
    """A User Property."""
    return b"\x26" + string(name) + string(value)


@in_connection(4_000)
def subscription_identifiers(talk: Talk, count: int) -> None:
    """Subscription Identifiers in one PUBLISH of the server."""
    talk.server(publish("a", properties=b"".join(b"\x0b" + varint(1 + number) for number in range(count))))


@in_connection(4_000)
def client_identifiers(talk: Talk, count: int) -> None:
    """Subscription Identifiers in one PUBLISH of the client, who may send none; half of them are 0."""
    talk.client(publish("a", properties=b"".join(b"\x0b" + varint(number % 2) for number in range(count))))


@in_connection(2_000)
def filters(talk: Talk, count: int) -> None:
    """Good Topic Filters in one SUBSCRIBE and one UNSUBSCRIBE, with their answers."""
    names = [f"site/{number}/+/#" for number in range(count)]
    talk.subscribe(1, names)
    talk.server(publish("site/1/2"))
    talk.unsubscribe(2, names)


@in_connection(2_000)
def bad_filters(talk: Talk, count: int) -> None:
    """Topic Filters that are wrong, with options that are wrong, in one SUBSCRIBE and one UNSUBSCRIBE."""
    names = [f"site/#/{number}\x01" for number in range(count)]
    talk.subscribe(1, names, b"\x77" * count, options=0xFF)
    talk.unsubscribe(2, names, b"\x77" * count)


@in_connection(2_000)
def equal_filters(talk: Talk, count: int) -> None:
    """The same Topic Filter again and again in one SUBSCRIBE, and filters that overlap."""
    talk.subscribe(1, ["#" if number % 2 else f"a/{number}/#" for number in range(count)])


@in_connection(2_000)
def shared_filters(talk: Talk, count: int) -> None:
    """Filters of Shared Subscriptions, half of them without ShareName, with No Local."""
    talk.subscribe(1, [f"$share/{'' if number % 2 else 'g'}/a/{number}/+" for number in range(count)], options=4)
    talk.server(*(publish(f"a/{number}/b") for number in range(200)))


@in_connection(2_000)
def user_properties(talk: Talk, count: int) -> None:
    """User Properties that look like secrets in one PUBLISH."""
    properties = b"".join(user_property("token", f"{TOKEN}{number}") for number in range(count))
    talk.client(publish("a", properties=properties))


@kind(3_000)
def control_characters(scene: Scene, count: int) -> None:
    """User Properties with control characters and ill-formed text in a CONNECT, in its will and in a PUBLISH."""
    talk = scene.open()
    properties = b"".join(user_property(f"a\x01{number}", "b\x7f\ufeff") for number in range(count // 3))
    head = string("MQTT") + bytes((5, 6, 0, 0)) + block(properties)
    will = block(properties) + string("w") + string("x")
    talk.client(framed(0x10, head, string("dev") + will))
    talk.server(OPENED)
    talk.client(publish("a", properties=properties.replace(b"\x7f", b"\xff")))
    talk.close()


@kind(6_000)
def repeated_properties(scene: Scene, count: int) -> None:
    """Properties that may be there once, repeated in one PUBLISH and one CONNECT."""
    talk = scene.open()
    head = string("MQTT") + bytes((5, 2, 0, 0)) + block(b"\x21\0\x0a" * (count // 2))
    talk.client(framed(0x10, head, string("dev")))
    talk.server(OPENED)
    talk.client(publish("a", properties=b"\x01\2\x02\0\0\0\1\x23\0\0" * (count // 6)))
    talk.close()


@in_connection(4_000)
def reason_codes(talk: Talk, count: int) -> None:
    """Reason codes that do not exist in one SUBACK that answers nothing, and one that answers too little."""
    codes = bytes(number % 256 for number in range(count))
    talk.subscribe(1, ["a"], codes)
    talk.server(suback(2, codes))


@in_connection(16_000)
def long_topic(talk: Talk, count: int) -> None:
    """Topics and filters of many levels: ``count`` levels in all."""
    levels = 4_000
    for number in range(max(1, count // levels)):
        deep = "/".join(["a"] * (levels - 1) + [str(number)])
        talk.subscribe(number % 65_535 + 1, [deep, "/".join(["+"] * levels), deep[:-1] + "#"])
        talk.server(publish(deep))


@in_connection(1_000)
def topics(talk: Talk, count: int) -> None:
    """Topics that are published to once, by client and server, below subscriptions."""
    talk.subscribe_all(["site/#", "+/+/temperature", "site/1/temperature"])
    packets = [publish(f"site/{number}/temperature") for number in range(count)]
    talk.client(*packets)
    talk.server(*packets)


@in_connection(300)
def near_topics(talk: Talk, count: int) -> None:
    """Topics that differ in case, slashes and spaces only, which no subscription matches."""
    talk.subscribe_all([f"Site/{number}" for number in range(900)])
    talk.server(*(publish(f"site/{number}/x") for number in range(count)))
    talk.client(*(publish(f"{'/' * (number % 3)}Plant/{number // 3} ") for number in range(count)))


@in_connection(2_000)
def wildcard_subscriptions(talk: Talk, count: int) -> None:
    """Wildcard subscriptions of one client, and half as many messages that none or one of them matches."""
    talk.subscribe_all([f"site/{number}/+/state" for number in range(count)], numbered=True)
    names = (f"site/{number}/a/{'state' if number % 2 else 'other'}" for number in range(0, count, 2))
    talk.server(*map(publish, names))


@in_connection(2_000)
def plus_subscriptions(talk: Talk, count: int) -> None:
    """Subscriptions with as many combinations of ``+`` as a topic of twelve levels has, and messages to them."""
    combinations = range(min(count, 4_096))
    talk.subscribe_all(["/".join("+" if number >> bit & 1 else "a" for bit in range(12)) for number in combinations])
    talk.server(*(publish("/".join(["a"] * 11 + [str(number)])) for number in range(count // 64)))


@in_connection(300)
def subscribing_again(talk: Talk, count: int) -> None:
    """One filter that is subscribed, used and unsubscribed again and again beside a thousand others."""
    talk.subscribe_all([f"site/{number}/#" for number in range(1_000)])
    for number in range(count):
        talk.subscribe(1 + number % 60_000, ["again/+"])
        talk.server(publish(f"again/{number}"))
        talk.unsubscribe(1 + number % 60_000, ["again/+"])


@kind(1_000)
def aliases(scene: Scene, count: int) -> None:
    """Topic Aliases that are set, used, re-mapped, and used without a mapping or out of range."""
    talk = scene.connect(alias_maximum=60_000)
    numbers = [b"\x23" + pack("!H", number * 7 % 65_536) for number in range(count)]
    talk.client(*(publish(f"site/{number}", properties=alias) for number, alias in enumerate(numbers)))
    talk.client(*(publish("", properties=alias) for alias in numbers))
    talk.close()


@kind(150)
def clients(scene: Scene, count: int) -> None:
    """Clients that connect, subscribe, publish and go."""
    for number in range(count):
        talk = scene.connect(f"dev-{number}", number)
        talk.subscribe(1, [f"dev-{number}/#"])
        talk.client(publish(f"dev-{number}/x"))
        talk.close()


@kind(150)
def open_clients(scene: Scene, count: int) -> None:
    """Clients that are all connected at the same time, subscribe to the same, and all get one message."""
    talks = []
    for number in range(count):
        talks.append(scene.connect(f"dev-{number}", number))
        talks[-1].subscribe(1, ["all/+"])
    for talk in talks:
        talk.server(publish("all/now"))
    for talk in talks:
        talk.close()


@kind(250)
def takeovers(scene: Scene, count: int) -> None:
    """Connections with one Client Identifier, none of which ends."""
    for number in range(count):
        scene.connect("dev", number).client(publish("a", flags=2, identifier=1))


@kind(1_000)
def half_open(scene: Scene, count: int) -> None:
    """SYN segments that nothing follows."""
    for number in range(count):
        scene.unopened(0x0A000100 + number, number, 0).bare(CLIENT, SYN)


@in_connection(500)
def gaps(talk: Talk, count: int) -> None:
    """Segments that are missing, one of two: what is lost are whole packets, and pieces of packets."""
    for number in range(count):
        data = publish(f"site/{number}", b"x" * 40)
        if number % 2:
            talk.client(data)
        else:
            talk.link.sequence[CLIENT] += len(data) if number % 4 else len(data) + 7
            talk.bare(SERVER, ACK)


def _in_order(talk: Talk, count: int, order: Iterable[int]) -> None:
    """Packets in segments of their own, which come in this order."""
    parts = [publish(f"site/{number}", b"y" * 9) for number in range(count)]
    places = list(accumulate(map(len, parts), initial=talk.link.sequence[CLIENT]))
    for number in order:
        talk.writer.segment(talk.link, CLIENT, places[number], parts[number], PSH | ACK, 1_000)
    talk.link.sequence[CLIENT] = places[-1]


@in_connection(1_000)
def holes(talk: Talk, count: int) -> None:
    """Segments that wait after one hole that is closed at the end, in the worst order: the last one first."""
    _in_order(talk, count, reversed(range(count)))


@in_connection(1_000)
def every_other(talk: Talk, count: int) -> None:
    """Every other segment first, after a hole, then those between."""
    _in_order(talk, count, [*range(1, count, 2), *range(0, count, 2)])


@in_connection(1_000)
def overlaps(talk: Talk, count: int) -> None:
    """Segments that overlap those before by half, some of them after holes, some with other bytes."""
    data = b"".join(publish(f"site/{number:06d}", b"z" * 16) for number in range(count))
    size = len(data) // count
    start = talk.link.sequence[CLIENT]
    for number in range(count):
        at = (number ^ 1) * size
        part = data[at : at + 2 * size]
        if number % 7 == 3:
            part = part[:size] + bytes(len(part) - size)
        talk.writer.segment(talk.link, CLIENT, start + at, part, PSH | ACK, STEP_NS)
    talk.link.sequence[CLIENT] = start + len(data)


@in_connection(2_000)
def single_bytes(talk: Talk, count: int) -> None:
    """One packet in segments of one byte."""
    talk.send(CLIENT, publish("a", b"x" * count), 1)


@in_connection(1_000)
def large_packet(talk: Talk, count: int) -> None:
    """One packet with a payload of 256 bytes for each of ``count``, of text."""
    talk.client(publish("a", (b'{"token":"' + TOKEN.encode() + b'"},').ljust(256) * count))


@in_connection(1_000)
def malformed(talk: Talk, count: int) -> None:
    """Malformed packets in a row: wrong flags, no identifiers, bad strings, wrong lengths."""
    wrong = (b"\x60\0", b"\x36\x05\0\1a\0\1", b"\x30\x04\0\2\xff\xfe", b"\x82\x02\0\1", b"\x40\x01\0")
    talk.client(*(wrong[number % len(wrong)] for number in range(count)))


@in_connection(1_000)
def empty_pubrels(talk: Talk, count: int) -> None:
    """``60 00``, again and again, in both directions."""
    talk.client(b"\x60\0" * count)
    talk.server(b"\x60\0" * count)


@in_connection(500)
def garbage(talk: Talk, count: int) -> None:
    """Bytes that are no packets, after a Remaining Length that never ends and after a gap."""
    noise = bytes((number * number * 31 + number * 7) >> 3 & 0xFF for number in range(64 * count))
    talk.client(b"\x30\xff\xff\xff\xff" + noise)
    talk.link.sequence[CLIENT] += 100
    talk.server(b"\x30\xff\xff\xff\xff" * (4 * count))
    talk.client(b"\x82\x82" * (8 * count) + noise)


@kind(500)
def joined_late(scene: Scene, count: int) -> None:
    """A connection whose beginning was not captured, and others on its port that are no MQTT at all."""
    talk = scene.unopened(0x0A000101, 77, 99)
    talk.client(b"\xf0\xff" * (32 * count))
    for number in range(count):
        talk.client(publish(f"site/{number}"))
    for number in range(count // 4):
        scene.unopened(0x0A000500 + number, 77, 99).client(b"GET / HTTP/1.1\r\n" + b"x" * 200)


@in_connection(1_000)
def in_flight(talk: Talk, count: int) -> None:
    """Messages of QoS 1 and 2 that all wait, and are answered in the opposite order; then some that never are."""
    many = min(count, 65_000)
    numbers = range(1, many + 1)

    def answers(first: int, *, also: int = 0) -> list[bytes]:
        """Answers to messages of QoS 2, and to those of QoS 1 with another first byte."""
        kinds = {number: also if number % 2 else first for number in reversed(numbers)}
        return [bytes((kind, 2)) + pack("!H", number) for number, kind in kinds.items() if kind]

    talk.client(*(publish("a", flags=2 if number % 2 else 4, identifier=number) for number in numbers))
    talk.server(*answers(0x50, also=0x40))
    talk.client(*answers(0x62))
    talk.server(*answers(0x70))
    talk.server(*(publish("b", flags=2, identifier=number) for number in numbers))


@in_connection(500)
def same_identifier(talk: Talk, count: int) -> None:
    """Packets that all have one Packet Identifier, and answers to none of them."""
    talk.client(*(publish(f"a/{number % 9}", flags=2, identifier=1) for number in range(count)))
    talk.client(framed(0x82, b"\0\1" + block(), string("a") + b"\0") * count)
    talk.server(b"\x40\2\0\7" * count)
    talk.server(suback(9, b"\0") * count)


@kind(1_000)
def retained(scene: Scene, count: int) -> None:
    """Retained topics of one client, and clients that subscribe to all of them and get some."""
    talk = scene.connect("writer", 1)
    names = [f"kept/{number}/x" for number in range(count)]
    many = min(count, 60_000)
    for at in range(0, count, many):
        some = range(at, min(count, at + many))
        talk.client(*(publish(names[n], flags=3, identifier=n % many + 1) for n in some))
        talk.server(*(b"\x40\2" + pack("!H", n % many + 1) for n in some))
    for number in range(max(1, count // 50)):
        two = scene.connect(f"reader-{number}", 2 + number)
        two.subscribe(1, ["kept/+/x", "#", "kept/1/x"])
        two.server(*(publish(names[n % count], flags=1) for n in range(number, number + 20)))
        two.close()
    talk.close()


@in_connection(2_000)
def pings(talk: Talk, count: int) -> None:
    """PINGREQ packets without an answer, then as many answers."""
    talk.client(b"\xc0\0" * count)
    talk.server(b"\xd0\0" * count)


@in_connection(1_000)
def connects(talk: Talk, count: int) -> None:
    """CONNECT packets in one connection, and AUTH packets."""
    talk.client(OPEN * count)
    talk.client(b"\xf0\0" * count)
    talk.server(OPENED * count)


@kind(2_000)
def websocket_frames(scene: Scene, count: int) -> None:
    """WebSocket frames of one byte: packets over many frames, one message over many fragments, control frames."""
    talk, mask = scene.open(), bytes(4)
    talk.client(request())
    talk.server(response())
    talk.client(frame(OPEN, key=mask))
    talk.server(frame(OPENED))
    whole = publish("a", b"x" * count)
    pieces = [whole[at : at + 1] for at in range(len(whole))]
    talk.client(*(frame(piece, key=mask) for piece in pieces))
    fragments = [frame(piece, 0 if at else 2, mask) for at, piece in enumerate(pieces)]
    talk.client(*(fragment + frame(b"", 0x89, mask) for fragment in fragments))
    talk.close()


@in_connection(500)
def payloads(talk: Talk, count: int) -> None:
    """Payloads that are the same, that look like secrets, and replies without requests."""
    answer = b"\x08" + string("reply/x") + b"\x09" + string("c")
    some = []
    for number in range(count):
        some.append(publish("same", b'{"password":"hunter2","mail":"a@example.org"}'))
        some.append(publish(f"ask/{number}", b"q", properties=answer))
    talk.client(*some)


@in_connection(1_000)
def near_matches(talk: Talk, count: int) -> None:
    """Subscriptions that end while messages of them still come, and messages to a topic that is not subscribed."""
    names = [f"site/{number}/+" for number in range(count)]
    talk.subscribe_all(names)
    for place, at in enumerate(range(0, count, 50)):
        talk.unsubscribe(place % 60_000 + 1, names[at : at + 50])
    talk.server(*(publish(f"site/{number}/a") for number in range(count)))


def generate(kind: Kind, count: int, path: Path) -> int:
    """Write a capture of that kind; returns its frames."""
    with writing(path) as writer:
        kind(Scene(writer), count)
    return writer.frames
