"""The table of packets that drives the tests of decoder, encoder, spans and streams.

The rows written by hand are in the ``table_*`` modules; here they are joined with those that follow from the tables of
the specification: one row for each property in each packet that may carry it, for each reason code, and for each
border of the Remaining Length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mqttscope.mqtt import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    PacketType,
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
    Unsuback,
    Unsubscribe,
    Will,
)
from mqttscope.mqtt.constants import allowed_reason_codes
from mqttscope.mqtt.properties import PROPERTIES, WILL
from tests.mqtt import table_good, table_malformed
from tests.mqtt.case import V3_1_1, V5, Case
from tests.mqtt.octets import block, framed, string

SAMPLES: dict[int, tuple[Any, bytes]] = {
    0x01: (1, b"\x01"),
    0x02: (0, b"\0\0\0\0"),
    0x03: ("a/b", string("a/b")),
    0x08: ("", string("")),
    0x09: (b"\0\xff", b"\0\x02\0\xff"),
    0x0B: (16384, b"\x80\x80\x01"),
    0x11: (0xFFFFFFFF, b"\xff\xff\xff\xff"),
    0x12: ("ä", string("ä")),
    0x13: (258, b"\x01\x02"),
    0x15: ("PLAIN", string("PLAIN")),
    0x16: (b"", b"\0\0"),
    0x17: (0, b"\0"),
    0x18: (1, b"\0\0\0\x01"),
    0x19: (1, b"\x01"),
    0x1A: ("x", string("x")),
    0x1C: ("h:1", string("h:1")),
    0x1F: ("no", string("no")),
    0x21: (65535, b"\xff\xff"),
    0x22: (0, b"\0\0"),
    0x23: (1, b"\0\x01"),
    0x24: (0, b"\0"),
    0x25: (1, b"\x01"),
    0x26: (("k", ""), string("k") + string("")),
    0x27: (65536, b"\0\x01\0\0"),
    0x28: (1, b"\x01"),
    0x29: (0, b"\0"),
    0x2A: (2, b"\x02"),
}
"""A value of each property with its bytes, written down without the encoder under test."""

IDENTIFIER = b"\x12\x34"


def carrier(owner: int, new_properties: Properties, written: bytes) -> tuple[Any, bytes]:
    """A packet of a type (or a CONNECT with a will) with this property block, and its bytes."""
    connect = string("MQTT") + b"\x05"
    plain: dict[int, tuple[Any, bytes]] = {
        PacketType.CONNECT: (
            Connect(protocol_level=5, properties=new_properties),
            framed(0x10, connect, b"\x02\0\0", written, string("")),
        ),
        WILL: (
            Connect(protocol_level=5, properties=Properties(), will=Will("w", b"x", 0, False, new_properties)),
            framed(0x10, connect, b"\x06\0\0\0", string(""), written, string("w"), string("x")),
        ),
        PacketType.CONNACK: (Connack(None, False, 0, new_properties), framed(0x20, b"\0\0", written)),
        PacketType.PUBLISH: (
            Publish(False, 1, False, "t", 0x1234, new_properties, b"p"),
            framed(0x32, string("t"), IDENTIFIER, written, b"p"),
        ),
        PacketType.PUBACK: (Puback(0x1234, 0, new_properties), framed(0x40, IDENTIFIER, b"\0", written)),
        PacketType.PUBREC: (Pubrec(0x1234, 0, new_properties), framed(0x50, IDENTIFIER, b"\0", written)),
        PacketType.PUBREL: (Pubrel(0x1234, 0, new_properties), framed(0x62, IDENTIFIER, b"\0", written)),
        PacketType.PUBCOMP: (Pubcomp(0x1234, 0, new_properties), framed(0x70, IDENTIFIER, b"\0", written)),
        PacketType.SUBSCRIBE: (
            Subscribe(0x1234, new_properties, [Subscription("f", 1)]),
            framed(0x82, IDENTIFIER, written, string("f"), b"\x01"),
        ),
        PacketType.SUBACK: (Suback(0x1234, new_properties, [1]), framed(0x90, IDENTIFIER, written, b"\x01")),
        PacketType.UNSUBSCRIBE: (
            Unsubscribe(0x1234, new_properties, ["f"]),
            framed(0xA2, IDENTIFIER, written, string("f")),
        ),
        PacketType.UNSUBACK: (Unsuback(0x1234, new_properties, [0]), framed(0xB0, IDENTIFIER, written, b"\0")),
        PacketType.DISCONNECT: (Disconnect(0, new_properties), framed(0xE0, b"\0", written)),
        PacketType.AUTH: (Auth(0, new_properties), framed(0xF0, b"\0", written)),
    }
    return plain[owner]


CARRIERS = (WILL, *(each for each in PacketType if each not in (PacketType.PINGREQ, PacketType.PINGRESP)))


def carrier_name(owner: int) -> str:
    return "CONNECT with a will" if owner == WILL else PacketType(owner).name


def _property_rows() -> Iterator[Case]:
    for row in PROPERTIES:
        value, written = SAMPLES[row.identifier]
        for owner in row.packets:
            packet, raw = carrier(
                owner, Properties.of([(row.identifier, value)]), block(bytes([row.identifier]) + written)
            )
            yield Case(f"5.0: {carrier_name(owner)} carries {row.name}", V5, raw, packet)


def _reason_rows() -> Iterator[Case]:
    acks: dict[int, type[Any]] = {4: Puback, 5: Pubrec, 6: Pubrel, 7: Pubcomp}
    for version in ProtocolVersion:
        five = version == V5
        for kind in PacketType:
            for code in sorted(allowed_reason_codes(kind, version)):
                octet = bytes([code])
                if kind == PacketType.CONNACK:
                    present = None if version == 3 else False
                    result: Any = Connack(None, present, code, Properties() if five else None)
                    raw = framed(0x20, b"\0", octet, b"\0" if five else b"")
                elif kind in acks:
                    result = acks[kind](7, code)
                    raw = framed(kind << 4 | (2 if kind == PacketType.PUBREL else 0), b"\0\x07", octet)
                elif kind == PacketType.SUBACK:
                    result = Suback(7, Properties() if five else None, [code])
                    raw = framed(0x90, b"\0\x07", b"\0" if five else b"", octet)
                elif kind == PacketType.UNSUBACK:
                    result, raw = Unsuback(7, Properties(), [code]), framed(0xB0, b"\0\x07\0", octet)
                else:
                    result = Disconnect(code) if kind == PacketType.DISCONNECT else Auth(code)
                    raw = framed(kind << 4, octet)
                yield Case(f"{version.text}: {kind.name} with code 0x{code:02x}", version, raw, result)


BORDERS = (127, 128, 16_383, 16_384, 2_097_151, 2_097_152)


def _border_rows() -> Iterator[Case]:
    for length in BORDERS:
        payload = b"\0\xc0" * ((length - 3) // 2) + b"\0" * ((length - 3) % 2)
        raw = framed(0x30, string("t"), payload)
        sentence = f"3.1.1: PUBLISH with a Remaining Length of {length}"
        yield Case(sentence, V3_1_1, raw, Publish(topic_name="t", payload=payload))


HAND_WRITTEN = table_good.ROWS
GENERATED = [*_property_rows(), *_reason_rows()]
LONG = list(_border_rows())
GOOD = [*HAND_WRITTEN, *GENERATED, *LONG]
MALFORMED = table_malformed.ROWS
CASES = [*GOOD, *MALFORMED]
SHORT = [*HAND_WRITTEN, *MALFORMED]
"""Rows small and few enough to be cut at every index."""


def ids(rows: list[Case]) -> list[str]:
    """Sentences for pytest."""
    return [row.id for row in rows]
