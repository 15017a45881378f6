"""Lengths where a Variable Byte Integer gets one byte more."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Malformed, PacketType, ProtocolVersion, decode
from mqttscope.mqtt.codec import packet_end
from mqttscope.mutate import NotApplicable, Verdict, mutation
from mqttscope.mutate.fields import blocks
from mqttscope.mutate.layout import LENGTH, Layout
from mqttscope.mutate.mutation import senders_of
from mqttscope.mutate.numbers import VARIABLE_BYTE_INTEGER_BOUNDARIES
from tests.mutate.talk import V3_1, V5, authenticated, limited, packet_of


@pytest.mark.parametrize("version", list(ProtocolVersion), ids=lambda one: str(one.text))
@pytest.mark.parametrize("length", VARIABLE_BYTE_INTEGER_BOUNDARIES)
def test_a_remaining_length_at_the_boundary(length: int, version: ProtocolVersion) -> None:
    raw = packet_of(f"publish.remaining_length:boundary-{length}", version)
    body, end = packet_end(raw, 0, len(raw))

    assert end - body == length
    assert end == len(raw)
    assert not isinstance(decode(raw, version), Malformed)


def test_the_boundaries_are_those_of_the_bytes_that_a_length_takes() -> None:
    sizes = [
        packet_end(raw, 0, len(raw))[0] - 1
        for raw in (packet_of(f"publish.remaining_length:boundary-{one}") for one in VARIABLE_BYTE_INTEGER_BOUNDARIES)
    ]

    assert sizes == [1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize(("kind", "prefix"), [(kind, prefix) for kind, _, prefix in blocks()])
@pytest.mark.parametrize("length", VARIABLE_BYTE_INTEGER_BOUNDARIES[:4])
def test_a_property_length_at_the_boundary(kind: PacketType, prefix: str, length: int) -> None:
    path = f"{prefix}properties.{LENGTH}"
    name = f"{kind.name.lower()}.{path}:boundary-{length}"
    flow = authenticated() if kind is PacketType.AUTH else None
    raw = packet_of(name, V5, sender=senders_of(kind)[0], flow=flow)
    layout = Layout(raw, V5)

    assert not isinstance(decode(raw, V5), Malformed)
    assert sum(len(one.data) for at, one in enumerate(layout.pieces) if layout.block(at) == path) == length
    assert len(layout.piece(path).data) == {127: 1, 128: 2, 16_383: 2, 16_384: 3}[length]


def test_it_is_legal_but_for_what_the_receiver_announced() -> None:
    assert mutation("publish.remaining_length:boundary-16384").verdict(V3_1) is Verdict.LEGAL
    assert mutation("subscribe.properties.property_length:boundary-128").verdict(V5) is Verdict.LEGAL
    with pytest.raises(NotApplicable, match="Maximum Packet Size 1000"):
        packet_of("publish.remaining_length:boundary-16384", flow=limited())
