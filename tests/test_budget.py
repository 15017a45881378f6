"""The limit of what is unfinished, over all connections of a run."""

from __future__ import annotations

import pytest

from mqttscope.budget import UNFINISHED_BYTES, VARIABLE, Budget, unfinished_bytes
from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.events import PacketEvent, UnparsedEvent
from tests.dissect.talk import Talk, Tape, connect


@pytest.mark.parametrize(
    ("text", "limit"), [("", UNFINISHED_BYTES), ("1000", 1000), ("0", UNFINISHED_BYTES), ("1 MB", UNFINISHED_BYTES)]
)
def test_the_environment_sets_the_limit(text: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert unfinished_bytes() == Budget().limit == limit


@pytest.mark.parametrize(("limit", "read"), [(3 * 1_004, 3), (3 * 1_004 - 1, 2)])
def test_packets_of_several_connections_share_it(limit: int, read: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three PUBLISH packets of 2,003 bytes, of each of which 1,004 have come before the rest of any does."""
    monkeypatch.setenv(VARIABLE, str(limit))
    tape, packet = Tape(), b"\x30\xd0\x0f\x00\x01t" + bytes(1_997)
    talks = [Talk(tape, 1883, 50_000 + number).handshake() for number in range(3)]
    for talk in talks:
        talk.client(connect())
    for part in (packet[:1_004], packet[1_004:]):
        for talk in talks:
            talk.client(part)
    dissector = Dissector()
    events = list(dissect_segments(tape.segments, dissector=dissector))

    assert [event.type for event in events if isinstance(event, PacketEvent)].count("publish") == read
    lost = [event.unparsed for event in events if isinstance(event, UnparsedEvent)]
    assert [(unparsed.reason, unparsed.length) for unparsed in lost] == [("no_room", 2_003)] * (3 - read)
    assert dissector.flows.budget.used == 0
