from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from mqttscope.mqtt import (
    Auth,
    Connack,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
)
from mqttscope.session import Side, inflight
from mqttscope.session.connection import (
    ACCEPTANCE,
    CONNECT,
    CONNECTED,
    CONNECTING,
    DISCONNECT,
    DISCONNECTED,
    OPENING,
    REFUSAL,
    REFUSED,
    SPECIFIED,
    TRANSITIONS,
    ConnectionPhase,
    ConnectionTrigger,
)
from tests.session.story import C2S, S2C, V3_1_1, Row, Story, connack, connect, fresh, publish

LIMITS = ("receive_maximum", "topic_alias_maximum", "maximum_packet_size", "limits_known")


def limits(side: Side) -> tuple[Any, ...]:
    return tuple(getattr(side, name) for name in LIMITS)


@pytest.mark.parametrize(
    ("rows", "client", "server"),
    [
        pytest.param([], (65535, 0, None, False), (65535, 0, None, False), id="nothing seen: defaults, not known"),
        pytest.param([("C", connect(4))], (65535, 0, None, True), (65535, 0, None, False), id="a CONNECT of 3.1.1"),
        pytest.param(
            [("C", connect(receive_maximum=10, topic_alias_maximum=5, maximum_packet_size=99))],
            (10, 5, 99, True), (65535, 0, None, False), id="CONNECT says what the client takes",
        ),
        pytest.param(
            [("S", connack(receive_maximum=20, topic_alias_maximum=7, maximum_packet_size=1))],
            (65535, 0, None, False), (20, 7, 1, True), id="CONNACK says what the server takes",
        ),
        pytest.param(
            [("C", connect(receive_maximum=3)), ("S", connack(receive_maximum=4))],
            (3, 0, None, True), (4, 0, None, True), id="the sides do not share limits",
        ),
        pytest.param(
            [("C", connect(receive_maximum=0, topic_alias_maximum=0))],
            (0, 0, None, True), (65535, 0, None, False), id="a forbidden 0 stays 0",
        ),
        pytest.param(
            [("C", connect(receive_maximum=3, topic_alias_maximum=4, maximum_packet_size=5)), ("C", connect())],
            (65535, 0, None, True), (65535, 0, None, False), id="a second CONNECT without limits lifts them",
        ),
    ],
)  # fmt: skip
def test_limits(rows: list[Row], client: tuple[Any, ...], server: tuple[Any, ...]) -> None:
    connection = Story(*rows).connection

    assert (limits(connection.client_side), limits(connection.server_side)) == (client, server)


@pytest.mark.parametrize(
    ("rows", "topics"),
    [
        pytest.param([("C", publish(topic="a"))], ["a"], id="a topic of its own"),
        pytest.param(
            [("C", publish(topic="a", topic_alias=1)), ("C", publish(topic="", topic_alias=1))],
            ["a", "a"], id="an alias is known once it was set",
        ),
        pytest.param([("C", publish(topic="", topic_alias=1))], [None], id="an alias that nobody saw set"),
        pytest.param([("C", publish(topic=""))], [None], id="neither topic nor alias"),
        pytest.param(
            [
                ("C", publish(topic="client", topic_alias=1)),
                ("S", publish(topic="server", topic_alias=1)),
                ("C", publish(topic="", topic_alias=1)),
                ("S", publish(topic="", topic_alias=1)),
            ],
            ["client", "server", "client", "server"], id="each direction has its own aliases",
        ),
        pytest.param(
            [
                ("C", publish(topic="a", topic_alias=1)),
                ("C", publish(topic="", topic_alias=1)),
                ("C", publish(topic="b", topic_alias=1)),
                ("C", publish(topic="", topic_alias=1)),
            ],
            ["a", "a", "b", "b"], id="an alias means what it meant at the time",
        ),
        pytest.param(
            [
                ("C", publish(topic="a", topic_alias=1)),
                ("C", publish(topic="b")),
                ("C", publish(topic="", topic_alias=1)),
            ],
            ["a", "b", "a"], id="a PUBLISH without alias leaves it alone",
        ),
        pytest.param(
            [
                ("C", publish(topic="a", topic_alias=1)),
                ("C", publish(topic="b", topic_alias=2)),
                ("C", publish(topic="", topic_alias=1)),
                ("C", publish(topic="", topic_alias=2)),
                ("C", publish(topic="", topic_alias=3)),
            ],
            ["a", "b", "a", "b", None], id="aliases side by side",
        ),
    ],
)  # fmt: skip
def test_topics_per_direction_and_time(rows: list[Row], topics: list[str | None]) -> None:
    assert Story(*rows).topics == topics


