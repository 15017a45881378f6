"""Flows whose beginning was not captured: version and roles are assumed, with evidence."""

from __future__ import annotations

import pytest

from mqttscope.dissect import Dissector, Options
from mqttscope.dissect.transports import MAX_HELD_ITEMS
from mqttscope.events import ConnectionOpened, GapEvent, PacketEvent
from mqttscope.mqtt import Publish
from tests.dissect.scenes import HTTP, HTTP_ANSWER, Joined, dialogue_of
from tests.dissect.talk import (
    PINGREQ,
    PUBLISH_1,
    V3_1,
    V3_1_1,
    V5,
    Talk,
    only,
    wire,
)
from tests.net.hellos import record


@pytest.mark.parametrize("port", [1883, 9999], ids=["a known port", "an unknown port"])
@pytest.mark.parametrize(
    ("begin", "version", "evidence", "packets"),
    [
        pytest.param(
            Joined.v311, V3_1_1, "well formed in 3.1.1 only",
            ["publish", "subscribe", "puback", "suback", "pingreq", "pingresp"], id="3.1.1",
        ),
        pytest.param(
            Joined.v5, V5, "a PUBLISH with well-formed properties",
            ["publish", "subscribe", "suback", "pingresp", "pingreq", "publish"], id="5.0",
        ),
    ],
)  # fmt: skip
def test_joined_in_the_middle_version_and_roles_are_assumed_with_evidence(
    port: int, begin: object, version: object, evidence: str, packets: list[str]
) -> None:
    events = only(begin(port).events(), PacketEvent)  # type: ignore[operator]

    assert sorted(event.type for event in events) == sorted(packets)
    connection = events[0].connection
    assert (connection.version, connection.version_known) == (version, False)
    assert connection.version_evidence.endswith(evidence)
    assert (connection.roles_known, connection.roles_evidence) == (False, "packet types")
    assert (connection.client, connection.server) == ("192.0.2.4:50000", f"192.0.2.2:{port}")
    assert connection.handshake_seen is False


def test_joined_with_the_higher_port_as_server_packet_types_tell() -> None:
    talk = Talk(port=60_000, client_port=40_000).tell("> subscribe & pingreq; < suback & pingresp")

    connection = only(talk.events(), PacketEvent)[0].connection

    assert (connection.client, connection.server) == ("192.0.2.4:40000", "192.0.2.2:60000")
    assert (connection.roles_known, connection.roles_evidence) == (False, "packet types")


def test_joined_where_packets_tell_nothing_the_port_tells_who_serves() -> None:
    talk = Talk(port=1883, client_port=1200).tell("> publish; < puback")

    connection = only(talk.events(), ConnectionOpened)[0].connection

    assert (connection.client, connection.server) == ("192.0.2.4:1200", "192.0.2.2:1883")
    assert (connection.roles_known, connection.roles_evidence) == (False, "port")


def test_joined_on_unknown_ports_where_packets_tell_nothing_the_higher_one_is_taken_for_the_client() -> None:
    talk = Talk(port=9999, client_port=60_000)
    for _ in range(3):
        talk.tell("> publish; < puback")

    connection = only(talk.events(), ConnectionOpened)[0].connection

    assert (connection.client, connection.server) == ("192.0.2.4:60000", "192.0.2.2:9999")
    assert (connection.roles_known, connection.roles_evidence) == (False, "higher port")


def test_joined_inside_a_payload_its_bytes_do_not_tell_who_is_who() -> None:
    talk = Talk(port=1883)
    talk.server(b"\x82\x02not a packet" + wire(PUBLISH_1, PUBLISH_1))

    connection = only(talk.events(), ConnectionOpened)[0].connection

    assert (connection.server, connection.roles_evidence) == ("192.0.2.2:1883", "port")


