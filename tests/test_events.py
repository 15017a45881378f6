from __future__ import annotations

import pytest

from mqttscope.events import LOSS_VALUES, DiscardedEvent, GapEvent, LossEvent, MalformedEvent, PacketEvent
from mqttscope.mqtt import Direction, Malformed, Pingreq, Publish, decode
from mqttscope.session import Connection

CONNECTION = Connection(0, "192.0.2.4:51234", "192.0.2.2:1883", "a.pcap", 1, 0)


@pytest.mark.parametrize(("packet", "name"), [(Publish(), "publish"), (Pingreq(), "pingreq")])
def test_a_packet_is_named_as_in_reports(packet: Publish | Pingreq, name: str) -> None:
    event = PacketEvent(CONNECTION, Direction.CLIENT_TO_SERVER, 0, 1, 0, "a.pcap", packet, None)

    assert event.type == name


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        pytest.param(b"\x30\x01\0", "publish", id="a type of the specification"),
        pytest.param(b"\xf0\0", "auth", id="AUTH where it is reserved"),
        pytest.param(b"\0\0", "reserved", id="type 0"),
        pytest.param(b"", None, id="no byte at all"),
    ],
)
def test_a_malformed_packet_is_named_as_far_as_its_first_byte_tells(raw: bytes, name: str | None) -> None:
    packet = decode(raw)
    assert isinstance(packet, Malformed)

    event = MalformedEvent(CONNECTION, Direction.CLIENT_TO_SERVER, 0, 1, 0, "a.pcap", packet, None)

    assert event.type == name


@pytest.mark.parametrize("event_class", [GapEvent, DiscardedEvent])
def test_a_loss_has_its_words_and_values_in_one_place(event_class: type[LossEvent]) -> None:
    for reason, words in event_class.reasons.items():
        event = event_class(CONNECTION, Direction.CLIENT_TO_SERVER, 1, 0, "a.pcap", 2, reason)

        assert event_class.describe(2, reason) == f"2 bytes {words}"
        assert event.values == {"length": 2, "reason": reason}
        assert {name: type(value) for name, value in event.values.items()} == LOSS_VALUES
