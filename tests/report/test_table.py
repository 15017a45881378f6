from __future__ import annotations

import csv
import io
import json

import pytest

from mqttscope.mqtt import Properties, Puback, Publish
from mqttscope.payloads.decoders import Decoders, PayloadTable
from mqttscope.report import table
from mqttscope.report.base import View
from mqttscope.report.table import COLUMNS, Table
from tests import tools
from tests.report.make import SECRET, V3_1_1, Lines, Talk, acknowledged, conversation, hostile, publish, shown


def rows(events: object, **view: object) -> list[dict[str, str]]:
    """What a CSV reader makes of the output."""
    text = "\n".join(shown(Table, events, **view)) + "\n"  # type: ignore[arg-type]
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_one_row_for_each_packet_with_all_columns() -> None:
    text_lists = rows(conversation())
    assert [row["packet"] for row in text_lists] == [str(number) for number in range(25)]
    assert all(set(row) == set(COLUMNS) for row in text_lists)
    publish_row = next(row for row in text_lists if row["packet_identifier"] == "10")
    assert {name: value for name, value in publish_row.items() if value} == {
        "capture": "a.pcap",
        "frame": "6",
        "timestamp": "2026-01-02T03:04:05.129456789Z",
        "timestamp_ns": "1767323045129456789",
        "connection": "0",
        "packet": "4",
        "client": "10.0.0.4:51234",
        "server": "10.0.0.2:1883",
        "client_identifier": "dev1",
        "direction": "client_to_server",
        "version": "5.0",
        "type": "publish",
        "length": publish_row["length"],
        "topic": "sensors/temp",
        "topic_name": "sensors/temp",
        "qos": "1",
        "dup": "false",
        "retain": "false",
        "packet_identifier": "10",
        "payload_length": "11",
        "payload": '{"t": 21.5}',
        "properties": publish_row["properties"],
    }
    assert json.loads(publish_row["properties"])["user_property"] == [
        {"name": "k", "value": "v"},
        {"name": "k", "value": "w"},
    ]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, {"keep_alive": "60", "clean_start": "true", "user_name": "alice", "type": "connect", "payload": ""}),
        (1, {"session_present": "true", "reason_code": "0", "reason": "Success"}),
        (2, {"topic_filters": "a/# $share/g/b", "packet_identifier": "1"}),
        (3, {"reason_code": "1 135", "reason": "Granted QoS 1; Not authorized"}),
        (6, {"topic": "sensors/temp", "topic_name": "", "retain": "true", "payload": "hex:0001fe"}),
        (7, {"topic": "", "topic_name": ""}),
        (9, {"type": "pubrec", "reason_code": "0", "reason": "Success"}),
        (16, {"payload": "half", "payload_length": "100"}),
        (17, {"topic_filters": "a/# b"}),
        (22, {"type": "publish", "malformed_reason": "utf8_ill_formed"}),
        (24, {"type": "disconnect", "reason_code": "142", "reason": "Session taken over"}),
    ],
)
def test_what_the_columns_hold(number: int, expected: dict[str, str]) -> None:
    row = rows(conversation())[number]
    assert {name: row[name] for name in expected} == expected


def test_older_versions_have_no_reason_code_in_acknowledgements() -> None:
    row = rows([Talk(V3_1_1).answer(Puback(packet_identifier=4))])[0]
    assert (row["reason_code"], row["packet_identifier"], row["version"]) == ("", "4", "3.1.1")


def test_quotes_commas_and_line_ends_survive() -> None:
    payload = 'a,"b"\r\nc\n'
    sink = Lines()
    from mqttscope.report.base import View

    reporter = Table(sink, View())
    reporter.feed(Talk().say(publish('t,"x"', payload.encode())))
    row = next(csv.DictReader(io.StringIO(sink.data.decode(), newline="")))
    assert (row["topic"], row["payload"]) == ('t,"x"', payload)
    assert sink.data.count(b"\r\n") >= 2


def test_a_payload_past_the_limit_is_cut_at_a_character() -> None:
    assert rows([Talk().say(publish("t", "äöü".encode()))], payload_limit=3)[0]["payload"] == "ä"
    assert rows([Talk().say(publish("t", b"\xff\xfe\xfd"))], payload_limit=2)[0]["payload"] == "hex:fffe"


def test_text_that_looks_like_our_hex_is_hex() -> None:
    assert rows([Talk().say(publish("t", b"hex:00"))])[0]["payload"] == "hex:" + b"hex:00".hex()


def test_nothing_moves_a_cursor_and_no_password_is_there() -> None:
    text = "\n".join(shown(Table, [*conversation(), *hostile()]))
    assert not [char for char in text if char < " " and char not in "\t\r\n"]
    assert SECRET.decode() not in text


def test_properties_are_those_of_json_lines() -> None:
    row = rows([Talk().say(publish(properties=Properties(correlation_data=b"\x00\x01", topic_alias=3)))])[0]
    assert json.loads(row["properties"]) == {"correlation_data": {"length": 2, "hex": "0001"}, "topic_alias": 3}


