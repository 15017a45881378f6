"""Other protocols that are met where MQTT should begin, known by their first bytes."""

from __future__ import annotations

import re

PROXY = "a PROXY protocol header"
PREFACES = frozenset({PROXY})
"""What a load balancer puts before the MQTT of a connection."""

_HTTP_METHODS = b"GET|HEAD|POST|PUT|DELETE|OPTIONS|TRACE|PATCH|CONNECT|PRI"
_SIGNATURES: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb"\x16\x03[\x00-\x04]"), "TLS"),
    (re.compile(rb"\x15\x03[\x00-\x04]\x00"), "TLS"),  # an alert, which answers what is no TLS
    (re.compile(rb"(?:" + _HTTP_METHODS + rb") [!-~]"), "HTTP"),
    (re.compile(rb"HTTP/\d"), "HTTP"),
    (re.compile(rb"SSH-[12]\."), "SSH"),
    (re.compile(rb"AMQP[\x00-\x03]"), "AMQP"),
    (re.compile(rb"\x03\x00\x00.[\x02-\x40]\xe0", re.DOTALL), "RDP"),
    (re.compile(rb"PROXY (?:TCP[46]|UNKNOWN)"), PROXY),
    (re.compile(rb"\r\n\r\n\x00\r\nQUIT\n"), PROXY),
)


def foreign_protocol(head: bytes) -> str:
    """Name of the protocol that the first bytes of a stream belong to; empty when they may be MQTT or nobody knows."""
    for signature, name in _SIGNATURES:
        if signature.match(head):
            return name
    return ""
