"""Inputs at the limits of modules of no package."""

from __future__ import annotations

import gzip

from mqttscope.arguments import credentials
from mqttscope.compressed import unpack
from mqttscope.dissect import Dissector
from mqttscope.errors import ArgumentError
from mqttscope.events import UnparsedEvent
from mqttscope.net.segment import ACK, PSH
from tests.dissect.talk import Talk, Tape, connect

PUBLISH = b"\x30\x81\x07\0\1t" + bytes(894)
"""900 bytes."""


def refusals(count: int) -> list[str]:
    """Why a CONNECT holds no user name and no password of so many bytes."""
    texts = []
    for user_name, password in (("u" * count, None), (None, bytes(count))):
        try:
            credentials(user_name, password)
        except ArgumentError as error:
            texts.append(str(error))
    return texts


def unfinished(packet: int, hole: int, other: int) -> tuple[list[str], int]:
    """What has no room beside the first bytes of a packet: those of another packet, and segments behind a hole."""
    tape = Tape()
    talks = [Talk(tape, 1883, 50_000 + number).handshake() for number in range(3)]
    for talk in talks:
        talk.client(connect())
    talks[0].client(PUBLISH[:packet])
    if other:
        talks[1].client(PUBLISH[:other])
    if hole:
        keys, at = talks[2].keys, talks[2].position
        tape.add(keys["client"], at["client"] + 10, at["server"], PSH | ACK, bytes(hole), 0)
    dissector = Dissector()
    events = [event for segment in tape.segments for event in dissector.feed(segment)]
    events += dissector.close()
    reasons = [event.unparsed.reason for event in events if isinstance(event, UnparsedEvent)]
    return [str(reason) for reason in reasons if reason == "no_room"], dissector.flows.total_limit_hits


def unpacked(data: bytes, limit: int = 10) -> tuple[int, str]:
    """How often a payload is unpacked, and the note."""
    unpacked_data = unpack(data, limit)
    assert unpacked_data is not None
    return len(unpacked_data.steps), unpacked_data.note


def nested(count: int) -> bytes:
    """A text in so many compressions."""
    data = b"text"
    for _ in range(count):
        data = gzip.compress(data)
    return data


def zstd(window: int) -> bytes:
    """A frame of one segment: its window is its content."""
    blocks = [1 << 17] * (window >> 17) + [window % (1 << 17)]
    headers = [(size << 3 | 2 | (at == len(blocks) - 1)).to_bytes(3, "little") for at, size in enumerate(blocks)]
    return b"\x28\xb5\x2f\xfd\xa0" + window.to_bytes(4, "little") + b"".join(header + b"0" for header in headers)