def test_alias_use_is_counted() -> None:
    side = Story(
        ("C", publish(topic="a", topic_alias=1)),
        ("C", publish(topic="b", topic_alias=1)),
        ("C", publish(topic="", topic_alias=1)),
        ("C", publish(topic="c")),
    ).connection.client_side

    assert (side.alias_sets, side.alias_hits, side.aliases) == (2, 1, {1: "b"})


def test_aliases_are_bounded_in_bytes_and_what_is_given_up_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflight, "MAX_ALIAS_BYTES", 10)
    story = Story(
        ("C", publish(topic="aaaa", topic_alias=1)),
        ("C", publish(topic="aaaa", topic_alias=1)),
        ("C", publish(topic="ääb", topic_alias=2)),
        ("C", publish(topic="cc", topic_alias=3)),
    )
    side = story.connection.client_side
    assert (side.aliases, side.alias_bytes, side.aliases_dropped) == ({1: "aaaa", 2: "ääb"}, 9, 1)
    assert side.alias_sets == 4

    side.set_alias(2, "longer than that")
    assert (side.aliases, side.alias_bytes, side.aliases_dropped) == ({1: "aaaa"}, 4, 2)
    side.set_alias(3, "cc")
    assert (side.aliases, side.alias_bytes) == ({1: "aaaa", 3: "cc"}, 6)
    assert story.connection.server_side.aliases_dropped == 0


def test_an_exchange_knows_the_topic_behind_its_alias() -> None:
    story = Story(("C", publish(topic="a/b", topic_alias=4)), ("C", publish(1, 1, "", topic_alias=4)))

    assert story.connection.client_side.exchanges[1].topic == "a/b"


@pytest.mark.parametrize(
    ("rows", "keep_alive"),
    [
        pytest.param([], None, id="nothing seen"),
        pytest.param([("C", connect(keep_alive=60))], 60, id="CONNECT asks"),
        pytest.param([("C", connect(4, keep_alive=60)), ("S", Connack())], 60, id="3.1.1 has no other word"),
        pytest.param([("C", connect(keep_alive=60)), ("S", connack())], 60, id="the server agrees"),
        pytest.param([("C", connect(keep_alive=60)), ("S", connack(server_keep_alive=5))], 5, id="the server's wins"),
        pytest.param([("C", connect(keep_alive=60)), ("S", connack(server_keep_alive=0))], 0, id="0 turns it off"),
        pytest.param(
            [("C", connect(keep_alive=60)), ("S", connack(server_keep_alive=5)), ("C", connect(keep_alive=9))],
            9, id="a second CONNECT begins again",
        ),
    ],
)  # fmt: skip
def test_keep_alive(rows: list[Row], keep_alive: int | None) -> None:
    assert Story(*rows).connection.keep_alive == keep_alive


@pytest.mark.parametrize(
    ("rows", "identifier"),
    [
        pytest.param([], None, id="nothing seen"),
        pytest.param([("C", connect(client_identifier="dev1"))], "dev1", id="CONNECT names the client"),
        pytest.param([("C", connect())], "", id="an empty one is empty, not absent"),
        pytest.param(
            [("C", connect()), ("S", connack(assigned_client_identifier="auto-1"))],
            "auto-1",
            id="the server assigns one",
        ),
        pytest.param([("S", connack(assigned_client_identifier="auto-1"))], "auto-1", id="CONNECT was not captured"),
        pytest.param([("C", connect(client_identifier="a")), ("S", connack())], "a", id="CONNACK assigns none"),
    ],
)
def test_client_identifier(rows: list[Row], identifier: str | None) -> None:
    assert Story(*rows).connection.client_identifier == identifier


