"""Other protocols in the place of MQTT: which first bytes prove one, and which do not."""

from __future__ import annotations

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import PacketEvent
from mqttscope.lint.examples import ExampleStep, client, closes, crossing, opened, server
from mqttscope.lint.rule import V3_1_1, V5
from mqttscope.mqtt import encode
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.foreign import MAX_SIGNATURE, PREFACES, foreign_protocol
from mqttscope.mqtt.packets import Auth, Connack, Disconnect, Puback, Publish, Suback
from mqttscope.mqtt.properties import Properties
from mqttscope.secrets.findings import HidingOptions, conceal
from tests.conftest import ROOT
from tests.each import each
from tests.lint.lint_help import linted

CAPTURES = sorted((ROOT / "captures").glob("*/capture.pcapng"))


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"OPTIONS * HTTP/1.1\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n", "HTTP"),
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"AMQP\x00\x00\x09\x01", "AMQP"),
        (bytes.fromhex("030000130ee000000000000100080003000000"), "RDP"),
    ],
)
def test_first_bytes_name_the_protocol(head: bytes, name: str) -> None:
    assert foreign_protocol(head) == name
    assert name not in PREFACES


@pytest.mark.parametrize(
    "head", [b"PROXY TCP4 10.0.0.4 10.0.0.2 51234 1883\r\n", b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"]
)
def test_a_proxy_header_is_a_preface(head: bytes) -> None:
    assert foreign_protocol(head) in PREFACES


@pytest.mark.parametrize("head", [b"", b"\x10\x0e\x00\x04MQTT", b"GE", b"GETTING", b"\x00\x00", b"0\x05\x00\x03a/b"])
def test_what_may_be_mqtt_has_no_name(head: bytes) -> None:
    assert foreign_protocol(head) == ""


ANSWERS = [
    (b"<!DOCTYPE HTML>\n<html>", "HTML"),
    (b"<!doctype html><title>400</title>", "HTML"),
    (b"<html><body>Bad request</body></html>", "HTML"),
    (b"<HTML>\r\n<HEAD>", "HTML"),
    (b"<h1>400</h1>", "HTML"),
    (b"<!-- nginx -->", "HTML"),
    (b"\r\n\r\n <html>", "HTML"),
    (b"\xef\xbb\xbf<html>", "UTF-8 text"),
    (b" \t\r\n<!DOCTYPE html>", "HTML"),
    (b" " * 16 + b"<!DOCTYPE ", "HTML"),
    (b" " * 16 + b"[" + b" " * 8 + b"{" + b" " * 8 + b'"code": 400}]', "JSON"),
    (b"\xef\xbb\xbfwelcome", "UTF-8 text"),
    (b'<?xml version="1.0"?><error/>', "XML"),
    (b'{"error": "bad request"}', "JSON"),
    (b'{\n  "error": {}}', "JSON"),
    (b'[{"code": 400}]', "JSON"),
    (b'["error"]', "JSON"),
    (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
    (b"220 mail.example ESMTP\r\n", "FTP or SMTP"),
    (b"220-FileZilla Server\r\n", "FTP or SMTP"),
    (b"500 Unknown command\r\n", "FTP or SMTP"),
    (b"421 Too many connections\r\n", "FTP or SMTP"),
    (b"* OK IMAP4rev1 ready\r\n", "IMAP"),
    (b"+OK POP3 ready\r\n", "POP3 or Redis"),
    (b"-ERR unknown command\r\n", "POP3 or Redis"),
    (b'INFO {"server_id":"N"}', "NATS"),
    (b"RTSP/1.0 400 Bad Request\r\n", "RTSP"),
    (b"SIP/2.0 400 Bad Request\r\n", "SIP"),
    (b"RFB 003.008\n", "VNC"),
    (b"\xff\xfd\x18\xff\xfd\x20\xff\xfd\x23\xff\xfd\x27", "Telnet"),
    (b"\xff\xfb\x01\r\nlogin: ", "Telnet"),
    (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "HTTP"),
    (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
    (b"\x15\x03\x03\x00\x02\x02\x28", "TLS"),
    (b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76", "TLS"),
]
"""Answers of servers of other protocols to a CONNECT."""

NO_PROOF = [
    b"",
    b"<",
    b"<html",
    b"<htmlx>",
    b"<3 bytes more",
    b" " * 17 + b"<html>",
    b"{",
    b"{}",
    b"{'error'}",
    b"[1, 2]",
    b"22",
    b"220",
    b"220\x00 x",
    b"2200 files",
    b"\xff\xfd",
    b"\xff\xfa\x18\x00",
    b"\xff\xfd\x32\xff",
    b"\x15\x03\x03\x00\x03\x02\x28",
    b"\x15\x03\x05\x00\x02\x02\x28",
    b"\x16\x03\x01\x00\x00",
    b"\x16\x03\x01\x41\x00",
    b"\x20\x02\x00\x00",
    b"\xef\xbb\xbf\x00",
    b"\xef\xbb\xbe<",
    b"some text that is no protocol",
]
"""Bytes that prove nothing, among them bytes similar to a proof."""


@pytest.mark.parametrize(("head", "name"), ANSWERS)
def test_the_first_bytes_of_a_server_name_what_it_speaks(head: bytes, name: str) -> None:
    assert foreign_protocol(head, is_answer=True) == name
    assert foreign_protocol(head[:MAX_SIGNATURE], is_answer=True) == name


@pytest.mark.parametrize("head", NO_PROOF)
def test_what_proves_nothing_has_no_name(head: bytes) -> None:
    assert foreign_protocol(head, is_answer=True) == ""


def test_what_devices_send_in_place_of_mqtt_is_for_other_rules() -> None:
    for head, name in ANSWERS:
        assert foreign_protocol(head) == (name if name in ("TLS", "SSH", "HTTP") else ""), head


def of_server(version: object) -> list[ControlPacket]:
    """First packets of a server, right and wrong."""
    block = Properties(reason_string="x" * 40) if version is V5 else None
    packets: list[ControlPacket] = [
        Connack(),
        Connack(session_present=True),
        Connack(reason_code=0x87 if version is V5 else 5),
        Publish(topic_name="a/b", payload=b"text"),
        Publish(topic_name="a" * 100, payload=b"<html>"),
        Publish(topic_name="t", payload=b'{"a": "b"}' * 100),
        Suback(packet_identifier=0x3C21, reason_codes=[0]),
        Puback(packet_identifier=0x2230),
        Puback(packet_identifier=0x7B22),
    ]
    if version is V5:
        packets += [Connack(properties=block), Auth(0x18, Properties(authentication_method="m" * 30)), Disconnect(0x8B)]
        packets += [Connack(properties=Properties(reason_string="x" * size)) for size in range(240, 254)]
    return packets


@pytest.mark.parametrize("version", [V3_1_1, V5])
def test_a_packet_whose_first_byte_is_wrong_is_still_mqtt(version: object) -> None:
    """Whatever the first byte is, the others are those of MQTT; and so is a wrong second byte."""
    for packet in of_server(version):
        raw = encode(packet, version)  # type: ignore[arg-type]
        for first in range(256):
            assert foreign_protocol(bytes((first,)) + raw[1:], is_answer=True) == "", (packet, first)
            assert foreign_protocol(raw[:1] + bytes((first,)) + raw[2:], is_answer=True) == "", (packet, first)


def test_no_packet_of_a_server_in_the_captures_is_another_protocol() -> None:
    count = 0
    for event in dissect(open_capture(CAPTURES)):
        if isinstance(event, PacketEvent) and event.direction is Direction.SERVER_TO_CLIENT:
            count += 1
            assert foreign_protocol(event.packet.raw, is_answer=True) == ""
    assert count > 1_000


def findings_of(*steps: ExampleStep) -> list[tuple[str, str, str, str]]:
    """Findings of all rules in a conversation."""
    return [(finding.rule, finding.severity, finding.confidence, finding.message) for finding in linted(*steps)]


@pytest.mark.parametrize("end", [(), (closes("server"),), (closes("server", "reset"),)], ids=["open", "fin", "reset"])
@pytest.mark.parametrize(("answer", "protocol"), ANSWERS)
def test_a_server_that_answers_in_another_protocol_is_one_finding(
    answer: bytes, protocol: str, end: tuple[ExampleStep, ...]
) -> None:
    bytes_alone = [bytes((byte,)) for byte in answer]
    for version in (V3_1_1, V5):
        for pieces in ([answer], [answer[:3], answer[3:]], bytes_alone, [answer, b"and more of the same\r\n"]):
            shown = findings_of(opened(version)[0], *map(server, pieces), *end)
            errors = [row for row in shown if row[1] in ("error", "warning")]
            assert [row[:3] for row in errors] == [("ENC109", "error", "certain")], pieces
            assert errors[0][3].startswith(f"the server answers in {protocol}")


def test_the_message_shows_what_came() -> None:
    def message(answer: bytes) -> str:
        (shown,) = [row[3] for row in findings_of(opened()[0], server(answer), closes("server")) if row[1] == "error"]
        return shown

    end = ", not in MQTT: port 1883 is not a plain MQTT port"
    assert message(b"\n<!DOCTYPE HTML>\n<html>\n") == f"the server answers in HTML ('<!DOC...'){end}"
    assert message(b'{"error":"a"}' + b" " * 30) == f"""the server answers in JSON ('{{"err...'){end}"""
    assert message(b"220 mail.example" + b" " * 40) == f"the server answers in FTP or SMTP ('220 m...'){end}"
    assert message(b"\xff\xfd\x18\xff\xfd\x20\xff\xfd\x23") == f"the server answers in Telnet (0xfffd18fffd...){end}"
    assert message(b"HTTP/1.1 400 Bad Request\r\n\r\n") == f"the server answers in HTTP{end}"


def test_reports_show_what_the_message_shows() -> None:
    """The rest of an answer may be a secret, and is hidden in every report; its beginning is not."""
    steps = opened()[0], server(b"<!DOCTYPE HTML>\n<html>" + b"x" * 40), closes("server")
    (finding,) = (conceal(row, HidingOptions()) for row in linted(*steps, codes=("ENC109",)))

    assert "('<!DOC...')" in finding.message
    assert b"DOCTYPE" not in finding.raw


GREETINGS = [b"SSH-2.0-OpenSSH_9.6\r\n", b"220 mail.example ESMTP\r\n", b"\xff\xfd\x18\xff\xfd\x20\xff\xfd\x23"]


@pytest.mark.parametrize("greeting", GREETINGS)
def test_a_server_that_greets_before_the_connect_is_accused_when_that_comes(greeting: bytes) -> None:
    shown = findings_of(server(greeting), opened(V5)[0], closes("client"))
    errors = [row[:3] for row in shown if row[1] in ("error", "warning")]
    assert errors == [("ENC109", "error", "certain")], shown

    crossed = findings_of(crossing(server(greeting)), crossing(opened(V5)[0]), server(b"more"), closes("server"))
    assert [row[0] for row in crossed if row[1] == "error"] == ["ENC109"]


def test_two_sides_that_both_speak_something_else_are_a_note() -> None:
    hello = b"SSH-2.0-OpenSSH_9.6\r\n"
    for steps in ((server(hello), client(hello)), (client(hello), server(hello)), (server(hello), closes("client"))):
        assert {row[:2] for row in findings_of(*steps)} <= {("ENC109", "info")}


@each(
    "step",
    [
        server(b"<html><body>"),
        server(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"),
        client(b"GET / HTTP/1.1\r\n\r\n"),
    ],
)
def test_after_an_answer_in_mqtt_all_is_judged_as_mqtt(step: ExampleStep) -> None:
    shown = findings_of(*opened(V3_1_1), step, closes("server"))

    assert "ENC109" not in [rule for rule, *_ in shown]
    assert "error" in [severity for _, severity, *_ in shown]


@pytest.mark.parametrize("first", [0x00, 0x25, 0x2F, 0x3C, 0x7B, 0x32, 0x53, 0x15, 0x16, 0xFF, 0xEF])
def test_a_broker_whose_connack_begins_with_a_wrong_byte_is_accused_of_that(first: int) -> None:
    for version in (V3_1_1, V5):
        connack = encode(Connack(), version)
        publish = encode(Publish(topic_name="a/b", payload=b"x"), version)
        shown = findings_of(
            opened(version)[0], server(bytes((first,)) + connack[1:]), server(publish), closes("server")
        )
        assert "ENC109" not in [rule for rule, *_ in shown], shown
        assert [row for row in shown if row[1] == "error"], shown
