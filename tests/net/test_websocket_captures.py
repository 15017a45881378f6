from __future__ import annotations

import json
from collections import Counter

import pytest

from mqttscope.net.http_upgrade import Upgrade, looks_like_upgrade
from mqttscope.net.websocket import ControlFrame, WebSocket, WebSocketEvent
from tests import corpora
from tests.net.framing import CLIENT, SERVER, application, reasons
from tests.net.recorded import capture_streams


def mqtt_types(data: bytes) -> tuple[Counter[int], int]:
    """Packet types in a run of MQTT Control Packets, and how many bytes are left over."""
    types: Counter[int] = Counter()
    at = 0
    while at + 2 <= len(data):
        remaining = shift = 0
        body = at + 1
        while True:
            byte = data[body]
            remaining |= (byte & 0x7F) << shift
            shift += 7
            body += 1
            if byte < 0x80:
                break
        if body + remaining > len(data):
            break
        types[data[at] >> 4] += 1
        at = body + remaining
    return types, len(data) - at


def packet_type(name: str) -> int:
    names = ["CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE", "SUBACK"]
    return [*names, "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT"].index(name) + 1


@pytest.mark.parametrize(
    "version",
    [5, *(pytest.param(version, marks=corpora.needs(f"captures/live/paho-ws-v{version}.*")) for version in (3, 4))],
)
@pytest.mark.parametrize("step", [None, 1, 7])
def test_live_captures_give_the_frames_and_packets_of_their_truth(version: int, step: int | None) -> None:
    truth = json.loads(corpora.path("captures", "live", f"paho-ws-v{version}.ws-truth.json").read_text())
    streams = capture_streams(corpora.path("captures", "live", f"paho-ws-v{version}.pcap"))
    assert len(truth["streams"]) == 4
    mqtt = {expected["tcp_stream"] for expected in truth["streams"]}
    for number, chunks in streams.items():
        # The other connections are pairs of sockets with which the clients wake themselves.
        asked = looks_like_upgrade(b"".join(data for from_client, data in chunks if from_client))
        assert bool(asked) is (number in mqtt)
        if not asked:
            continue
        websocket = WebSocket()
        events: list[WebSocketEvent] = []
        for from_client, data in chunks:
            size = step or len(data)
            for at in range(0, len(data), size):
                events += websocket.feed(from_client, data[at : at + size])
        events += websocket.close(CLIENT) + websocket.close(SERVER)
        (upgrade,) = (e for e in events if isinstance(e, Upgrade))
        assert (upgrade.accepted, upgrade.subprotocol, upgrade.problems) == (True, "mqtt", [])
        assert reasons(events) == []
        for expected in truth["streams"]:
            if expected["tcp_stream"] != number:
                continue
            from_client = expected["direction"] == "c2s"
            side = websocket.client if from_client else websocket.server
            types, left = mqtt_types(application(events, from_client))
            assert side.data_frames == expected["ws_data_frames"]
            assert types == {packet_type(name): count for name, count in expected["mqtt_packets"].items()}
            assert left == expected["left_over"]


NO_SUBPROTOCOL = ["subprotocol_not_offered", "subprotocol_missing"]
FOREIGN_SUBPROTOCOL = ["subprotocol_foreign", "subprotocol_wrong"]
ZEEK: dict[str, tuple[list[str], list[tuple[bool, int]], int]] = {
    # reasons, control frames (from the client, opcode), data frames
    "broker-websocket.pcap": ([*NO_SUBPROTOCOL, *["text_frame"] * 8], [(True, 8)], 8),
    "message-too-big-status.pcap": (FOREIGN_SUBPROTOCOL, [(False, 9), (True, 8), (False, 8)], 0),
    "oversized-close-frame.pcapng": ([*NO_SUBPROTOCOL, "length_not_minimal", "control_too_long"], [(False, 8)], 0),
    "reply-ping-coalesced.pcap": (
        [*FOREIGN_SUBPROTOCOL, "text_frame", "text_frame"],
        [(False, 9), (True, 10), (True, 8), (False, 8)],
        2,
    ),
    "wrong-accept-header.pcap": (["subprotocol_foreign", "accept_wrong", "subprotocol_wrong"], [(False, 9)], 0),
}


@pytest.mark.parametrize("name", ZEEK)
def test_captures_of_zeek_are_read_as_they_are(name: str) -> None:
    expected_reasons, controls, data_frames = ZEEK[name]
    (chunks,) = capture_streams(corpora.path("captures", "tcp-zeek", f"websocket__{name}")).values()
    websocket = WebSocket()
    events = [event for from_client, data in chunks for event in websocket.feed(from_client, data)]
    events += websocket.close(CLIENT) + websocket.close(SERVER)
    assert reasons(events) == expected_reasons
    assert [(e.from_client, e.opcode) for e in events if isinstance(e, ControlFrame)] == controls
    assert websocket.client.data_frames + websocket.server.data_frames == data_frames
