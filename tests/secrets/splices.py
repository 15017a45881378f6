"""Another view of damage: changes that know where the fields are, that join packets, and that lose or repeat segments.

`mutants` changes bytes without knowing what they mean.  Here a length is changed to its neighbours at the very place
where it stands, the head of one packet gets the tail of another, packets change places, and a tap loses, cuts, repeats
or reorders what was sent.  The secrets are others, too: long ones, ones that hold whole packets or texts of protocols.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from mqttscope.mqtt import (
    Auth,
    Connack,
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
    Will,
    encode,
)
from mqttscope.mqtt.codec import packet_end, trace
from mqttscope.mqtt.wire import write_variable_byte_integer
from mqttscope.net.segment import Segment
from tests.dissect.talk import Talk
from tests.secrets.mutants import REQUEST, RESPONSE, V3_1, V3_1_1, V5, Mutant, Scene, _frame, _login, _scene, tokens

METHOD = "SCRAM-SHA-256"
SPOKEN = b"korrekt pferd hefter klammr 94"
"""A password of words."""
PACKED = b"\xc0\x00ZQx7-quux~" + encode(Publish(topic_name="wk", payload=b"Vq9_corge!"), V3_1_1) + b"Wb8-garply"
"""A password that holds whole packets."""
NUMBERS = bytes(at * 37 % 251 for at in range(64))
WORDED = b'{"wrt":"zaphod/Beeblebrox-42";"qx"}'
FIRST = b"n,,n=trillian,r=0Hx" + b"8Lq!mzK2" * 5
LONG = b"".join(b"%03dFenchurch," % number for number in range(30))
"""Authentication Data whose length needs both of its bytes."""
ANSWERED = b"r=0Hx8Lq!mzK2%hvY,s=U0FMVHlTQUxU,i=4096"
RENEWED = b"c=biws,r=9Tw6_renewed,p=1Gk0/Zx3Qw8="
DONE = b"v=6rriTRBi23WpRvl/7Fa+Kc="
LEAVING = b"\x00\x15leaving-Slartibartfast\x16\x00\x04"


@cache
def splice_scenes() -> tuple[Scene, ...]:
    """The conversations that are damaged here."""
    packets = [Publish(topic_name="plant/b", payload=b"22.5"), Pingreq()]
    told_5 = [Publish(topic_name="plant/b", payload=b"22.5", properties=Properties()), Pingreq()]
    subscribe = Subscribe(3, None, [Subscription("plant/#", 1)])
    subscribe_5 = Subscribe(3, Properties(), [Subscription("plant/#", 1)])
    sent = Publish(topic_name="plant/c", payload=b"x" * 30, qos=1, packet_identifier=9)
    sent_5 = replace(sent, properties=Properties(user_property=[("unit", "C")]))
    will = Will(will_topic="left", will_payload=b"without a word", properties=Properties(will_delay_interval=5))
    ok, ok_5 = Connack(reason_code=0), Connack(reason_code=0, properties=Properties())

    def auth(code: int, data: bytes) -> Auth:
        return Auth(code, Properties(authentication_method=METHOD, authentication_data=data))

    scenes = [
        _scene("spoken 3.1", V3_1, [_login(3, user_name="arthur", password=SPOKEN), subscribe, *packets],
               [ok, Suback(3, None, [1]), Pingresp()], SPOKEN),
        _scene("packed 3.1.1", V3_1_1, [_login(user_name="arthur", password=PACKED), subscribe, sent, *packets],
               [ok, Suback(3, None, [1]), Puback(9), Pingresp()], PACKED),
        _scene("worded 3.1.1", V3_1_1,
               [_login(user_name="arthur", password=WORDED, will=Will(will_topic="left", will_payload=b"so long")),
                *packets],
               [ok, Pingresp()], WORDED),
        _scene("again 3.1.1", V3_1_1,
               [_login(user_name="arthur", password=SPOKEN), *packets,
                _login(user_name="ford", password=NUMBERS), *packets],
               [ok, sent, Pingresp()], SPOKEN, NUMBERS),
        _scene("numbers 5.0", V5, [_login(5, user_name="arthur", password=NUMBERS, will=will), subscribe_5, sent_5,
                *told_5],
               [ok_5, Suback(3, Properties(), [1]), Puback(9), Pingresp()], NUMBERS),
        _scene("packed 5.0", V5, [_login(5, password=PACKED), sent_5, *told_5], [ok_5, Puback(9), Pingresp()], PACKED),
        _scene(
            "re-authentication 5.0", V5,
            [
                _login(5, user_name="arthur", password=SPOKEN, properties=Properties(
                    receive_maximum=20, authentication_method=METHOD, authentication_data=FIRST,
                    user_property=[("site", "north")])),
                auth(0x18, RENEWED), subscribe_5, *told_5, auth(0x19, LONG), *told_5,
                encode(Disconnect(4, Properties(session_expiry_interval=0, authentication_data=LEAVING)), V5),
            ],
            [
                auth(0x18, ANSWERED),
                Connack(reason_code=0, properties=Properties(
                    receive_maximum=9, authentication_method=METHOD, authentication_data=DONE)),
                Suback(3, Properties(), [1]), Pingresp(), sent_5, auth(0, ANSWERED),
                encode(Disconnect(0x8B, Properties(reason_string="bye", authentication_data=LEAVING)), V5),
            ],
            SPOKEN, FIRST, LONG, RENEWED, ANSWERED, DONE, LEAVING,
        ),
    ]  # fmt: skip
    web = [
        Scene(
            f"{scene.name} web", [REQUEST, *scene.client], [RESPONSE, *scene.server], scene.secrets + tokens(), web=True
        )
        for scene in (scenes[2], scenes[6])
    ]
    return (*scenes, *web)


Change = Callable[[random.Random, bytes, ProtocolVersion], bytes]


def _edges(raw: bytes, version: ProtocolVersion) -> list[int]:
    """Where fields begin and end."""
    body, _ = packet_end(raw, 0, len(raw))
    places = {0, len(raw)} | ({body} if body > 0 else set())
    for span in trace(raw, version) if body > 0 else ():
        places |= {span.start, span.end}
    return sorted(at for at in places if at <= len(raw))


def _cut_at_edge(chance: random.Random, raw: bytes, version: ProtocolVersion) -> bytes:
    at = chance.choice(_edges(raw, version)) + chance.choice((-1, 0, 0, 1, 2))
    at = min(max(1, at), len(raw))
    return raw[:at] if chance.random() < 0.5 else raw[at:]


def _without_field(chance: random.Random, raw: bytes, version: ProtocolVersion) -> bytes:
    spans = trace(raw, version) if raw else []
    if not spans:
        return raw[1:]
    span = chance.choice(spans)
    return raw[: span.start] + raw[span.end :]


def _field_twice(chance: random.Random, raw: bytes, version: ProtocolVersion) -> bytes:
    spans = trace(raw, version) if raw else []
    if not spans:
        return raw + raw
    span, other = chance.choice(spans), chance.choice(spans)
    return raw[: span.end] + raw[other.start : other.end] + raw[span.end :]


def _fields_swapped(chance: random.Random, raw: bytes, version: ProtocolVersion) -> bytes:
    spans = sorted(trace(raw, version), key=lambda span: span.start) if raw else []
    if len(spans) < 3:
        return raw[::-1]
    field_span, other = sorted(chance.sample(spans, 2), key=lambda span: span.start)
    if field_span.end > other.start:
        return raw
    first, second = raw[field_span.start : field_span.end], raw[other.start : other.end]
    return raw[: field_span.start] + second + raw[field_span.end : other.start] + first + raw[other.end :]


def _length_of_field(chance: random.Random, raw: bytes, version: ProtocolVersion) -> bytes:
    """The length of a string becomes another, in its place."""
    at = []
    for span in trace(raw, version) if raw else ():
        for start in (span.start, span.start + 1):
            length = int.from_bytes(raw[start : start + 2], "big")
            if length and start + 2 + length == span.end:
                at.append((start, length))
    if not at:
        return _remaining(chance, raw, version)
    start, length = chance.choice(at)
    rest = len(raw) - start - 2
    number = chance.choice(
        (length - 1, length + 1, length + 2, length * 2, rest, rest + 1, rest - 1, length ^ 0x100, 0)
    )
    return raw[:start] + (max(0, number) % 65_536).to_bytes(2, "big") + raw[start + 2 :]


def _remaining(chance: random.Random, raw: bytes, version: ProtocolVersion) -> bytes:
    """A Remaining Length a little off, of another number of bytes, or not minimal."""
    body, end = packet_end(raw, 0, len(raw))
    if body <= 0:
        return raw[:1] + b"\x05" + raw[1:]
    length = end - body
    edge = chance.choice(_edges(raw, version)) - body
    shown_number = max(
        0, chance.choice((length - 1, length + 1, length - 2, length + 2, edge, edge + 1, 127, 128, 129, length + 128))
    )
    number = write_variable_byte_integer(shown_number)
    if chance.random() < 0.1:
        number = number[:-1] + bytes((number[-1] | 0x80,)) + b"\0" * chance.randint(1, 4)
    return raw[:1] + number + raw[body:]


def _block_length(chance: random.Random, raw: bytes, version: ProtocolVersion) -> bytes:
    """The length of the properties a little off."""
    spans = [span for span in trace(raw, version) if span.field.endswith("property_length")] if raw else []
    if not spans:
        return _length_of_field(chance, raw, version)
    span = chance.choice(spans)
    length = raw[span.start] & 0x7F
    number = max(0, length + chance.choice((-20, -3, -2, -1, 1, 2, 3, 20, 64)))
    return raw[: span.start] + write_variable_byte_integer(number) + raw[span.end :]


def _other_property(chance: random.Random, raw: bytes, version: ProtocolVersion) -> bytes:
    """The identifier of a property is that of another."""
    spans = [span for span in trace(raw, version) if "properties." in span.field] if raw else []
    if not spans:
        return _header(chance, raw, version)
    at = chance.choice(spans).start
    number = chance.choice((0x01, 0x03, 0x09, 0x0B, 0x11, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x23, 0x26, 0x7F, 0x80))
    return raw[:at] + bytes((number,)) + raw[at + 1 :]


def _header(chance: random.Random, raw: bytes, version: ProtocolVersion) -> bytes:
    """Another type, other flags."""
    kind = chance.choice((raw[0] >> 4, chance.randrange(16)))
    return bytes((kind << 4 | chance.randrange(16),)) + raw[1:]


def _connect_head(chance: random.Random, raw: bytes, version: ProtocolVersion) -> bytes:
    """Another protocol name or level, other connect flags: of a CONNECT; else another first byte of the body."""
    if raw[0] >> 4 != 1:
        return raw[:2] + bytes((chance.randrange(256),)) + raw[3:]
    name = raw.find(b"\x00\x06MQIsdp") if b"MQIsdp" in raw else raw.find(b"\x00\x04MQTT")
    if name < 0:
        return raw[1:]
    end = name + 2 + raw[name + 1]
    buffer = bytearray(raw)
    for _ in range(chance.randint(1, 2)):
        where = chance.choice((name + 1, chance.randrange(name + 2, end), end, end + 1, end + 1))
        if where < len(buffer):
            buffer[where] = chance.choice((buffer[where] ^ 1 << chance.randrange(8), chance.randrange(256), 3, 4, 5))
    if chance.random() < 0.2:
        buffer[name:end] = chance.choice(
            (b"\x00\x04MQTT", b"\x00\x06MQIsdp", b"\x00\x04mqtt", b"\x00\x00", b"\x00\x05MQTTX")
        )
    return bytes(buffer)


def _spliced_in(chance: random.Random, raw: bytes, version: ProtocolVersion) -> bytes:
    """A small whole packet in the middle."""
    at = chance.choice(_edges(raw, version))
    return raw[:at] + chance.choice((b"\xc0\x00", b"\xd0\x00", b"\x40\x02\x00\x01", b"\x30\x04\x00\x01ab")) + raw[at:]


def _zeroed(chance: random.Random, raw: bytes, version: ProtocolVersion) -> bytes:
    start = chance.choice(_edges(raw, version))
    size = chance.randint(1, 6)
    return raw[:start] + chance.choice((b"\0", b"\xff")) * len(raw[start : start + size]) + raw[start + size :]


CHANGES: tuple[Change, ...] = (
    _cut_at_edge, _without_field, _field_twice, _fields_swapped, _length_of_field, _length_of_field, _remaining,
    _remaining, _block_length, _other_property, _header, _connect_head, _connect_head, _spliced_in, _zeroed,
)  # fmt: skip


def _of_side(chance: random.Random, side: list[bytes], first: int) -> str:
    """A change to the packets of one side as a whole."""
    how = chance.choice(("joined", "lost", "repeated", "exchanged", "head lost"))
    at = chance.randrange(first, len(side))
    other = chance.randrange(first, len(side))
    if how == "joined":
        raw, two = side[at], side[other]
        side[at] = raw[: chance.randrange(len(raw) + 1)] + two[chance.randrange(len(two) + 1) :]
    elif how == "lost" and len(side) > first + 1:
        del side[at]
    elif how == "repeated":
        side.insert(other, side[at])
    elif how == "exchanged":
        side[at], side[other] = side[other], side[at]
    else:
        side[first] = side[first][chance.randrange(len(side[first]) + 1) :]
    return how


def splice(seed: int) -> Mutant:
    """The mutant of a number: the same forever."""
    chance = random.Random(f"splice {seed}")
    scenes = splice_scenes()
    scene = scenes[seed % len(scenes)]
    client, server = list(scene.client), list(scene.server)
    version = V5 if "5.0" in scene.name else V3_1_1
    first = 1 if scene.web else 0
    names = []
    for _ in range(chance.choice((1, 1, 2, 2, 3))):
        side = server if chance.random() < 0.3 else client
        where = "server" if side is server else "client"
        if chance.random() < 0.2:
            names.append(f"{_of_side(chance, side, first)} of {where}")
            continue
        holders = [at for at, raw in enumerate(side) if at >= first and any(secret in raw for secret in scene.secrets)]
        at = chance.choice(holders) if holders and chance.random() < 0.85 else chance.randrange(first, len(side))
        change = chance.choice(CHANGES)
        if side[at]:
            side[at] = change(chance, side[at], version)
        names.append(f"{change.__name__[1:]} of {where}'s packet {at}")
    mutant = Mutant("", scene, client, server)
    mutant.segments, how = _captured(chance, mutant)
    mutant.name = f"seed {seed}, {scene.name}: {'; '.join([*names, how])}"
    return mutant


def _captured(chance: random.Random, mutant: Mutant) -> tuple[list[Segment], str]:
    """What a tap saw of the conversation."""
    talk = Talk(port=8080 if mutant.scene.web else 1883)
    if chance.random() < 0.85:
        talk.handshake()
    up, down = list(mutant.client), list(mutant.server)
    if mutant.scene.web:
        up = up[:1] + [_frame(chance, raw, from_client=True) for raw in up[1:]]
        down = down[:1] + [_frame(chance, raw, from_client=False) for raw in down[1:]]
    size = chance.choice((0, 0, 5, 11, 40, 536))
    for at in range(max(len(up), len(down))):
        for who, side in (("client", up), ("server", down)):
            raw = side[at] if at < len(side) else b""
            for start in range(0, len(raw), size or max(1, len(raw))):
                (talk.client if who == "client" else talk.server)(raw[start : start + size] if size else raw)
    if chance.random() < 0.5:
        talk.close(chance.choice(("client", "server")))
    segments = talk.tape.segments
    carrying = [at for at, segment in enumerate(segments) if segment.payload]
    how = chance.choice(("whole", "whole", "lost", "cut", "repeated", "reordered"))
    if how == "whole" or not carrying:
        return segments, f"segments of {size}"
    at = chance.choice(carrying)
    segment = segments[at]
    if how == "lost":
        behind = min(len(segments), at + chance.choice((1, 1, 2, 3)))
        segments = segments[:at] + segments[behind:]
    elif how == "cut":
        number = chance.randrange(len(segment.payload))
        lacking = len(segment.payload) - number + segment.missing
        segments[at] = replace(segment, payload=segment.payload[:number], missing=lacking)
    elif how == "repeated":
        other = chance.randrange(at, len(segments))
        segments.insert(other, replace(segment, timestamp_ns=segments[other].timestamp_ns, frame=segments[other].frame))
    elif at + 1 < len(segments):
        segments[at], segments[at + 1] = segments[at + 1], segments[at]
    return segments, f"segments of {size}, {how} at {at}"
