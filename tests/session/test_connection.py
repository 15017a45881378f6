from __future__ import annotations

import dataclasses
from ast import literal_eval
from collections.abc import Iterator
from enum import Enum
from itertools import product
from typing import Any

import pytest

from mqttscope.mqtt import (
    Connect,
    Malformed,
    MalformedReason,
    PacketStream,
    Pubcomp,
    Publish,
    Pubrec,
    Subscribe,
    decode,
)
from mqttscope.session import Connection, Exchange, Side, inflight
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
from tests.each import each
from tests.mqtt.octets import framed, string
from tests.session.story import C2S, S2C, V3_1, V3_1_1, V5, Story, fresh
from tests.tables import cases_of

LIMITS = ("receive_maximum", "topic_alias_maximum", "maximum_packet_size", "limits_known")


def limits(side: Side) -> tuple[Any, ...]:
    return tuple(getattr(side, name) for name in LIMITS)


BOTH_LIMITS = """
nothing seen: defaults, not known
    nothing | (65535, 0, None, False) | (65535, 0, None, False)
a CONNECT of 3.1.1
    > connect 3.1.1 | (65535, 0, None, True) | (65535, 0, None, False)
CONNECT says what the client takes
    > connect receive_maximum=10 topic_alias_maximum=5 maximum_packet_size=99 | (10, 5, 99, True) |
    (65535, 0, None, False)
CONNACK says what the server takes
    < connack receive_maximum=20 topic_alias_maximum=7 maximum_packet_size=1 | (65535, 0, None, False) |
    (20, 7, 1, True)
the sides do not share limits
    > connect receive_maximum=3; < connack receive_maximum=4 | (3, 0, None, True) | (4, 0, None, True)
a forbidden 0 stays 0
    > connect receive_maximum=0 topic_alias_maximum=0 | (0, 0, None, True) | (65535, 0, None, False)
a second CONNECT without limits lifts them
    > connect receive_maximum=3 topic_alias_maximum=4 maximum_packet_size=5; > connect | (65535, 0, None, True) |
    (65535, 0, None, False)
"""


@pytest.mark.parametrize(("rows", "client", "server"), cases_of(BOTH_LIMITS, str, literal_eval, literal_eval))
def test_limits(rows: str, client: tuple[Any, ...], server: tuple[Any, ...]) -> None:
    connection = Story(rows).connection

    assert (limits(connection.client_side), limits(connection.server_side)) == (client, server)


TOPICS = """
a topic of its own
    > publish a | ['a']
an alias is known once it was set
    > publish a topic_alias=1; > publish - topic_alias=1 | ['a', 'a']
an alias that nobody saw set
    > publish - topic_alias=1 | [None]
neither topic nor alias
    > publish - | [None]
each direction has its own aliases
    > publish client topic_alias=1; < publish server topic_alias=1; > publish - topic_alias=1;
      < publish - topic_alias=1 |
    ['client', 'server', 'client', 'server']
an alias means what it meant at the time
    > publish a topic_alias=1; > publish - topic_alias=1; > publish b topic_alias=1; > publish - topic_alias=1 |
    ['a', 'a', 'b', 'b']
a PUBLISH without alias leaves it alone
    > publish a topic_alias=1; > publish b; > publish - topic_alias=1 | ['a', 'b', 'a']
aliases side by side
    > publish a topic_alias=1; > publish b topic_alias=2; > publish - topic_alias=1; > publish - topic_alias=2;
      > publish - topic_alias=3 |
    ['a', 'b', 'a', 'b', None]
"""


@pytest.mark.parametrize(("rows", "topics"), cases_of(TOPICS, str, literal_eval))
def test_topics_per_direction_and_time(rows: str, topics: list[str | None]) -> None:
    assert Story(rows).topics == topics


def test_alias_use_is_counted() -> None:
    side = Story(
        "> publish a topic_alias=1; > publish b topic_alias=1; > publish - topic_alias=1; > publish c",
    ).connection.client_side

    assert (side.alias_sets, side.alias_hits, side.aliases) == (2, 1, {1: "b"})


