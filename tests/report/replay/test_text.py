"""Differences for people: side by side, below each other, with marks, without secrets, in ASCII."""

from __future__ import annotations

import pytest

from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.replay.verify import verify
from mqttscope.report.base import View
from mqttscope.report.escape import cells
from mqttscope.report.replay.text import (
    SIDE_BY_SIDE,
    ReplayText,
    concealed,
    event_of,
    fields_of,
    plain,
    type_of,
)
from tests.each import each
from tests.replay.talk import ALL, OPENED, asked, delivered, pairs, record
from tests.replay.verify.test_answers import DIFFERENT as ANSWERS
from tests.replay.verify.test_deliveries import DIFFERENT as DELIVERIES
from tests.report.make import Lines

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"


def one(line: str) -> tuple[ScriptEntry, Script]:
    (script,) = record(f"dev {line}")
    return script.entries[0], script


def test_the_fields_of_a_delivery() -> None:
    fields = fields_of(*one("< publish a/b on qos=1 id=3 user_property=k:v correlation_data=\x01"), View())

    assert fields == {
        "topic": "a/b", "dup": "false", "qos": "1", "retain": "false", "packet_identifier": "3",
        "properties.user_property[0]": "k: v", "properties.correlation_data": "hex:01", "payload": "on",
    }  # fmt: skip


def test_reason_codes_have_their_names() -> None:
    assert fields_of(*one("< suback 1 0 0x87"), View()) == {
        "packet_identifier": "1",
        "reason_codes[0]": "0x00 Granted QoS 0",
        "reason_codes[1]": "0x87 Not authorized",
    }
    assert fields_of(*one("< puback 1"), View())["reason_code"] == "0x00 Success"


def test_an_alias_is_resolved_beside_its_topic_name() -> None:
    (script,) = record("dev < publish a x topic_alias=1\ndev < publish - y topic_alias=1")
    fields = fields_of(script.entries[1], script, View())

    assert (fields["topic"], fields["topic_name"], fields["properties.topic_alias"]) == ("a", "", "1")


def test_secrets_are_hidden() -> None:
    connect = fields_of(*one("> connect password=hush-hush"), View())
    assert connect["password"] == "9 bytes, hidden"
    assert fields_of(*one("> connect password=hush-hush"), View(show_secrets=True))["password"] == "hush-hush"
    auth = fields_of(*one("< auth authentication_data=hush-hush"), View())
    assert auth["properties.authentication_data"] == "9 bytes, hidden"
    message = fields_of(*one(f"< publish a {TOKEN} user_property=password:hush-hush"), View())
    assert "hush" not in str(message)
    assert TOKEN[10:] not in str(message)


def test_a_packet_that_cannot_be_read() -> None:
    entry, script = one("< raw 36070003612f620001")

    assert type_of(entry) == "MALFORMED PUBLISH"
    assert fields_of(entry, script, View())["reason"] == "qos_invalid"
    assert isinstance(event_of(entry, script), MalformedEvent)
    assert type_of(one("< raw 0000")[0]) == "MALFORMED RESERVED"


def test_a_packet_that_was_made_gets_its_bytes() -> None:
    entry, script = one("< publish a x")
    raw, entry.packet.raw = entry.packet.raw, b""
    event = event_of(entry, script)

    assert isinstance(event, PacketEvent)
    assert event.packet.raw == raw
    assert entry.packet.raw == b""


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("reason_code", 5, 5),
        ("qos", None, None),
        ("properties.content_type", "json", "json"),
        ("properties.content_type", None, None),
        ("properties.correlation_data", b"\x01", {"length": 1, "hex": "01"}),
        ("properties.authentication_data", b"hush", {"length": 4, "redacted": True}),
        ("properties.user_property", (("a", "b"), ("token", "hush")), [
            {"name": "a", "value": "b"}, {"name": "token", "value": "***"}]),
        ("properties.subscription_identifier", (1, 2), [1, 2]),
        ("properties.receive_maximum", (1, 2), [1, 2]),
        ("payload", b"on", {"length": 2, "text": "on"}),
        ("payload", bytes(30), {"length": 30, "hex": "00" * 30}),
        ("ending.by", "server", "server"),
        ("reason_codes", [0, 1], [0, 1]),
    ],
)  # fmt: skip
def test_values_of_differences_are_plain(field: str, value: object, shown: object) -> None:
    assert plain(field, value, View()) == shown


