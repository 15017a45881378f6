"""What tshark is told so that it hands over what is inside TLS."""

from __future__ import annotations

import pytest

from mqttscope.capture.tshark import decrypting, find_tshark


@pytest.mark.tshark
def test_ports_keys_and_what_would_look_inside() -> None:
    words = decrypting(find_tshark(), "-", "keys.txt", {8883, 443})

    assert words[1:6] == ["-n", "-r", "-", "-o", "tls.keylog_file:keys.txt"]
    assert [one for one in words if "port" in one] == [
        "tcp.port==443,tls", "tls.port==443,data", "tcp.port==8883,tls", "tls.port==8883,data",
    ]  # fmt: skip
    hidden = {words[at + 1] for at, one in enumerate(words) if one == "--disable-protocol"}
    assert {"http", "http2", "mqtt", "websocket"} < hidden


def test_a_tshark_that_cannot_be_asked() -> None:
    assert decrypting("/nowhere/tshark", "a", "b", ())[0] == "/nowhere/tshark"