def test_a_connect_without_handshake_says_all_there_is_to_know() -> None:
    talk = Talk(port=9999).tell("ack client; > connect 5.0; < connack", version=V5)

    events = only(talk.events(), PacketEvent)

    assert [(event.type, event.frame) for event in events] == [("connect", 2), ("connack", 3)]
    connection = events[0].connection
    assert (connection.roles_known, connection.roles_evidence, connection.handshake_seen) == (True, "CONNECT", False)


def test_the_first_bytes_lost_the_rest_is_found_on_an_unknown_port() -> None:
    talk = Talk(port=9999).handshake().tell("lose client 20; < connack & publish; +3; > puback & pingreq; < pingresp")

    events = talk.events()

    assert [event.length for event in only(events, GapEvent)] == [20]
    assert [event.type for event in only(events, PacketEvent) if event.direction == "client_to_server"] == [
        "puback",
        "pingreq",
    ]
    assert len(only(events, PacketEvent)) == 5
    connection = only(events, ConnectionOpened)[0].connection
    assert connection.roles_evidence == "TCP handshake"
    assert connection.client_side.gapped
    assert not connection.server_side.gapped


def test_the_user_says_the_version_of_a_connection_that_was_joined() -> None:
    events = only(Joined.v311(1883).events(Options(version=V3_1)), PacketEvent)

    connection = events[0].connection
    assert (connection.version, connection.version_known, connection.version_evidence) == (V3_1, True, "given")


def test_what_a_later_packet_tells_of_the_version_overrules_what_was_assumed() -> None:
    talk = Talk().tell("> subscribe & pingreq; < suback & pingresp; < publish a text")

    connection = only(talk.events(), PacketEvent)[0].connection

    assert (connection.version, connection.version_known) == (V3_1_1, False)


@pytest.mark.parametrize(
    ("client", "server"),
    [
        pytest.param(b"SSH-2.0-a\r\n" * 3, b"SSH-2.0-b\r\n", id="SSH"),
        pytest.param(record(23, b"x" * 40), record(23, b"y" * 40), id="TLS"),
        pytest.param(HTTP, HTTP_ANSWER, id="HTTP"),
    ],
)
def test_other_protocols_joined_in_the_middle_are_forgotten_at_once(client: bytes, server: bytes) -> None:
    talk = Talk(port=9999)
    dissector = Dissector()
    talk.client(client)
    talk.server(server)

    assert [event for segment in talk.tape.segments for event in dissector.feed(segment)] == []
    assert dialogue_of(talk, dissector) is None


def test_disconnect_by_the_server_does_not_confuse_roles_of_a_joined_connection() -> None:
    talk = Talk().tell("< disconnect code=0x8b properties; fin server", version=V5)

    (event,) = only(talk.events(), PacketEvent)

    assert (event.type, event.direction, event.connection.version) == ("disconnect", "server_to_client", V5)


def test_packets_of_both_sides_come_in_the_order_of_the_frames() -> None:
    talk = Talk()
    delivery = Publish(qos=1, packet_identifier=95, topic_name="s/x", payload=b"v")
    talk.server(delivery)
    talk.tell("> puback 95 & publish s/y one & pingreq; > publish s/y two; < pingresp; < publish s/y three")
    events = only(talk.events(), PacketEvent)

    assert [event.frame for event in events] == sorted(event.frame for event in events)
    assert [event.type for event in events] == [
        "publish",
        "puback",
        "publish",
        "pingreq",
        "publish",
        "pingresp",
        "publish",
    ]
    assert [event.number for event in events] == list(range(7))
    # The acknowledgment found what it answers.
    assert not events[0].connection.server_side.exchanges


@pytest.mark.parametrize("pings", [3, 200])
def test_a_side_of_which_nothing_is_found_holds_the_other_up_only_so_long(pings: int) -> None:
    talk = Talk()
    talk.server(b"\x32")
    for _ in range(pings):
        talk.client(PINGREQ)
    dissector = Dissector(Options())
    shown = sum(isinstance(event, PacketEvent) for segment in talk.tape.segments for event in dissector.feed(segment))

    assert shown >= pings - MAX_HELD_ITEMS
    assert len(only(talk.events(), PacketEvent)) == pings
