"""Which connections others can read."""

from __future__ import annotations

import pytest

from mqttscope.lint.exposure import is_loopback, is_plain
from mqttscope.session.connection import Connection


@pytest.mark.parametrize(
    ("endpoint", "loopback"),
    [
        ("127.0.0.1:1883", True),
        ("127.3.2.1:1883", True),
        ("[::1]:1883", True),
        ("[::ffff:127.0.0.1]:1883", True),
        ("localhost:1883", True),
        ("10.0.0.2:1883", False),
        ("[fd00::1]:1883", False),
        ("broker:1883", False),
    ],
)
def test_loopback(endpoint: str, loopback: bool) -> None:
    assert is_loopback(endpoint) is loopback


@pytest.mark.parametrize(
    ("transport", "plain"),
    [("tcp", True), ("websocket", True), ("tls", False)],
)
def test_plain(transport: str, plain: bool) -> None:
    connection = Connection(0, "10.0.0.4:51234", "10.0.0.2:1883", "a.pcap", 1, 0, transport)

    assert is_plain(connection) is plain
