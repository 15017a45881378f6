"""Conversations become segments that the dissector reads as they were written."""

from __future__ import annotations

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.events import ConnectionClosed, ConnectionOpened, GapEvent, PacketEvent
from mqttscope.lint.example_segments import chunkings, framed, segments, web_opened
from mqttscope.lint.examples import client, closes, conversation, crossing, lost, opened, server
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Pingreq, Pingresp, Puback, Publish
from mqttscope.session.history import History


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


TALK = conversation(
    "a talk",
    *opened(),
    client(Publish(qos=1, topic_name="a", packet_identifier=7), Pingreq()),
    server(Puback(packet_identifier=7), Pingresp()),
    closes("client"),
)


@pytest.mark.parametrize("number", range(4))
def test_packets_come_back_at_every_chunking(number: int) -> None:
    captured = list(chunkings(TALK))[number]
    types = [event.type for event in dissect_segments(captured) if isinstance(event, PacketEvent)]

    assert types == ["connect", "connack", "publish", "pingreq", "puback", "pingresp"]


def test_a_lost_step_is_a_gap_that_an_acknowledgment_proves() -> None:
    talk = conversation("lossy", *opened(), lost(client(Pingreq())), client(Pingreq()))
    gaps = [event for event in dissect_segments(segments(talk)) if isinstance(event, GapEvent)]

    assert [(gap.length, gap.reason) for gap in gaps] == [(2, "not_captured")]


def test_the_end_is_seen_with_who_ended_it() -> None:
    closed = next(event for event in dissect_segments(segments(TALK)) if isinstance(event, ConnectionClosed))

    assert (closed.connection.closed_how, closed.connection.closed_by) == ("fin", "client")


@pytest.mark.parametrize("crosses", [False, True])
def test_a_crossing_step_does_not_acknowledge_what_it_has_not_received(crosses: bool) -> None:
    step = client(Pingreq())
    talk = conversation("order", *opened(), crossing(step) if crosses else step)
    for event in dissect_segments(segments(talk)):
        connection = getattr(event, "connection", None)
        if connection is not None and connection.history is None:
            connection.history = History()
        if isinstance(event, PacketEvent) and event.type == "pingreq":
            history = event.connection.history
            assert history is not None
            assert (history.client.acknowledged >= history.server.position) is not crosses
            return
    raise AssertionError("no PINGREQ")
