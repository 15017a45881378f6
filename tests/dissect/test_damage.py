"""Segments that were damaged on the way, in recordings and in conversations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import Dissector, Options, dissect
from mqttscope.events import ConnectionClosed, DiscardedEvent, Event, PacketEvent
from tests.conftest import ROOT

RECORDED = ROOT / "tests/data/captures/live/damaged.pcap"
"""Bits of header and data were flipped on the way, ports and addresses among them."""
TRUTH: dict[str, dict[str, dict[str, int]]] = json.loads(
    RECORDED.with_name("damaged.truth.json").read_text(encoding="utf-8")
)
"""Packets that the applications wrote and read, by client, direction and type."""


def events(**options: Any) -> tuple[list[Event], Dissector]:
    dissector = Dissector(Options(**options))
    return list(dissect(open_capture([RECORDED]), dissector=dissector)), dissector


def packets(actual_events: list[Event]) -> list[tuple[str, dict[str, Counter[str]]]]:
    """Client and packets of each connection."""
    shown: dict[int, tuple[str, dict[str, Counter[str]]]] = {}
    for event in actual_events:
        if isinstance(event, PacketEvent):
            connection = event.connection
            empty = {"client_to_server": Counter[str](), "server_to_client": Counter[str]()}
            _, sides = shown.setdefault(connection.number, (connection.client, empty))
            sides[str(event.direction)][type(event.packet).__name__.lower()] += 1
    return list(shown.values())


def test_packets_are_those_that_the_applications_wrote_and_read() -> None:
    actual_events, dissector = events()
    assert sorted(packets(actual_events), key=str) == sorted(TRUTH.items(), key=str)
    assert dissector.connections == len(TRUTH)
    assert not dissector.overlaps


def test_damaged_segments_are_counted_and_reported() -> None:
    actual_events, dissector = events()
    reported = [event for event in actual_events if isinstance(event, DiscardedEvent)]
    assert [event.reason for event in reported] == ["damaged"] * 9
    assert dissector.damaged_segments == len(reported)
    counted = [dict(_damaged(event)) for event in actual_events if isinstance(event, ConnectionClosed)]
    assert sum(side["server_to_client"] for side in counted) == 14  # empty ones as well, up to the end
    assert sum(side["client_to_server"] for side in counted) == 0
    assert not dissector.discarded_segments
    assert not any(event.connection.discarded_segments for event in reported)


def _damaged(event: ConnectionClosed) -> Iterator[tuple[str, int]]:
    counters = event.connection.details["tcp"]
    assert isinstance(counters, dict)
    for direction, side in counters.items():
        yield direction, side["damaged_segments"]


def test_without_verification_damaged_bytes_are_read() -> None:
    actual_events, dissector = events(verify_checksums=False)
    assert sorted(packets(actual_events), key=str) != sorted(TRUTH.items(), key=str)
    assert dissector.overlaps
    assert not dissector.damaged_segments


@pytest.mark.parametrize("accepted", [True, False])
def test_bytes_that_were_accepted_with_a_wrong_checksum_make_their_side_incomplete(accepted: bool) -> None:
    from mqttscope.dissect import dissect_segments
    from mqttscope.net.checksum import RIGHT, WRONG
    from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
    from tests.dissect.talk import CONNACK, PINGREQ

    talk = Conversation().open()
    talk.begin()
    talk.say(SERVER, CONNACK)
    for segment in talk.tape.segments:
        segment.checksum = RIGHT
    (ping,) = talk.say(CLIENT, PINGREQ)
    talk.tape.segments[-1].checksum = WRONG
    talk.put(SERVER, 0x10, acknowledges=ping.sequence + (2 if accepted else 0))
    actual_dissect_segments = list(dissect_segments(numbered(talk.tape.segments)))
    shown = [type(event.packet).__name__ for event in actual_dissect_segments if isinstance(event, PacketEvent)]
    (closed,) = [event for event in actual_dissect_segments if isinstance(event, ConnectionClosed)]
    assert shown == ["Connect", "Connack", *(["Pingreq"] if accepted else [])]
    assert closed.connection.client_side.gapped is accepted
