"""Synthesised captures of awkward streams: lengths split, segments swapped, retransmissions, WebSocket."""

from __future__ import annotations

import zlib

import mqttbytes as mb
from derived import Made, derivation
from derived_examples import Dialogue
from pcapng import Frame
from wrap import Conversation

BINARY, CLOSE, PING, PONG, CONTINUATION = 2, 8, 9, 10, 0
FIN_BIT, COMPRESSED_BIT = 0x80, 0x40


def _connected(version: str = "3.1.1") -> tuple[Dialogue, Conversation]:
    dialogue = Dialogue()
    return dialogue, dialogue.open(mb.connect("sender", version), mb.connack(version))


@derivation(
    "length-split",
    "A Remaining Length split over two segments",
    "The first segment ends after the first of two length bytes; a second PUBLISH is split after its first byte.",
)
def length_split() -> Made:
    """A length in two parts."""
    dialogue, talk = _connected()
    first = mb.publish("a/b", b"x" * 200)
    second = mb.publish("a/c", b"y" * 300)
    for piece in (first[:2], first[2:], second[:1], second[1:3], second[3:]):
        talk.client(piece)
    talk.client(mb.DISCONNECT)
    talk.close()
    dialogue.good += [first, second, mb.DISCONNECT]
    return dialogue.made(["3.1.1"], topics=["a/b", "a/c"])


def _swap(frames: list[Frame], left: int, right: int) -> None:
    a, b = frames[left], frames[right]
    frames[left], frames[right] = Frame(a.timestamp_ns, b.data), Frame(b.timestamp_ns, a.data)


@derivation(
    "out-of-order",
    "Two segments swapped",
    "The second of two PUBLISH arrives first; the stream has both in the order they were sent.",
)
def out_of_order() -> Made:
    """Two PUBLISH, swapped."""
    dialogue, talk = _connected()
    packets = [mb.publish("first", b"1"), mb.publish("second", b"2")]
    at = len(dialogue.frames)
    for packet in packets:
        talk.send(0, packet)
    _swap(dialogue.frames, at, at + 1)
    talk.acknowledge(1)
    talk.client(mb.DISCONNECT)
    talk.close()
    dialogue.good += [*packets, mb.DISCONNECT]
    return dialogue.made(["3.1.1"], topics=["first", "second"])


@derivation(
    "retransmission-with-new-data",
    "A retransmission that carries new data",
    "The second segment repeats the first PUBLISH and continues with another; three topics in all.",
)
def retransmission_with_new_data() -> Made:
    """Old and new bytes in one segment."""
    dialogue, talk = _connected()
    packets = [mb.publish("first", b"1"), mb.publish("second", b"2"), mb.publish("third", b"3")]
    talk.send(0, packets[0])
    talk.send(0, packets[0] + packets[1], back=len(packets[0]))
    talk.acknowledge(1)
    talk.client(packets[2])
    talk.client(mb.DISCONNECT)
    talk.close()
    dialogue.good += [*packets, mb.DISCONNECT]
    return dialogue.made(["3.1.1"], topics=["first", "second", "third"])


@derivation(
    "port-reused",
    "The same endpoints twice: 5.0, then 3.1.1",
    "A second connection from the same port with lower sequence numbers; the version of the first must not stick.",
)
def port_reused() -> Made:
    """Two connections between the same endpoints."""
    dialogue = Dialogue()
    for version, declared in (("5.0", b"\x00"), ("3.1.1", b"")):
        dialogue.connections = 0
        numbers = [900_000, 800_000] if version == "5.0" else [1000, 5000]
        talk = dialogue.open(mb.connect("again", version), mb.connack(version), numbers=numbers)
        said = mb.publish("a/b", version.encode(), declared=declared) + mb.DISCONNECT
        talk.client(said)
        talk.close()
        dialogue.good.append(said)
    dialogue.connections = 2
    return dialogue.made(["3.1.1", "5.0"], topics=["a/b", "a/b"])


REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: broker.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version: 13\r\n"
)
RESPONSE = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: mqtt\r\n"
)
EXTENSION = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"


def _framed(first: int, data: bytes, mask: bytes = b"") -> bytes:
    """A WebSocket frame (RFC 6455 section 5.2), masked when a key is given."""
    length = len(data)
    flag = 0x80 if mask else 0
    if length < 126:
        head = bytes([first, flag | length])
    else:
        head = bytes([first, flag | 126]) + length.to_bytes(2, "big")
    if mask:
        data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
    return head + mask + data


def _from_client(data: bytes, kind: int = BINARY, flags: int = FIN_BIT) -> bytes:
    return _framed(flags | kind, data, b"\x37\xfa\x21\x3d")


def _from_server(data: bytes, kind: int = BINARY, flags: int = FIN_BIT) -> bytes:
    return _framed(flags | kind, data)


def _upgraded(extension: bytes = b"") -> tuple[Dialogue, Conversation]:
    dialogue = Dialogue()
    dialogue.connections = 1
    talk = Conversation(dialogue.frames, dialogue.clock, server_port=8080)
    talk.open()
    talk.client(REQUEST, extension, b"\r\n")
    talk.server(RESPONSE, extension, b"\r\n")
    return dialogue, talk


