"""What a run says of the quality of its captures."""

from __future__ import annotations

from mqttscope.dissect import dissect_segments
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Conversation, client, conversation, lost, opened, server
from mqttscope.lint.quality import Quality
from mqttscope.lint.rehearsal import segments
from mqttscope.mqtt.packets import Pingreq, Pingresp
from mqttscope.net.frame import CaptureDrops, CaptureError


def quality(talk: Conversation) -> Quality:
    linter = Linter([])
    for event in dissect_segments(segments(talk)):
        linter.feed(event)
    return linter.quality


def test_a_whole_capture_is_clean() -> None:
    found = quality(conversation("whole", *opened()))

    assert found.clean
    assert found.connections == 1
    assert found.sentences() == []


def test_a_joined_connection_with_an_assumed_version() -> None:
    pings = (client(Pingreq()), server(Pingresp())) * 2
    found = quality(conversation("joined", *pings, handshake=False))

    assert found.sentences() == ["1 connection joined after the CONNECT", "1 connection with an assumed version"]


def test_lost_bytes_are_counted() -> None:
    found = quality(conversation("lossy", *opened(), lost(client(Pingreq())), client(Pingreq()), server(Pingresp())))

    assert "2 bytes lost" in found.sentences()
    assert found.as_json()["gapped"] == 1


def test_one_direction_alone() -> None:
    found = quality(conversation("one side", client(opened()[0].packets[0])))

    assert found.one_sided == 1
    assert not found.clean


def test_drops_and_errors_of_the_capture() -> None:
    found = Quality()
    found.feed(CaptureDrops("a.pcapng", 0, 10, 3))
    found.feed(CaptureError("a.pcapng", "cut"))

    assert found.sentences() == ["3 frames dropped by the capture", "1 capture not read to the end"]
