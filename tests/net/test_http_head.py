from __future__ import annotations

import pytest

from mqttscope.net.http_head import parse_request, parse_response
from tests.net.heads import KEY, request, response


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"Upgrade": None}, "upgrade_header_missing", id="no upgrade header"),
        pytest.param({"Upgrade": "h2c"}, "upgrade_header_missing", id="upgrade to something else"),
        pytest.param({"Connection": "keep-alive"}, "connection_header_missing", id="connection without upgrade"),
        pytest.param({"Sec-WebSocket-Version": "8"}, "websocket_version_wrong", id="draft version"),
        pytest.param({"Sec-WebSocket-Version": None}, "websocket_version_wrong", id="no version"),
        pytest.param({"Sec-WebSocket-Key": "c2hvcnQ=", "Sec-WebSocket-Accept": ""}, "key_invalid", id="short key"),
        pytest.param({"Sec-WebSocket-Key": ""}, "key_invalid", id="empty key"),
        pytest.param({"Sec-WebSocket-Key": None}, "key_missing", id="no key"),
        pytest.param({"Sec-WebSocket-Protocol": None}, "subprotocol_not_offered", id="no subprotocol"),
        pytest.param({"Sec-WebSocket-Protocol": "MQTT"}, "subprotocol_foreign", id="subprotocol in capitals"),
        pytest.param({"Sec-WebSocket-Protocol": "chat, amqp"}, "subprotocol_foreign", id="other subprotocols"),
        pytest.param({"Sec-WebSocket-Protocol": "mqttv3.1"}, "subprotocol_old", id="subprotocol of 3.1"),
    ],
)
def test_a_bad_request_header_is_a_remark(changes: dict[str, str | None], expected: str) -> None:
    parsed = parse_request(request(changes))
    assert parsed is not None
    assert [reason for reason, _ in parsed.remarks] == [expected]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("POST /mqtt HTTP/1.1", "request_not_get"),
        ("GET /mqtt HTTP/1.0", "http_version_old"),
    ],
)
def test_a_bad_request_line_is_a_remark(first: str, expected: str) -> None:
    parsed = parse_request(request(first=first))
    assert parsed is not None
    assert [reason for reason, _ in parsed.remarks] == [expected]


@pytest.mark.parametrize(
    ("extension", "takeover", "problems"),
    [
        ("permessage-deflate", (True, True), []),
        ("permessage-deflate; client_no_context_takeover", (False, True), []),
        ("permessage-deflate; server_no_context_takeover; client_max_window_bits=9", (True, False), []),
        ('Permessage-Deflate ;server_max_window_bits="10"', (True, True), []),
        ("permessage-deflate; server_max_window_bits", (True, True), ["deflate_parameters_invalid"]),
        ("permessage-deflate; server_max_window_bits=16", (True, True), ["deflate_parameters_invalid"]),
        ("permessage-deflate; surprise=1", (True, True), ["deflate_parameters_invalid"]),
        ("permessage-deflate, permessage-deflate", (True, True), ["deflate_parameters_invalid"]),
    ],
)
def test_permessage_deflate_parameters_are_read(
    extension: str, takeover: tuple[bool, bool], problems: list[str]
) -> None:
    parsed = parse_response(response({"Sec-WebSocket-Extensions": extension}))
    assert parsed is not None
    assert parsed.deflate
    assert (parsed.client_takeover, parsed.server_takeover) == takeover
    assert [reason for reason, _ in parsed.remarks] == problems


def test_header_names_are_case_insensitive_lists_may_be_split_and_folds_are_harmless() -> None:
    text = (
        "GET /a HTTP/1.1\r\nhOST:h\r\nUPGRADE: foo, WebSocket\r\nconnection: keep-alive,\r\n\tUpgrade\r\n"
        f"sec-websocket-protocol: chat\r\nSec-WebSocket-Protocol: mqttv3.1 , mqtt\r\nsec-websocket-key:  {KEY} \r\n"
        "Sec-Websocket-Version: 13\r\nno colon here\r\n\r\n"
    )
    parsed = parse_request(text.encode())
    assert parsed is not None
    assert (parsed.path, parsed.host, parsed.key) == ("/a", "h", KEY)
    assert parsed.subprotocols == ["chat", "mqttv3.1", "mqtt"]
    assert parsed.remarks == []