def test_secrets_may_be_asked_for() -> None:
    assert concealed({"name": "token", "value": "hush"}, View(show_secrets=True)) == {"name": "token", "value": "hush"}


REFUSED = "dev > connect\ndev < connack code=0x87"


def shown(
    recorded: str, live: str, *, cause: str = "", stopped: bool = False, one_by_one: bool = False, **options: object
) -> list[str]:
    sink, verification = Lines(), verify(pairs(recorded, live))
    report = ReplayText(sink, View(**options))  # type: ignore[arg-type]
    for difference in verification.differences:
        difference.cause = cause
        if one_by_one:
            report.feed(difference)
    if not one_by_one:
        report.feed_all(verification)
    report.close(verification, stopped=stopped)
    return sink.lines


def test_both_packets_stand_side_by_side() -> None:
    texts = shown(asked("dev > publish a x qos=1 id=1", "dev < puback 1"), REFUSED, width=80)

    assert texts == [
        "reason-code: The CONNACK of CONNECT has Reason Code 0x87 Not authorized instead",
        "    of 0x00 Success.",
        "  dev (connection 0), reason_code; 1 packet missing or new because of it",
        "  recorded: CONNACK, frame 2            │ live: CONNACK, frame 2",
        "  session_present false                 │ session_present false",
        "! reason_code 0x00 Success              │ reason_code 0x87 Not authorized",
        "",
        "Connections",
        "client  no.  compared  different  follow",
        "────────────────────────────────────────",
        "dev       0         1          1       1",
        "",
        "1 difference · reason-code 1",
    ]


def test_in_narrow_terminals_the_live_packet_stands_below() -> None:
    texts = shown(asked(), REFUSED, width=60, time="none", unicode=False)

    assert texts[2:10] == [
        "  dev (connection 0), reason_code",
        "  recorded: CONNACK, frame 2",
        "    session_present false",
        "  ! reason_code 0x00 Success",
        "  live: CONNACK, frame 2",
        "    session_present false",
        "  ! reason_code 0x87 Not authorized",
        "",
    ]


def test_what_is_not_there_is_nothing_and_payloads_may_be_left_out() -> None:
    texts = shown(delivered(*ALL), delivered(*ALL[1:]), width=100)

    assert texts[2].rstrip().endswith("│ live: nothing")
    assert texts[3].split() == ["topic", "t/a", "│"]
    assert any("payload" in text for text in texts)
    assert not any("payload" in text for text in shown(delivered(*ALL), delivered(*ALL[1:]), payload="none"))


@each("count", [300, 3_000])
def test_long_values_begin_where_they_differ(count: int) -> None:
    long = "x" * count
    recorded = delivered(f"publish t/a one content_type={long}1{long}")
    (row,) = (line for line in shown(recorded, recorded.replace("x1x", "x2x"), width=100) if line.startswith("!"))

    assert "…xxxxxxxxxxxx1x" in row
    assert "…xxxxxxxxxxxx2x" in row


def test_differences_without_packets_have_their_sentence_alone() -> None:
    texts = shown("dev > connect\ndev < connack\ndev < fin", "dev > connect\ndev < connack\ndev > fin")

    assert texts[:3] == [
        "close: The live broker did not end the connection as the recorded one did.",
        "  dev (connection 0), ending.by",
        "",
    ]


