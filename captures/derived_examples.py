"""Synthesised captures: the printed examples right and wrong, and packets that no program at hand sends."""

from __future__ import annotations

from collections.abc import Sequence

import mqttbytes as mb
from derived import Made, derivation, ordered
from pcapng import Frame
from wrap import Clock, Conversation

REFUSED_MALFORMED = bytes.fromhex("e00181")
TOPIC_ALIAS_MAXIMUM = b"\x22"


class Dialogue:
    """Frames of synthesised connections, counting the good packets that are put in."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.clock = Clock()
        self.good: list[bytes] = []
        self.connections = 0

    def open(self, *exchange: bytes, numbers: Sequence[int] = (1000, 5000)) -> Conversation:
        """A new connection; `exchange` is what client and server say in turn, from these sequence numbers on."""
        talk = Conversation(self.frames, self.clock, client_port=50000 + self.connections, next_number=list(numbers))
        self.connections += 1
        talk.open()
        for turn, said in enumerate(exchange):
            (talk.server if turn % 2 else talk.client)(said)
            self.good.append(said)
        return talk

    def made(self, versions: list[str], malformed: int = 0, topics: list[str] | None = None) -> Made:
        """The capture; the counts are of the packets that were declared good."""
        packets = ordered(mb.count(*self.good))
        return Made(self.frames, versions, packets, self.connections, malformed=malformed, topics=topics)


def _hex(text: str) -> bytes:
    """Bytes from hex with a comment behind `#` on each line."""
    return bytes.fromhex("".join(line.split("#")[0] for line in text.splitlines()))


RAW_V31 = [
    _hex("""
        10 23                       # CONNECT, 35 bytes follow
        00 06 4d 51 49 73 64 70 03  # MQIsdp, 3
        c6 00 3c                    # user name, password, will at QoS 0, clean session; keep alive 60
        00 03 64 65 76              # dev
        00 03 77 2f 64              # w/d
        00 04 67 6f 6e 65           # gone
        00 03 61 64 61              # ada
        00 00                       # empty password
    """),
    _hex("20 02 00 00               # CONNACK: reserved byte 0, accepted"),
    _hex("""
        82 08 00 01                 # SUBSCRIBE 1
        00 03 61 2f 23 02           # a/# at QoS 2
    """),
    _hex("90 03 00 01 02            # SUBACK 1: QoS 2"),
    _hex("""
        32 07 00 03 61 2f 62 00 0a  # PUBLISH a/b, QoS 1, identifier 10, empty
        34 09 00 03 62 2f 63 00 0b 68 69  # PUBLISH b/c, QoS 2, identifier 11, hi
    """),
    _hex("""
        40 02 00 0a                 # PUBACK 10
        50 02 00 0b                 # PUBREC 11
        32 07 00 03 61 2f 62 00 01  # PUBLISH a/b to the same client, identifier 1
    """),
    _hex("""
        40 02 00 01                 # PUBACK 1
        62 02 00 0b                 # PUBREL 11
        c0 00                       # PINGREQ
    """),
    _hex("70 02 00 0b d0 00         # PUBCOMP 11, PINGRESP"),
    _hex("a2 07 00 02 00 03 61 2f 23  # UNSUBSCRIBE 2: a/#"),
    _hex("b0 02 00 02               # UNSUBACK 2"),
    _hex("e0 00                     # DISCONNECT"),
]


@derivation(
    "raw-v31",
    "MQTT 3.1 written down byte by byte",
    "MQIsdp with will, user name and an empty password, then every packet type of 3.1 once.",
)
def raw_v31() -> Made:
    """3.1 from hex."""
    dialogue = Dialogue()
    dialogue.open(*RAW_V31).close()
    return dialogue.made(["3.1"])


def _publish(version: str, publish: bytes, answer: bytes, limits: bytes = b"\x00", topic: str = "a/b") -> Made:
    dialogue = Dialogue()
    said = [mb.connect("example", version), mb.connack(version, declared=limits), publish]
    if answer:
        said += [answer, mb.DISCONNECT]
    else:
        said[-1] += mb.DISCONNECT
    dialogue.open(*said).close()
    return dialogue.made([version], topics=[topic])


@derivation(
    "example-a-b-v31",
    "The example of 3.1: topic a/b, QoS 1, identifier 10",
    "32 07 00 03 61 2f 62 00 0a with an empty payload, as the 1999 draft and the 3.1 page print its variable header.",
)
def example_v31() -> Made:
    """The oldest example."""
    return _publish("3.1", _hex("32 07 00 03 61 2f 62 00 0a"), mb.ack(0x40, 10))


@derivation(
    "example-a-b-v311",
    "The example of 3.1.1: topic a/b, QoS 1, identifier 10",
    "The same bytes as in 3.1 on a 3.1.1 connection.",
)
def example_v311() -> Made:
    """The same, one version on."""
    return _publish("3.1.1", _hex("32 07 00 03 61 2f 62 00 0a"), mb.ack(0x40, 10))


@derivation(
    "example-a-b-v5",
    "The example of 5.0: topic a/b, QoS 1, identifier 10, no properties",
    "32 08 00 03 61 2f 62 00 0a 00 with an empty payload: figure 3-9 of the standard with its fixed header.",
)
def example_v5() -> Made:
    """The example of the standard."""
    return _publish("5.0", _hex("32 08 00 03 61 2f 62 00 0a 00"), mb.ack(0x40, 10))


@derivation(
    "example-leading-slash",
    "A topic that begins with a slash",
    "/home/floor1/security/camera2 at QoS 1 with identifier 1: legal, but the first level is empty.",
)
def example_leading_slash() -> Made:
    """A library manual's habit."""
    topic = "/home/floor1/security/camera2"
    publish = mb.publish(topic, b"Cat detected!", qos=1, identifier=1)
    assert publish[:4] == _hex("32 2e 00 1d")
    return _publish("3.1.1", publish, mb.ack(0x40, 1), topic=topic)


