"""Conversations with known secrets, and very many ways to damage them.

Each conversation is what both sides say as lists of packets; a mutation changes bytes of one of them, not knowing what
they mean, or lies about a length, and says nothing of what it did but by its name.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

from mqttscope.mqtt import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    ProtocolVersion,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Will,
    encode,
)
from mqttscope.mqtt.wire import write_variable_byte_integer
from mqttscope.net.segment import Segment
from tests.dissect.talk import Talk

V3_1, V3_1_1, V5 = ProtocolVersion
PASSWORD, OTHER_PASSWORD = b"Tr0ub4dor&Xyzzy-Plugh", b"hunter2!Correct~Horse"
BINARY_PASSWORD = bytes(range(0xE1, 0xFF)) + b"\x30\x07\x00\x03qZ/"
LONG_PASSWORD = b"".join(b"%02dGrault;" % number for number in range(40))
DATA = b"n,,n=w4ldo,r=fyko+d2lbbFgONRv9qkxdawL"
ANSWER = b"r=fyko+d2l%hvYDpWUa2RaTC,s=QSXCR+Q6sek8"
PROOF = b"c=biws,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
FAREWELL = b"\x01\x9cMxyzptlk-farewell\x16\x15\x00"
QUERY_TOKEN = b"qT9-vorpal_Blade.77"
BEARER = b"eyJhbGciOiJub25lIn0.eyJzdWIiOiJtYXJ2aW4ifQ.Zm9vYmFyYmF6cXV4"
COOKIE = b"sid4Zaphod9Beeblebrox"
SET_COOKIE = b"ses5Slartibartfast1"

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
REQUEST = (
    b"GET /mqtt?token=" + QUERY_TOKEN + b"&x=1 HTTP/1.1\r\nHost: broker.example\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Key: " + KEY + b"\r\nAuthorization: Bearer " + BEARER + b"\r\n"
    b"Cookie: session=" + COOKIE + b"\r\nSec-WebSocket-Protocol: mqtt, bearer." + BEARER + b"\r\n"
    b"Sec-WebSocket-Version: 13\r\n\r\n"
)
RESPONSE = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSet-Cookie: id=" + SET_COOKIE + b"\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)


@dataclass
class Scene:
    """What both sides say."""

    name: str
    client: list[bytes]
    server: list[bytes]
    secrets: tuple[bytes, ...]
    web: bool = False
    """Inside a WebSocket; the first of each side is its HTTP head."""


def _scene(name: str, version: ProtocolVersion, client: list[object], server: list[object], *secrets: bytes) -> Scene:
    def wire(packets: list[object]) -> list[bytes]:
        return [packet if isinstance(packet, bytes) else encode(packet, version) for packet in packets]  # type: ignore[arg-type]

    return Scene(name, wire(client), wire(server), secrets)


def _login(level: int = 4, **values: object) -> Connect:
    name = "MQIsdp" if level == 3 else "MQTT"
    connect = Connect(protocol_name=name, protocol_level=level, client_identifier="dev-7", keep_alive=60)
    if level == 5:
        connect.properties = Properties()
    for key, value in values.items():
        setattr(connect, key, value)
    return connect


def scenes() -> list[Scene]:
    """All conversations."""
    plain = [Publish(topic_name="plant/a", payload=b"21.5"), Pingreq(), Disconnect()]
    plain_5 = [Publish(topic_name="plant/a", payload=b"21.5", properties=Properties()), Pingreq()]
    subscribe = Subscribe(7, None, [Subscription("plant/+/temperature", 1)])
    subscribe_5 = Subscribe(7, Properties(), [Subscription("plant/+/temperature", 1)])
    ok_5 = Connack(reason_code=0, session_present=False, properties=Properties())
    actual_scenes = [
        _scene(
            "3.1.1", V3_1_1, [_login(user_name="ford", password=PASSWORD), subscribe, *plain],
            [Connack(), Suback(7, None, [1]), Pingresp()], PASSWORD,
        ),
        _scene(
            "3.1", V3_1, [_login(3, user_name="ford", password=PASSWORD), *plain], [Connack(), Pingresp()], PASSWORD,
        ),
        _scene(
            "will", V3_1_1,
            [_login(user_name="ford", password=PASSWORD, will=Will(will_topic="gone", will_payload=b"off")), *plain],
            [Connack(), Pingresp()], PASSWORD,
        ),
        _scene(
            "5.0", V5,
            [
                _login(
                    5, user_name="ford", password=PASSWORD,
                    will=Will(will_topic="gone", will_payload=b"off", properties=Properties()),
                    properties=Properties(
                        session_expiry_interval=300, authentication_method="SCRAM-SHA-1", authentication_data=DATA,
                        user_property=[("fleet", "north")],
                    ),
                ),
                Auth(24, Properties(authentication_method="SCRAM-SHA-1", authentication_data=PROOF)),
                subscribe_5, *plain_5,
                # Not allowed there, and sent all the same.
                encode(Disconnect(0, Properties(authentication_data=FAREWELL)), V5),
            ],
            [
                Auth(24, Properties(authentication_method="SCRAM-SHA-1", authentication_data=ANSWER)),
                Connack(
                    reason_code=0, session_present=False,
                    properties=Properties(authentication_method="SCRAM-SHA-1", authentication_data=OTHER_PASSWORD),
                ),
                Suback(7, Properties(), [1]), Pingresp(),
            ],
            PASSWORD, DATA, PROOF, FAREWELL, ANSWER, OTHER_PASSWORD,
        ),
        _scene(
            "twice", V3_1_1,
            [
                _login(user_name="ford", password=PASSWORD), *plain[:1],
                _login(user_name="ford", password=OTHER_PASSWORD), *plain,
            ],
            [Connack(), Pingresp()], PASSWORD, OTHER_PASSWORD,
        ),
        _scene("binary", V5, [_login(5, password=BINARY_PASSWORD), *plain_5], [ok_5, Pingresp()], BINARY_PASSWORD),
        _scene(
            "long", V5, [_login(5, user_name="u", password=LONG_PASSWORD), subscribe_5, *plain_5], [ok_5, Pingresp()],
            LONG_PASSWORD,
        ),
    ]  # fmt: skip
    web = [
        Scene(
            f"{scene.name} web", [REQUEST, *scene.client], [RESPONSE, *scene.server], scene.secrets + tokens(), web=True
        )
        for scene in actual_scenes
        if scene.name in ("3.1.1", "5.0")
    ]
    return [*actual_scenes, *web]


def tokens() -> tuple[bytes, ...]:
    """The secrets of the HTTP heads."""
    return QUERY_TOKEN, BEARER, COOKIE, SET_COOKIE


@dataclass
class Mutant:
    """A damaged conversation."""

    name: str
    scene: Scene
    client: list[bytes] = field(default_factory=list)
    server: list[bytes] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)


Change = Callable[[random.Random, bytes], bytes]


def _flip_bit(chance: random.Random, raw: bytes) -> bytes:
    at = chance.randrange(len(raw))
    return raw[:at] + bytes((raw[at] ^ 1 << chance.randrange(8),)) + raw[at + 1 :]


def _flip_byte(chance: random.Random, raw: bytes) -> bytes:
    at = chance.randrange(len(raw))
    return raw[:at] + bytes((chance.randrange(256),)) + raw[at + 1 :]


def _type(chance: random.Random, raw: bytes) -> bytes:
    return bytes((chance.randrange(16) << 4 | chance.choice((0, 2, raw[0] & 15)),)) + raw[1:]


def _remaining_length(chance: random.Random, raw: bytes) -> bytes:
    body = 2
    while raw[body - 1] & 0x80 and body < min(5, len(raw)):
        body += 1
    length = len(raw) - body
    number = chance.choice(
        (length - chance.randint(1, 20), length + chance.randint(1, 40), 0, 2, chance.randrange(200), 2**28 - 1, 70_000)
    )
    return raw[:1] + write_variable_byte_integer(max(0, number)) + raw[body:]


def _inner_length(chance: random.Random, raw: bytes) -> bytes:
    """Two bytes that look like the length of what follows become another length."""
    places = [at for at in range(2, len(raw) - 2) if 0 < int.from_bytes(raw[at : at + 2], "big") <= len(raw) - at - 2]
    if not places:
        return _flip_byte(chance, raw)
    at = chance.choice(places)
    length = int.from_bytes(raw[at : at + 2], "big")
    number = chance.choice(
        (0, length - 1, length + 1, length + chance.randint(2, 40), chance.randrange(65_536), 65_535)
    )
    return raw[:at] + max(0, number).to_bytes(2, "big") + raw[at + 2 :]


def _property_length(chance: random.Random, raw: bytes) -> bytes:
    at = min(chance.choice((12, 13, 3, 4, 2)), len(raw) - 1)
    return raw[:at] + bytes((chance.choice((0, raw[at] ^ 1, chance.randrange(256), 127)),)) + raw[at + 1 :]


def _truncate(chance: random.Random, raw: bytes) -> bytes:
    return raw[: chance.randrange(1, max(2, len(raw)))]


def _behead(chance: random.Random, raw: bytes) -> bytes:
    return raw[chance.randrange(0, len(raw)) :]


def _delete(chance: random.Random, raw: bytes) -> bytes:
    start = chance.randrange(len(raw))
    return raw[:start] + raw[start + chance.randint(1, 24) :]


def _insert(chance: random.Random, raw: bytes) -> bytes:
    at = chance.randrange(len(raw) + 1)
    return raw[:at] + chance.randbytes(chance.randint(1, 12)) + raw[at:]


def _duplicate(chance: random.Random, raw: bytes) -> bytes:
    start = chance.randrange(len(raw))
    end = min(len(raw), start + chance.randint(1, 40))
    return raw[:end] + raw[start:end] + raw[end:]


def _twice(chance: random.Random, raw: bytes) -> bytes:
    return raw + raw


def _inside(chance: random.Random, raw: bytes) -> bytes:
    at = chance.randrange(len(raw))
    return raw[:at] + raw + raw[at:]


def _level(chance: random.Random, raw: bytes) -> bytes:
    at = 10 if raw[3:4] == b"\x06" else 8
    return raw[:at] + bytes((chance.choice((0, 3, 4, 5, 6, 0x83, 0x84, chance.randrange(256))),)) + raw[at + 1 :]


def _flags(chance: random.Random, raw: bytes) -> bytes:
    at = 11 if raw[3:4] == b"\x06" else 9
    return raw[:at] + bytes((chance.randrange(256),)) + raw[at + 1 :]


def _more(chance: random.Random, raw: bytes) -> bytes:
    return raw + chance.randbytes(chance.randint(1, 30))


CHANGES: tuple[Change, ...] = (
    _flip_bit, _flip_byte, _type, _remaining_length, _remaining_length, _inner_length, _inner_length, _property_length,
    _truncate, _behead, _delete, _insert, _duplicate, _twice, _inside, _level, _flags, _more,
)  # fmt: skip


def mutant(seed: int) -> Mutant:
    """The mutant of a number: the same forever."""
    chance = random.Random(seed)
    actual_scenes = scenes()
    scene = actual_scenes[seed % len(actual_scenes)]
    client, server = list(scene.client), list(scene.server)
    names = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        side = server if chance.random() < 0.2 else client
        holders = [number for number, raw in enumerate(side) if any(secret in raw for secret in scene.secrets)]
        place = chance.choice(holders) if holders and chance.random() < 0.9 else chance.randrange(len(side))
        change = chance.choice(CHANGES)
        if side[place]:
            side[place] = change(chance, side[place])
        names.append(f"{change.__name__[1:]} of {'server' if side is server else 'client'}'s packet {place}")
    name = f"seed {seed}, {scene.name}: {'; '.join(names)}"
    new_mutant = Mutant(name, scene, client, server)
    new_mutant.segments = _segments(chance, new_mutant)
    return new_mutant


def _segments(chance: random.Random, new_mutant: Mutant) -> list[Segment]:
    """The conversation as segments, cut anywhere; now and then without its beginning or with a hole."""
    talk = Talk(port=8080 if new_mutant.scene.web else 1883)
    manner = chance.choice(("whole", "whole", "cut", "cut", "bytes", "at once"))
    if chance.random() < 0.9:
        talk.handshake()
    up, down = new_mutant.client, new_mutant.server
    if new_mutant.scene.web:
        up = [raw if not at else _frame(chance, raw, from_client=True) for at, raw in enumerate(up)]
        down = [raw if not at else _frame(chance, raw, from_client=False) for at, raw in enumerate(down)]
    if manner == "at once":
        up, down = [b"".join(up)], [b"".join(down)]
    lost = chance.randrange(40) if chance.random() < 0.1 else -1
    sent = 0
    for both in zip_longest(up, down):
        for who, raw in zip(("client", "server"), both, strict=True):
            for piece in _pieces(chance, raw or b"", manner):
                sent += 1
                if sent == lost:
                    talk.lose(who, len(piece))
                else:
                    (talk.client if who == "client" else talk.server)(piece)
    if chance.random() < 0.6:
        talk.close(chance.choice(("client", "server")))
    return talk.tape.segments


def _pieces(chance: random.Random, raw: bytes, manner: str) -> list[bytes]:
    if manner == "bytes" and len(raw) <= 120:
        return [raw[at : at + 1] for at in range(len(raw))]
    if manner == "cut" and len(raw) > 2:
        edges = sorted({0, len(raw), *(chance.randrange(1, len(raw)) for _ in range(chance.randint(1, 4)))})
        return [raw[start:end] for start, end in pairwise(edges)]
    return [raw] if raw else []


def _frame(chance: random.Random, raw: bytes, *, from_client: bool) -> bytes:
    """A binary frame, sometimes two; the client's are masked."""
    if len(raw) > 4 and chance.random() < 0.2:
        at = chance.randrange(1, len(raw))
        return _frame_of(chance, raw[:at], 0x02, from_client) + _frame_of(chance, raw[at:], 0x80, from_client)
    return _frame_of(chance, raw, 0x82, from_client)


def _frame_of(chance: random.Random, raw: bytes, first: int, from_client: bool) -> bytes:
    mask = 0x80 if from_client else 0
    length = bytes((mask | len(raw),)) if len(raw) < 126 else bytes((mask | 126,)) + len(raw).to_bytes(2, "big")
    if not from_client:
        return bytes((first,)) + length + raw
    key = chance.randbytes(4)
    return bytes((first,)) + length + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(raw))