def test_aliases_are_bounded_in_bytes_and_what_is_given_up_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflight, "MAX_ALIAS_BYTES", 10)
    story = Story(
        '> publish aaaa topic_alias=1; > publish aaaa topic_alias=1; > publish "ääb" topic_alias=2; '
        "> publish cc topic_alias=3",
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
    story = Story("> publish a/b topic_alias=4; > publish - qos=1 id=1 topic_alias=4")

    assert story.connection.client_side.exchanges[1].topic == "a/b"


@pytest.mark.parametrize(
    ("rows", "keep_alive"),
    [
        pytest.param("nothing", None, id="nothing seen"),
        pytest.param("> connect keep_alive=60", 60, id="CONNECT asks"),
        pytest.param("> connect 3.1.1 keep_alive=60; < connack", 60, id="3.1.1 has no other word"),
        pytest.param("> connect keep_alive=60; < connack", 60, id="the server agrees"),
        pytest.param("> connect keep_alive=60; < connack server_keep_alive=5", 5, id="the server's wins"),
        pytest.param("> connect keep_alive=60; < connack server_keep_alive=0", 0, id="0 turns it off"),
        pytest.param(
            "> connect keep_alive=60; < connack server_keep_alive=5; > connect keep_alive=9",
            9,
            id="a second CONNECT begins again",
        ),
    ],
)
def test_keep_alive(rows: str, keep_alive: int | None) -> None:
    assert Story(rows).connection.keep_alive == keep_alive


@pytest.mark.parametrize(
    ("rows", "identifier"),
    [
        pytest.param("nothing", None, id="nothing seen"),
        pytest.param("> connect client=dev1", "dev1", id="CONNECT names the client"),
        pytest.param("> connect", "", id="an empty one is empty, not absent"),
        pytest.param("> connect; < connack assigned_client_identifier=auto-1", "auto-1", id="the server assigns one"),
        pytest.param("< connack assigned_client_identifier=auto-1", "auto-1", id="CONNECT was not captured"),
        pytest.param("> connect client=a; < connack", "a", id="CONNACK assigns none"),
    ],
)
def test_client_identifier(rows: str, identifier: str | None) -> None:
    assert Story(rows).connection.client_identifier == identifier


EXPIRY_INTERVALS = """
nothing seen
    nothing | None
3.1.1 does not have it
    > connect 3.1.1 | None
left out means 0
    > connect | 0
CONNECT asks
    > connect session_expiry_interval=100 | 100
the server takes what was asked
    > connect session_expiry_interval=100; < connack | 100
or CONNACK
    > connect session_expiry_interval=100; < connack session_expiry_interval=7 | 7
DISCONNECT changes it at the end
    > connect session_expiry_interval=9; > disconnect code=0 session_expiry_interval=0 | 0
DISCONNECT without it changes nothing
    > connect session_expiry_interval=9; > disconnect code=0 properties | 9
a server cannot change it in DISCONNECT
    > connect session_expiry_interval=9; < disconnect code=0 session_expiry_interval=1 | 9
"""


@pytest.mark.parametrize(("rows", "interval"), cases_of(EXPIRY_INTERVALS, str, literal_eval))
def test_session_expiry_interval(rows: str, interval: int | None) -> None:
    assert Story(rows).connection.session_expiry_interval == interval


def test_what_the_server_has_not_is_taken_from_connack() -> None:
    connection = Story(
        "> connect; "
        "< connack maximum_qos=1 retain_available=0 shared_subscription_available=0 wildcard_subscription_available=1",
    ).connection

    assert connection.maximum_qos == 1
    assert connection.retain_available is False
    assert connection.shared_subscription_available is False
    assert connection.wildcard_subscription_available is True
    assert connection.subscription_identifier_available is True


@pytest.mark.parametrize(
    ("rows", "phase"),
    [
        pytest.param("nothing", "opening", id="nothing yet"),
        pytest.param("> connect", "connecting", id="CONNECT"),
        pytest.param("> connect; < auth code=0x18; > auth code=0x18", "connecting", id="AUTH in between"),
        pytest.param("> connect; < connack", "connected", id="CONNACK"),
        pytest.param("> connect; < connack code=0x87", "refused", id="CONNACK with an error"),
        pytest.param("> connect 3.1.1; < connack code=5", "refused", id="a return code of 3.1.1"),
        pytest.param("> connect; < connack; > disconnect", "disconnected", id="DISCONNECT"),
    ],
)
def test_phase(rows: str, phase: str) -> None:
    assert Story(rows).connection.phase == phase


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        pytest.param("> disconnect", ("client", 0), id="the client, nothing said"),
        pytest.param("> disconnect code=4 properties", ("client", 4), id="the client wants its will"),
        pytest.param("< disconnect code=0x8e properties", ("server", 0x8E), id="the server, session taken over"),
    ],
)
def test_who_disconnected_and_why(last: str, expected: tuple[str, int]) -> None:
    connection = Story(f"> connect; < connack; {last}").connection

    assert (connection.disconnect_by, connection.disconnect_reason) == expected