@derivation(
    "example-length-too-long",
    "A printed example with a Remaining Length that is 2 too large",
    "30 0e where 0c is right: the receiver swallows the first two bytes of the next PUBLISH as payload and reads "
    "the third, 00, as a packet type.",
    notes="The first PUBLISH counts as a packet with the payload 74 65 73 74 30 0c; the fault shows behind it.",
    explain={0: "protocol_violation"},
)
def example_length_too_long() -> Made:
    """The length counts the fixed header too."""
    wrong = _hex("30 0e 00 05 61 2f 62 2f 63 00 74 65 73 74")
    follower = mb.publish("a/b/c", b"test", declared=b"\x00")
    dialogue = Dialogue()
    talk = dialogue.open(mb.connect("example", "5.0"), mb.connack("5.0"))
    talk.client(wrong)
    talk.client(follower)
    dialogue.good += [wrong + follower[:2]]
    talk.server(REFUSED_MALFORMED)
    dialogue.good.append(REFUSED_MALFORMED)
    talk.close(1)
    return dialogue.made(["5.0"], malformed=1, topics=["a/b/c"])


@derivation(
    "example-length-repaired",
    "The same example with the right Remaining Length",
    "30 0c 00 05 61 2f 62 2f 63 00 74 65 73 74, twice.",
)
def example_length_repaired() -> Made:
    """Twelve bytes, not fourteen."""
    right = _hex("30 0c 00 05 61 2f 62 2f 63 00 74 65 73 74")
    dialogue = Dialogue()
    dialogue.open(mb.connect("example", "5.0"), mb.connack("5.0"), right + right + mb.DISCONNECT).close()
    return dialogue.made(["5.0"], topics=["a/b/c", "a/b/c"])


