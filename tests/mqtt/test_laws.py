"""Laws for any bytes and any packet, on generated examples."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.mqtt import ControlPacket, Malformed, PacketStream, ProtocolVersion, decode, encode
from mqttscope.mqtt.view import malformed_view, view
from tests.conftest import THOROUGH
from tests.mqtt.case import ALL
from tests.mqtt.checks import assert_sound, facts, run
from tests.mqtt.strategies import VERSIONS, almost, chunked, mutated, packets, streams

LAWS = settings(max_examples=200, derandomize=True, deadline=None)


@pytest.mark.parametrize("version", ALL)
@LAWS
@given(data=st.data())
def test_encode_inverts_decode_and_decode_inverts_encode(version: ProtocolVersion, data: st.DataObject) -> None:
    packet = data.draw(packets(version))
    raw = encode(packet, version)
    actual_packet = assert_sound(raw, version)

    assert actual_packet == packet
    assert isinstance(actual_packet, ControlPacket)
    assert encode(actual_packet, version) == raw
    assert set(view(actual_packet, version)) <= {
        *(field.name for field in fields(packet)),
        *(row.name for row in packet.declaration),
        "reason",
        "reasons",
    }


@LAWS
@given(raw=st.binary(max_size=60), version=VERSIONS)
def test_any_bytes_are_decoded_to_something(raw: bytes, version: ProtocolVersion) -> None:
    assert_sound(raw, version)


@settings(LAWS, max_examples=400 if THOROUGH else 80)
@given(data=st.data(), version=VERSIONS, spoken=VERSIONS)
def test_damaged_packets_are_decoded_to_something_in_any_version(
    data: st.DataObject, version: ProtocolVersion, spoken: ProtocolVersion
) -> None:
    raw = data.draw(mutated(spoken))
    packet = assert_sound(raw, version)

    if isinstance(packet, Malformed):
        assert packet.raw == raw
        shown = malformed_view(packet)
        assert shown["reason"] == packet.reason
        if packet.packet is not None:
            assert view(packet.packet, version, only=packet.fields_read) is not None
    elif packet.packet_type != 1:
        again = decode(encode(packet, version), version)
        assert again == packet


@settings(LAWS, max_examples=400 if THOROUGH else 80)
@given(stream=streams(), known=st.booleans(), joined=st.booleans(), data=st.data())
def test_what_a_stream_gives_depends_on_its_bytes_and_not_on_how_they_are_cut(
    stream: tuple[ProtocolVersion, bytes], known: bool, joined: bool, data: st.DataObject
) -> None:
    version, raw = stream

    def result() -> PacketStream:
        new = PacketStream(version) if known else PacketStream(version_source="")
        if joined:
            new.lose_framing()
        return new

    whole, pieces, single = result(), result(), result()
    expected = facts(run([raw], whole))
    assert facts(run(data.draw(chunked(raw)), pieces)) == expected
    assert facts(run([raw[at : at + 1] for at in range(len(raw))], single)) == expected
    assert (whole.version, whole.version_source) == (pieces.version, pieces.version_source)


@pytest.mark.long
@settings(LAWS, max_examples=300 if THOROUGH else 60)
@given(stream=streams(), limit=st.integers(2, 40), data=st.data())
def test_so_it_is_with_a_limit_on_the_size_of_packets(
    stream: tuple[ProtocolVersion, bytes], limit: int, data: st.DataObject
) -> None:
    version, raw = stream
    pieces = data.draw(chunked(raw))

    assert facts(run(pieces, PacketStream(version, max_packet_bytes=limit))) == facts(
        run([raw], PacketStream(version, max_packet_bytes=limit))
    )


@pytest.mark.long
@settings(LAWS, max_examples=300 if THOROUGH else 60)
@given(stream=streams(), known=st.booleans(), data=st.data())
def test_gaps_anywhere_lose_no_count_of_bytes_and_the_cut_of_the_rest_does_not_matter(
    stream: tuple[ProtocolVersion, bytes], known: bool, data: st.DataObject
) -> None:
    version, raw = stream
    parts = data.draw(chunked(raw))
    gaps = [data.draw(st.integers(1, 12)) for _ in parts]
    coarse: list[bytes | int] = []
    fine: list[bytes | int] = []
    for part, gap in zip(parts, gaps, strict=True):
        coarse += [part, gap]
        fine += [*data.draw(chunked(part)), gap]

    def result() -> PacketStream:
        return PacketStream(version) if known else PacketStream(version_source="")

    assert facts(run(coarse, result())) == facts(run(fine, result()))


@settings(LAWS, max_examples=200)
@given(data=st.data(), version=VERSIONS)
def test_well_formed_packets_come_out_as_they_went_in(data: st.DataObject, version: ProtocolVersion) -> None:
    sent = [packet for packet in data.draw(st.lists(packets(version), max_size=6)) if packet.packet_type != 1]
    raw = b"".join(encode(packet, version) for packet in sent)

    assert run(data.draw(chunked(raw)), PacketStream(version)) == sent


@pytest.mark.long
@settings(LAWS, max_examples=200)
@given(data=st.data(), version=VERSIONS)
def test_bytes_that_were_not_understood_are_still_there(data: st.DataObject, version: ProtocolVersion) -> None:
    raw = b"".join(data.draw(st.lists(almost(version), max_size=5)))

    assert b"".join(packet.raw for packet in run([raw], PacketStream(version))) == raw