@pytest.mark.long
@each("width", [0, 20, 40, SIDE_BY_SIDE - 1, SIDE_BY_SIDE, 200])
@each("colour", [True, False])
@each("unicode", [True, False])
def test_nothing_is_wider_than_the_terminal(width: int, *, colour: bool, unicode: bool) -> None:
    for recorded, live, _ in [*ANSWERS.values(), *DELIVERIES.values()]:
        for line in shown(recorded, live, width=width, colour=colour, unicode=unicode):
            assert ("\x1b" in line) <= colour
            assert unicode or line.isascii()
            if not colour:
                assert cells(line) <= (width or 120)


def test_colours_say_what_differs() -> None:
    texts = shown(asked(), REFUSED, colour=True, width=100)

    assert any("\x1b[31mreason_code 0x87" in line for line in texts)
    assert not any(" because " in line.lower() for line in texts)


def test_nothing_captured_reaches_the_terminal_as_it_is() -> None:
    topic = "t/\x1b[2J\u202e"
    recorded = delivered(*ALL) + f"\npub > publish {topic} x\nsub < publish {topic} x\nsub > pingreq\nsub < pingresp"

    assert not any("\x1b" in line or "\u202e" in line for line in shown(recorded, delivered(*ALL)))


def test_secrets_are_not_printed() -> None:
    recorded = asked("dev > publish a x qos=1 id=1", "dev < puback 1 user_property=password:hush-hush")
    recorded = recorded.replace("dev > connect", "dev > connect password=hush-hush")

    assert "hush" not in str(shown(recorded, recorded.replace("1 user_property=password:hush-hush", "1")))
    assert "hush" not in str(shown(recorded, ""))


def test_what_could_not_be_judged_is_said() -> None:
    texts = shown(OPENED + "sub < lost 9\npub > publish t/a x", OPENED + "pub > publish t/a x\nsub < publish t/a x")

    assert texts[-2:] == ["1 packet not judged: the recording is not complete", "no differences in 2 of 2 connections"]


def test_of_many_fields_the_rest_is_counted() -> None:
    words = " ".join(f"user_property=k{index}:v" for index in range(60))
    texts = shown(delivered(f"publish t/a one {words}"), delivered("publish t/a one"))

    assert "  … 25 more fields" in texts


def test_differences_of_one_pair_of_packets_share_a_block() -> None:
    recorded = "dev > connect\ndev < connack receive_maximum=5 maximum_qos=1"
    texts = shown(recorded, "dev > connect\ndev < connack receive_maximum=7", width=100)
    marked = [line for line in texts if line.startswith("! ")]

    assert sum(line.startswith("property: ") for line in texts) == 2
    assert sum("recorded: CONNACK" in line for line in texts) == 1
    assert sorted(line.split()[1] for line in marked) == ["properties.maximum_qos", "properties.receive_maximum"]


def test_differences_with_one_cause_are_told_as_one_behind_it() -> None:
    names = [f"d{number}" for number in range(7)]
    recorded = "\n".join(f"{name} > connect\n{name} < connack" for name in names)
    live = "\n".join(f"{name} > connect\n{name} < connack code=0x87" for name in names)
    lines = shown(recorded, live, cause="the broker does not speak MQTT 5.0", width=100)

    assert lines[:3] == [
        "7 differences, 7 of them because the broker does not speak MQTT 5.0",
        "",
        "Because the broker does not speak MQTT 5.0:",
    ]
    assert sum(line.startswith("reason-code:") for line in lines) == 1
    text = " ".join(" ".join(lines).split())
    assert "and 6 more differences for this reason, in 7 connections: d0 (0), d1 (1), d2 (2), d3 (3), d4 (4)" in text
    assert "(4) and 2 more" in text
    assert "7 differences · reason-code 7" in lines


def test_nothing_found_is_told_with_how_much_was_looked_at() -> None:
    two = OPENED + "pub > publish t/a x"
    whole = shown(two, two, width=100)
    stopped = shown(two, two, width=100, stopped=True, colour=True)

    assert whole[-1] == "no differences in 2 of 2 connections"
    assert "no differences in 2 of 2 connections" in stopped[-1]
    assert "\x1b[1m" not in stopped[-1]
