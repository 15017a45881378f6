"""Protocols that are not MQTT."""

from __future__ import annotations

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Step, client, closes, conversation, opened, server
from mqttscope.lint.foreign import PREFACES, foreign_protocol
from mqttscope.lint.rehearsal import segments
from mqttscope.lint.rule import V3_1_1


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


HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
ALERT = b"\x15\x03\x03\x00\x02\x02\x28"


def found(*steps: Step) -> list[tuple[str, str, str, str]]:
    """What all rules find in a conversation."""
    linter = Linter([rule() for rule in all_rules().values()], strict=True)
    events = dissect_segments(segments(conversation("", *steps)))
    return [(one.rule, one.severity, one.confidence, one.message) for event in events for one in linter.feed(event)]


@pytest.mark.parametrize(("answer", "protocol"), [(HTTP, "HTTP"), (ALERT, "TLS")])
@pytest.mark.parametrize("end", [(), (closes("server"),)], ids=["open", "closed"])
def test_a_server_that_answers_in_another_protocol_is_named(
    answer: bytes, protocol: str, end: tuple[Step, ...]
) -> None:
    shown = [one for one in found(opened(V3_1_1)[0], server(answer), *end) if one[1] == "error"]

    message = f"the server answers in {protocol}, not in MQTT: port 1883 is no port for plain MQTT"
    assert shown == [("ENC109", "error", "certain", message)]


def test_what_comes_behind_an_answer_in_mqtt_is_no_other_protocol() -> None:
    shown = found(*opened(V3_1_1), server(HTTP), closes("server"))

    assert "ENC109" not in [rule for rule, *_ in shown]
    assert "HDR102" in [rule for rule, *_ in shown]


def test_a_client_that_goes_on_in_another_protocol_breaks_mqtt() -> None:
    shown = found(*opened(V3_1_1), client(b"GET / HTTP/1.1\r\n\r\n"), closes("client"))

    assert "ENC109" not in [rule for rule, *_ in shown]
    assert "error" in [severity for _, severity, *_ in shown]
