"""Captures that are made to be slow: each kind grows one thing, and nothing else.

A kind is a function that writes a capture with ``count`` of that thing.  What is grown stands in one packet
(identifiers, filters, properties), in one connection (topics, aliases, malformed packets, gaps) or in the capture
(clients, connections).  The same arguments give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from struct import pack

from tests.bench.frames import ACK, FIN, MSS, PSH, SYN, Link, Writer, link
from tests.mqtt.octets import block, framed, string, varint

START_NS = 1_767_225_600_000_000_000
STEP_NS = 100_000
CLIENT, SERVER = 0, 1
WINDOW = 32
"""Segments that one side sends before the other one acknowledges them."""
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"
"""Looks like a JSON Web Token."""


class Scene:
    """A capture in the making."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.opened = 0

    def bare(self, one: Link, side: int, flags: int) -> None:
        """A segment without data."""
        self.writer.segment(one, side, one.sequence[side], b"", flags, STEP_NS)
        if flags & (SYN | FIN):
            one.sequence[side] = one.sequence[side] + 1 & 0xFFFFFFFF

    def open(self, client: int = 0) -> Link:
        """A connection of a host: only TCP's handshake."""
        self.opened += 1
        server = b"\x0a\x80\0\x02"
        # A host uses one port after the other, so that no two connections have the same endpoints.
        port = 1_024 + self.opened // 60_000 + (self.opened * 7) % 60_000
        made = link(4, (pack("!I", 0x0A000100 + client), server), (port, 1883), 0, (1_000 + self.opened, 9_000))
        self.bare(made, CLIENT, SYN)
        self.bare(made, SERVER, SYN | ACK)
        self.bare(made, CLIENT, ACK)
        return made

    def connect(self, name: str = "dev", client: int = 0, *, level: int = 5, alias_maximum: int = 65_535) -> Link:
        """A connection with CONNECT and CONNACK."""
        one = self.open(client)
        five = level == 5
        properties = block(b"\x22" + pack("!H", alias_maximum)) if five else b""
        head = string("MQTT") + bytes((level, 2, 0, 0)) + properties
        self.send(one, CLIENT, framed(0x10, head, string(name)))
        self.send(one, SERVER, framed(0x20, b"\0\0", properties))
        return one

    def send(self, one: Link, side: int, data: bytes, size: int = MSS) -> None:
        """A part of a stream in segments, acknowledged now and then."""
        for number, at in enumerate(range(0, len(data), size)):
            part = data[at : at + size]
            self.writer.segment(one, side, one.sequence[side], part, PSH | ACK, STEP_NS)
            one.sequence[side] = one.sequence[side] + len(part) & 0xFFFFFFFF
            if number % WINDOW == WINDOW - 1:
                self.bare(one, 1 - side, ACK)
        self.bare(one, 1 - side, ACK)

    def packets(self, one: Link, side: int, packets: Iterable[bytes]) -> None:
        """Packets that share segments."""
        self.send(one, side, b"".join(packets))

    def each(self, one: Link, side: int, packets: Iterable[bytes]) -> None:
        """Packets in segments of their own."""
        for packet in packets:
            self.send(one, side, packet)

    def close(self, one: Link) -> None:
        """DISCONNECT and the end of both streams."""
        self.send(one, CLIENT, b"\xe0\0")
        self.bare(one, CLIENT, FIN | ACK)
        self.bare(one, SERVER, FIN | ACK)
        self.bare(one, CLIENT, ACK)


def publish(
    topic: str, payload: bytes = b"1", *, flags: int = 0, identifier: int = 0, properties: bytes = b""
) -> bytes:
    """A PUBLISH of 5.0; ``flags`` are those of its fixed header."""
    number = pack("!H", identifier) if flags & 6 else b""
    return framed(0x30 | flags, string(topic) + number + block(properties), payload)


