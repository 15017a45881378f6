from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, MalformedEvent, PacketEvent
from mqttscope.mqtt import ControlPacket, Direction, Properties, ProtocolVersion, Puback
from mqttscope.mqtt.codec import packet_end
from mqttscope.mqtt.view import binary, malformed_view, text, view
from mqttscope.net.frame import CaptureDrops
from mqttscope.report.base import Clock
from mqttscope.report.jsonl import AcknowledgedLines, EventJsonLines, PacketLines, dumps_text
from mqttscope.report.public import public_malformed
from mqttscope.secrets.forms import without_tokens
from mqttscope.secrets.values import without_tokens_of
from tests.conftest import THOROUGH
from tests.dissect.talk import Talk as Wire
from tests.each import each
from tests.mqtt.cases import CASES
from tests.mqtt.strategies import packets
from tests.report.make import (
    C2S,
    S2C,
    SECRET,
    V3_1,
    V3_1_1,
    V5,
    Lines,
    Talk,
    acknowledged,
    conversation,
    hostile,
    publish,
)

LIMIT = 24


def general(event: PacketEvent, lines: PacketLines) -> str:
    """The line made from objects, without anything that is kept for the next one."""
    packet = without_tokens_of(event.packet)
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
@settings(max_examples=300 if THOROUGH else 100, deadline=None, derandomize=True)
def test_written_out_lines_are_those_made_from_objects(
    packets_sent: list[tuple[tuple[ProtocolVersion, ControlPacket], Direction, int, int]],
) -> None:
    quick, slow = PacketLines(LIMIT, show_secrets=False), PacketLines(LIMIT, show_secrets=False)
    talks = {version: Talk(version, number=int(version)) for version in (V3_1, V3_1_1, V5)}
    for (version, packet), direction, seconds, missing in packets_sent:
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


@pytest.mark.parametrize(
    "timestamp_ns", [-(10**18), -1, 0, 5, 999_999_999, 10**9, 1_767_323_045_000_000_001, 10**18, 2**63 - 1]
)
def test_any_time_a_capture_can_have(timestamp_ns: int) -> None:
    lines = PacketLines(LIMIT, show_secrets=False)
    for moment in (timestamp_ns, timestamp_ns, timestamp_ns - 1, timestamp_ns + 1):
        event = Talk().say(publish())
        assert isinstance(event, PacketEvent)
        event.timestamp_ns = moment
        line = lines.line(event)
        assert line == general(event, PacketLines(LIMIT, show_secrets=False))
        assert json.loads(line)["timestamp"] == Clock().iso(moment)


FORMS = (
    b"", b"21.5", b"1", b"plain text", b'{"t":21.5}', b'{"t":"a\\\\b"}', b"two\n1 lines\t2", b"bell\x071", b"\x7f1",
    "ä1".encode(), b"\xc3" + b"1" + b"\xa4", b"\xff\x00\x01", b"password=abcd1", b"pass1word=abcd", b'{"p1wd":"abcd2"}',
    b"eyJhbGciOi1J.eyJzdWIiOi2J.abc3", b"e1yJhbGciOiJ.eyJzdWIiOiJ", b"AKIA" + b"2" * 16, b"pwd=1",
    b"%70assword=abcd1", b"a=1&toke%6E=abcd", b"mqtt%3A%2F%2Fu%3Aabcd1%40h", b"pass\\x77ord=abcd1", b"1 %",
)  # fmt: skip


def test_a_payload_is_shown_the_same_whatever_others_of_its_form_came_before() -> None:
    for show_secrets in (False, True):
        packet_lines = PacketLines(LIMIT * 2, show_secrets=show_secrets)
        for digit in (b"1", b"7", b"90"):
            for form in FORMS:
                payload = form.replace(b"1", digit)
                event = Talk().say(publish("a/b", payload))
                assert isinstance(event, PacketEvent)
                line = packet_lines.line(event)
                assert line == PacketLines(LIMIT * 2, show_secrets=show_secrets).line(event)
                seen = payload if show_secrets else without_tokens(payload)
                assert json.loads(line)["publish"]["payload"] == binary(seen, LIMIT * 2)


def objects(events: Iterable[Event], **options: Any) -> list[dict[str, Any]]:
    """Every line, parsed by another JSON reader."""
    sink = Lines()
    reporter = EventJsonLines(sink, **options)
    for event in events:
        reporter.feed(event)
    reporter.close()
    assert not [byte for byte in sink.data if byte < 0x20 and byte != 0x0A]
    return [json.loads(line) for line in sink.lines]


