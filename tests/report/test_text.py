"""Packets in one line each; the lines about everything else: test_notices.py."""

from __future__ import annotations

import re

import pytest

from mqttscope.mqtt import (
    Connect,
    Properties,
    Puback,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.report.text import TextLines
from tests.report.make import START_NS, V5, Talk, conversation, publish, shown

WIDE = """\
03:04:05.124456 ── #0 10.0.0.4:51234 → 10.0.0.2:1883 opened
03:04:05.126456 #0 dev1   ← broker CONNACK    Success, session present  1.0 ms  [topic alias maximum 10, no retain]
03:04:05.127456 #0 dev1   → broker SUBSCRIBE  id=1 a/# (q1), $share/g/b (q2, no local, as published, retain handling 2)
03:04:05.128456 #0 dev1   ← broker SUBACK     id=1 Granted QoS 1, Not authorized  1.0 ms
03:04:05.129456 #0 dev1   → broker PUBLISH    q1 id=10 sensors/temp (alias 1)  {"t":21.5}
03:04:05.141456 #0 dev1   ← broker PUBACK     id=10 No matching subscribers  sensors/temp  12.0 ms
03:04:05.142456 #0 dev1   → broker PUBLISH    q0 retain sensors/temp (alias 1)  0x0001fe (3 bytes)
03:04:05.143456 #0 dev1   → broker PUBLISH    q0 topic ? (alias 9)  ?
03:04:05.144456 #0 dev1   → broker PUBLISH    q2 id=11 two  gzip, json: {"z":1}
03:04:05.145456 #0 dev1   ← broker PUBREC     id=11  two  1.0 ms
03:04:05.146456 #0 dev1   → broker PUBREL     id=11  two
03:04:05.147456 #0 dev1   ← broker PUBCOMP    id=11  two  3.0 ms
03:04:05.148456 #0 dev1   → broker PUBLISH    q2 id=12 three  (empty)
03:04:05.149456 #0 dev1   ← broker PUBREC     id=12 Quota exceeded  three  1.0 ms  [reason string full]
03:04:05.151456 #0 dev1   → broker PUBLISH    q1 dup id=13 lost  x
03:04:05.152456 #0 dev1   → broker PUBLISH    q0 cut  half (4 of 100 bytes captured)
03:04:05.153456 #0 dev1   → broker UNSUBSCRIBE id=14 a/#, b
03:04:05.154456 #0 dev1   ← broker UNSUBACK   id=14 Success, No subscription existed  1.0 ms
03:04:05.155456 #0 dev1   → broker AUTH       Re-authenticate  [authentication method SCRAM-SHA-256]
03:04:05.156456 #0 dev1   → broker PINGREQ
03:04:05.158456 #0 dev1   ← broker PINGRESP   2.0 ms
03:04:05.161456 #0 dev1   → broker GAP        1460 bytes acknowledged but not captured
03:04:05.163456 #0 dev1   ← broker DISCONNECT Session taken over  [server reference other.example]
!! b.pcap: the file ends inside a block at offset 4096 (12 frames before it were read)
!! a.pcap: interface 0 dropped 7 frames while capturing
"""

NARROW = """\
── 2026-01-02 UTC
03:04:05.124456 ── #0 10.0.0.4:51234 → 10.0.0.2:1883 opened
03:04:05.125456 #0 dev1   → CONNECT    5.0, clean start, keep alive 60 s, will …
03:04:05.126456 #0 dev1   ← CONNACK    Success, session present  1.0 ms
03:04:05.127456 #0 dev1   → SUBSCRIBE  id=1 a/# (q1), $share/g/b (q2, no local,…
03:04:05.128456 #0 dev1   ← SUBACK     id=1 Granted QoS 1, Not authorized  1.0 …
03:04:05.129456 #0 dev1   → PUBLISH    q1 id=10 sensors/temp (alias 1)  {"t":21…
"""


def test_a_conversation_in_120_columns() -> None:
    lines = shown(TextLines, conversation(), width=120)
    assert [line for line in WIDE.splitlines() if line not in lines] == []


def test_a_conversation_in_80_columns() -> None:
    assert shown(TextLines, conversation(), width=80)[:7] == NARROW.splitlines()


def test_without_limit_every_event_is_one_line_with_everything_in_it() -> None:
    lines = shown(TextLines, conversation(), width=0)
    assert len(lines) == len(list(conversation()))
    assert lines[1] == (
        "2026-01-02T03:04:05.125456789Z #0 dev1   → broker CONNECT    5.0, clean start, keep alive 60 s, "
        "will status/dev1 (q1 retain, 7 bytes), user alice, password (13 bytes)  "
        "[session expiry 3600 s, receive maximum 20]"
    )
    assert lines[5].endswith('[content type application/json, 2 user properties]  {"t":21.5}')


def test_what_is_malformed_is_told_in_full_even_where_it_is_narrow() -> None:
    talk = Talk()
    lines = shown(TextLines, [talk.say(bytes.fromhex("30 07 00 02 c3 28 00 78 79"))], width=60)
    assert " ".join(line.strip() for line in lines[1:]).endswith(
        "MALFORMED utf8_ill_formed: topic_name at byte 4: not well-formed UTF-8: c3"
    )


def test_a_client_is_called_by_its_identifier_once_it_is_known() -> None:
    talk = Talk(V5, identifier=None)
    packets = (publish(), Connect(client_identifier="pump", protocol_level=5), publish())
    lines = shown(TextLines, (talk.say(packet) for packet in packets), width=0)
    assert [line.split()[2] for line in lines] == ["10.0.0.4:51234", "pump", "pump"]


def test_an_answer_to_nothing_is_marked() -> None:
    assert shown(TextLines, [Talk().answer(Puback(packet_identifier=9))], width=0)[0].endswith(
        "id=9  (no request captured)"
    )


def test_equal_reason_codes_are_counted() -> None:
    talk = Talk()
    asked = talk.say(Subscribe(packet_identifier=1, subscriptions=[Subscription("a", 0)] * 40))
    answered = talk.answer(Suback(packet_identifier=1, reason_codes=[0] * 38 + [0x80, 1]))

    (_, line) = shown(TextLines, [asked, answered], width=0)
    assert "id=1 38 x Granted QoS 0, Unspecified error, Granted QoS 1  1.0 ms" in line


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (Properties(session_expiry_interval=0xFFFFFFFF), "[session expiry never]"),
        (Properties(receive_maximum=5, topic_alias_maximum=0), "[receive maximum 5, topic alias maximum 0]"),
        (Properties(request_problem_information=0), "[no request problem information]"),
        (Properties(authentication_data=b"abc"), "[authentication data (3 bytes)]"),
        (Properties(user_property=[("a", "b")]), "[1 user property]"),
    ],
)
def test_properties_in_short(properties: Properties, expected: str) -> None:
    packet = Connect(protocol_level=5, client_identifier="x", properties=properties)
    assert shown(TextLines, [Talk().say(packet)], width=0)[0].endswith(expected)


