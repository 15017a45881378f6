"""Inputs at the limits of the package redact."""

from __future__ import annotations

import io
import json
import zlib
from collections import Counter
from dataclasses import replace
from hashlib import shake_256

from mqttscope.mqtt import ProtocolVersion, Publish, decode
from mqttscope.mqtt.declare import Malformed
from mqttscope.net.headers import segment
from mqttscope.redact.addresses import Addresses
from mqttscope.redact.check import SecretSearch
from mqttscope.redact.frames import MovedFrame
from mqttscope.redact.kinds import filler
from mqttscope.redact.pieces import DirectionPieces, FrameSpool
from mqttscope.redact.pseudonyms import Pseudonyms
from mqttscope.redact.verify import Judgement
from mqttscope.redact.websockets import _packed, fit
from tests.dissect.scenes import MASK
from tests.dissect.talk import Talk, connect, wire
from tests.net import octets
from tests.net.framing import deflate, frame, request, response
from tests.net.hellos import message, record, vector
from tests.packets import octets as octets_of
from tests.redact.redacting import KEY, redacted, redaction, taped
from tests.redact.test_frames import VXLAN, frames
from tests.redact.test_packets import packets
from tests.redact.test_pieces import segment as captured
from tests.redact.test_redaction import PUBLISH, opened
from tests.redact.test_tls import replaced, values

V5 = ProtocolVersion.V5
SECRET = b"secret of the boiler"


def drawn(count: int) -> bytes:
    """What the address of a card becomes if the capture holds all that it became in as many runs before."""
    held: list[bytes] = []
    while True:
        addresses = Addresses(Pseudonyms(KEY))
        for raw in held:
            addresses.note(raw)
        held.append(addresses.mac(b"\0\x17\xf2\xaa\xbb\xcc"))
        if len(held) > count:
            return held[-1]


def place(size: int) -> str:
    """Where a secret is found in a stream that has so many bytes in frame 4, and ends with frame 7."""
    talk = Talk().handshake()
    talk.client(SECRET.ljust(size))
    talk.close()
    check = SecretSearch([SECRET])
    for each in taped(talk.tape):
        check.take_frame(each)
    return check.close()[0].place


def in_halves(directions: int) -> tuple[int, int]:
    """Hits of a secret between whose halves so many directions speak, its own among them; and directions forgotten."""
    talk = Talk().handshake()
    talk.client(SECRET[:9])
    for number in range(1, directions):
        Talk(talk.tape, client_port=40_000 + number).handshake().client(b"x")
    talk.client(SECRET[9:])
    check = SecretSearch([SECRET])
    for each in taped(talk.tape):
        check.take_frame(each)
    return len(check.close()), check.forgotten


def tunnels(count: int) -> tuple[int, int]:
    """As how many tunnels so many are written, one with two frames; and frames of tunnels that share a tag."""
    work, keys = frames(), set()
    for number in (*range(count), count - 1):
        input_frame = octets.frame(
            VXLAN.replace(b"\x08\0\0\0\0\0\x07\0", b"\x08\0\0\0" + number.to_bytes(3, "big") + b"\0")
        )
        moved_frame = work.rewrite(input_frame, octets.one(segment(input_frame)))
        assert moved_frame.data is not None
        keys.add(
            octets.one(segment(replace(input_frame, data=bytes(moved_frame.data), link_type=moved_frame.link_type))).key
        )
    return len(keys), work.sharing


def waiting(count: int) -> DirectionPieces:
    """A direction after as many segments that nobody has understood."""
    spool, direction = FrameSpool(io.BytesIO()), DirectionPieces()
    for number in range(count):
        captured(spool, direction, number * 4, b"lost")
    return direction


def let_go(count: int) -> int:
    """How many of such segments a direction lets go at the end of its connection."""
    direction = waiting(count)
    direction.end()
    return count - len(direction.waiting)


