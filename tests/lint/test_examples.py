"""Conversations as they are written down (steps, versions, marks), and as segments that the dissector reads."""

from __future__ import annotations

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.events import ConnectionClosed, ConnectionOpened, GapEvent, PacketEvent
from mqttscope.lint.examples import (
    ExampleStep,
    chunkings,
    client,
    closes,
    conversation,
    crossing,
    expected,
    framed,
    hexadecimal,
    lost,
    make_connect,
    on,
    opened,
    segments,
    server,
    silent,
    web_opened,
)
from mqttscope.mqtt import decode, encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Connack, Connect, Pingreq, Pingresp, Puback, Publish
from mqttscope.mqtt.parts import Will
from mqttscope.mqtt.properties import Properties
from mqttscope.session.history import History

V3_1, V3_1_1, V5 = ProtocolVersion


def test_marks_count_the_packets_of_the_capture() -> None:
    talk = conversation(
        "marks",
        *opened(),
        lost(client(Pingreq())),
        client(Pingreq(), Pingreq()).marked("a").marked("b", at=0),
        closes("server").marked(""),
    )

    assert expected(talk) == [(3, "a"), (2, "b"), (None, "")]


def test_a_mark_is_of_the_last_packet_unless_it_names_another() -> None:
    step = client(Pingreq(), Pingreq(), Pingreq())

    assert step.marked("a").marks == ((2, "a"),)
    assert step.marked("a", "b", at=0).marks == ((0, "a"), (0, "b"))
    assert step.marked("a", at=-3).marks == ((0, "a"),)
    assert step.marked("", at=None).marks == ((None, ""),)
    assert step.marked("a").marked("b", at=1).marks == ((2, "a"), (1, "b"))
    assert step.marks == (), "a step is not changed by its mark"


@pytest.mark.parametrize("step", [closes("client"), closes("server", "reset"), silent(client(b"GET"))])
def test_a_mark_of_what_is_no_packet_is_of_the_connection(step: ExampleStep) -> None:
    assert step.marked("a").marks == ((None, "a"),)


@pytest.mark.parametrize("version", ProtocolVersion)
def test_the_version_is_that_of_the_first_connect(version: ProtocolVersion) -> None:
    other = V5 if version is V3_1_1 else V3_1_1
    steps = *opened(version), *on(1, *opened(other))

    assert conversation("", *steps).version is version
    assert conversation("", *steps, version=other).version is other


def test_without_connect_it_is_5_0() -> None:
    assert conversation("", client(b"\x10\x00"), server(Pingresp())).version is V5
    assert conversation("").steps == ()


def test_settings_are_its_own() -> None:
    assert conversation("").settings == {}
    assert conversation("").settings is not conversation("").settings
    assert conversation("", settings={"a": 1}).settings == {"a": 1}


def test_what_is_done_with_a_step_changes_nothing_else_of_it() -> None:
    step = client(Pingreq(), after=3)

    assert crossing(step) == ExampleStep("client", (Pingreq(),), 3, crosses=True)
    assert lost(step) == ExampleStep("client", (Pingreq(),), 3, is_lost=True)
    assert silent(step) == ExampleStep("client", (Pingreq(),), 3, silent=True)
    assert on(2, step, lost(step)) == (
        ExampleStep("client", (Pingreq(),), 3, connection=2),
        ExampleStep("client", (Pingreq(),), 3, connection=2, is_lost=True),
    )
    assert closes("server", "reset", 2) == ExampleStep("server", (), 2, close="reset")


@pytest.mark.parametrize("version", ProtocolVersion)
def test_a_connection_is_opened_with_what_was_asked_for(version: ProtocolVersion) -> None:
    block = Properties() if version is V5 else None
    will = Will("w", b"gone", properties=block)
    asked, answered = opened(
        version, client_identifier="x", clean_start=False, keep_alive=7, user_name="u", password=b"p", will=will,
        connect=block, session_present=True, connack=block,
    )  # fmt: skip
    (request,), (answer,) = asked.packets, answered.packets

    assert (asked.side, answered.side) == ("client", "server")
    assert isinstance(request, Connect)
    assert request.version is version
    # It is well-formed: what is read of its bytes is the same packet.
    assert decode(encode(request, version), version) == request
    assert (request.client_identifier, request.clean_start, request.keep_alive) == ("x", False, 7)
    assert (request.user_name, request.password, request.will) == ("u", b"p", will)
    assert answer == Connack(session_present=True, properties=block)


def test_a_connect_has_a_client_and_a_keep_alive_unless_they_are_given() -> None:
    assert (make_connect().client_identifier, make_connect().keep_alive) == ("c1", 60)
    connect = make_connect(client_identifier="", keep_alive=0)
    assert (connect.client_identifier, connect.keep_alive) == ("", 0)
    assert make_connect(V3_1).protocol_name == "MQIsdp"


def test_bytes_have_comments() -> None:
    text = """
        c0 00   # PINGREQ, c0
        d000
        # nothing
    """

    assert hexadecimal(text) == b"\xc0\x00\xd0\x00"
    assert hexadecimal("") == b""


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
