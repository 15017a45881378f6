"""Rows of packets come back as they were, and other bytes are refused."""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.events import PacketEvent
from mqttscope.lake.packet_rows import MAGIC, VERSION, PacketRow, read, write
from mqttscope.lake.state import StateError
from mqttscope.mqtt.codec import decode
from mqttscope.mqtt.constants import Direction, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.session.connection import Connection

RAW = bytes.fromhex("300a0005612f622f63686579")
"""PUBLISH: header, length 10, "a/b/c", "hey"."""

long = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(codec=None), max_size=8)
side = st.none() | st.tuples(long, long, long, st.none() | st.tuples(long, long), long, long, long, long)
reading = st.tuples(st.booleans(), long)
told = st.tuples(
    st.none() | st.tuples(text, st.booleans(), st.just(ProtocolVersion.V5)),
    st.tuples(reading, reading),
    st.none() | st.dictionaries(text, text, max_size=2),
    st.none() | st.tuples(st.booleans(), side, side),
)


def event(topic: str | None, direction: Direction = Direction.CLIENT_TO_SERVER, **more: Any) -> PacketEvent:
    packet = decode(RAW)
    assert isinstance(packet, ControlPacket)
    place: dict[str, Any] = {"number": 7, "frame": 12, "timestamp_ns": 99, "capture": "a.pcap"} | more
    connection = Connection(0, "10.0.0.4:51234", "10.0.0.2:1883", "a.pcap", 1, 0)
    return PacketEvent(connection, direction, packet=packet, topic=topic, **place)


NOTHING = (None, ((False, 0), (False, 0)), None, None)
"""Nothing is new beside the packet."""


def row(**more: Any) -> bytes:
    found = write(event("a/b/c", **more), RAW, NOTHING, dropped=False)
    assert found is not None
    return found


@given(
    told,
    text | st.just("a/b/c") | st.none(),
    text,
    st.sampled_from(Direction),
    st.booleans(),
    st.binary(max_size=9),
    long,
)
def test_all_that_is_written_comes_back(
    told: Any, topic: str | None, capture: str, direction: Direction, dropped: bool, raw: bytes, number: int
) -> None:
    one = event(topic, direction, capture=capture, number=number, stream_offset=-number - 1)
    found = write(one, raw, told, dropped=dropped)

    assert found is not None
    own = topic == "a/b/c"
    assert read(found) == PacketRow(
        direction is Direction.CLIENT_TO_SERVER, number, (12, 99, capture), raw, None if own else topic, own,
        -number - 1, dropped, told,
    )  # fmt: skip


def test_numbers_that_are_too_large_are_left_to_others() -> None:
    assert write(event(None, number=1 << 63), RAW, NOTHING, dropped=False) is None


def test_damage_and_other_versions_are_refused() -> None:
    whole = row()
    for place in range(len(MAGIC), len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        with pytest.raises(StateError):
            read(bytes(changed))
    for length in range(len(whole)):
        with pytest.raises(StateError):
            read(whole[:length])
    with pytest.raises(StateError, match="version 9"):
        read(MAGIC + b"\x09" + whole[5:])


@given(st.binary(max_size=200))
def test_bytes_that_are_sealed_well_make_a_row_or_are_refused(body: bytes) -> None:
    with suppress(StateError):
        assert isinstance(read(MAGIC + bytes((VERSION,)) + zlib.crc32(body).to_bytes(4, "big") + body), PacketRow)