def subscribe(identifier: int, filters: Iterable[str], *, properties: bytes = b"", options: int = 0) -> bytes:
    """A SUBSCRIBE of 5.0."""
    rows = b"".join(string(name) + bytes((options,)) for name in filters)
    return framed(0x82, pack("!H", identifier) + block(properties), rows)


def suback(identifier: int, codes: bytes) -> bytes:
    """A SUBACK of 5.0."""
    return framed(0x90, pack("!H", identifier) + b"\0", codes)


def user_property(name: str, value: str) -> bytes:
    """A User Property."""
    return b"\x26" + string(name) + string(value)


def _subscriptions(scene: Scene, one: Link, filters: Sequence[str], *, numbered: bool = False) -> None:
    """Subscribe to all of them, fifty in a SUBSCRIBE, and have them granted."""
    for place, at in enumerate(range(0, len(filters), 50)):
        some = filters[at : at + 50]
        properties = b"\x0b" + varint(1 + place % 268_435_455) if numbered else b""
        scene.send(one, CLIENT, subscribe(place % 65_535 + 1, some, properties=properties))
        scene.send(one, SERVER, suback(place % 65_535 + 1, bytes(len(some))))


def subscription_identifiers(scene: Scene, count: int) -> None:
    """Subscription Identifiers in one PUBLISH of the server."""
    one = scene.connect()
    identifiers = b"".join(b"\x0b" + varint(1 + number) for number in range(count))
    scene.send(one, SERVER, publish("a", properties=identifiers))
    scene.close(one)


def client_identifiers(scene: Scene, count: int) -> None:
    """Subscription Identifiers in one PUBLISH of the client, who may send none; half of them are 0."""
    one = scene.connect()
    identifiers = b"".join(b"\x0b" + varint(number % 2) for number in range(count))
    scene.send(one, CLIENT, publish("a", properties=identifiers))
    scene.close(one)


def filters(scene: Scene, count: int) -> None:
    """Good Topic Filters in one SUBSCRIBE and one UNSUBSCRIBE, with their answers."""
    one = scene.connect()
    names = [f"site/{number}/+/#" for number in range(count)]
    scene.send(one, CLIENT, subscribe(1, names))
    scene.send(one, SERVER, suback(1, bytes(count)))
    scene.send(one, SERVER, publish("site/1/2"))
    scene.send(one, CLIENT, framed(0xA2, b"\0\2\0", b"".join(string(name) for name in names)))
    scene.send(one, SERVER, framed(0xB0, b"\0\2\0", bytes(count)))
    scene.close(one)


def bad_filters(scene: Scene, count: int) -> None:
    """Topic Filters that are wrong, with options that are wrong, in one SUBSCRIBE and one UNSUBSCRIBE."""
    one = scene.connect()
    names = [f"site/#/{number}\x01" for number in range(count)]
    scene.send(one, CLIENT, subscribe(1, names, options=0xFF))
    scene.send(one, SERVER, suback(1, b"\x77" * count))
    scene.send(one, CLIENT, framed(0xA2, b"\0\2\0", b"".join(string(name) for name in names)))
    scene.send(one, SERVER, framed(0xB0, b"\0\2\0", b"\x77" * count))
    scene.close(one)


def equal_filters(scene: Scene, count: int) -> None:
    """The same Topic Filter again and again in one SUBSCRIBE, and filters that overlap."""
    one = scene.connect()
    names = ["#" if number % 2 else f"a/{number}/#" for number in range(count)]
    scene.send(one, CLIENT, subscribe(1, names))
    scene.send(one, SERVER, suback(1, bytes(count)))
    scene.close(one)


def shared_filters(scene: Scene, count: int) -> None:
    """Filters of Shared Subscriptions, half of them without ShareName, with No Local."""
    one = scene.connect()
    names = [f"$share/{'' if number % 2 else 'g'}/a/{number}/+" for number in range(count)]
    scene.send(one, CLIENT, subscribe(1, names, options=4))
    scene.send(one, SERVER, suback(1, bytes(count)))
    scene.packets(one, SERVER, (publish(f"a/{number}/b") for number in range(200)))
    scene.close(one)