@each("case", CASES, ids=[case.id for case in CASES])
def test_a_line_says_what_view_says_whatever_way_it_was_written(case: Any) -> None:
    for direction in (C2S, S2C):
        event = Talk(case.version).say(case.raw, direction)
        shown = objects([event])[0]
        version = event.connection.version  # type: ignore[union-attr]
        if isinstance(event, PacketEvent):
            assert shown["event"] == "packet"
            assert shown[event.type] == json.loads(json.dumps(view(event.packet, version)))
            assert shown["length"] == len(case.raw)
            assert shown["remaining_length"] in (len(case.raw) - header for header in (2, 3, 4, 5))
        else:
            assert isinstance(event, MalformedEvent)
            assert shown["event"] == "malformed"
            malformed = public_malformed(event)
            wanted = json.loads(json.dumps(malformed_view(malformed.malformed, redacted=bool(malformed.hidden))))
            assert shown["malformed"] == wanted
            assert shown["type"] == event.type
        assert (shown["direction"], shown["version"]) == (str(direction), version.text)


def test_the_envelope_of_a_packet() -> None:
    talk = Talk()
    packet = publish("a/b", b"data", qos=1, packet_identifier=10, properties=Properties(topic_alias=1))
    assert objects([talk.say(packet)]) == [
        {
            "schema": 1,
            "event": "packet",
            "capture": "a.pcap",
            "frame": 1,
            "timestamp": "2026-01-02T03:04:05.124456789Z",
            "timestamp_ns": 1767323045124456789,
            "connection": 0,
            "client": "10.0.0.4:51234",
            "server": "10.0.0.2:1883",
            "direction": "client_to_server",
            "client_identifier": "dev1",
            "version": "5.0",
            "version_known": True,
            "packet": 0,
            "type": "publish",
            "length": 17,
            "remaining_length": 15,
            "publish": {
                "dup": False,
                "qos": 1,
                "retain": False,
                "topic_name": "a/b",
                "packet_identifier": 10,
                "properties": {"topic_alias": 1},
                "payload": {"length": 4, "text": "data"},
            },
            "topic": "a/b",
        }
    ]


def test_every_event_has_its_line() -> None:
    events = [event for event in conversation() if not isinstance(event, CaptureDrops)]
    kinds = [row["event"] for row in objects(conversation())]
    assert all(row["schema"] == 1 for row in objects(hostile()))
    assert len(kinds) == len(events)
    assert set(kinds) == {
        "packet", "malformed", "gap", "unparsed", "connection_opened", "connection_closed", "capture_error"
    }  # fmt: skip


def test_passwords_are_redacted_unless_asked_for() -> None:
    hidden, asked = (objects(conversation(), show_secrets=number)[1]["connect"] for number in (False, True))
    assert hidden["password"] == {"length": len(SECRET), "redacted": True}
    assert asked["password"] == {"length": len(SECRET), "text": SECRET.decode()}


def test_a_topic_behind_an_alias_is_resolved_and_one_that_cannot_be_known_is_null() -> None:
    alias, talk = Properties(topic_alias=1), Talk()
    first, second, third = objects(
        talk.say(publish(topic, properties=block))
        for topic, block in (("a/b", alias), ("", alias), ("", Properties(topic_alias=9)))
    )

    assert [row["topic"] for row in (first, second, third)] == ["a/b", "a/b", None]
    assert third["publish"]["topic_name"] == ""


def test_bytes_that_were_not_captured_or_not_wanted_are_counted() -> None:
    (shown,) = objects([Talk().say(publish("t", b"half", missing=96))])
    assert (shown["publish"]["payload"]["length"], shown["missing"]) == (100, 96)
    assert shown["publish"]["payload"]["truncated"] is True

    (shown,) = objects([Talk().say(publish("t", b"abcdef"))], payload_limit=4)
    assert shown["publish"]["payload"] == {"length": 6, "text": "abcd", "truncated": True}


def test_reasons_have_names_and_captures_need_none() -> None:
    talk = Talk()
    events = [talk.answer(Puback(1)), talk.answer(Puback(2, 0x97))]
    for event in events:
        event.capture = ""
    rows = objects(events)

    assert [row["puback"]["reason"] for row in rows] == ["Success", "Quota exceeded"]
    assert [row["capture"] for row in rows] == ["", ""]


def test_a_topic_in_disguise_behind_an_alias_makes_none_of_its_payloads_believed() -> None:
    """What a line has of a topic is kept, but not that of one that a damaged CONNECT may have."""
    alias, talk = Properties(topic_alias=1), Talk()
    row = (("MQTT", SECRET, alias), ("", b"shown", alias), ("MQTT", SECRET, None))
    first, second, third = objects(talk.say(publish(topic, text, properties=block)) for topic, text, block in row)
    assert [document["topic"] for document in (first, second, third)] == ["MQTT"] * 3
    assert second["publish"]["payload"] == {"length": 5, "text": "shown"}
    assert SECRET.decode() not in str(first) + str(third)


def test_payloads_that_are_too_many_to_be_kept_are_shown_the_same() -> None:
    lines = PacketLines(1 << 16, show_secrets=False)
    for number in [*range(60), *range(60), 59]:
        payload = bytes((number, 255)) * 15_000
        event = Talk().say(publish("a/b", payload))
        assert isinstance(event, PacketEvent)
        assert json.loads(lines.line(event))["publish"]["payload"] == {"length": 30_000, "hex": payload.hex()}