def _web(made: Made) -> Made:
    made.transport = "websocket"
    made.ports = [8080]
    return made


@derivation(
    "websocket-split",
    "MQTT packets across WebSocket frames",
    "A PUBLISH in two messages, two packets in one message, a message in two fragments with a ping between them, an "
    "empty message, and a WebSocket header split over two segments.",
)
def websocket_split() -> Made:
    """Frames that do not end where packets end."""
    dialogue, talk = _upgraded()
    connect, connack = mb.connect("page", "3.1.1"), mb.connack("3.1.1")
    talk.client(_from_client(connect))
    talk.server(_from_server(connack))
    one, two, three = (mb.publish(f"web/{name}", b"x" * size) for name, size in (("a", 20), ("b", 5), ("c", 200)))
    talk.client(_from_client(one[:5]))
    talk.client(_from_client(one[5:]))
    talk.client(_from_client(two + mb.PINGREQ))
    talk.server(_from_server(mb.PINGRESP[:1]), _from_server(mb.PINGRESP[1:]))
    talk.client(_from_client(three[:100], flags=0))
    talk.client(_from_client(b"still there", PING))
    talk.server(_from_server(b"still there", PONG))
    talk.client(_from_client(three[100:], CONTINUATION))
    talk.client(_from_client(b""))
    four = mb.publish("web/d", b"x" * 150)
    framed = _from_client(four)
    talk.client(framed[:3])
    talk.client(framed[3:])
    talk.client(_from_client(mb.DISCONNECT))
    talk.client(_from_client(b"\x03\xe8", CLOSE))
    talk.server(_from_server(b"\x03\xe8", CLOSE))
    talk.close(1)
    dialogue.good += [connect, connack, one, two, mb.PINGREQ, mb.PINGRESP, three, four, mb.DISCONNECT]
    return _web(dialogue.made(["3.1.1"], topics=["web/a", "web/b", "web/c", "web/d"]))


def _deflated() -> list[tuple[int, bytes, str]]:
    """Side, packets of one message, and the message as zlib compressed it with context taken over.

    The compressed bytes are written down because zlib's successors compress otherwise.
    """
    text = b'{"temperature": 21.5, "unit": "C"}'
    return [
        (0, mb.connect("page", "5.0"), CONNECT_DEFLATED),
        (1, mb.connack("5.0"), CONNACK_DEFLATED),
        (0, mb.publish("web/temperature", text, declared=b"\x00"), FIRST_DEFLATED),
        (0, mb.publish("web/temperature", text, declared=b"\x00"), SECOND_DEFLATED),
        (1, mb.publish("web/temperature", text, declared=b"\x00"), DELIVERY_DEFLATED),
        (0, mb.DISCONNECT, DISCONNECT_DEFLATED),
    ]


CONNECT_DEFLATED = "12106460f10d0c09616562b061606029484c4f0500"
CONNACK_DEFLATED = "52606660600000"
FIRST_DEFLATED = "323061e02f4f4dd22f49cd2d482d4a2c292d4a65a85642e22959291819ea99ea282895e6659600794ace4ab50000"
SECOND_DEFLATED = "224f1700"
DELIVERY_DEFLATED = "323061e02f4f4dd22f49cd2d482d4a2c292d4a65a85642e22959291819ea99ea282895e6659600794ace4ab50000"
DISCONNECT_DEFLATED = "7ac00000"


@derivation(
    "websocket-deflate",
    "MQTT over WebSocket with permessage-deflate",
    "Compressed messages; the dictionary continues from message to message in each direction; one in two fragments, "
    "one not compressed.",
)
def websocket_deflate() -> Made:
    """RFC 7692 both ways."""
    dialogue, talk = _upgraded(EXTENSION)
    inflate = [zlib.decompressobj(-15), zlib.decompressobj(-15)]
    for number, (side, plain, text) in enumerate(_deflated()):
        packed = bytes.fromhex(text)
        assert inflate[side].decompress(packed + b"\x00\x00\xff\xff") == plain, number
        flags = FIN_BIT | COMPRESSED_BIT
        if side:
            talk.server(_from_server(packed, flags=flags))
        elif number == 2:
            half = len(packed) // 2
            talk.client(_from_client(packed[:half], flags=COMPRESSED_BIT))
            talk.client(_from_client(packed[half:], CONTINUATION))
        else:
            talk.client(_from_client(packed, flags=flags))
        dialogue.good.append(plain)
        if number == 1:
            talk.client(_from_client(mb.PINGREQ))
            talk.server(_from_server(mb.PINGRESP))
            dialogue.good += [mb.PINGREQ, mb.PINGRESP]
    talk.client(_from_client(b"\x03\xe8", CLOSE))
    talk.server(_from_server(b"\x03\xe8", CLOSE))
    talk.close(1)
    return _web(dialogue.made(["5.0"], topics=["web/temperature"] * 3))
