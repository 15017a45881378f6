"""Protocols that are not MQTT."""

from __future__ import annotations

import pytest

from mqttscope.lint.foreign import PREFACES, foreign_protocol


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
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