def _alias(example: bytes, rest: bytes, broken: bool) -> Made:
    dialogue = Dialogue()
    limit = mb.properties(TOPIC_ALIAS_MAXIMUM + b"\x00\x0a")
    mapping = mb.publish("sensors/7", b"first", qos=1, identifier=9, declared=mb.properties(b"\x23\x00\x01"))
    talk = dialogue.open(
        mb.connect("example", "5.0"), mb.connack("5.0", declared=limit), mapping, mb.ack(0x40, 9), example
    )
    answer = mb.ack(0x40, 10)
    dialogue.good.append(answer)
    if broken:
        talk.client(rest)
        talk.server(answer, REFUSED_MALFORMED)
        dialogue.good.append(REFUSED_MALFORMED)
        talk.close(1)
        return dialogue.made(["5.0"], malformed=1, topics=["sensors/7", "sensors/7"])
    talk.server(answer)
    talk.client(rest)
    dialogue.good.append(rest)
    talk.close()
    return dialogue.made(["5.0"], topics=["sensors/7", "sensors/7"])


@derivation(
    "example-alias-length-too-short",
    "A printed example with a Remaining Length that is 1 too small",
    "32 0b where 0c is right: the payload becomes dat and the left-over 61 is read as a PUBREL with wrong flags.",
    notes="An earlier PUBLISH maps alias 1, so that only the length is wrong.",
    explain={0: "protocol_violation"},
)
def example_alias_too_short() -> Made:
    """The length misses a byte."""
    wrong = _hex("32 0b 00 00 00 0a 03 23 00 01 64 61 74 61")
    return _alias(wrong, mb.publish("sensors/7", b"more", declared=b"\x00"), broken=True)


@derivation(
    "example-alias-repaired",
    "The alias example with the right Remaining Length",
    "32 0c 00 00 00 0a 03 23 00 01 64 61 74 61 after the PUBLISH that maps alias 1.",
)
def example_alias_repaired() -> Made:
    """Twelve bytes, not eleven."""
    right = _hex("32 0c 00 00 00 0a 03 23 00 01 64 61 74 61")
    return _alias(right, mb.DISCONNECT, broken=False)


@derivation(
    "five-byte-length",
    "A Remaining Length of five bytes",
    "30 80 80 80 80 01 is malformed at its fifth byte; the server reports it and closes, and the client's next "
    "connection is in order.",
    explain={0: "protocol_violation"},
)
def five_byte_length() -> Made:
    """One byte too many in the length."""
    dialogue = Dialogue()
    talk = dialogue.open(mb.connect("example", "5.0"), mb.connack("5.0"))
    talk.client(_hex("30 80 80 80 80 01 00 03 61 2f 62 00 78"))
    talk.server(REFUSED_MALFORMED)
    dialogue.good.append(REFUSED_MALFORMED)
    talk.close(1)
    good = mb.publish("a/b", b"x", qos=1, identifier=1, declared=b"\x00")
    again = [mb.connect("example", "5.0"), mb.connack("5.0"), good, mb.ack(0x40, 1), mb.DISCONNECT]
    dialogue.open(*again).close()
    return dialogue.made(["5.0"], malformed=1, topics=["a/b"])


@derivation(
    "alias-both-directions",
    "The same alias number in both directions, and re-mapped",
    "Alias 1 is client/topic one way and server/topic the other way; later the client gives it to client/other.",
)
def alias_both_directions() -> Made:
    """Two maps, each with a history."""
    one = mb.properties(b"\x23\x00\x01")
    maximum = mb.properties(TOPIC_ALIAS_MAXIMUM + b"\x00\x05")
    steps = [
        (0, "client/topic"), (1, "server/topic"), (0, ""), (1, ""),
        (0, "client/other"), (0, ""), (1, ""), (1, "server/other"), (0, ""), (1, ""),
    ]  # fmt: skip
    current = ["", ""]
    topics = []
    dialogue = Dialogue()
    talk = dialogue.open(
        mb.connect("both", "5.0", declared=maximum),
        mb.connack("5.0", declared=maximum),
        mb.subscribe(1, ("server/#", 0), declared=b"\x00"),
        mb.ack(0x90, 1, b"\x00\x00"),
    )
    for side, topic in steps:
        current[side] = topic or current[side]
        topics.append(current[side])
        publish = mb.publish(topic, b"x", declared=one)
        (talk.server if side else talk.client)(publish)
        dialogue.good.append(publish)
    talk.client(mb.DISCONNECT)
    dialogue.good.append(mb.DISCONNECT)
    talk.close()
    return dialogue.made(["5.0"], topics=topics)