@pytest.mark.parametrize(
    ("rows", "interval"),
    [
        pytest.param([], None, id="nothing seen"),
        pytest.param([("C", connect(4))], None, id="3.1.1 does not have it"),
        pytest.param([("C", connect())], 0, id="left out means 0"),
        pytest.param([("C", connect(session_expiry_interval=100))], 100, id="CONNECT asks"),
        pytest.param(
            [("C", connect(session_expiry_interval=100)), ("S", connack())], 100, id="the server takes what was asked"
        ),
        pytest.param(
            [("C", connect(session_expiry_interval=100)), ("S", connack(session_expiry_interval=7))], 7, id="or CONNACK"
        ),
        pytest.param(
            [("C", connect(session_expiry_interval=9)), ("C", Disconnect(0, Properties(session_expiry_interval=0)))],
            0, id="DISCONNECT changes it at the end",
        ),
        pytest.param(
            [("C", connect(session_expiry_interval=9)), ("C", Disconnect(0, Properties()))],
            9, id="DISCONNECT without it changes nothing",
        ),
        pytest.param(
            [("C", connect(session_expiry_interval=9)), ("S", Disconnect(0, Properties(session_expiry_interval=1)))],
            9, id="a server cannot change it in DISCONNECT",
        ),
    ],
)  # fmt: skip
def test_session_expiry_interval(rows: list[Row], interval: int | None) -> None:
    assert Story(*rows).connection.session_expiry_interval == interval


def test_what_the_server_has_not_is_taken_from_connack() -> None:
    connection = Story(
        ("C", connect()),
        (
            "S",
            connack(
                maximum_qos=1, retain_available=0, shared_subscription_available=0, wildcard_subscription_available=1
            ),
        ),
    ).connection

    assert connection.maximum_qos == 1
    assert connection.retain_available is False
    assert connection.shared_subscription_available is False
    assert connection.wildcard_subscription_available is True
    assert connection.subscription_identifier_available is True


@pytest.mark.parametrize(
    ("rows", "phase"),
    [
        pytest.param([], "opening", id="nothing yet"),
        pytest.param([("C", connect())], "connecting", id="CONNECT"),
        pytest.param([("C", connect()), ("S", Auth(0x18)), ("C", Auth(0x18))], "connecting", id="AUTH in between"),
        pytest.param([("C", connect()), ("S", connack())], "connected", id="CONNACK"),
        pytest.param([("C", connect()), ("S", connack(0x87))], "refused", id="CONNACK with an error"),
        pytest.param([("C", connect(4)), ("S", Connack(reason_code=5))], "refused", id="a return code of 3.1.1"),
        pytest.param([("C", connect()), ("S", connack()), ("C", Disconnect())], "disconnected", id="DISCONNECT"),
    ],
)
def test_phase(rows: list[Row], phase: str) -> None:
    assert Story(*rows).connection.phase == phase


@pytest.mark.parametrize(
    ("who", "packet", "expected"),
    [
        pytest.param("C", Disconnect(), ("client", 0), id="the client, nothing said"),
        pytest.param("C", Disconnect(4, Properties()), ("client", 4), id="the client wants its will"),
        pytest.param("S", Disconnect(0x8E, Properties()), ("server", 0x8E), id="the server, session taken over"),
    ],
)
def test_who_disconnected_and_why(who: str, packet: Disconnect, expected: tuple[str, int]) -> None:
    connection = Story(("C", connect()), ("S", connack()), (who, packet)).connection

    assert (connection.disconnect_by, connection.disconnect_reason) == expected


