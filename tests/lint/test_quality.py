"""What a run says of the quality of its captures."""

from __future__ import annotations

from mqttscope.dissect import dissect_segments
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Conversation, Step, client, closes, conversation, lost, opened, segments, server
from mqttscope.lint.quality import Quality, is_whole_packet
from mqttscope.lint.rule import V3_1_1
from mqttscope.mqtt import encode
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
    """What one side sent was captured, down to its bare acknowledgments, and nothing of the other."""
    linter = Linter([])
    both = segments(conversation("one side", *opened(), closes("client")))
    for event in dissect_segments([one for one in both if one.key == both[0].key]):
        linter.feed(event)
    found = linter.quality

    assert (found.one_sided, found.unanswered, found.unheard) == (1, 0, "")
    assert "1 connection with one direction only" in found.sentences()
    assert not found.clean


def test_a_server_that_answers_in_tcp_alone_is_heard_and_says_nothing() -> None:
    found = quality(conversation("silent broker", opened()[0], closes("server", after=5)))

    assert (found.one_sided, found.unanswered) == (0, 1)
    assert found.sentences() == ["1 connection without CONNACK"]
    assert found.unheard == (
        "no broker answered: 1 connection has a CONNECT and no CONNACK, so that only what clients sent was judged"
    )
    assert not found.clean


def test_one_broker_that_answers_is_enough() -> None:
    found = quality(conversation("good", *opened()))
    found.add(quality(conversation("silent broker", opened()[0], closes("server"))))

    assert (found.unanswered, found.unheard) == (1, "")


def test_who_joins_late_is_not_unanswered() -> None:
    pings = (client(Pingreq()), client(Pingreq())) * 3

    assert quality(conversation("joined", *pings, handshake=False)).unanswered == 0


def packets(*steps: Step) -> list[bool]:
    """Of each packet of a conversation, good or malformed, whether it is one that came to its end."""
    found, linter = [], Linter([])
    for event in dissect_segments(segments(conversation("", *steps))):
        linter.feed(event)
        if isinstance(event, PacketEvent | MalformedEvent):
            found.append(is_whole_packet(event))
    return found


def test_half_a_packet_is_none() -> None:
    greeting, answer = opened(V3_1_1)
    (packet,) = greeting.packets
    assert not isinstance(packet, bytes)
    raw = encode(packet, V3_1_1)

    assert packets(greeting, answer) == [True, True]
    assert packets(client(raw[:8]), closes("client")) == [False]
    assert packets(greeting, answer, client(b"\x31\x02\x00\x05")) == [True, True, True], "malformed, and whole"
    assert packets(greeting, server(b"HTTP/1.1 400 Bad Request\r\n\r\n"), closes("server")) == [True, False]


def test_drops_and_errors_of_the_capture() -> None:
    found = Quality()
    found.feed(CaptureDrops("a.pcapng", 0, 10, 3))
    found.feed(CaptureError("a.pcapng", "cut"))

    assert found.sentences() == ["3 frames dropped by the capture", "1 capture not read to the end"]
