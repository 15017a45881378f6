"""WebSocket connections of examples are what the dissector reads."""

from __future__ import annotations

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.events import ConnectionOpened, PacketEvent
from mqttscope.lint.examples import client, closes, conversation, server
from mqttscope.lint.rehearsal import chunkings
from mqttscope.lint.websocket_examples import framed, web_opened
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Pingreq, Pingresp, Publish


@pytest.mark.parametrize("version", list(ProtocolVersion))
def test_packets_come_out_of_the_frames(version: ProtocolVersion) -> None:
    example = conversation(
        "pings",
        *web_opened(version),
        client(framed(Pingreq())),
        server(framed(Pingresp(), masked=False)),
        client(framed(Publish(topic_name="a", payload=b"x" * 300), version=version)),
        closes("client"),
    )
    for captured in chunkings(example):
        events = list(dissect_segments(captured))
        (opened,) = [event for event in events if isinstance(event, ConnectionOpened)]

        assert opened.connection.transport == "websocket"
        assert opened.connection.version is version
        assert "problems" not in opened.connection.details
        assert [event.type for event in events if isinstance(event, PacketEvent)] == [
            "connect",
            "connack",
            "pingreq",
            "pingresp",
            "publish",
        ]