@derivation(
    "session-taken-over",
    "Session taken over: DISCONNECT 0x8E from the server",
    "A second connection with the same Client Identifier; the server sends the reason to the first one, with a Reason "
    "String.",
    explain={0: "taken_over"},
)
def session_taken_over() -> Made:
    """Two connections, one session."""
    dialogue = Dialogue()
    lasting = mb.properties(b"\x11" + (60).to_bytes(4, "big"))
    first = dialogue.open(mb.connect("twin", "5.0", declared=lasting), mb.connack("5.0"))
    second = dialogue.open(mb.connect("twin", "5.0", clean=False, declared=lasting))
    reason = mb.packet(0xE0, b"\x8e", mb.properties(b"\x1f", mb.string("another client took over")))
    first.server(reason)
    first.close(1)
    rest = [mb.connack("5.0", present=True), mb.DISCONNECT]
    second.server(rest[0])
    second.client(rest[1])
    second.close()
    dialogue.good += [reason, *rest]
    return dialogue.made(["5.0"])


@derivation(
    "auth-exchange",
    "Enhanced authentication that succeeds, and again on the open connection",
    "CONNECT with method and data, two AUTH 0x18, CONNACK with data; later AUTH 0x19, 0x18, 0x18 and 0x00.",
)
def auth_exchange() -> Made:
    """AUTH both ways."""

    def auth(code: int, data: bytes) -> bytes:
        return mb.packet(0xF0, bytes([code]), declared(data))

    def declared(data: bytes) -> bytes:
        return mb.properties(b"\x15", mb.string("EXAMPLE-1"), b"\x16", mb.string(data))

    dialogue = Dialogue()
    dialogue.open(
        mb.connect("careful", "5.0", declared=declared(b"hello")),
        auth(0x18, b"challenge"),
        auth(0x18, b"proof"),
        mb.connack("5.0", declared=declared(b"fine")),
        auth(0x19, b"hello again"),
        auth(0x18, b"challenge 2"),
        auth(0x18, b"proof 2"),
        auth(0x00, b"fine again"),
        mb.DISCONNECT,
    ).close()
    return dialogue.made(["5.0"])


@derivation(
    "server-moved",
    "A CONNACK full of properties, and a server that moved",
    "A CONNACK with all it may declare on success except authentication; later DISCONNECT 0x9D with a Server "
    "Reference; the next CONNECT is refused with 0x9C and one.",
    explain={0: "use_another_server", 1: "use_another_server"},
)
def server_moved() -> Made:
    """What brokers seldom send."""
    everything = mb.properties(
        b"\x11" + (600).to_bytes(4, "big"),
        b"\x21\x00\x10\x24\x01\x25\x00\x27" + (65536).to_bytes(4, "big"),
        b"\x12" + mb.string("given-1"),
        b"\x22\x00\x08\x1f" + mb.string("welcome"),
        b"\x26" + mb.string("node") + mb.string("a"),
        b"\x26" + mb.string("node") + mb.string("b"),
        b"\x28\x00\x29\x00\x2a\x00\x13\x00\x1e",
        b"\x1a" + mb.string("answers/given-1"),
    )
    moved = mb.properties(b"\x1c" + mb.string("b.example:1883"), b"\x1f" + mb.string("maintenance"))
    dialogue = Dialogue()
    asks = b"\x19\x01"
    talk = dialogue.open(mb.connect("", "5.0", declared=mb.properties(asks)), mb.connack("5.0", declared=everything))
    goodbye = mb.packet(0xE0, b"\x9d", moved)
    talk.server(goodbye)
    dialogue.good.append(goodbye)
    talk.close(1)
    dialogue.open(mb.connect("given-1", "5.0"), mb.connack("5.0", code=0x9C, declared=moved)).close(1)
    return dialogue.made(["5.0"])
