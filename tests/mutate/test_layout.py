"""Packets taken apart: the bytes of one field change, and the rest of the packet stays right."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.mqtt import Connect, MalformedReason, Properties, ProtocolVersion, Publish, Will, decode, encode
from mqttscope.mqtt.codec import packet_end
from mqttscope.mutate import Chance, NotApplicableError, RecordedFlow
from mqttscope.mutate.fields import MutationField, all_fields
from mqttscope.mutate.flow import CLIENT
from mqttscope.mutate.layout import PacketLayout, break_off, cut_at, prepared, with_length, with_value
from mqttscope.mutate.mutation import PacketTarget
from mqttscope.mutate.samples import ensure, sample
from tests.each import each
from tests.mutate.talk import V3_1_1, V5, good, packet_of, reason

CONNECT = encode(
    Connect(
        protocol_level=5,
        client_identifier="c",
        properties=Properties(receive_maximum=3, user_property=[("a", "b"), ("c", "d")]),
        will=Will("w", b"p", properties=Properties(content_type="t")),
    )
)


@each("entry", good(V5).entries, ids=lambda each: each.packet_type.name)
def test_what_was_taken_apart_is_put_together_again(entry) -> None:  # type: ignore[no-untyped-def]
    assert PacketLayout(entry.raw, V5).join() == entry.raw


def test_lengths_of_both_blocks_are_put_right() -> None:
    layout = PacketLayout(CONNECT, V5)
    layout.piece("properties.user_property", last=True).data = b""
    layout.piece("will.properties.content_type").data += b"more"

    raw = layout.join()

    assert PacketLayout(raw, V5).piece("properties.property_length").data == b"\x0a"
    assert PacketLayout(raw, V5).piece("will.properties.property_length").data == b"\x08"
    assert raw[1] == len(raw) - 2


def test_lengths_stay_when_they_are_to_lie() -> None:
    layout = PacketLayout(encode(Publish(topic_name="a", properties=Properties(topic_alias=1)), V5), V5)
    layout.piece("properties.topic_alias").data = b""

    assert layout.join(blocks=False, remaining_length=b"\x7f") == bytes.fromhex("307f 000161 03")


def test_a_piece_knows_its_block() -> None:
    layout = PacketLayout(CONNECT, V5)

    assert layout.block(layout.index("will.properties.content_type")) == "will.properties.property_length"
    assert layout.block(layout.index("properties.receive_maximum")) == "properties.property_length"
    assert layout.block(layout.index("client_identifier")) == ""


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(KeyError):
        PacketLayout(CONNECT, V5).piece("password")
    with pytest.raises(ValueError, match="exactly one packet"):
        PacketLayout(CONNECT + b"\0", V5)


FIELDS = {field.name: field for field in all_fields()}
PLACES = [(field, version) for field in all_fields() for version in field.versions]


def targeted(field: MutationField, version: ProtocolVersion = V5) -> PacketTarget:
    """A good packet that has a field, with nothing around it."""
    packet = sample(field.packet_type, version)
    ensure(packet, field.path, version)
    target = PacketTarget(packet, b"", version, CLIENT, RecordedFlow([], version), 0, Chance("surgery"))
    return replace(target, raw=target.encoded())


def test_a_string_longer_than_its_packet() -> None:
    raw = packet_of("connect.client_identifier:length-overrun")

    assert reason(raw) is MalformedReason.FIELD_OVERRUN
    assert packet_end(raw, 0, len(raw))[1] == len(raw)


@pytest.mark.parametrize(("slug", "expected"), [("length-plus-one", 9), ("length-minus-one", 7), ("length-zero", 0)])
def test_a_string_that_is_almost_right(slug: str, expected: int) -> None:
    raw = packet_of(f"publish.topic_name:{slug}", V3_1_1)

    assert int.from_bytes(raw[2:4], "big") in (expected, expected - 1)
    assert packet_end(raw, 0, len(raw))[1] == len(raw)


def test_a_packet_that_ends_before_and_in_a_field() -> None:
    before = packet_of("connect.client_identifier:cut-before")
    inside = packet_of("connect.client_identifier:cut-inside")

    assert reason(before) is MalformedReason.CLIENT_IDENTIFIER_MISSING
    assert reason(inside) is MalformedReason.FIELD_OVERRUN
    for raw in (before, inside):
        assert packet_end(raw, 0, len(raw))[1] == len(raw)


@pytest.mark.parametrize("place", ["before", "inside"])
def test_a_packet_that_breaks_off_keeps_its_lengths(place: str) -> None:
    cut = packet_of(f"connect.client_identifier:cut-{place}")
    raw = packet_of(f"connect.client_identifier:cut-{place}-lying")
    body, end = packet_end(raw, 0, len(raw))

    assert raw[body:] == cut[packet_end(cut, 0, len(cut))[0] :]
    assert raw[:body] == good(V5).entries[0].raw[:body]
    assert end > len(raw)


def test_a_packet_that_breaks_off_in_a_property_keeps_both_lengths() -> None:
    raw = packet_of("publish.properties.content_type:cut-inside-lying")
    whole = packet_of("publish.properties.content_type:maximum-length")
    body, end = packet_end(raw, 0, len(raw))

    assert end - len(raw) > 1
    assert raw[body : body + 2] == whole[packet_end(whole, 0, len(whole))[0] :][:2]
    assert raw.endswith(b"text/plai")


def test_a_block_that_ends_in_a_property_leaves_the_rest_right() -> None:
    raw = packet_of("connect.properties.authentication_method:cut-inside")
    names = [piece.field for piece in PacketLayout(raw, V5).pieces]

    assert reason(raw) is MalformedReason.PROPERTY_LENGTH_OVERRUN
    assert names[-1] == "client_identifier"


@each("field, version", PLACES, ids=[f"{mutation_field.name} {version.text}" for mutation_field, version in PLACES])
def test_a_value_that_stays_leaves_the_packet_as_it_was(field: MutationField, version: ProtocolVersion) -> None:
    target = targeted(field, version)
    seen: list[bytes] = []

    def keep(value: bytes) -> bytes:
        seen.append(value)
        return value

    assert with_value(target, field, keep) == target.raw
    (value,) = seen
    # What stands before the value of a property is its identifier, and that is never changed.
    piece = PacketLayout(target.raw, version).piece(field.path)
    assert piece.data == (b"" if field.row is None else bytes([field.row.identifier])) + value


@given(st.sampled_from(PLACES), st.binary(max_size=300))
def test_another_value_changes_its_own_bytes_and_the_lengths_around_it(
    place: tuple[MutationField, ProtocolVersion], value: bytes
) -> None:
    field, version = place
    target = targeted(field, version)
    layout, index = prepared(target, field)
    raw = with_value(target, field, lambda _: value)
    body, end = packet_end(raw, 0, len(raw))

    assert end == len(raw)
    assert raw[0] == target.raw[0]
    before = b"".join(piece.data for piece in layout.pieces[:index])
    after = b"".join(piece.data for piece in layout.pieces[index + 1 :])
    if field.row is None:
        assert raw[body:] == before + value + after
    else:
        # Before its identifier the length of its block alone may differ: it may need another byte.
        assert raw.endswith(bytes([field.row.identifier]) + value + after)
        assert len(raw) - body - len(before + value + after) in (1, 2)


def test_a_property_of_another_length_has_the_right_length_of_its_block() -> None:
    field = FIELDS["publish.properties.content_type"]
    raw = with_value(targeted(field), field, lambda _: b"\x00\x03a/b")
    packet = decode(raw, V5)

    assert isinstance(packet, Publish)
    assert packet.properties is not None
    assert packet.properties.content_type == "a/b"
    assert packet.payload == b"mutate"


def test_a_field_that_the_packet_lacks_cannot_be_changed() -> None:
    field = FIELDS["publish.payload"]
    target = targeted(field)
    target.packet.payload = b""

    with pytest.raises(NotApplicableError, match=r"the packet does not have publish\.payload"):
        with_value(target, field, bytes)


@pytest.mark.parametrize(("part", "place"), [(0, 1), (1, 7)])
def test_either_string_of_a_pair_may_lie(part: int, place: int) -> None:
    field = FIELDS["publish.properties.user_property"]
    target = targeted(field)
    piece = PacketLayout(target.raw, V5).piece(field.path).data
    assert piece == b"\x26\x00\x04name\x00\x05value"

    lying = PacketLayout(with_length(target, field, lambda true: true - 1, part), V5)
    expected = piece[:place] + (4 - 1 + part).to_bytes(2, "big") + piece[place + 2 :]
    assert expected in lying.body()
    assert len(lying.body()) == len(PacketLayout(target.raw, V5).body())


@pytest.mark.parametrize("expected", [-1, 16])
def test_a_length_that_is_true_or_no_length_is_no_lie(expected: int) -> None:
    field = FIELDS["publish.topic_name"]
    target = targeted(field)
    assert len(target.packet.topic_name) == 16

    with pytest.raises(NotApplicableError, match=r"publish\.topic_name cannot have that wrong length"):
        with_length(target, field, lambda _: expected)


@pytest.mark.parametrize("expected", [0, 15, 17])
def test_a_lie_is_in_the_two_bytes_of_the_length_alone(expected: int) -> None:
    field = FIELDS["publish.topic_name"]
    raw = targeted(field).raw

    assert with_length(targeted(field), field, lambda _: expected) == raw[:2] + expected.to_bytes(2, "big") + raw[4:]


@pytest.mark.parametrize("cut", [cut_at, break_off])
def test_a_field_of_one_byte_has_no_inside(cut) -> None:  # type: ignore[no-untyped-def]
    field = FIELDS["connect.keep_alive"]
    assert cut(targeted(field), field, inside=True)[-1:] == b"\0"
    field = FIELDS["connect.protocol_level"]
    with pytest.raises(NotApplicableError, match=r"protocol_level is too short"):
        cut(targeted(field), field, inside=True)


@pytest.mark.parametrize("version", FIELDS["connect.protocol_level"].versions)
def test_before_a_field_there_is_all_that_comes_before_it(version: ProtocolVersion) -> None:
    field = FIELDS["connect.protocol_level"]
    target = targeted(field, version)
    name = PacketLayout(target.raw, version).piece("protocol_name").data

    assert cut_at(target, field, inside=False) == bytes((0x10, len(name))) + name
    assert break_off(target, field, inside=False) == target.raw[:2] + name
