from __future__ import annotations

import dataclasses
from ast import literal_eval
from collections.abc import Iterator
from enum import Enum
from itertools import product

import pytest

from mqttscope.mqtt import (
    Connect,
    Malformed,
    MalformedReason,
    PacketStream,
    ProtocolVersion,
    Pubcomp,
    Publish,
    Pubrec,
    Subscribe,
    decode,
)
from mqttscope.session import Connection, Exchange, inflight
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
    host_of,
    port_of,
)
from tests.each import each
from tests.mqtt.octets import framed, string
from tests.session.story import C2S, S2C, V3_1, V3_1_1, V5, Story, fresh
from tests.tables import cases_of, differing

FACTS = """
# What each side takes: defaults, not known.
nothing seen
    nothing | client_side.receive_maximum=65535 client_side.topic_alias_maximum=0 client_side.maximum_packet_size=None
    client_side.limits_known=False server_side.receive_maximum=65535 server_side.topic_alias_maximum=0
    server_side.maximum_packet_size=None server_side.limits_known=False
    keep_alive=None client_identifier=None session_expiry_interval=None phase=opening
a CONNECT of 3.1.1
    > connect 3.1.1 | client_side.receive_maximum=65535 client_side.topic_alias_maximum=0
    client_side.maximum_packet_size=None client_side.limits_known=True server_side.limits_known=False
    session_expiry_interval=None
CONNECT says what the client takes
    > connect receive_maximum=10 topic_alias_maximum=5 maximum_packet_size=99 |
    client_side.receive_maximum=10 client_side.topic_alias_maximum=5 client_side.maximum_packet_size=99
    client_side.limits_known=True server_side.receive_maximum=65535 server_side.topic_alias_maximum=0
    server_side.maximum_packet_size=None server_side.limits_known=False
CONNACK says what the server takes
    < connack receive_maximum=20 topic_alias_maximum=7 maximum_packet_size=1 |
    server_side.receive_maximum=20 server_side.topic_alias_maximum=7 server_side.maximum_packet_size=1
    server_side.limits_known=True client_side.receive_maximum=65535 client_side.topic_alias_maximum=0
    client_side.maximum_packet_size=None client_side.limits_known=False
the sides do not share limits
    > connect receive_maximum=3; < connack receive_maximum=4 |
    client_side.receive_maximum=3 client_side.limits_known=True server_side.receive_maximum=4
    server_side.limits_known=True
a forbidden 0 stays 0
    > connect receive_maximum=0 topic_alias_maximum=0 |
    client_side.receive_maximum=0 client_side.topic_alias_maximum=0 client_side.limits_known=True
a second CONNECT without limits lifts them
    > connect receive_maximum=3 topic_alias_maximum=4 maximum_packet_size=5; > connect |
    client_side.receive_maximum=65535 client_side.topic_alias_maximum=0 client_side.maximum_packet_size=None
    client_side.limits_known=True
# Aliases.
the use of aliases is counted
    > publish a topic_alias=1; > publish b topic_alias=1; > publish - topic_alias=1; > publish c |
    client_side.alias_sets=2 client_side.alias_hits=1 client_side.aliases=[1] client_side.aliases[1]=b
an exchange knows the topic behind its alias
    > publish a/b topic_alias=4; > publish - qos=1 id=1 topic_alias=4 | client_side.exchanges[1].topic=a/b
# Keep Alive.
CONNECT asks
    > connect keep_alive=60 | keep_alive=60
3.1.1 has no other word
    > connect 3.1.1 keep_alive=60; < connack | keep_alive=60
the server agrees
    > connect keep_alive=60; < connack | keep_alive=60
the server's wins
    > connect keep_alive=60; < connack server_keep_alive=5 | keep_alive=5
0 turns it off
    > connect keep_alive=60; < connack server_keep_alive=0 | keep_alive=0
a second CONNECT begins again
    > connect keep_alive=60; < connack server_keep_alive=5; > connect keep_alive=9 | keep_alive=9
# The client identifier.
CONNECT names the client
    > connect client=dev1 | client_identifier=dev1
an empty one is empty, not absent
    > connect | client_identifier=''
the server assigns one
    > connect; < connack assigned_client_identifier=auto-1 | client_identifier=auto-1
CONNECT was not captured
    < connack assigned_client_identifier=auto-1 | client_identifier=auto-1
CONNACK assigns none
    > connect client=a; < connack | client_identifier=a
# The Session Expiry Interval.
left out means 0
    > connect | session_expiry_interval=0
CONNECT asks for an interval
    > connect session_expiry_interval=100 | session_expiry_interval=100
the server takes what was asked
    > connect session_expiry_interval=100; < connack | session_expiry_interval=100
or CONNACK
    > connect session_expiry_interval=100; < connack session_expiry_interval=7 | session_expiry_interval=7
DISCONNECT changes it at the end
    > connect session_expiry_interval=9; > disconnect code=0 session_expiry_interval=0 | session_expiry_interval=0
DISCONNECT without it changes nothing
    > connect session_expiry_interval=9; > disconnect code=0 properties | session_expiry_interval=9
a server cannot change it in DISCONNECT
    > connect session_expiry_interval=9; < disconnect code=0 session_expiry_interval=1 | session_expiry_interval=9
what the server has not
    > connect; < connack maximum_qos=1 retain_available=0 shared_subscription_available=0
    wildcard_subscription_available=1 |
    maximum_qos=1 retain_available=False shared_subscription_available=False wildcard_subscription_available=True
    subscription_identifier_available=True
# Phases.
CONNECT
    > connect | phase=connecting
AUTH in between
    > connect; < auth code=0x18; > auth code=0x18 | phase=connecting
CONNACK, and numbers and times
    > connect resume; < connack present | phase=connected connect_packet=0 connect_timestamp_ns=0 connack_packet=1
    clean_start=False session_present=True
CONNACK with an error
    > connect; < connack code=0x87 | phase=refused
a return code of 3.1.1
    > connect 3.1.1; < connack code=5 | phase=refused
DISCONNECT of the client, nothing said
    > connect; < connack; > disconnect | phase=disconnected disconnect_by=client disconnect_reason=0
the client wants its will
    > connect; < connack; > disconnect code=4 properties | disconnect_by=client disconnect_reason=4
the server, session taken over
    > connect; < connack; < disconnect code=0x8e properties | disconnect_by=server disconnect_reason=0x8e
the side that sends CONNECT is not asked
    < connect | phase=connecting
the side that sends CONNACK is not asked
    > connect; > connack | phase=connected
the side that sends DISCONNECT is not asked
    < disconnect | phase=disconnected
a second CONNECT is what counts from then on
    > connect client=a keep_alive=1; < connack; > publish a qos=1 id=1; > connect 3.1.1 client=b keep_alive=2 |
    connect_packet=3 client_identifier=b keep_alive=2 version=4 version_known=True phase=connecting
    session_expiry_interval=None client_side.in_flight=1
# Pings and counts.
a ping waits for its answer
    > connect; > pingreq | client_side.ping_packet=1 client_side.ping_timestamp_ns=1000000000
a ping was answered
    > connect; > pingreq; < pingresp | client_side.ping_packet=None
packets, bytes and times are counted per side
    > connect 3.1.1; < connack; > pingreq | client_side.packets=2 server_side.packets=1 client_side.bytes=16
    server_side.bytes=4 client_side.last_timestamp_ns=2000000000 server_side.last_timestamp_ns=1000000000
"""


