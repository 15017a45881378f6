"""What a run says of the quality of its captures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import (
    ExampleStep,
    client,
    closes,
    conversation,
    opened,
    segments,
    server,
)
from mqttscope.lint.quality import LackPlace, Quality, QualityLedger, QualityLevel, Shortfall, is_whole_packet
from mqttscope.lint.rule import V3_1_1
from mqttscope.mqtt import encode
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.net.segment import UNREAD, Segment
from tests.lint.lint_help import steps_of, talked


def heard(captured: Iterable[Segment]) -> Linter:
    """A linter without rules that has heard segments."""
    linter = Linter([])
    for event in dissect_segments(captured):
        linter.feed(event)
    return linter


def quality(*lines: str, handshake: bool = True) -> Quality:
    """What a linter says of a conversation that is written as text."""
    return heard(segments(conversation("", *steps_of(*lines), handshake=handshake))).quality


def test_a_joined_connection_with_an_assumed_version() -> None:
    actual_quality = quality("for 1..2: > pingreq; < pingresp", handshake=False)

    assert actual_quality.sentences() == [
        "1 connection joined after the CONNECT",
        "1 connection with an assumed version",
    ]


def test_lost_bytes_are_counted() -> None:
    actual_quality = quality("opened; lost > pingreq; > pingreq; < pingresp")

    assert "2 bytes lost" in actual_quality.sentences()
    assert actual_quality.as_json()["gapped"] == 1


def test_one_direction_alone() -> None:
    """What one side sent was captured, down to its bare acknowledgments, and nothing of the other."""
    both = talked(*opened(), closes("client"))
    actual_quality = heard(segment for segment in both if segment.key == both[0].key).quality

    assert (actual_quality.one_sided, actual_quality.unanswered, actual_quality.unheard) == (1, 0, "")
    assert "1 connection with one direction only" in actual_quality.sentences()
    assert not actual_quality.clean


def test_a_server_that_answers_in_tcp_alone_is_heard_and_says_nothing() -> None:
    actual_quality = quality("> connect; +5 < fin")

    assert (actual_quality.one_sided, actual_quality.unanswered) == (0, 1)
    assert actual_quality.sentences() == ["1 connection without CONNACK"]
    assert actual_quality.unheard == (
        "no broker answered: 1 connection has a CONNECT and no CONNACK, so that only what clients sent was judged"
    )
    assert not actual_quality.clean


def test_one_broker_that_answers_is_enough_and_who_joins_late_is_not_unanswered() -> None:
    actual_quality = quality("opened")
    actual_quality.add(quality("> connect; < fin"))

    assert (actual_quality.unanswered, actual_quality.unheard) == (1, "")
    assert quality("for 1..6: > pingreq", handshake=False).unanswered == 0


def packets(*steps: ExampleStep) -> list[bool]:
    """Of each packet of a conversation, good or malformed, whether it is one that came to its end."""
    linter, result = Linter([]), []
    for event in dissect_segments(talked(*steps)):
        linter.feed(event)
        if isinstance(event, PacketEvent | MalformedEvent):
            result.append(is_whole_packet(event))
    return result


def test_half_a_packet_is_none() -> None:
    greeting, answer = opened(V3_1_1)
    (packet,) = greeting.packets
    assert not isinstance(packet, bytes)
    raw = encode(packet, V3_1_1)

    assert packets(greeting, answer) == [True, True]
    assert packets(client(raw[:8]), closes("client")) == [False]
    assert packets(greeting, answer, client(b"\x31\x02\x00\x05")) == [True, True, True], "malformed, and whole"
    assert packets(greeting, server(b"HTTP/1.1 400 Bad Request\r\n\r\n"), closes("server")) == [True], "not MQTT"


def test_drops_and_errors_of_the_capture() -> None:
    actual_quality = Quality()
    actual_quality.feed(CaptureDrops("a.pcapng", 0, 10, 3))
    actual_quality.feed(CaptureError("a.pcapng", "cut"))

    assert actual_quality.sentences() == ["3 frames dropped by the capture", "1 capture not read to the end"]


def test_the_ledger_keeps_captures_apart() -> None:
    first = segments(conversation("a", *opened(), closes("client")), capture="a.pcapng")
    second = segments(conversation("b", opened()[0], closes("client"), server="10.0.0.3:1883"), capture="b.pcapng")
    notices: list[CaptureDrops | CaptureError] = [CaptureDrops("b.pcapng", 0, 10, 3), CaptureError("c.pcapng", "cut")]

    quality_ledger = heard([*first, *second]).ledger
    for notice in notices:
        quality_ledger.feed(notice)
    assert [(name, quality.connections) for name, quality in quality_ledger.by_capture.items()] == [
        ("a.pcapng", 1), ("b.pcapng", 1), ("c.pcapng", 0),
    ]  # fmt: skip
    assert quality_ledger.total().connections == 2
    assert quality_ledger.shortfalls(QualityLevel.USABLE, ["d.pcapng"]) == [
        Shortfall("b.pcapng", ("1 connection without CONNACK", "3 frames dropped by the capture")),
        Shortfall("c.pcapng", ("1 capture not read to the end",)),
        Shortfall("d.pcapng", ("no MQTT packet to judge",)),
    ]
    other = heard(second).ledger
    other.add(quality_ledger)
    assert other.of("b.pcapng").unanswered == 2
    assert other.total().connections == 3


def test_what_is_missing_belongs_to_the_file_in_which_it_is_missing() -> None:
    """A connection begins in one file of a rotated set and ends in the next."""
    talk = talked(*steps_of("opened; > pingreq; < pingresp; lost > pingreq; > pingreq"))
    quality_ledger = heard(
        replace(segment, capture="1.pcapng" if segment.frame <= 7 else "2.pcapng") for segment in talk
    ).ledger

    assert quality_ledger.of("1.pcapng").connections == 1
    assert quality_ledger.shortfalls(QualityLevel.USABLE, []) == [
        Shortfall("2.pcapng", ("1 connection with lost bytes", "2 bytes lost"))
    ]
    (shortfall,) = quality_ledger.shortfalls(QualityLevel.COMPLETE, [])
    assert shortfall.causes[1] == "1 connection without an end in the capture"


@pytest.mark.parametrize("reason", ["incomplete_fragments", "malformed", "truncated"])
def test_damaged_frames_are_counted_by_capture(reason: str) -> None:
    ledger = QualityLedger()
    ledger.note_skipped("a.pcapng", "not_tcp", 9)
    assert ledger.total().clean
    ledger.note_skipped("a.pcapng", reason, 2)
    ledger.note_skipped("a.pcapng", reason, 1)

    assert ledger.of("a.pcapng").causes(QualityLevel.USABLE) == (f"3 frames {UNREAD[reason].words}",)
    assert not ledger.total().is_usable


def test_every_count_that_lacks_something_has_its_place() -> None:
    """Each count by itself gives one lack, or none where it is no lack."""
    none = {"connections", "answered", "cut_bytes"}
    parts = {"unawaited": "unanswered", "unread_bytes": "unparsed_bytes", "outside_bytes": "unparsed_bytes"}
    for name in Quality().as_json().keys() - {"capture_errors"}:
        counts = Quality()
        for count in (name, parts.get(name, name)):
            setattr(counts, count, 1)
        lacks = counts.lacks()
        assert len(lacks) == (name not in none), name
    assert {lack.place for lack in Quality(joined=1, version_assumed=1, open_ended=1, dropped_frames=1).lacks()} == {
        *LackPlace
    }


def test_a_connection_that_continues_is_named_only_for_complete_captures() -> None:
    actual_quality = quality("opened")
    assert (actual_quality.clean, actual_quality.connections, actual_quality.sentences()) == (True, 1, [])
    assert actual_quality.sentences(QualityLevel.USABLE) == []
    assert actual_quality.sentences(QualityLevel.COMPLETE) == ["1 connection without an end in the capture"]
    assert actual_quality.causes(QualityLevel.COMPLETE) == ("1 connection without an end in the capture",)
    assert quality("opened; > disconnect").causes(QualityLevel.COMPLETE) == ()


def test_a_server_that_answers_with_auth_or_a_damaged_connack_has_answered() -> None:
    by_auth = "> connect authentication_method=m; < auth code=0x18 authentication_method=m; > fin"
    assert quality(by_auth).unanswered == quality("> connect; < raw 20 03 02 00 00; > fin").unanswered == 0
    actual_quality = quality(r'> connect; < raw "HTTP/1.1 400 Bad Request\r\n\r\n"')
    assert (actual_quality.unanswered, actual_quality.unawaited, actual_quality.unparsed_bytes) == (1, 0, 0)