def user_properties(scene: Scene, count: int) -> None:
    """User Properties that look like secrets in one PUBLISH."""
    one = scene.connect()
    properties = b"".join(user_property("token", f"{TOKEN}{number}") for number in range(count))
    scene.send(one, CLIENT, publish("a", properties=properties))
    scene.close(one)


def control_characters(scene: Scene, count: int) -> None:
    """User Properties with control characters and ill-formed text in a CONNECT, in its will and in a PUBLISH."""
    one = scene.open()
    properties = b"".join(user_property(f"a\x01{number}", "b\x7f\ufeff") for number in range(count // 3))
    head = string("MQTT") + bytes((5, 6, 0, 0)) + block(properties)
    will = block(properties) + string("w") + string("x")
    scene.send(one, CLIENT, framed(0x10, head, string("dev") + will))
    scene.send(one, SERVER, framed(0x20, b"\0\0", block()))
    scene.send(one, CLIENT, publish("a", properties=properties.replace(b"\x7f", b"\xff")))
    scene.close(one)


def repeated_properties(scene: Scene, count: int) -> None:
    """Properties that may stand once, repeated in one PUBLISH and one CONNECT."""
    one = scene.open()
    head = string("MQTT") + bytes((5, 2, 0, 0)) + block(b"\x21\0\x0a" * (count // 2))
    scene.send(one, CLIENT, framed(0x10, head, string("dev")))
    scene.send(one, SERVER, framed(0x20, b"\0\0", block()))
    scene.send(one, CLIENT, publish("a", properties=b"\x01\2\x02\0\0\0\1\x23\0\0" * (count // 6)))
    scene.close(one)


def reason_codes(scene: Scene, count: int) -> None:
    """Reason codes that do not exist in one SUBACK that answers nothing, and one that answers too little."""
    one = scene.connect()
    scene.send(one, CLIENT, subscribe(1, ["a"]))
    scene.send(one, SERVER, suback(1, bytes(number % 256 for number in range(count))))
    scene.send(one, SERVER, suback(2, bytes(number % 256 for number in range(count))))
    scene.close(one)


def long_topic(scene: Scene, count: int) -> None:
    """Topics and filters of many levels: ``count`` levels in all."""
    one = scene.connect()
    levels = 4_000
    for number in range(max(1, count // levels)):
        deep = "/".join(["a"] * (levels - 1) + [str(number)])
        scene.send(one, CLIENT, subscribe(number % 65_535 + 1, [deep, "/".join(["+"] * levels), deep[:-1] + "#"]))
        scene.send(one, SERVER, suback(number % 65_535 + 1, b"\0\0\0"))
        scene.send(one, SERVER, publish(deep))
    scene.close(one)


def topics(scene: Scene, count: int) -> None:
    """Topics that are published to once, by client and server, below subscriptions."""
    one = scene.connect()
    _subscriptions(scene, one, ["site/#", "+/+/temperature", "site/1/temperature"])
    scene.packets(one, CLIENT, (publish(f"site/{number}/temperature") for number in range(count)))
    scene.packets(one, SERVER, (publish(f"site/{number}/temperature") for number in range(count)))
    scene.close(one)


def near_topics(scene: Scene, count: int) -> None:
    """Topics that differ in case, slashes and spaces only, which no subscription matches."""
    one = scene.connect()
    _subscriptions(scene, one, [f"Site/{number}" for number in range(900)])
    scene.packets(one, SERVER, (publish(f"site/{number}/x") for number in range(count)))
    scene.packets(one, CLIENT, (publish(f"{'/' * (number % 3)}Plant/{number // 3} ") for number in range(count)))
    scene.close(one)


def wildcard_subscriptions(scene: Scene, count: int) -> None:
    """Wildcard subscriptions of one client, and half as many messages that none or one of them matches."""
    one = scene.connect()
    _subscriptions(scene, one, [f"site/{number}/+/state" for number in range(count)], numbered=True)
    names = (f"site/{number}/a/{'state' if number % 2 else 'other'}" for number in range(0, count, 2))
    scene.packets(one, SERVER, (publish(name) for name in names))
    scene.close(one)


def plus_subscriptions(scene: Scene, count: int) -> None:
    """Subscriptions with as many combinations of ``+`` as a topic of twelve levels has, and messages to them."""
    one = scene.connect()
    names = ["/".join("+" if number >> bit & 1 else "a" for bit in range(12)) for number in range(min(count, 4_096))]
    _subscriptions(scene, one, names)
    scene.packets(one, SERVER, (publish("/".join(["a"] * 11 + [str(number)])) for number in range(count // 64)))
    scene.close(one)


def subscribing_again(scene: Scene, count: int) -> None:
    """One filter that is subscribed, used and unsubscribed again and again beside a thousand others."""
    one = scene.connect()
    _subscriptions(scene, one, [f"site/{number}/#" for number in range(1_000)])
    parts: list[tuple[int, bytes]] = []
    for number in range(count):
        parts += [
            (CLIENT, subscribe(1 + number % 60_000, ["again/+"])),
            (SERVER, suback(1 + number % 60_000, b"\0")),
            (SERVER, publish(f"again/{number}")),
            (CLIENT, framed(0xA2, pack("!H", 1 + number % 60_000) + b"\0", string("again/+"))),
            (SERVER, framed(0xB0, pack("!H", 1 + number % 60_000) + b"\0", b"\0")),
        ]
    for side, packet in parts:
        scene.send(one, side, packet)
    scene.close(one)


def aliases(scene: Scene, count: int) -> None:
    """Topic Aliases that are set, used, re-mapped, and used without a mapping or out of range."""
    one = scene.connect(alias_maximum=60_000)
    set_, used = [], []
    for number in range(count):
        alias = b"\x23" + pack("!H", number * 7 % 65_536)
        set_.append(publish(f"site/{number}", properties=alias))
        used.append(publish("", properties=alias))
    scene.packets(one, CLIENT, set_)
    scene.packets(one, CLIENT, used)
    scene.close(one)


def clients(scene: Scene, count: int) -> None:
    """Clients that connect, subscribe, publish and go."""
    for number in range(count):
        one = scene.connect(f"dev-{number}", number)
        _subscriptions(scene, one, [f"dev-{number}/#"])
        scene.send(one, CLIENT, publish(f"dev-{number}/x"))
        scene.close(one)


def open_clients(scene: Scene, count: int) -> None:
    """Clients that are all connected at the same time, subscribe to the same, and all get one message."""
    links = []
    for number in range(count):
        one = scene.connect(f"dev-{number}", number)
        _subscriptions(scene, one, ["all/+"])
        links.append(one)
    for one in links:
        scene.send(one, SERVER, publish("all/now"))
    for one in links:
        scene.close(one)


def takeovers(scene: Scene, count: int) -> None:
    """Connections with one Client Identifier, none of which ends."""
    for number in range(count):
        one = scene.connect("dev", number)
        scene.send(one, CLIENT, publish("a", flags=2, identifier=1))


def half_open(scene: Scene, count: int) -> None:
    """SYN segments that nothing follows."""
    for number in range(count):
        one = link(4, (pack("!I", 0x0A000100 + number), b"\x0a\x80\0\x02"), (4_000, 1883), 0, (number, 0))
        scene.bare(one, CLIENT, SYN)


def gaps(scene: Scene, count: int) -> None:
    """Segments that are missing, one of two: what is lost are whole packets, and pieces of packets."""
    one = scene.connect()
    for number in range(count):
        data = publish(f"site/{number}", b"x" * 40)
        keep = number % 2
        if keep:
            scene.send(one, CLIENT, data)
        else:
            one.sequence[CLIENT] += len(data) if number % 4 else len(data) + 7
            scene.bare(one, SERVER, ACK)
    scene.close(one)


def holes(scene: Scene, count: int) -> None:
    """Segments that wait after one hole that is closed at the end, in the worst order: the last one first."""
    one = scene.connect()
    parts = [publish(f"site/{number}", b"y" * 9) for number in range(count)]
    start = one.sequence[CLIENT]
    places = []
    for part in parts:
        places.append((start, part))
        start += len(part)
    for place, part in reversed(places):
        scene.writer.segment(one, CLIENT, place, part, PSH | ACK, 1_000)
    one.sequence[CLIENT] = start
    scene.close(one)


def every_other(scene: Scene, count: int) -> None:
    """Every other segment first, after a hole, then those between."""
    one = scene.connect()
    start = one.sequence[CLIENT]
    places = []
    for number in range(count):
        part = publish(f"site/{number}", b"y" * 9)
        places.append((start, part))
        start += len(part)
    for place, part in [*places[1::2], *places[::2]]:
        scene.writer.segment(one, CLIENT, place, part, PSH | ACK, 1_000)
    one.sequence[CLIENT] = start
    scene.close(one)


def overlaps(scene: Scene, count: int) -> None:
    """Segments that overlap those before by half, some of them after holes, some with other bytes."""
    one = scene.connect()
    data = b"".join(publish(f"site/{number:06d}", b"z" * 16) for number in range(count))
    size = len(data) // count
    start = one.sequence[CLIENT]
    for number in range(count):
        at = number * size
        order = number ^ 1
        at = order * size
        part = data[at : at + 2 * size]
        if number % 7 == 3:
            part = part[:size] + bytes(len(part) - size)
        scene.writer.segment(one, CLIENT, start + at, part, PSH | ACK, STEP_NS)
    one.sequence[CLIENT] = start + len(data)
    scene.close(one)


def single_bytes(scene: Scene, count: int) -> None:
    """One packet in segments of one byte."""
    one = scene.connect()
    scene.send(one, CLIENT, publish("a", b"x" * count), 1)
    scene.close(one)


def large_packet(scene: Scene, count: int) -> None:
    """One packet with a payload of 256 bytes for each of ``count``, of text."""
    one = scene.connect()
    scene.send(one, CLIENT, publish("a", (b'{"token":"' + TOKEN.encode() + b'"},').ljust(256) * count))
    scene.close(one)


def malformed(scene: Scene, count: int) -> None:
    """Malformed packets in a row: wrong flags, no identifiers, bad strings, wrong lengths."""
    one = scene.connect()
    kinds = (b"\x60\0", b"\x36\x05\0\1a\0\1", b"\x30\x04\0\2\xff\xfe", b"\x82\x02\0\1", b"\x40\x01\0")
    scene.packets(one, CLIENT, (kinds[number % len(kinds)] for number in range(count)))
    scene.close(one)


def empty_pubrels(scene: Scene, count: int) -> None:
    """``60 00``, again and again, in both directions."""
    one = scene.connect()
    scene.send(one, CLIENT, b"\x60\0" * count)
    scene.send(one, SERVER, b"\x60\0" * count)
    scene.close(one)


def garbage(scene: Scene, count: int) -> None:
    """Bytes that are no packets, after a Remaining Length that never ends and after a gap."""
    one = scene.connect()
    noise = bytes((number * number * 31 + number * 7) >> 3 & 0xFF for number in range(64 * count))
    scene.send(one, CLIENT, b"\x30\xff\xff\xff\xff" + noise)
    one.sequence[CLIENT] += 100
    scene.send(one, SERVER, b"\x30\xff\xff\xff\xff" * (4 * count))
    scene.send(one, CLIENT, b"\x82\x82" * (8 * count) + noise)
    scene.close(one)


def joined_late(scene: Scene, count: int) -> None:
    """A connection whose beginning was not captured, and others on its port that are no MQTT at all."""
    one = link(4, (b"\x0a\0\1\1", b"\x0a\x80\0\x02"), (4_000, 1883), 0, (77, 99))
    scene.send(one, CLIENT, b"\xf0\xff" * (32 * count))
    for number in range(count):
        scene.send(one, CLIENT, publish(f"site/{number}"))
    for number in range(count // 4):
        other = link(4, (pack("!I", 0x0A000500 + number), b"\x0a\x80\0\x02"), (4_000, 1883), 0, (77, 99))
        scene.send(other, CLIENT, b"GET / HTTP/1.1\r\n" + b"x" * 200)


def in_flight(scene: Scene, count: int) -> None:
    """Messages of QoS 1 and 2 that all wait, and are answered in the opposite order; then some that never are."""
    one = scene.connect()
    many = min(count, 65_000)
    flags = [2 if number % 2 else 4 for number in range(many + 1)]
    scene.packets(one, CLIENT, (publish("a", flags=flags[number], identifier=number) for number in range(1, many + 1)))
    for first in (0x40, 0x50), (0x62,), (0x70,):
        side = CLIENT if first[0] == 0x62 else SERVER
        answers = []
        for number in range(many, 0, -1):
            if flags[number] == 4 or first[0] == 0x40:
                kind = first[0] if flags[number] == 2 or len(first) == 1 else first[1]
                answers.append(bytes((kind, 2)) + pack("!H", number))
        scene.packets(one, side, answers)
    scene.packets(one, SERVER, (publish("b", flags=2, identifier=number) for number in range(1, many + 1)))
    scene.close(one)


def same_identifier(scene: Scene, count: int) -> None:
    """Packets that all have one Packet Identifier, and answers to none of them."""
    one = scene.connect()
    scene.packets(one, CLIENT, (publish(f"a/{number % 9}", flags=2, identifier=1) for number in range(count)))
    scene.packets(one, CLIENT, (subscribe(1, ["a"]) for _ in range(count)))
    scene.packets(one, SERVER, (b"\x40\2\0\7" for _ in range(count)))
    scene.packets(one, SERVER, (suback(9, b"\0") for _ in range(count)))
    scene.close(one)


def retained(scene: Scene, count: int) -> None:
    """Retained topics of one client, and clients that subscribe to all of them and get some."""
    one = scene.connect("writer", 1)
    topics_ = [f"kept/{number}/x" for number in range(count)]
    many = min(count, 60_000)
    for at in range(0, count, many):
        some = range(at, min(count, at + many))
        scene.packets(one, CLIENT, (publish(topics_[n], flags=3, identifier=n % many + 1) for n in some))
        scene.packets(one, SERVER, (b"\x40\2" + pack("!H", n % many + 1) for n in some))
    for number in range(max(1, count // 50)):
        two = scene.connect(f"reader-{number}", 2 + number)
        scene.send(two, CLIENT, subscribe(1, ["kept/+/x", "#", "kept/1/x"]))
        scene.send(two, SERVER, suback(1, b"\0\0\0"))
        scene.packets(two, SERVER, (publish(topics_[n % count], flags=1) for n in range(number, number + 20)))
        scene.close(two)
    scene.close(one)


def pings(scene: Scene, count: int) -> None:
    """PINGREQ packets without an answer, then as many answers."""
    one = scene.connect()
    scene.send(one, CLIENT, b"\xc0\0" * count)
    scene.send(one, SERVER, b"\xd0\0" * count)
    scene.close(one)


def connects(scene: Scene, count: int) -> None:
    """CONNECT packets in one connection, and AUTH packets."""
    one = scene.connect()
    again = framed(0x10, string("MQTT") + bytes((5, 2, 0, 0)) + block(), string("dev"))
    scene.packets(one, CLIENT, (again for _ in range(count)))
    scene.packets(one, CLIENT, (b"\xf0\0" for _ in range(count)))
    scene.packets(one, SERVER, (b"\x20\3\0\0\0" for _ in range(count)))
    scene.close(one)


def websocket_frames(scene: Scene, count: int) -> None:
    """WebSocket frames of one byte: packets over many frames, one message over many fragments, control frames."""
    one = scene.open()
    scene.send(
        one,
        CLIENT,
        b"GET /mqtt HTTP/1.1\r\nHost: b\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n",
    )
    scene.send(
        one,
        SERVER,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n",
    )
    mask = b"\0\0\0\0"
    connect = framed(0x10, string("MQTT") + bytes((5, 2, 0, 0)) + block(), string("dev"))
    scene.send(one, CLIENT, bytes((0x82, 0x80 | len(connect))) + mask + connect)
    scene.send(one, SERVER, b"\x82\x05\x20\3\0\0\0")
    whole = publish("a", b"x" * count)
    frames = [b"\x82\x81" + mask + whole[at : at + 1] for at in range(len(whole))]
    scene.send(one, CLIENT, b"".join(frames))
    parts = [(b"\x02" if at == 0 else b"\0") + b"\x81" + mask + whole[at : at + 1] for at in range(len(whole))]
    scene.send(one, CLIENT, b"".join(part + b"\x89\x80" + mask for part in parts))
    scene.close(one)


def payloads(scene: Scene, count: int) -> None:
    """Payloads that are the same, that look like secrets, and replies without requests."""
    one = scene.connect()
    response = b"\x08" + string("reply/x") + b"\x09" + string("c")
    some = []
    for number in range(count):
        some.append(publish("same", b'{"password":"hunter2","mail":"a@example.org"}'))
        some.append(publish(f"ask/{number}", b"q", properties=response))
    scene.packets(one, CLIENT, some)
    scene.close(one)


def near_matches(scene: Scene, count: int) -> None:
    """Subscriptions that end while messages of them still come, and messages to a topic that is not subscribed."""
    one = scene.connect()
    names = [f"site/{number}/+" for number in range(count)]
    _subscriptions(scene, one, names)
    for place, at in enumerate(range(0, count, 50)):
        some = names[at : at + 50]
        number = pack("!H", place % 60_000 + 1)
        scene.send(one, CLIENT, framed(0xA2, number + b"\0", b"".join(string(name) for name in some)))
        scene.send(one, SERVER, framed(0xB0, number + b"\0", bytes(len(some))))
    scene.packets(one, SERVER, (publish(f"site/{number}/a") for number in range(count)))
    scene.close(one)


Kind = Callable[[Scene, int], None]
KINDS: dict[Kind, int] = {
    subscription_identifiers: 4_000,
    client_identifiers: 4_000,
    filters: 2_000,
    bad_filters: 2_000,
    equal_filters: 2_000,
    shared_filters: 2_000,
    user_properties: 2_000,
    control_characters: 3_000,
    repeated_properties: 6_000,
    reason_codes: 4_000,
    long_topic: 16_000,
    topics: 1_000,
    near_topics: 300,
    wildcard_subscriptions: 2_000,
    plus_subscriptions: 2_000,
    subscribing_again: 300,
    aliases: 1_000,
    clients: 150,
    open_clients: 150,
    takeovers: 250,
    half_open: 1_000,
    gaps: 500,
    holes: 1_000,
    every_other: 1_000,
    overlaps: 1_000,
    single_bytes: 2_000,
    large_packet: 1_000,
    malformed: 1_000,
    empty_pubrels: 1_000,
    garbage: 500,
    joined_late: 500,
    in_flight: 1_000,
    same_identifier: 500,
    retained: 1_000,
    pings: 2_000,
    connects: 1_000,
    websocket_frames: 2_000,
    payloads: 500,
    near_matches: 1_000,
}
"""All kinds, and the smallest ``count`` that is measured of each."""


def generate(kind: Kind, count: int, path: Path) -> int:
    """Write a capture of that kind; returns its frames."""
    with path.open("wb") as file:
        writer = Writer(file, START_NS)
        writer.start()
        kind(Scene(writer), count)
        writer.flush()
    return writer.frames