def is_in_file(held: int) -> bool:
    """Whether frames that count so many bytes are written to a file before all is learned."""
    file = io.BytesIO()
    spool = FrameSpool(file)
    for size in (held // 2, held - held // 2):
        spool.append(MovedFrame(0, 101, 0, bytearray(size - 256)))
    return bool(file.getvalue())


def halved(directions: int) -> tuple[bool, int]:
    """Whether a packet is replaced between whose halves so many directions speak, its own two among them; and the
    segments forgotten."""
    talk = opened()
    talk.client(PUBLISH[:9])
    talk.ack("server")
    for number in range(directions - 2):
        Talk(talk.tape, client_port=40_000 + number).client_opens()
    talk.client(PUBLISH[9:])
    run = redaction()
    written = [frame.data for frame in redacted(taped(talk.tape), run)]
    return not any(data.endswith(filler(9)) for data in written), run.forgotten


def differences(rules: int) -> list[str]:
    """How a copy differs in which so many rules have no finding any more."""
    before = Counter({(f"PUB{number}", "error", "certain"): 1 for number in range(100, 100 + rules)})
    return Judgement(before).differences(Judgement())


def is_read(size: int) -> bool:
    """Whether a handshake message of this size keeps its form."""
    ticket = b"\0\0\1\0" + vector(2, b"x" * (size - 10))
    assert len(message(4, ticket)) == size
    return replaced(record(22, message(4, ticket)))[9:15] == ticket[:6]


def keeps_structure(depth: int) -> bool:
    """Whether a certificate keeps its structure in which parts nest so deeply."""
    nested = b"\x05\0"
    for _ in range(depth):
        nested = b"\x30" + (bytes((len(nested),)) if len(nested) < 128 else b"\x81" + bytes((len(nested),))) + nested
    return values().message(11, vector(3, vector(3, nested)))[6:] == nested


def tables(size: int) -> int:
    """Tables that are written for the permutation of as many values."""
    names = Pseudonyms(KEY)
    names._feistel([0], [size], b"")
    return names._table.cache_info().currsize


def is_json(size: int) -> bool:
    """Whether a payload of JSON of this size is JSON afterwards."""
    try:
        json.loads(Pseudonyms(KEY).payload(b"[true" + b" " * (size - 6) + b"]"))
    except ValueError:
        return False
    return True


def differing(text: str) -> int:
    """Damaged packets, of the one with these bytes, in which other faults will be found than before."""
    work = packets()
    packet = decode(octets_of(text), V5)
    assert isinstance(packet, Malformed)
    work.replaced(packet, V5)
    return work.differing


def unfit(size: int) -> int:
    """Messages that could not be compressed again, where one of this size is."""
    extension = "Sec-WebSocket-Extensions: permessage-deflate\r\n"
    talk = Talk(port=8080).handshake()
    talk.client(request(extension))
    talk.server(response(extension))
    publish = wire(Publish(topic_name="a", payload=shake_256().digest(size - 6)))
    assert len(publish) == size
    for packed in deflate([wire(connect()), publish]):
        talk.client(frame(packed, 0xC2, MASK))
    talk.close()
    run = redaction()
    redacted(taped(talk.tape), run)
    return run.unfit


def is_head_known(size: int) -> bool:
    """Whether the head of a request keeps its form of which so many bytes come first."""
    talk, head = Talk(port=8080).handshake(), request(f"X-A: {'x' * size}\r\n")
    talk.client(head[:size])
    talk.client(head[size:])
    talk.server(response())
    talk.client(frame(wire(connect()), key=MASK))
    talk.close()
    return any(b"GET /" in frame.data for frame in redacted(taped(talk.tape)))


def fits(size: int) -> bool:
    """Whether a message of this size is compressed to a length that one way alone leads to."""
    plain = bytes(97 + octet % 3 for octet in shake_256().digest(size))
    return fit(plain, len(_packed(plain, b"", 9, zlib.Z_RLE)) - 4, b"") is not None