def test_numbers_and_times_of_connect_and_connack() -> None:
    connection = Story("> connect resume; < connack present").connection

    assert (connection.connect_packet, connection.connect_timestamp_ns, connection.connack_packet) == (0, 0, 1)
    assert (connection.clean_start, connection.session_present) == (False, True)


def test_ping_waits_for_its_answer() -> None:
    story = Story("> connect; > pingreq")
    assert (story.connection.client_side.ping_packet, story.connection.client_side.ping_timestamp_ns) == (
        1,
        1_000_000_000,
    )

    story.tell("< pingresp")
    assert story.connection.client_side.ping_packet is None


def test_packets_bytes_and_times_are_counted_per_side() -> None:
    connection = Story("> connect 3.1.1; < connack; > pingreq", version=V3_1_1).connection

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


PACKETS: dict[ConnectionTrigger, str] = {
    CONNECT: "> connect",
    ACCEPTANCE: "< connack",
    REFUSAL: "< connack code=0x87",
    DISCONNECT: "> disconnect",
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


@each("phase, trigger", TRANSITIONS, ids=" and ".join)
def test_a_connection_follows_the_table(phase: ConnectionPhase, trigger: ConnectionTrigger) -> None:
    story = Story("; ".join(PACKETS[one] for one in WAYS[phase]) or "nothing")
    assert story.connection.phase is phase
    connection = story.tell(PACKETS[trigger])

    assert connection.phase is TRANSITIONS[phase, trigger]
    assert connection.phase.value == LAST[trigger]


def test_the_side_that_sends_is_not_asked() -> None:
    assert Story("< connect").connection.phase is CONNECTING
    assert Story("> connect; > connack").connection.phase is CONNECTED
    assert Story("< disconnect").connection.phase is DISCONNECTED


def test_phases_are_shown_as_their_words() -> None:
    assert [f"{one}" for one in ConnectionPhase] == ["opening", "connecting", "connected", "refused", "disconnected"]


def test_a_second_connect_is_what_counts_from_then_on() -> None:
    story = Story("> connect client=a keep_alive=1; < connack; > publish a qos=1 id=1")

    connection = story.tell("> connect 3.1.1 client=b keep_alive=2")

    assert (connection.connect_packet, connection.client_identifier, connection.keep_alive) == (3, "b", 2)
    assert (connection.version, connection.version_known, connection.phase) == (V3_1_1, True, "connecting")
    assert connection.session_expiry_interval is None
    assert connection.client_side.in_flight == 1


@pytest.mark.parametrize(
    ("level", "version", "known", "evidence"),
    [
        (3, V3_1, True, "CONNECT"),
        (4, V3_1_1, True, "CONNECT"),
        (5, V5, True, "CONNECT"),
        (0x83, V3_1, True, "CONNECT"),
        (0x84, V3_1_1, True, "CONNECT"),
        (6, V3_1_1, False, "a CONNECT with unknown protocol level 6"),
        (0, V3_1_1, False, "a CONNECT with unknown protocol level 0"),
    ],
)
def test_the_protocol_level_says_the_version(level: int, version: object, known: bool, evidence: str) -> None:
    connection = fresh()
    revision = connection.revision

    connection.identify(Connect(protocol_level=level, client_identifier="x"))

    assert (connection.version, connection.version_known, connection.version_evidence) == (version, known, evidence)
    assert connection.client_identifier == "x"
    assert connection.revision > revision


def test_a_connect_without_level_says_nothing_of_the_version() -> None:
    connection = fresh(V5)

    connection.identify(Connect(protocol_level=None))

    assert (connection.version, connection.version_known, connection.version_evidence) == (V5, False, "none")


def test_an_assumed_version_carries_its_evidence() -> None:
    connection = fresh()

    connection.assume_version(V5, "a PUBLISH with well-formed properties")
    assert (connection.version, connection.version_known) == (V5, False)

    connection.assume_version(V3_1, "given", known=True)
    assert (connection.version, connection.version_known, connection.version_evidence) == (V3_1, True, "given")
    assert connection.revision == 2


def malformed(raw: bytes, version: object = V3_1_1) -> Malformed:
    made = decode(raw, version)  # type: ignore[arg-type]
    assert isinstance(made, Malformed)
    return made


def test_a_publish_with_qos_3_is_an_exchange_all_the_same() -> None:
    found = malformed(framed(0x36, string("a"), b"\0\x07", b"x"))
    assert (found.reason, found.complete) == (MalformedReason.QOS_INVALID, True)
    connection = fresh(V3_1_1)

    assert found.packet is not None
    connection.apply(found.packet, C2S, 0, 1, 0)

    assert connection.client_side.exchanges[7].qos == 3
    connection.apply(Pubrec(7), S2C, 1, 2, 0)
    connection.apply(Pubcomp(7), S2C, 2, 3, 0)
    assert connection.client_side.in_flight == 0


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(framed(0x80, b"\0\x05", string("a"), b"\x01"), id="SUBSCRIBE with wrong flags"),
        pytest.param(framed(0x82, b"\0\x05", string("a"), b"\x03"), id="SUBSCRIBE with QoS 3"),
        pytest.param(framed(0x82, b"\0\x05", string(b"\xff"), b"\x00"), id="SUBSCRIBE with ill-formed UTF-8"),
    ],
)
def test_a_subscribe_that_is_wrong_in_a_value_waits_for_its_answer(raw: bytes) -> None:
    found = malformed(raw)
    assert found.complete
    assert isinstance(found.packet, Subscribe)
    connection = fresh(V3_1_1)

    connection.apply(found.packet, C2S, 0, 1, 0)

    assert connection.client_side.exchanges[5].kind == "subscribe"


