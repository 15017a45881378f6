"""MQTT Control Packets as plain bytes, for the recording and deriving scripts.

Kept apart from the package on purpose: the captures test its decoder, so they must not be made or counted by it.
Nothing here checks what it is given; broken bytes are part of the job.
"""

from __future__ import annotations

from collections import Counter

# fmt: off
TYPES = [
    "reserved", "connect", "connack", "publish", "puback", "pubrec", "pubrel", "pubcomp",
    "subscribe", "suback", "unsubscribe", "unsuback", "pingreq", "pingresp", "disconnect", "auth",
]
# fmt: on

PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"
DISCONNECT = b"\xe0\x00"

_NAMES = {"3.1": (b"MQIsdp", 3), "3.1.1": (b"MQTT", 4), "5.0": (b"MQTT", 5)}


def varint(value: int) -> bytes:
    """A Variable Byte Integer (5.0 section 1.5.5) in its shortest form."""
    out = bytearray()
    while True:
        value, low = divmod(value, 128)
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def string(value: str | bytes) -> bytes:
    """A UTF-8 Encoded String or Binary Data: two bytes of length and the value."""
    data = value.encode() if isinstance(value, str) else value
    return len(data).to_bytes(2, "big") + data


def properties(*encoded: bytes) -> bytes:
    """Property Length and the properties, each given as identifier and value."""
    body = b"".join(encoded)
    return varint(len(body)) + body


def packet(first: int, *fields: bytes) -> bytes:
    """A packet: first byte, the right Remaining Length, the fields."""
    body = b"".join(fields)
    return bytes([first]) + varint(len(body)) + body


def connect(
    client_identifier: str,
    version: str = "3.1.1",
    *,
    clean: bool = True,
    keep_alive: int = 60,
    declared: bytes = b"\x00",
    level: int | None = None,
    will: bytes = b"",
    will_flags: int = 0,
    user: tuple[str, str] | None = None,
) -> bytes:
    """A CONNECT; `declared` are the 5.0 properties with their length, `will` the fields of one (see `will`)."""
    name, usual_level = _NAMES[version]
    flags = (2 if clean else 0) | (4 | will_flags if will else 0) | (0xC0 if user else 0)
    return packet(
        0x10,
        string(name),
        bytes([usual_level if level is None else level, flags]),
        keep_alive.to_bytes(2, "big"),
        declared if version == "5.0" else b"",
        string(client_identifier),
        will,
        *map(string, user or ()),
    )


def will(topic: str, payload: bytes, declared: bytes = b"") -> bytes:
    """The fields of a will; `declared` are its 5.0 properties with their length."""
    return declared + string(topic) + string(payload)


def connack(version: str = "3.1.1", *, code: int = 0, present: bool = False, declared: bytes = b"\x00") -> bytes:
    """A CONNACK; `declared` are the 5.0 properties with their length."""
    return packet(0x20, bytes([present, code]), declared if version == "5.0" else b"")


def publish(
    topic: str,
    payload: bytes = b"",
    *,
    qos: int = 0,
    identifier: int = 0,
    declared: bytes = b"",
    dup: bool = False,
    retain: bool = False,
) -> bytes:
    """A PUBLISH; `declared` are the 5.0 properties with their length, empty for 3.1 and 3.1.1."""
    return packet(
        0x30 | dup << 3 | qos << 1 | retain,
        string(topic),
        identifier.to_bytes(2, "big") if qos else b"",
        declared,
        payload,
    )


def ack(first: int, identifier: int, rest: bytes = b"") -> bytes:
    """PUBACK (0x40), PUBREC (0x50), PUBREL (0x62), PUBCOMP (0x70), SUBACK (0x90), UNSUBACK (0xb0)."""
    return packet(first, identifier.to_bytes(2, "big"), rest)


def subscribe(identifier: int, *filters: tuple[str, int], declared: bytes = b"") -> bytes:
    """A SUBSCRIBE of topic filters with their options byte."""
    return packet(0x82, identifier.to_bytes(2, "big"), declared, *(string(f) + bytes([o]) for f, o in filters))


def body(one: bytes) -> bytes:
    """What comes after the Remaining Length of a packet."""
    at = 1
    while one[at] & 0x80:
        at += 1
    return one[at + 1 :]


def client_identifier(connect: bytes) -> str:
    """The Client Identifier of a CONNECT."""
    fields = body(connect)
    at = 2 + int.from_bytes(fields[:2], "big")
    level, at = fields[at], at + 4
    if level == 5:
        # These scripts declare fewer than 128 bytes of properties.
        at += 1 + fields[at]
    size = int.from_bytes(fields[at : at + 2], "big")
    return fields[at + 2 : at + 2 + size].decode()


def packet_identifier(one: bytes) -> int:
    """The packet identifier of a PUBLISH with QoS, or of any packet that begins with it."""
    fields = body(one)
    at = 2 + int.from_bytes(fields[:2], "big") if one[0] >> 4 == 3 else 0
    return int.from_bytes(fields[at : at + 2], "big")


def split(stream: bytes) -> list[bytes]:
    """The packets of a stream of whole packets; a tail that is none yet is left out."""
    packets = []
    at = 0
    while at < len(stream):
        length = shift = 0
        end = at + 1
        while end < len(stream):
            length |= (stream[end] & 0x7F) << shift
            shift += 7
            end += 1
            if not stream[end - 1] & 0x80:
                break
        else:
            break
        if end + length > len(stream):
            break
        packets.append(stream[at : end + length])
        at = end + length
    return packets


def count(*streams: bytes) -> Counter[str]:
    """How many packets of each type the streams hold."""
    return Counter(TYPES[packet[0] >> 4] for stream in streams for packet in split(stream))
