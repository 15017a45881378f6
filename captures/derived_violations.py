"""Captures of devices that break the specification, for the linter."""

from __future__ import annotations

import mqttbytes as mb
from derived import Made, derivation
from derived_examples import Dialogue

LIMITS = mb.properties(b"\x21\x00\x02", b"\x22\x00\x02", b"\x24\x01", b"\x25\x00")
"""Receive Maximum 2, Topic Alias Maximum 2, Maximum QoS 1, Retain Available 0."""


def _publish(*declared: bytes, topic: str = "plant/7/temp", first: int = 0x30, identifier: bytes = b"") -> bytes:
    return mb.packet(first, mb.string(topic), identifier, mb.properties(*declared), b"21.5")


PLANTED: list[tuple[int, str, bytes, bool]] = [
    (0, "QoS 3", _publish(first=0x36, identifier=b"\x00\x63"), False),
    (0, "wildcard in the topic name", _publish(topic="plant/+/temp"), True),
    (0, "U+0000 in the topic name", _publish(topic="plant\0"), False),
    (0, "topic name is not UTF-8", mb.packet(0x30, mb.string(b"a/\xff"), b"\x00", b"x"), False),
    (0, "Topic Alias 0", _publish(b"\x23\x00\x00"), True),
    (0, "Topic Alias above the maximum", _publish(b"\x23\x00\x03"), True),
    (0, "", mb.publish("a", b"1", qos=1, identifier=1, declared=b"\x00"), True),
    (0, "", mb.publish("a", b"2", qos=1, identifier=2, declared=b"\x00"), True),
    (0, "more in flight than Receive Maximum", mb.publish("a", b"3", qos=1, identifier=3, declared=b"\x00"), True),
    (1, "", mb.ack(0x40, 1), True),
    (1, "", mb.ack(0x40, 2), True),
    (1, "", mb.ack(0x40, 3), True),
    (0, "packet identifier 0", mb.publish("a", b"0", qos=1, identifier=0, declared=b"\x00"), True),
    (0, "QoS above the maximum", mb.publish("a", b"q", qos=2, identifier=9, declared=b"\x00"), True),
    (0, "DUP with QoS 0", _publish(first=0x38), True),
    (0, "SUBSCRIBE with flags 0", mb.packet(0x80, b"\x00\x0a", b"\x00", mb.string("a"), b"\x00"), False),
    (0, "# in the middle of a filter", mb.subscribe(11, ("a/#/b", 0), declared=b"\x00"), True),
    (0, "SUBSCRIBE without a filter", mb.packet(0x82, b"\x00\x0c", b"\x00"), True),
    (0, "PUBACK of an unknown identifier", mb.ack(0x40, 77), True),
    (0, "packet type 0", mb.packet(0x00), False),
    (0, "PINGREQ with flags", mb.packet(0xC1), False),
    (0, "", mb.packet(0xC0), True),
    (1, "PINGRESP with a body", mb.packet(0xD0, b"\x00"), False),
    (0, "a property twice", _publish(b"\x03\0\x01x", b"\x03\0\x01y"), True),
    (0, "a property of another packet", _publish(b"\x21\x00\x0a"), False),
    (0, "an unknown property", _publish(b"\x7e\x00"), False),
    (0, "Payload Format Indicator 9", _publish(b"\x01\x09"), True),
    (0, "RETAIN where it is not available", _publish(first=0x31), True),
    (0, "Remaining Length longer than needed", b"\x30\x88\x00" + _publish(topic="a")[2:], False),
    (0, "second CONNECT", mb.connect("faulty", "5.0"), True),
]
"""Who sends it, what is wrong with it (empty for what is right), the bytes, whether they are well formed."""


@derivation(
    "planted-violations",
    "24 violations of MQTT 5.0 in one session",
    "Bad QoS bits, topics, aliases, Receive Maximum, identifiers, flags, filters, properties, and a second CONNECT.",
    explain={0: "protocol_violation"},
)
def planted_violations() -> Made:
    """One violation after the other."""
    dialogue = Dialogue()
    talk = dialogue.open(mb.connect("faulty", "5.0"), mb.connack("5.0", declared=LIMITS))
    for side, _, raw, well_formed in PLANTED:
        (talk.server if side else talk.client)(raw)
        if well_formed:
            dialogue.good.append(raw)
    talk.close(1)
    malformed = {side for side, _, _, well_formed in PLANTED if not well_formed}
    return dialogue.made(["5.0"], malformed=len(malformed))


@derivation(
    "failing-device",
    "A thermostat that breaks the protocol three times",
    "Three messages in flight where the broker takes two, a Topic Alias above the maximum, a wildcard in a topic name.",
)
def failing_device() -> Made:
    """The device that the page about continuous integration lints."""
    limits = mb.properties(b"\x21\x00\x02", b"\x22\x00\x02")
    dialogue = Dialogue()
    talk = dialogue.open(
        mb.connect("thermostat-7", "5.0"),
        mb.connack("5.0", declared=limits),
        mb.subscribe(1, ("thermostat/7/set", 1), declared=b"\x00"),
        mb.ack(0x90, 1, b"\x00\x01"),
    )
    rooms = [
        mb.publish(f"thermostat/7/{room}", b"21.5", qos=1, identifier=number, declared=b"\x00")
        for number, room in enumerate(("hall", "kitchen", "attic"), 2)
    ]
    answers = [mb.ack(0x40, number) for number in (2, 3, 4)]
    aliased = _publish(b"\x23\x00\x05", topic="thermostat/7/hall")
    wild = _publish(topic="thermostat/+/state")
    for raw in rooms:
        talk.client(raw)
    for raw in answers:
        talk.server(raw)
    for raw in (aliased, wild, mb.DISCONNECT):
        talk.client(raw)
    talk.close()
    dialogue.good += [*rooms, *answers, aliased, wild, mb.DISCONNECT]
    return dialogue.made(["5.0"])
