"""Inputs at the limits of the package mqtt."""

from __future__ import annotations

from mqttscope.mqtt import Malformed, PacketType, Properties, ProtocolVersion, Publish, codec, decode
from mqttscope.mqtt.properties import reader, write_properties
from mqttscope.mqtt.repair import misreading
from mqttscope.mqtt.resync import find_packets
from mqttscope.mqtt.stream import PacketStream, Unparsed
from mqttscope.mqtt.topics import topic_name_problem
from mqttscope.mqtt.view import binary
from tests.limits.lint import greeting as greeting
from tests.mqtt.octets import framed, string, varint

__all__ = ["binary", "find_packets", "topic_name_problem", "varint"]
V3_1_1, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5
PINGREQS = b"\xc0\0" * 2


def is_first_name_kept(*names: str) -> bool:
    """Whether the first of several topic names, when it comes again, is the object that it was."""
    codec._NAMES.clear()
    packets = [decode(framed(0x30, string(name)), V3_1_1) for name in (*names, names[0])]
    first, *_, last = (packet.topic_name for packet in packets if isinstance(packet, Publish))
    return first is last


def is_first_block_kept(*values: str) -> bool:
    """Whether the first of several property blocks, when it comes again, is the object that it was."""
    read = reader(PacketType.PUBLISH)
    blocks = [write_properties(Properties.of([(38, ("a", value))])) for value in (*values, values[0])]
    first, *_, last = (read(block, 0, len(block))[0] for block in blocks)
    return first is last


def named(protocol: str) -> str:
    """What is wrong with a CONNECT of a protocol."""
    malformed = decode(framed(0x10, string(protocol), b"\x04\x02\0\x3c", string("")), V3_1_1)
    assert isinstance(malformed, Malformed)
    return malformed.detail


def faults(data: bytes) -> list[str]:
    """What is wrong with the beginning of a stream."""
    return [item.reason for item in PacketStream(V5).feed(data) if isinstance(item, Malformed)]


def left_out_after_a_fault(count: int) -> int:
    """How many of so many bytes after a malformed packet are not kept with it."""
    data = b"\0\0" + (b"\xc0\0" * count)[:count]
    first, *_ = PacketStream(V3_1_1).feed(data)
    assert isinstance(first, Malformed)
    return count - len(first.after)


def kept_before_a_fault(length: int) -> int:
    """How many bytes are kept of a PUBLISH of that many before a malformed packet."""
    stream = PacketStream(V3_1_1)
    stream.version_source = "given"
    _, bad = stream.feed(framed(0x30, string("a"), bytes(length - 3 - len(varint(length - 3)) - 1)) + b"\0\0")
    assert isinstance(bad, Malformed)
    return len(bad.before)


def is_length_found(left_out: int) -> bool:
    """Whether a length is found that leaves so many bytes out."""
    return misreading(left_out * b"\xff" + framed(0x30, string("b")), framed(0x30, string("a")), V3_1_1) is not None


def loses_framing(reserved: int) -> bool:
    """Whether packets are searched for after as many of a reserved type."""
    stream = PacketStream(V3_1_1)
    stream.feed(b"\0\0" * reserved)
    return stream.searching


def passed_over(count: int) -> list[tuple[int, int]]:
    """What is said of so many bytes without a packet: their number, and how many of them are kept."""
    stream = PacketStream(V5)
    stream.lose_framing()
    stream.feed(b"\xff" * count)
    return sizes(stream)


def too_large(size: int) -> list[tuple[int, int]]:
    """What is said of a packet above the limit that the user has given: its length, and how much of it is kept."""
    stream = PacketStream(V3_1_1, max_packet_bytes=50)
    return sizes(stream, framed(0x30, string("a"), bytes(size - 5)))


def sizes(stream: PacketStream, data: bytes = b"") -> list[tuple[int, int]]:
    """Length and number of kept bytes of what is not parsed."""
    items = [*stream.feed(data), *stream.close()]
    return [(item.length, len(item.raw)) for item in items if isinstance(item, Unparsed)]
