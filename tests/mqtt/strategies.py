"""Generated packets of every class and version, and bytes that are almost packets.

Packets are generated from the declarations: a field that a version does not have stays absent, a field that depends
on another is there exactly when it must be.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from mqttscope.mqtt import (
    Auth,
    Connack,
    Connect,
    ControlPacket,
    PacketType,
    Properties,
    ProtocolVersion,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
    encode,
)
from mqttscope.mqtt.constants import allowed_reason_codes
from mqttscope.mqtt.declare import PACKETS
from mqttscope.mqtt.properties import PROPERTIES, WILL
from tests.mqtt.case import V3_1, V3_1_1, V5
from tests.mqtt.cases import SHORT

VERSIONS = st.sampled_from(ProtocolVersion)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
DATA = st.binary(max_size=12)
U16 = st.integers(0, 0xFFFF)
QOS = st.integers(0, 2)

BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "Byte": st.integers(0, 255),
    "Two Byte Integer": U16,
    "Four Byte Integer": st.integers(0, 0xFFFFFFFF),
    "Variable Byte Integer": st.integers(0, 268_435_455),
    "UTF-8 Encoded String": TEXT,
    "Binary Data": DATA,
    "UTF-8 String Pair": st.tuples(TEXT, TEXT),
}


def blocks(owner: int) -> st.SearchStrategy[Properties]:
    """Any property block that this packet may carry: any order, any repetition."""
    rows = [row for row in PROPERTIES if owner in row.packets]
    strategy = st.one_of([st.tuples(st.just(row.identifier), BY_TYPE[row.wire.name]) for row in rows])
    return st.lists(strategy, max_size=5).map(Properties.of)


def codes(kind: PacketType, version: ProtocolVersion) -> st.SearchStrategy[int]:
    return st.sampled_from(sorted(allowed_reason_codes(kind, version)))


@st.composite
def _connect(draw: st.DrawFn, version: ProtocolVersion) -> Connect:
    name, levels = {3: ("MQIsdp", [3, 0x83]), 4: ("MQTT", [4, 0x84]), 5: ("MQTT", [5])}[version]
    will = None
    if draw(st.booleans()):
        block = draw(blocks(WILL)) if version == V5 else None
        will = Will(draw(TEXT), draw(DATA), draw(QOS), draw(st.booleans()), block)
    return Connect(
        protocol_name=name,
        protocol_level=draw(st.sampled_from(levels)),
        clean_start=draw(st.booleans()),
        keep_alive=draw(U16),
        properties=draw(blocks(PacketType.CONNECT)) if version == V5 else None,
        client_identifier=draw(TEXT),
        will=will,
        user_name=draw(st.none() | TEXT),
        password=draw(st.none() | DATA),
    )


@st.composite
def packets(draw: st.DrawFn, version: ProtocolVersion) -> ControlPacket:
    """Any well-formed packet of this version."""
    kind = draw(st.sampled_from([each for each in PacketType if each != PacketType.AUTH or version == V5]))
    block = draw(blocks(kind)) if version == V5 and kind not in (PacketType.PINGREQ, PacketType.PINGRESP) else None
    identifier = draw(U16)
    if kind == PacketType.CONNECT:
        return draw(_connect(version))
    if kind == PacketType.CONNACK:
        present = None if version == V3_1 else draw(st.booleans())
        return Connack(session_present=present, reason_code=draw(codes(kind, version)), properties=block)
    if kind == PacketType.PUBLISH:
        qos = draw(QOS)
        flags = draw(st.booleans()), qos, draw(st.booleans())
        return Publish(*flags, draw(TEXT), identifier if qos else None, block, draw(DATA))
    if kind == PacketType.SUBSCRIBE:
        options = st.booleans() if version == V5 else st.just(False)
        handling = st.integers(0, 3) if version == V5 else st.just(0)
        row = st.builds(Subscription, TEXT, QOS, options, options, handling)
        return Subscribe(identifier, block, draw(st.lists(row, max_size=4)))
    if kind == PacketType.UNSUBSCRIBE:
        return Unsubscribe(identifier, block, draw(st.lists(TEXT, max_size=4)))
    if kind == PacketType.SUBACK:
        return Suback(identifier, block, draw(st.lists(codes(kind, version), max_size=4)))
    if kind == PacketType.UNSUBACK:
        some = draw(st.lists(codes(kind, version), max_size=4)) if version == V5 else None
        return Unsuback(identifier, block, some)
    fields: dict[str, Any] = {}
    if hasattr(PACKETS[kind], "packet_identifier"):
        fields["packet_identifier"] = identifier
    if version == V5 and kind not in (PacketType.PINGREQ, PacketType.PINGRESP):
        fields["reason_code"] = draw(st.none() | codes(kind, version))
        # Properties can follow only a reason code that is there.
        fields["properties"] = block if fields["reason_code"] is not None and draw(st.booleans()) else None
    packet: ControlPacket = PACKETS[kind](**fields)
    assert not isinstance(packet, Auth) or version == V5
    return packet


@st.composite
def mutated(draw: st.DrawFn, version: ProtocolVersion) -> bytes:
    """The bytes of a well-formed packet with one or two small damages."""
    raw = bytearray(encode(draw(packets(version)), version))
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, max(0, len(raw) - 1)))
        how = draw(st.sampled_from(["flip", "insert", "drop", "length"]))
        if how == "insert" or not raw:
            raw.insert(at, draw(st.integers(0, 255)))
        elif how == "flip":
            raw[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "drop":
            del raw[at]
        elif len(raw) > 1:
            raw[1] = raw[1] + draw(st.sampled_from([-2, -1, 1, 2])) & 0xFF
    return bytes(raw)


def almost(version: ProtocolVersion) -> st.SearchStrategy[bytes]:
    """Bytes of all kinds: well-formed packets, rows of the table, damaged packets, noise."""
    return st.one_of(
        packets(version).map(lambda packet: encode(packet, version)),
        st.sampled_from([row.raw for row in SHORT]),
        mutated(version),
        st.binary(max_size=20),
        st.lists(st.sampled_from([0x00, 0x30, 0x40, 0x61, 0x82, 0xC0, 0xFF, 0x02, 0x01]), max_size=12).map(bytes),
    )


@st.composite
def streams(draw: st.DrawFn) -> tuple[ProtocolVersion, bytes]:
    """A version and the bytes of a stream in it, damaged here and there."""
    version = draw(st.sampled_from([V3_1, V3_1_1, V5]))
    return version, b"".join(draw(st.lists(almost(version), max_size=7)))


@st.composite
def chunked(draw: st.DrawFn, raw: bytes) -> list[bytes]:
    """The same bytes in pieces."""
    cuts = sorted(draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    return [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
