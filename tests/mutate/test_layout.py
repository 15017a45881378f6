"""Packets taken apart."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Connect, Properties, Publish, Will, encode
from mqttscope.mutate.layout import Layout
from tests.mutate.talk import V5, good

CONNECT = encode(
    Connect(
        protocol_level=5,
        client_identifier="c",
        properties=Properties(receive_maximum=3, user_property=[("a", "b"), ("c", "d")]),
        will=Will("w", b"p", properties=Properties(content_type="t")),
    )
)


@pytest.mark.parametrize("entry", good(V5).entries, ids=lambda one: one.packet_type.name)
def test_what_was_taken_apart_is_put_together_again(entry) -> None:  # type: ignore[no-untyped-def]
    assert Layout(entry.raw, V5).join() == entry.raw


def test_lengths_of_both_blocks_are_put_right() -> None:
    layout = Layout(CONNECT, V5)
    layout.piece("properties.user_property", last=True).data = b""
    layout.piece("will.properties.content_type").data += b"more"

    made = layout.join()

    assert Layout(made, V5).piece("properties.property_length").data == b"\x0a"
    assert Layout(made, V5).piece("will.properties.property_length").data == b"\x08"
    assert made[1] == len(made) - 2


def test_lengths_stay_when_they_are_to_lie() -> None:
    layout = Layout(encode(Publish(topic_name="a", properties=Properties(topic_alias=1)), V5), V5)
    layout.piece("properties.topic_alias").data = b""

    assert layout.join(blocks=False, remaining_length=b"\x7f") == bytes.fromhex("307f 000161 03")


def test_a_piece_knows_its_block() -> None:
    layout = Layout(CONNECT, V5)

    assert layout.block(layout.index("will.properties.content_type")) == "will.properties.property_length"
    assert layout.block(layout.index("properties.receive_maximum")) == "properties.property_length"
    assert layout.block(layout.index("client_identifier")) == ""


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(KeyError):
        Layout(CONNECT, V5).piece("password")
    with pytest.raises(ValueError, match="exactly one packet"):
        Layout(CONNECT + b"\0", V5)