def test_without_packets_there_is_still_a_header() -> None:
    assert shown(Table, []) == [",".join(COLUMNS) + "\r"]


def test_every_column_is_documented() -> None:
    assert table.__doc__ is not None
    assert [name for name in COLUMNS if name not in table.__doc__] == []


HARMFUL = "\x85\x9b\xad\u061c\u200b\u200f\u2028\u2029\u202e\u2066\ufeff\ufff9\U000e0001"


def test_what_turns_text_or_ends_lines_is_escaped_everywhere() -> None:
    properties = Properties(content_type=f"a{HARMFUL}b", user_property=[(HARMFUL, HARMFUL)])
    printable = HARMFUL[2:]  # C1 makes a payload binary
    row = rows(
        [Talk(identifier=f"c{HARMFUL}").say(publish(f"t{HARMFUL}", f"p{printable}".encode(), properties=properties))]
    )[0]

    for name in ("client_identifier", "topic", "topic_name", "payload", "properties"):
        assert not set(row[name]) & set(HARMFUL), name
    shown = "\\u0085\\u009b\\u00ad\\u061c\\u200b\\u200f\\u2028\\u2029\\u202e\\u2066\\ufeff\\ufff9\\U000e0001"
    assert row["topic"] == f"t{shown}"
    assert row["payload"] == f"p{shown[12:]}"
    assert json.loads(row["properties"])["content_type"] == f"a{HARMFUL}b"


def test_characters_are_harmful_to_csv_where_they_are_to_json_lines() -> None:
    from mqttscope.report import jsonl

    for code in range(0x7F, 0x110000):
        char = chr(code)
        if not 0xD800 <= code <= 0xDFFF:
            assert bool(table._UNSAFE.match(char)) is bool(jsonl._HARMFUL.match(char)), hex(code)


def test_a_byte_that_is_not_utf_8_is_told_from_a_control_character() -> None:
    assert table._safe("\udc85") == "\\x85"
    assert table._safe("\x85") == "\\u0085"
    assert table._safe("\x1b") == "\\x1b"


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ('=HYPERLINK("http://x")', '\'=HYPERLINK("http://x")'),
        ("+1+cmd|' /C calc'!A0", "'+1+cmd|' /C calc'!A0"),
        ("@SUM(1)", "'@SUM(1)"),
        ("-2+3", "'-2+3"),
        ("\t=1", "'\t=1"),
        ("-21.5", "-21.5"),
        ("+4e-3", "+4e-3"),
        ("21.5", "21.5"),
        ("a=b", "a=b"),
    ],
)
def test_text_for_spreadsheets_is_no_formula(payload: str, expected: str) -> None:
    talk = Talk()
    event = talk.say(Publish(topic_name="=a", payload=payload.encode()))
    for spreadsheet in (False, True):
        sink = Lines()
        Table(sink, View(spreadsheet=spreadsheet)).feed(event)
        (row,) = csv.DictReader(io.StringIO(sink.data.decode(), newline=""))
        assert row["payload"] == (expected if spreadsheet else payload)
        assert row["topic"] == row["topic_name"] == ("'=a" if spreadsheet else "=a")
        assert row["client_identifier"] == "dev1"


def test_what_decoders_make_of_payloads_is_in_columns_of_its_own() -> None:
    tools.package("cbor2")
    decoders = Decoders((PayloadTable("a/+", "json"), PayloadTable("c/#", "cbor")))
    talk = Talk()
    secret = b'{"t": 1, "password": "hunter2hunter2"}'
    text_lists = rows(
        [talk.say(publish("a/1", b'{"t": [1, null]}')), talk.say(publish("a/2", b"{")),
         talk.say(publish("a/3", secret)),
         talk.say(publish("c/1", b"\x63=1+")), talk.say(publish("x", b"{}"))],
        payloads=decoders,
    )  # fmt: skip
    cells = [(texts["payload_format"], texts["payload_value"], texts["payload_error"]) for texts in text_lists]

    assert cells[0] == ("json", '{"t":[1,null]}', "")
    assert cells[1][:2] == ("json", "")
    assert cells[1][2]
    assert cells[2][1].startswith('{"t":1,"password":"***')
    assert cells[3] == ("cbor", '"=1+"', "")
    assert cells[4] == ("", "", "")
    assert text_lists[0]["payload"] == '{"t": [1, null]}'
    shown = rows([talk.say(publish("a/4", secret))], payloads=decoders, show_secrets=True)
    assert "hunter2hunter2" in shown[0]["payload_value"]


def test_what_tcp_acknowledged() -> None:
    rows = list(csv.DictReader(io.StringIO("\n".join(shown(Table, acknowledged())))))
    assert [row["tcp_acknowledged"] for row in rows] == ["true", "true", "false", ""]
