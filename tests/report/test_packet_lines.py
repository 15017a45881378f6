from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.events import PacketEvent
from mqttscope.mqtt import ControlPacket, Direction, Properties, ProtocolVersion
from mqttscope.mqtt.codec import packet_end
from mqttscope.mqtt.view import text, view
from mqttscope.report import packet_lines
from mqttscope.report.packet_lines import PacketLines, dumps_text
from tests.conftest import EXHAUSTIVE
from tests.mqtt.strategies import packets
from tests.report.make import C2S, S2C, V3_1, V3_1_1, V5, Talk, publish

LIMIT = 24


def general(event: PacketEvent, lines: PacketLines) -> str:
    """The line made from objects, without anything that is kept for the next one."""
    packet = event.packet
    length = len(packet.raw) + packet.missing
    body, _ = packet_end(packet.raw, 0, len(packet.raw))
    shown = {
        "packet": event.number,
        "type": event.type,
        "length": length,
        "remaining_length": length - body,
        event.type: view(packet, event.connection.version, limit=LIMIT),
    }
    if event.type == "publish":
        shown["topic"] = None if event.topic is None else text(event.topic)
        if packet.missing:
            shown["missing"] = packet.missing
    return f"{lines.envelope('packet', event)},{dumps_text(shown)[1:]}\n"


SPOKEN = st.sampled_from((V3_1, V3_1_1, V5)).flatmap(lambda version: st.tuples(st.just(version), packets(version)))


@given(st.lists(st.tuples(SPOKEN, st.sampled_from((C2S, S2C)), st.integers(0, 3), st.integers(0, 2)), max_size=12))
@settings(max_examples=300 if EXHAUSTIVE else 100, deadline=None, derandomize=True)
def test_written_out_lines_are_those_made_from_objects(
    said: list[tuple[tuple[ProtocolVersion, ControlPacket], Direction, int, int]],
) -> None:
    quick, slow = PacketLines(LIMIT, show_secrets=False), PacketLines(LIMIT, show_secrets=False)
    talks = {version: Talk(version, number=int(version)) for version in (V3_1, V3_1_1, V5)}
    for (version, packet), direction, seconds, missing in said:
        event = talks[version].say(packet, direction, after=seconds * 600_000_000)
        if not isinstance(event, PacketEvent):
            continue
        if event.type == "publish":
            event.packet.missing = missing
        expected = general(event, slow)
        assert quick.line(event) == expected
        assert quick.line(event) == expected  # now with everything kept


@pytest.mark.parametrize("length", [0, 1, 117, 118, 119, 16_370, 16_380, 16_400, 70_000])
def test_lengths_are_right_around_those_of_the_fixed_header(length: int) -> None:
    event = Talk().say(publish("a/b", b"x" * length))
    assert isinstance(event, PacketEvent)
    lines = PacketLines(LIMIT, show_secrets=False)
    assert lines.line(event) == general(event, lines)


@pytest.mark.parametrize("timestamp_ns", [-(10**18), -1, 0, 999_999_999, 10**9, 10**18, 2**63 - 1])
def test_any_time_a_capture_can_have(timestamp_ns: int) -> None:
    lines = PacketLines(LIMIT, show_secrets=False)
    for moment in (timestamp_ns, timestamp_ns, timestamp_ns - 1, timestamp_ns + 1):
        event = Talk().say(publish())
        assert isinstance(event, PacketEvent)
        event.timestamp_ns = moment
        assert lines.line(event) == general(event, PacketLines(LIMIT, show_secrets=False))


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("CONNECTIONS_KEPT", "TEXTS_KEPT", "STARTS_KEPT"):
        monkeypatch.setattr(packet_lines, limit, 20)
    lines = PacketLines(LIMIT, show_secrets=False)
    for number in range(100):
        long = number % 2
        event = Talk(number=number).say(
            publish(
                f"t/{number}" * (200 if long else 1),
                properties=Properties(content_type=str(number), correlation_data=b"." * (99 * long)),
            )
        )
        assert isinstance(event, PacketEvent)
        lines.line(event)
    kept = lines._connections, lines._topics, lines._blocks, lines._starts
    assert all(0 < len(one) <= 20 for one in kept)
    assert max(map(len, lines._topics)) <= packet_lines.LONGEST_KEPT
    assert not any(b"." in value for items in lines._blocks for _, value in items if isinstance(value, bytes))
