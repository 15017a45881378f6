"""What the generated devices say: MQTT packets as bytes, made by an encoder that shares nothing with the package."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.mqtt.octets import block, framed, string, varint

PLACES = ("plant", "building", "vehicle", "field")
QUANTITIES = ("temperature", "humidity", "pressure", "state", "power/active", "vibration/rms", "gps", "log")
WORDS = ("valve", "door", "Sensor ", "retry-", "temp=", "Pumpe é", "0x", "state/", "err:", "node_")
PAYLOADS = 400
"""How many different payloads there are; topics, identifiers and order make the packets differ."""
PINGREQ, PINGRESP, DISCONNECT = b"\xc0\x00", b"\xd0\x00", b"\xe0\x00"


def payload(random: Random, number: int) -> bytes:
    """A payload as devices send it: a number, JSON, sometimes binary data."""
    value = random.uniform(-40, 90)
    kind = number % 8
    if kind < 2:
        return f"{value:.2f}".encode()
    if kind < 6:
        more = ",".join(f'"{name}":{random.randint(0, 9_999)}' for name in ("seq", "rssi", "up", "heap")[: kind - 1])
        return f'{{"ts":{1_767_225_600_000 + number * 977},"value":{value:.3f},"unit":"C",{more}}}'.encode()
    if kind == 6:
        return random.randbytes(random.randint(12, 260))
    rows = ",".join(f"[{step},{random.randint(0, 4_095)}]" for step in range(random.randint(10, 45)))
    return f'{{"samples":[{rows}]}}'.encode()


def log_line(random: Random, number: int) -> bytes:
    """A payload that does not recur: text with words and digits in a new order."""
    words = " ".join(random.choice(WORDS) + f"{random.getrandbits(20):x}" for _ in range(random.randint(2, 12)))
    return f'{{"n":{number},"log":"{words}","level":{random.randint(0, 7)}}}'.encode()


def payloads(random: Random) -> list[bytes]:
    """The payloads of traffic in which they recur."""
    return [payload(random, number) for number in range(PAYLOADS)]


def large_payloads(random: Random) -> list[bytes]:
    """Payloads of several segments: images, firmware pieces, logs."""
    return [random.randbytes(random.randint(2_000, 14_000)) for _ in range(12)]


@dataclass(slots=True)
class Device:
    """One client, over all its connections."""

    client_identifier: str
    level: int
    """Protocol level: 3, 4 or 5."""
    topics: list[bytes]
    command: bytes
    user_properties: bytes = b""
    identifiers: list[int] = field(default_factory=lambda: [0, 0])
    """The last Packet Identifier of both sides."""
    aliases: set[int] = field(default_factory=set)
    """Topics whose alias was set on this connection."""

    def identifier(self, side: int) -> bytes:
        """The next Packet Identifier of a side."""
        number = self.identifiers[side] = self.identifiers[side] % 65_535 + 1
        return number.to_bytes(2, "big")

    def connect(self, *, clean: bool) -> bytes:
        """A CONNECT with will; 5.0 with properties."""
        self.aliases.clear()
        name = "MQIsdp" if self.level == 3 else "MQTT"
        flags = 0x04 | 0x80 | (2 if clean else 0)
        five = self.level == 5
        return framed(
            0x10,
            string(name) + bytes((self.level, flags, 0, 60)),
            block(b"\x11\0\0\x0e\x10", b"\x21\0\x14", b"\x22\0\x0a") if five else b"",
            string(self.client_identifier),
            block(b"\x18\0\0\0\x1e") if five else b"",
            string(f"status/{self.client_identifier}") + string("offline") + string("device"),
        )

    def connack(self, *, present: bool) -> bytes:
        """A CONNACK that accepts."""
        if self.level == 5:
            return framed(0x20, bytes((present, 0)), block(b"\x21\0\x14", b"\x22\0\x0a", b"\x25\x01"))
        return framed(0x20, bytes((present and self.level == 4, 0)))

    def subscribe(self) -> tuple[bytes, bytes]:
        """A SUBSCRIBE to two filters, and its SUBACK."""
        identifier = self.identifier(0)
        nothing = b"\0" if self.level == 5 else b""
        # All subscriptions of 5.0 have the identifier that deliveries carry.
        numbered = b"\x02\x0b\x01" if self.level == 5 else b""
        rows = string(self.command) + b"\x01" + string("broadcast/#") + b"\0"
        return framed(0x82, identifier + numbered + rows), framed(0x90, identifier + nothing + b"\x01\0")

    def unsubscribe(self) -> tuple[bytes, bytes]:
        """An UNSUBSCRIBE from one filter, and its UNSUBACK."""
        identifier = self.identifier(0)
        nothing = b"\0" if self.level == 5 else b""
        answer = identifier + (b"\0\0" if self.level == 5 else b"")
        return framed(0xA2, identifier + nothing + string("broadcast/#")), framed(0xB0, answer)

    def publish(self, qos: int, identifier: bytes, payload: bytes, draw: float) -> bytes:
        """A PUBLISH of the device; in 5.0 ``draw`` chooses its properties."""
        number = int(draw * 64) % len(self.topics)
        topic = self.topics[number]
        declared = b""
        if self.level == 5:
            declared = b"\0"
            if draw < 0.4:
                declared = b"\x03\x23\0" + bytes((number + 1,))
                if number in self.aliases:
                    topic = b"\0\0"
                self.aliases.add(number)
            elif draw < 0.7:
                declared = self.user_properties
        return _publish(qos, topic, identifier, declared, payload)

    def publish_to(self, topic: str, payload: bytes) -> bytes:
        """A PUBLISH of the device to any topic."""
        return _publish(0, string(topic), b"", b"\0" if self.level == 5 else b"", payload)

    def delivery(self, qos: int, identifier: bytes, payload: bytes) -> bytes:
        """A PUBLISH of the server to the device."""
        declared = b"" if self.level < 5 else b"\x02\x0b\x01"
        return _publish(qos, string(self.command), identifier, declared, payload)


def _publish(qos: int, topic: bytes, identifier: bytes, declared: bytes, payload: bytes) -> bytes:
    if not qos:
        identifier = b""
    length = len(topic) + len(identifier) + len(declared) + len(payload)
    return b"".join((bytes((0x30 | qos << 1,)), varint(length), topic, identifier, declared, payload))


def device(number: int, random: Random) -> Device:
    """A device of the site: mostly 3.1.1 and 5.0, few 3.1."""
    draw = random.random()
    level = 3 if draw < 0.05 else 4 if draw < 0.55 else 5
    place = PLACES[number % len(PLACES)]
    base = f"{place}/{number // 50:02d}/dev-{number:05d}"
    topics = [string(f"{base}/{QUANTITIES[random.randrange(len(QUANTITIES))]}") for _ in range(random.randint(1, 4))]
    declared = block(
        b"\x03" + string("application/json"),
        b"\x02\0\0\x02\x58",
        b"\x26" + string("trace") + string(f"{number:08x}{random.getrandbits(32):08x}"),
        b"\x26" + string("site") + string(place),
    )
    return Device(f"dev-{number:05d}-{level}", level, topics, f"{base}/command".encode(), declared)
