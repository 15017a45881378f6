"""Headers of the PROXY protocol: how long they are, and whom they name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.net.proxy_protocol import MAX_LINE, SIGNATURE, header_length, parse_endpoints

TEXT = b"PROXY TCP4 10.0.0.4 10.0.0.2 51234 1883\r\n"
BINARY = SIGNATURE + bytes.fromhex("21 11 000c 0a000004 0a000002 c822 075b")
LOCAL = SIGNATURE + bytes.fromhex("20 00 0000")
SIX = SIGNATURE + bytes.fromhex("21 21 0027" + "00" * 15 + "01" + "00" * 15 + "02 c822 075b ee0000")
CONNECT = bytes.fromhex("100d00044d5154540402003c000161")


@pytest.mark.parametrize("header", [TEXT, BINARY, LOCAL, SIX, b"PROXY UNKNOWN\r\n"])
def test_headers_are_as_long_as_they_say(header: bytes) -> None:
    assert header_length(header + CONNECT) == len(header)
    assert [header_length(header[:end]) for end in range(1, len(header))] == [None] * (len(header) - 1)


@pytest.mark.parametrize(
    "head", [b"", CONNECT, b"PUT / HTTP/1.1\r\n", b"PROXY" + b"x" * MAX_LINE, b"PROXY " + b"x" * MAX_LINE,
             SIGNATURE + b"\x11\x11\x00\x0c" + bytes(12), b"\r\n\r\n\r\n"]
)  # fmt: skip
def test_what_is_no_header(head: bytes) -> None:
    assert header_length(head) == 0


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (TEXT, ("10.0.0.4:51234", "10.0.0.2:1883")),
        (b"PROXY TCP6 2001:db8::4 2001:db8::2 51234 1883\r\n", ("[2001:db8::4]:51234", "[2001:db8::2]:1883")),
        (BINARY, ("10.0.0.4:51234", "10.0.0.2:1883")),
        (SIX, ("[::1]:51234", "[::2]:1883")),
        (LOCAL, None),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY TCP4 10.0.0 x 1 2\r\n", None),
        (SIGNATURE + bytes.fromhex("21 11 0004 0a000004"), None),
        (b"", None),
    ],
)
def test_whom_they_name(header: bytes, expected: tuple[str, str] | None) -> None:
    assert parse_endpoints(header) == expected


@given(st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(lambda rest: SIGNATURE + rest)))
def test_any_bytes_are_read(data: bytes) -> None:
    length = header_length(data)
    assert length is None or 0 <= length <= len(data)
    parse_endpoints(data)