def test_numbers_and_times_of_connect_and_connack() -> None:
    connection = Story(("C", connect(clean_start=False)), ("S", connack(session_present=True))).connection

    assert (connection.connect_packet, connection.connect_timestamp_ns, connection.connack_packet) == (0, 0, 1)
    assert (connection.clean_start, connection.session_present) == (False, True)


def test_ping_waits_for_its_answer() -> None:
    story = Story(("C", connect()), ("C", Pingreq()))
    assert (story.connection.client_side.ping_packet, story.connection.client_side.ping_timestamp_ns) == (
        1,
        1_000_000_000,
    )

    story.tell(("S", Pingresp()))
    assert story.connection.client_side.ping_packet is None


def test_packets_bytes_and_times_are_counted_per_side() -> None:
    connection = Story(("C", connect(4)), ("S", Connack()), ("C", Pingreq()), version=V3_1_1).connection

    assert (connection.client_side.packets, connection.server_side.packets) == (2, 1)
    assert (connection.client_side.bytes, connection.server_side.bytes) == (14 + 2, 4)
    assert connection.client_side.last_timestamp_ns == 2_000_000_000
    assert connection.server_side.last_timestamp_ns == 1_000_000_000


def test_bytes_of_a_payload_that_the_capture_lost_count_too() -> None:
    connection = fresh()
    packet = Publish(topic_name="a", payload=b"x", raw=b"0\x08\0\x01a\0x", missing=3)

    connection.apply(packet, C2S, 0, 1, 0)

    assert connection.client_side.bytes == 10


def test_sides_by_direction() -> None:
    connection = fresh()

    assert connection.side(C2S) is connection.receiver(S2C) is connection.client_side
    assert connection.side(S2C) is connection.receiver(C2S) is connection.server_side


PACKETS: dict[ConnectionTrigger, Row] = {
    CONNECT: ("C", connect()),
    ACCEPTANCE: ("S", connack()),
    REFUSAL: ("S", connack(0x87)),
    DISCONNECT: ("C", Disconnect()),
}
WAYS: dict[ConnectionPhase, list[ConnectionTrigger]] = {
    OPENING: [],
    CONNECTING: [CONNECT],
    CONNECTED: [CONNECT, ACCEPTANCE],
    REFUSED: [CONNECT, REFUSAL],
    DISCONNECTED: [CONNECT, ACCEPTANCE, DISCONNECT],
}
LAST = {CONNECT: "connecting", ACCEPTANCE: "connected", REFUSAL: "refused", DISCONNECT: "disconnected"}
"""A passive reader goes by the last packet that changes anything."""


def test_there_is_a_way_from_every_phase_for_every_trigger() -> None:
    assert set(TRANSITIONS) == set(product(ConnectionPhase, ConnectionTrigger))
    assert set(SPECIFIED) < set(TRANSITIONS)


def test_the_specification_leads_to_every_phase() -> None:
    reached, before = {OPENING}, set[ConnectionPhase]()
    while reached != before:
        before = set(reached)
        reached |= {after for (phase, _), after in SPECIFIED.items() if phase in before}
    assert reached == set(ConnectionPhase)


@pytest.mark.parametrize(("phase", "trigger"), TRANSITIONS, ids=" and ".join)
def test_a_connection_follows_the_table(phase: ConnectionPhase, trigger: ConnectionTrigger) -> None:
    story = Story(*(PACKETS[one] for one in WAYS[phase]))
    assert story.connection.phase is phase
    connection = story.tell(PACKETS[trigger])

    assert connection.phase is TRANSITIONS[phase, trigger]
    assert connection.phase.value == LAST[trigger]


def test_the_side_that_sends_is_not_asked() -> None:
    assert Story(("S", connect())).connection.phase is CONNECTING
    assert Story(("C", connect()), ("C", Connack())).connection.phase is CONNECTED
    assert Story(("S", Disconnect())).connection.phase is DISCONNECTED


def test_phases_are_shown_as_their_words() -> None:
    assert [f"{one}" for one in ConnectionPhase] == ["opening", "connecting", "connected", "refused", "disconnected"]