def test_a_new_identity_of_a_connection_is_shown_from_then_on() -> None:
    talk = Talk(identifier=None)

    def events() -> Iterable[Event]:
        yield talk.say(publish())
        talk.connection.client_identifier = "late"
        talk.connection.revision += 1
        yield talk.say(publish())

    assert [row["client_identifier"] for row in objects(events())] == [None, "late"]


def test_a_closed_connection_is_summed_up() -> None:
    closed = next(row for row in objects(conversation()) if row["event"] == "connection_closed")
    assert (closed["how"], closed["by"], closed["disconnect_by"], closed["disconnect_reason"]) == (
        "reset", "server", "server", 0x8E
    )  # fmt: skip
    assert closed["packets"] == {"client_to_server": 15, "server_to_client": 9}
    assert (closed["gaps"], closed["gap_bytes"]) == (1, 1460)


def test_transport_details_stand_under_the_transport() -> None:
    talk = Talk()
    talk.connection.transport = "tls"
    talk.connection.details = {"server_name": "broker.example", "alpn_offered": ["mqtt"]}
    opened, closed = talk.opened(), talk.closed()
    assert isinstance(opened, ConnectionOpened)
    assert isinstance(closed, ConnectionClosed)
    assert all(row["tls"]["server_name"] == "broker.example" for row in objects([opened, closed]))


@given(
    st.binary(max_size=40),
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20),
    st.integers(0, 15),
)
@settings(max_examples=200 if THOROUGH else 100, derandomize=True)
def test_any_publish_is_valid_json_that_agrees_with_view(payload: bytes, topic: str, limit: int) -> None:
    event = Talk(V5).say(publish(topic, payload))
    shown = objects([event], payload_limit=limit, show_secrets=True)[0]
    assert isinstance(event, PacketEvent)
    assert shown["publish"] == json.loads(json.dumps(view(event.packet, V5, limit=limit)))
    assert shown["topic"] == (text(topic) if topic else None)


class Gathering(Lines):
    """A sink for which lines may be held back a little."""

    immediate = False


def test_lines_are_gathered_only_where_nobody_waits_for_them() -> None:
    events = [*conversation(), *hostile(), *conversation(), *conversation()]
    at_once, gathered = Lines(), Gathering()
    for sink in (at_once, gathered):
        reporter = EventJsonLines(sink)
        seen = 0
        for event in events:
            before = len(sink.data)
            reporter.feed(event)
            seen += len(sink.data) > before
        reporter.close()
        reporter.close()
        assert seen < len(events) // 20 if sink is gathered else seen >= len(events) - 3
    assert gathered.data == at_once.data


def test_lines_may_have_what_tcp_acknowledged() -> None:
    sink = Lines()
    lines = AcknowledgedLines(sink, EventJsonLines(sink).line)
    for event in acknowledged():
        lines.feed(event)
    lines.close()
    assert [json.loads(line)["tcp_acknowledged"] for line in sink.lines] == [True, True, False, None]


def unacknowledged(story: str, numbers_off: int = 2) -> tuple[object, object]:
    """What the closed line says of each side; the server acknowledges less than it got from ``lag`` on."""
    talk = Wire().handshake().tell("> connect; ack server; < connack; ack client")
    before, _, after = story.partition(" lag; ")
    talk.tell(before)
    talk.position["client"] -= numbers_off
    if after:
        talk.tell(after)
    return closed_line(talk.events())


def closed_line(events: Iterable[Event]) -> tuple[object, object]:
    """What the last line of the events says of packets that were not acknowledged."""
    sink = Lines()
    lines = EventJsonLines(sink)
    for event in events:
        lines.feed(event)
    lines.close()
    result = json.loads(sink.lines[-1])["tcp_unacknowledged"]
    return result["client_to_server"], result["server_to_client"]


@each(
    "case",
    [
        ("> pingreq; ack server lag; nothing", ([], [])),
        ("> pingreq lag; reset server", ([8], [])),
        ("> pingreq lag; ack server; +4", (None, [])),
        ("> pingreq lag; ack server; +6; ack server", ([8], [])),
        ("> pingreq lag; fin server", (None, [])),
    ],
)
def test_a_closed_connection_names_packets_that_were_never_acknowledged(case: tuple[str, object]) -> None:
    story, expected = case
    assert unacknowledged(story.replace(" lag; nothing", ""), 0 if "nothing" in story else 2) == expected


def test_the_last_acknowledgment_may_come_when_both_sides_have_ended() -> None:
    talk = Wire().handshake().tell("> connect; ack server; < connack; ack client; > pingreq")
    talk.position["client"] -= 2
    talk.fin("server")
    talk.position["client"] += 2
    talk.tell("fin client; ack server")
    assert closed_line(talk.events()) == (None, [])


def test_one_direction_proves_nothing_of_acknowledgments() -> None:
    talk = Wire().handshake().tell("> connect; ack server; > pingreq; +9; > pingreq")
    talk.tape.segments = [segment for segment in talk.tape.segments if segment.key == talk.keys["client"]]
    assert closed_line(talk.events()) == (None, None)