@each("story, facts", cases_of(FACTS, str, str))
def test_what_both_ends_know(story: str, facts: str) -> None:
    assert differing(Story(story).connection, facts) == {}


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
    story = Story("; ".join(PACKETS[connection_trigger] for connection_trigger in WAYS[phase]) or "nothing")
    assert story.connection.phase is phase
    connection = story.tell(PACKETS[trigger])

    assert connection.phase is TRANSITIONS[phase, trigger]
    assert connection.phase.value == LAST[trigger]


def test_phases_are_shown_as_their_words() -> None:
    assert [f"{phase}" for phase in ConnectionPhase] == [
        "opening",
        "connecting",
        "connected",
        "refused",
        "disconnected",
    ]


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
    packet = decode(raw, version)  # type: ignore[arg-type]
    assert isinstance(packet, Malformed)
    return packet


def test_a_publish_with_qos_3_is_an_exchange_all_the_same() -> None:
    actual_malformed = malformed(framed(0x36, string("a"), b"\0\x07", b"x"))
    assert (actual_malformed.reason, actual_malformed.complete) == (MalformedReason.QOS_INVALID, True)
    connection = fresh(V3_1_1)

    assert actual_malformed.packet is not None
    connection.apply(actual_malformed.packet, C2S, 0, 1, 0)

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
    actual_malformed = malformed(raw)
    assert actual_malformed.complete
    assert isinstance(actual_malformed.packet, Subscribe)
    connection = fresh(V3_1_1)

    connection.apply(actual_malformed.packet, C2S, 0, 1, 0)

    assert connection.client_side.exchanges[5].kind == "subscribe"


def test_a_connect_that_is_wrong_in_a_flag_opens_the_connection() -> None:
    actual_malformed = malformed(framed(0x10, string("MQTT"), b"\x04\x03\0\x0a", string("dev")))
    assert actual_malformed.reason is MalformedReason.CONNECT_FLAGS_RESERVED
    connection = fresh()

    assert actual_malformed.packet is not None
    connection.identify(actual_malformed.packet)
    connection.apply(actual_malformed.packet, C2S, 0, 1, 0)

    assert (connection.phase, connection.client_identifier, connection.keep_alive) == ("connecting", "dev", 10)
    assert (connection.version, connection.version_known) == (V3_1_1, True)


def values(root: object) -> Iterator[tuple[str, object]]:
    """Every value inside an object with the way to it."""
    todo: list[tuple[str, object]] = [(type(root).__name__, root)]
    while todo:
        path, value = todo.pop()
        yield path, value
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            todo += [(f"{path}.{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value)]
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


def test_the_parts_of_an_endpoint() -> None:
    for endpoint, host in (("10.0.0.1:1883", "10.0.0.1"), ("[fd00::1]:1883", "[fd00::1]")):
        assert (host_of(endpoint), port_of(endpoint)) == (host, "1883")


@each(
    "version, fields, keeps",
    [
        (V5, {}, None),
        (V5, {"session_expiry_interval": 0}, False),
        (V5, {"session_expiry_interval": 1}, True),
        (V3_1_1, {}, None),
        (V3_1_1, {"clean_start": True}, False),
        (V3_1_1, {"clean_start": False}, True),
    ],
)
def test_whether_a_session_outlives_its_connection(
    version: ProtocolVersion, fields: dict[str, int], keeps: bool | None
) -> None:
    connection = Connection(0, "10.0.0.4:51234", "10.0.0.2:1883", "", 1, 0, version=version)
    for name, number in fields.items():
        setattr(connection, name, number)

    assert connection.keeps_session is keeps