def test_a_connect_that_is_wrong_in_a_flag_opens_the_connection() -> None:
    found = malformed(framed(0x10, string("MQTT"), b"\x04\x03\0\x0a", string("dev")))
    assert found.reason is MalformedReason.CONNECT_FLAGS_RESERVED
    connection = fresh()

    assert found.packet is not None
    connection.identify(found.packet)
    connection.apply(found.packet, C2S, 0, 1, 0)

    assert (connection.phase, connection.client_identifier, connection.keep_alive) == ("connecting", "dev", 10)
    assert (connection.version, connection.version_known) == (V3_1_1, True)


def values(root: object) -> Iterator[tuple[str, object]]:
    """Every value inside an object with the way to it."""
    todo: list[tuple[str, object]] = [(type(root).__name__, root)]
    while todo:
        path, value = todo.pop()
        yield path, value
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            todo += [(f"{path}.{one.name}", getattr(value, one.name)) for one in dataclasses.fields(value)]
        elif isinstance(value, dict):
            todo += [(f"{path}[{key!r}]", part) for key, part in value.items()]
            todo += [(f"{path} key", key) for key in value]
        elif isinstance(value, list):
            todo += [(f"{path}[{index}]", part) for index, part in enumerate(value)]


def assert_plain(root: object) -> None:
    for path, value in values(root):
        plain = value is None or type(value) in (int, str, bytes, bool, list, dict)
        assert plain or isinstance(value, Enum) or dataclasses.is_dataclass(value), f"{path} is a {type(value)}"


def test_state_is_plain_data_after_a_long_story() -> None:
    connection = Story(
        "> connect client=x receive_maximum=3; "
        "< connack server_keep_alive=3 assigned_client_identifier=y retain_available=0; "
        "> publish t qos=1 id=1 topic_alias=2; > publish - qos=2 id=2 topic_alias=2; < publish u qos=2 id=1; "
        "> subscribe 4 a/#:1; > pingreq; > disconnect code=4 session_expiry_interval=1"
    ).connection

    assert len(connection.client_side.exchanges) == 3
    assert isinstance(connection.client_side.exchanges[1], Exchange)
    assert_plain(connection)
    assert isinstance(connection, Connection)


def test_streams_are_plain_data_while_they_hold_bytes() -> None:
    held, searching, large = PacketStream(), PacketStream(), PacketStream(max_packet_bytes=8)
    held.feed(b"\x30\x7f\0\x01a")
    searching.gap(9)
    searching.feed(b"\x30\x0a\0\x01")
    large.feed(b"\x30\x7f\0\x01a")

    assert held.held
    assert searching.searching
    assert large.skip
    for stream in (held, searching, large):
        parts = {name: value for name, value in values(stream) if type(value).__name__ != "PacketStream"}
        assert parts
        assert_plain(stream)