def test_times_are_those_of_the_capture() -> None:
    lines = shown(TextLines, [Talk().say(publish(), after=0)], width=0)
    assert lines[0].startswith("2026-01-02T03:04:05.123456789Z ")
    assert START_NS % 10**9 == 123_456_789


def test_one_byte_is_a_byte_and_one_frame_is_a_frame() -> None:
    connect = Connect(protocol_level=5, client_identifier="x", password=b"p", properties=Properties())
    will = Connect(
        protocol_level=5, client_identifier="x", will=Will(will_topic="w", will_payload=b"1"), properties=Properties()
    )
    talk = Talk()
    events = [
        talk.say(connect),
        talk.say(will),
        talk.say(Connect(protocol_level=5, properties=Properties(authentication_data=b"a"))),
        talk.gap(1),
        talk.closed(),
        CaptureError("a.pcap", "ends", 4, 1),
        CaptureDrops("a.pcap", 0, None, 1),
    ]
    lines = "\n".join(shown(TextLines, events, width=0))

    for text in (
        "password (1 byte)",
        "(q0, 1 byte)",
        "data (1 byte)",
        "1 gap (1 byte)",
        "(1 frame before it was read)",
    ):
        assert text in lines
    assert "dropped 1 frame while" in lines
    assert not re.search(r"\b1 (bytes|frames|gaps)", lines)
