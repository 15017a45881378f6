"""What is counted and measured, against figures from tshark, by hand, and against itself.

How ends of connections are told apart, and who comes first.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionClosed, ConnectionOpened, PacketEvent
from mqttscope.mqtt.constants import Direction, PacketType, type_name
from mqttscope.mqtt.packets import Connack, Disconnect, Pingreq, Puback, Publish, Pubrec, Pubrel
from mqttscope.mqtt.properties import Properties
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.report.base import View
from mqttscope.session.connection import CONNECTING
from mqttscope.stats import rows as at
from mqttscope.stats.as_json import document
from mqttscope.stats.as_text import render
from mqttscope.stats.collect import Statistics
from mqttscope.stats.rows import HANDSHAKES, SORTS, RateWindow, TrafficCounts, order
from tests import corpora, tools
from tests.each import each, some
from tests.growth import kept_of_each
from tests.stats.talk import (
    C2S,
    NAMES,
    S2C,
    SECOND,
    Talk,
    events_of,
    expected,
    path,
    statistics_of,
)

each_capture = each("name", NAMES)


def types(traffic: TrafficCounts) -> Counter[str]:
    counts = traffic.counts
    return Counter({type_name(kind): counts[kind] + counts[16 + kind] for kind in PacketType})


def spread(traffic: TrafficCounts, handshake: str, from_server: int = 0) -> tuple[int, int, int]:
    histogram = traffic.latencies[2 * HANDSHAKES.index(handshake) + from_server]
    return histogram.count, histogram.minimum, histogram.maximum


COUNTED_OTHERWISE = {
    "lost-in-payload": "a PUBLISH that lost a part of its payload counts as well",
    "refused-protocol-level": "a CONNECT of an unknown version counts as malformed",
    "protocol-level-accepted": "the same",
}
ONE_SIDED = ("client-side-only", "server-side-only")
"""The side that is missing is a gap from its beginning to its end, which is not among those stated."""


@each_capture
def test_packets_of_each_type_are_those_of_the_capture(name: str) -> None:
    if name in COUNTED_OTHERWISE:
        pytest.skip(COUNTED_OTHERWISE[name])

    assert types(statistics_of(name).totals.traffic) == Counter(expected(name)["packets"])


@each_capture
def test_connections_frames_and_gaps_are_those_of_the_capture(name: str) -> None:
    totals, stated = statistics_of(name).totals, expected(name)

    assert totals.outcomes.connections == stated["connections"]
    assert totals.frames == stated["frames"]
    if name not in ONE_SIDED:
        assert sum(totals.traffic.counts[at.GAPS : at.GAPS + 2]) == stated["gaps"]
    if name not in COUNTED_OTHERWISE:
        assert bool(sum(totals.traffic.counts[at.MALFORMED : at.MALFORMED + 2])) == bool(stated["malformed"])
    assert set(totals.outcomes.transports) == {stated["transport"]}


@pytest.mark.parametrize("name", [name for name in NAMES if "topics" in expected(name)])
def test_messages_of_each_topic_are_those_of_the_capture(name: str) -> None:
    counts = {row.topic or "": sum(row.messages) for row in statistics_of(name).topics.values()}

    assert counts == Counter(expected(name)["topics"])


def test_latencies_are_the_differences_of_the_times_that_tshark_gives() -> None:
    traffic = statistics_of("v5-qos").totals.traffic

    assert spread(traffic, "connect_connack") == (2, 54_270, 566_810)
    assert spread(traffic, "subscribe_suback") == (1, 54_691, 54_691)
    assert spread(traffic, "unsubscribe_unsuback") == (1, 96_583, 96_583)
    assert spread(traffic, "publish_puback") == (1, 353_855, 353_855)
    assert spread(traffic, "publish_puback", 1) == (1, 213_947, 213_947)
    assert spread(traffic, "publish_pubrec") == (1, 99_748, 99_748)
    assert spread(traffic, "publish_pubrec", 1) == (1, 159_246, 159_246)
    assert spread(traffic, "pubrel_pubcomp") == (1, 51_356, 51_356)
    assert spread(traffic, "pubrel_pubcomp", 1) == (1, 226_496, 226_496)
    assert spread(traffic, "publish_pubcomp") == (1, 281_587, 281_587)
    assert spread(traffic, "publish_pubcomp", 1) == (1, 469_897, 469_897)
    assert not traffic.unanswered


def test_pings_and_the_silence_of_a_client_that_was_cut_off() -> None:
    statistics = statistics_of("keep-alive")
    awake, asleep = statistics.connections

    assert spread(awake.traffic, "pingreq_pingresp") == (5, 92_597, 143_954)
    # Frames 15 and 30: its last packet, and the server's FIN.
    assert asleep.longest_silence_ns == 1795207713_958312527 - 1795207709_200256767
    assert (asleep.keep_alive, asleep.closed_how, asleep.closed_by) == (1, "fin", "server")
    # Frames 4 to 18; the other pings are a little closer together, and after DISCONNECT silence is no fault.
    assert awake.longest_silence_ns == 1795207710_051529350 - 1795207709_049323819
    assert awake.disconnect_by == "client"


def test_in_flight_peak_stands_beside_the_receive_maximum_of_the_other_side_if_there_is_one() -> None:
    narrow, office = statistics_of("v5-flow-control").connections

    assert (narrow.in_flight_peak[1], narrow.receive_maximum[1]) == (3, 2)
    assert (office.in_flight_peak[0], office.receive_maximum[0]) == (1, 20)
    assert all(row.receive_maximum == (None, None) for row in statistics_of("v311-qos").connections)


def test_requests_that_were_never_answered_are_open_at_the_end() -> None:
    statistics = statistics_of("v311-redelivery")
    unanswered = {(HANDSHAKES[key >> 1], key & 1): count for key, count in statistics.totals.traffic.unanswered.items()}

    # The client vanishes without PUBACK for one message and without PUBCOMP for the other.
    assert unanswered == {("publish_puback", 1): 1, ("pubrel_pubcomp", 1): 1, ("publish_pubcomp", 1): 1}
    # The PUBREL is repeated on the next connection, whose PUBLISH was on the one before.
    assert spread(statistics.totals.traffic, "pubrel_pubcomp", 1)[0] == 1


@pytest.mark.parametrize("name", ONE_SIDED)
def test_nothing_is_unanswered_where_the_answers_were_not_captured(name: str) -> None:
    assert not statistics_of(name).totals.traffic.unanswered


def test_alias_hits_and_the_topics_they_saved() -> None:
    counts = statistics_of("v5-topic-alias-client").totals.traffic.counts

    # temperature (23 bytes), humidity (20), pressure (20) and humidity again were sent by alias.
    assert (counts[at.ALIAS_SETS], counts[at.ALIAS_HITS], counts[at.SAVED]) == (4, 4, 23 + 20 + 20 + 20)
    assert counts[at.ALIAS_SETS + 1] == counts[at.ALIAS_HITS + 1] == 0
    # The bytes of a topic are those of its UTF-8.
    statistics = Statistics()
    talk = Talk(statistics)
    for topic in ("grün/öl", ""):
        talk.send(Publish(topic_name=topic, properties=Properties(topic_alias=3), raw=b"\x30\x02"))
    statistics.finish()
    assert statistics.totals.traffic.counts[at.SAVED] == 9


def test_what_cannot_be_read_or_known_is_listed() -> None:
    tls, joined = statistics_of("tls-13"), statistics_of("joined-after-alias")

    assert [(row.outcome, row.transport, row.version) for row in tls.connections] == [("unread", "tls", "")]
    assert not tls.topics
    # An alias that was set before the capture has a row of its own.
    assert sum(joined.topics[None].messages) == 1
    assert {row.outcome for row in joined.connections} == {"joined", "accepted"}


@pytest.mark.parametrize(
    ("name", "counter", "by_connection"),
    [
        ("duplicated", "copied_segments", [(9, 9), (7, 6)]),
        ("duplicated", "duplicate_segments", [(0, 0), (0, 0)]),
        ("retransmission-with-new-data", "retransmitted_bytes", [(10, 0)]),
        ("retransmission-with-new-data", "duplicate_segments", [(0, 0)]),
        ("out-of-order", "out_of_order_segments", [(1, 0)]),
    ],
)
def test_what_tcp_did_is_counted_per_connection_and_direction(
    name: str, counter: str, by_connection: list[tuple[int, int]]
) -> None:
    place = at.TCP + at.TCP_COUNTERS.index(counter)
    rows = [row.traffic.counts for row in statistics_of(name).connections]

    assert [(counts[place], counts[place + len(at.TCP_COUNTERS)]) for counts in rows] == by_connection


def test_how_connections_began_and_ended() -> None:
    outcomes = statistics_of("refused-connect").totals.outcomes

    assert outcomes.outcomes == {"accepted": 3, "refused": 7}
    assert outcomes.refusals == {(3, 5): 2, (4, 2): 1, (4, 5): 2, (5, 0x87): 2}
    taken_over, before_5_0 = (statistics_of(name).totals.outcomes for name in ("session-taken-over", "v311-qos"))
    assert taken_over.disconnects == {("server", 0x8E): 1, ("client", 0): 1}
    assert before_5_0.disconnects == {("client", None): 2}


def clients_of(statistics: Statistics) -> dict[str | None, Any]:
    return {row.client_identifier: row for row in statistics.clients.values()}


def test_clients_know_their_reconnects_and_topics_and_topics_their_clients() -> None:
    desk = clients_of(statistics_of("refused-connect"))["desk"]
    assert (desk.connections, desk.refused, desk.reconnects) == (9, 6, 8)

    statistics = statistics_of("v5-topic-alias-client")
    clients = clients_of(statistics)
    assert (clients["sensor-1"].topics_published, clients["sensor-1"].topics_received) == (4, 0)
    assert (clients["logger"].topics_published, clients["logger"].topics_received) == (0, 4)
    assert all([len(known) for known in row.clients] == [1, 1] for row in statistics.topics.values())


def total(rows: list[TrafficCounts]) -> list[int]:
    return [sum(column) for column in zip(*(row.counts for row in rows), strict=True)]


def by_direction(statistics: Statistics, name: str) -> list[int]:
    rows = [*statistics.topics.values(), statistics.other_topic]
    return [sum(getattr(row, name)[from_server] for row in rows) for from_server in (0, 1)]


def assert_adds_up(statistics: Statistics) -> None:
    """Connections, clients and captures each add up to the totals, and topics to the publishes."""
    totals = statistics.totals.traffic
    counts = totals.counts
    connections = [row.traffic for row in statistics.connections]
    clients = [row.traffic for row in statistics.clients.values()]
    captures = [row.traffic for row in statistics.captures.values()]
    groups = [
        [*connections, statistics.other_traffic],
        [*clients, statistics.other_client.traffic],
        [*captures, statistics.other_capture.traffic],
    ]
    for group in groups:
        assert total(group) == counts
        for key in totals.latencies.keys() | totals.unanswered.keys():
            merged = TrafficCounts()
            for row in group:
                merged.merge(row)
            assert merged.latencies.get(key) == totals.latencies.get(key)
            assert merged.unanswered.get(key) == totals.unanswered.get(key)
    publish = PacketType.PUBLISH
    assert by_direction(statistics, "messages") == [counts[publish], counts[16 + publish]]
    assert by_direction(statistics, "bytes") == [counts[at.BYTES + publish], counts[at.BYTES + 16 + publish]]
    assert by_direction(statistics, "payload") == counts[at.PAYLOAD : at.PAYLOAD + 2]
    assert by_direction(statistics, "retain") == counts[at.RETAIN : at.RETAIN + 2]
    assert by_direction(statistics, "dup") == counts[at.DUP : at.DUP + 2]
    rows = [*statistics.topics.values(), statistics.other_topic]
    assert [sum(row.qos[place] for row in rows) for place in range(8)] == counts[at.QOS : at.QOS + 8]
    seen = len(statistics.connections) + statistics.other_outcomes.connections
    assert statistics.totals.outcomes.connections == seen


@each_capture
def test_connections_clients_and_topics_add_up(name: str) -> None:
    assert_adds_up(statistics_of(name))


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    names=st.lists(st.sampled_from([name for name in NAMES if name != "byte-by-byte"]), min_size=1, max_size=5),
    limits=st.fixed_dictionaries(
        {
            "captures": st.integers(1, 3),
            "connections": st.integers(0, 4),
            "clients": st.integers(0, 3),
            "topics": st.integers(0, 3),
            "name_characters": st.integers(0, 60),
            "topic_clients": st.integers(0, 2),
            "topic_client_pairs": st.integers(0, 3),
            "releases": st.integers(0, 1),
        }
    ),
)
def test_whatever_the_limits_nothing_is_lost(names: list[str], limits: dict[str, int]) -> None:
    statistics = statistics_of(*sorted(set(names)), limits=limits)

    assert_adds_up(statistics)
    assert len(statistics.captures) <= limits["captures"]
    assert len(statistics.connections) <= limits["connections"]
    assert len(statistics.clients) <= limits["clients"]
    assert len(statistics.topics) <= limits["topics"]
    assert sum(len(row.topic or "") for row in statistics.topics.values()) <= limits["name_characters"]
    pairs = [len(known) for row in statistics.topics.values() for known in row.clients]
    assert max(pairs, default=0) <= limits["topic_clients"]
    assert sum(pairs) <= limits["topic_client_pairs"]


def test_connections_that_have_ended_take_little_memory() -> None:
    statistics = Statistics()

    def connection(number: int) -> None:
        talk = Talk(statistics, number, "dev")
        talk.send(Connack(reason_code=0, session_present=False, raw=b" \x03\0\0\0"), 1_000 + number, S2C)
        for identifier in range(1, 41):
            now = number * SECOND + identifier * 1_000_000
            talk.send(Publish(topic_name="a", qos=1, packet_identifier=identifier, payload=b"x", raw=b"2\x06"), now)
            # Each takes longer than the one before, so that the histogram has as many buckets.
            talk.send(Puback(packet_identifier=identifier, raw=b"@\x02\0\1"), now + 1_000 * 2**identifier, S2C)
        talk.close((number + 1) * SECOND)

    seconds = kept_of_each(connection, count=200)

    assert seconds < 1_500
    statistics.finish()
    assert_adds_up(statistics)
    assert spread(next(iter(statistics.clients.values())).traffic, "publish_puback")[0] == 40 * 300


def test_too_many_connections_at_a_time_close_the_oldest_and_say_so() -> None:
    statistics = Statistics(limits={"live_connections": 2})
    for number in range(5):
        Talk(statistics, number, f"dev{number}")
    statistics.finish()

    assert statistics.early_closed == 3
    assert len(statistics.connections) == 5
    assert_adds_up(statistics)


def test_a_long_topic_beyond_the_limit_of_characters_is_counted_in_other() -> None:
    statistics = Statistics(limits={"name_characters": 10_000})
    talk = Talk(statistics)
    for number in range(3):
        talk.publish(f"{number}" + "x" * 6_000)
    talk.publish("short")
    statistics.finish()

    assert [row.length for row in statistics.topics.values()] == [6_001, 5]
    assert statistics.other_topic.messages == [2, 0]
    assert not next(iter(statistics.clients.values())).topics_complete


def test_pubrel_beyond_the_limit_is_not_waited_for_and_counted() -> None:
    statistics = Statistics(limits={"releases": 2})
    talk = Talk(statistics)
    for identifier in range(5):
        talk.send(Pubrel(packet_identifier=identifier, raw=b"\x62\x02\0\0"))
    talk.close()
    again = Talk(statistics, 1)
    again.send(Pubrel(packet_identifier=1, raw=b"\x62\x02\0\0"))
    statistics.finish()

    assert statistics.missed_releases == 3
    assert statistics.totals.traffic.unanswered[2 * HANDSHAKES.index("pubrel_pubcomp")] == 3


def message(qos: int, *, dup: bool = False) -> Publish:
    return Publish(topic_name="a", qos=qos, dup=dup, packet_identifier=7)


@each(
    "sent, latencies",
    [
        # A message that is sent again counts from the first time.
        (
            [(10, message(1)), (1_000, message(1, dup=True)), (1_500, Puback(7))],
            {"publish_puback": (1, 1_490, 1_490)},
        ),
        # An acknowledgment of the wrong kind, or of nothing, completes nothing.
        ([(10, message(2)), (1_500, Puback(7)), (1_600, Puback(9))], {}),
        # A second PUBREC is not measured.
        ([(10, message(2)), (30, Pubrec(7)), (900, Pubrec(7))], {"publish_pubrec": (1, 20, 20)}),
    ],
)
def test_messages_that_are_answered(sent: list[tuple[int, Any]], latencies: dict[str, tuple[int, int, int]]) -> None:
    statistics = Statistics()
    talk = Talk(statistics)
    for moment, packet in sent:
        talk.send(packet, moment, C2S if isinstance(packet, Publish) else S2C)
    statistics.finish()
    traffic = statistics.totals.traffic

    assert {HANDSHAKES[key >> 1]: spread(traffic, HANDSHAKES[key >> 1]) for key in traffic.latencies} == latencies
    assert traffic.counts[at.DUP] == sum(isinstance(packet, Publish) and packet.dup for _, packet in sent)


@pytest.mark.parametrize(("says_goodbye", "silence"), [(True, 2), (False, 30)])
def test_silence_ends_with_the_disconnect_of_the_client(says_goodbye: bool, silence: int) -> None:
    statistics = Statistics()
    talk = Talk(statistics)
    talk.send(Disconnect(raw=b"\xe0\0") if says_goodbye else Pingreq(raw=b"\xc0\0"), 2 * SECOND)
    talk.close(32 * SECOND)
    statistics.finish()

    assert statistics.connections[0].longest_silence_ns == silence * SECOND


@pytest.mark.parametrize(
    ("seconds", "peak"),
    [
        ([5, 5, 5], 3),
        ([5, 6, 6, 7], 2),
        ([5, 6, 5, 6], 3),
        ([5, 6, 1, 1, 1], 3),
    ],
    ids=["one second", "the fullest of three", "a packet that comes late counts as now", "an earlier capture follows"],
)
def test_the_peak_is_the_most_that_one_second_had(seconds: list[int], peak: int) -> None:
    window = RateWindow()
    for second in seconds:
        window.add(second, 10)

    assert (window.peak_packets, window.peak_bytes) == (peak, 10 * peak)


def test_peaks_of_the_totals_count_the_connections_together() -> None:
    statistics = Statistics()
    for talk in [Talk(statistics, number, f"dev{number}") for number in (0, 1)]:
        talk.publish("a", 3 * SECOND)
    statistics.finish()

    assert statistics.totals.traffic.window.peak_packets == 2
    assert statistics.captures["made"].traffic.window.peak_packets == 2
    assert [row.traffic.window.peak_packets for row in statistics.connections] == [1, 1]
    assert statistics.topics["a"].window.peak_packets == 2


def test_clients_without_an_identifier_are_told_apart_by_their_addresses() -> None:
    statistics = Statistics()
    for number in (1, 2, 251):
        Talk(statistics, number, "").close()
    Talk(statistics, 3, None).send(Pingreq(raw=b"\xc0\0"))
    statistics.finish()

    counts = {(row.client_identifier, *row.addresses): row.connections for row in statistics.clients.values()}
    assert counts == {("", "192.0.2.1"): 2, ("", "192.0.2.2"): 1, (None, "192.0.2.3"): 1}


def test_the_end_of_a_connection_of_which_nothing_was_counted_is_passed_over() -> None:
    statistics = Statistics()
    for event in events_of("v311-qos"):
        wanted = isinstance(event, PacketEvent) and event.type == "unsubscribe"
        if wanted or isinstance(event, ConnectionClosed):
            statistics.feed(event)
    statistics.finish()

    assert [(row.client_identifier, row.traffic.packets) for row in statistics.connections] == [("logger", 1)]


def test_what_a_capture_says_of_itself_is_kept() -> None:
    statistics = Statistics()
    statistics.feed(CaptureError("a.pcap", "cut off", 40, 3))
    statistics.feed(CaptureDrops("a.pcap", 0, 100, 7))
    statistics.finish()
    row = statistics.captures["a.pcap"]

    assert row.errors == [("cut off", 40, 3)]
    assert (row.error_count, row.dropped) == (1, 7)
    assert statistics.totals.error_count == row.error_count


def test_without_frames_a_capture_lasts_as_long_as_its_connections_and_finishing_again_changes_nothing() -> None:
    statistics, whole = Statistics(), statistics_of("v311-qos")
    for event in events_of("v311-qos"):
        statistics.feed(event)
    statistics.finish()

    # The last frames are the other side's FIN and its acknowledgment and come after the end of the connection.
    assert 0 < whole.totals.duration_ns - statistics.totals.duration_ns < 1_000_000
    before = list(whole.totals.traffic.counts)
    whole.finish()
    assert whole.totals.traffic.counts == before


def test_a_connection_still_open_is_counted_at_the_end() -> None:
    statistics = Statistics()
    talk = Talk(statistics)
    statistics.feed(ConnectionOpened(talk.connection, 1, 0, "made"))
    talk.send(Pingreq(raw=b"\xc0\0"), 5 * SECOND, C2S)
    statistics.finish()
    (row,) = statistics.connections

    assert (row.outcome, row.closed_how, row.ended_ns) == ("unanswered", None, 5 * SECOND)
    assert statistics.totals.traffic.unanswered[2 * HANDSHAKES.index("pingreq_pingresp")] == 1
    assert statistics.totals.traffic.unanswered[2 * HANDSHAKES.index("connect_connack")] == 1


@pytest.mark.tshark
@pytest.mark.parametrize(
    "name", some(["mixed-versions", "v5-qos", "v311-retained", "duplicated", "v5-reason-codes"], 4)
)
def test_tshark_counts_the_same_packets_by_connection_type_and_sender(name: str) -> None:
    tools.program("tshark")
    done = subprocess.run(
        ["tshark", "-n", "-r", str(path(name)), "-Y", "mqtt", "-T", "fields", "-e", "tcp.stream", "-e", "tcp.srcport",
         "-e", "mqtt.msgtype"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    server = str(expected(name)["ports"][0])
    counted: Counter[tuple[int, bool, int]] = Counter()
    for line in done.stdout.splitlines():
        stream, port, kinds = line.split("\t")
        counted.update((int(stream), port == server, int(kind)) for kind in kinds.split(","))
    ours: dict[Any, int] = {}
    for row in statistics_of(name).connections:
        for place, count in enumerate(row.traffic.counts[: at.BYTES]):
            if count:
                ours[row.number, place >= 16, place % 16] = count

    assert ours == counted


def ended(
    statistics: Statistics,
    number: int,
    identifier: str,
    *,
    closed: tuple[str, str | None] = ("fin", "server"),
    disconnect: tuple[Direction, int] | None = None,
    code: int = 0,
    address: str = "",
    gaps: int = 0,
) -> None:
    """One connection with a CONNECT and a CONNACK, and its end."""
    talk = Talk(statistics, number, None)
    connection = talk.connection
    connection.client = f"{address}:50000" if address else connection.client
    connection.client_identifier, connection.revision = identifier, 1
    connection.connect_packet, connection.phase = 0, CONNECTING
    connection.client_side.packets = 1
    talk.send(Connack(reason_code=code, raw=b"\x20\x03\x00\x00\x00"), SECOND, S2C)
    if disconnect is not None:
        direction, reason = disconnect
        talk.send(Disconnect(reason_code=reason, raw=b"\xe0\x01\x00"), 2 * SECOND, direction)
    (connection.closed_how, connection.closed_by), connection.gaps = closed, gaps
    talk.close(3 * SECOND)


@pytest.fixture
def mixed() -> Statistics:
    statistics = Statistics()
    for number in range(3):
        ended(statistics, number, "polite", disconnect=(C2S, 0), address="192.0.2.7")
    ended(statistics, 3, "dies", address="192.0.2.8")
    ended(statistics, 4, "dies", closed=("reset", "client"), address="192.0.2.9")
    ended(statistics, 5, "rival", disconnect=(S2C, 0x8E))
    ended(statistics, 6, "stranger", code=0x87)
    ended(statistics, 7, "running", closed=("capture_end", None))
    ended(statistics, 8, "holey", gaps=1)
    statistics.finish()
    return statistics


def test_ends_with_a_disconnect_are_told_from_broken_ones(mixed: Statistics) -> None:
    actual_document = document(mixed)

    assert [row["ending"] for row in actual_document["connections"]] == [
        "disconnected", "disconnected", "disconnected", "broken", "broken", "broken", "refused", "open", "unknown",
    ]  # fmt: skip
    assert actual_document["totals"]["connections"]["endings"] == {
        "disconnected": 3, "broken": 3, "refused": 1, "open": 1, "unknown": 1,
    }  # fmt: skip
    by_name = {row["client_identifier"]: row for row in actual_document["clients"]}
    counted = {name: (row["disconnected"], row["broken"], row["taken_over"]) for name, row in by_name.items()}
    assert counted["polite"] == (3, 0, 0)
    assert counted["dies"] == (0, 2, 0)
    assert counted["rival"] == (0, 1, 1)
    assert counted["holey"] == counted["running"] == (0, 0, 0)
    assert by_name["stranger"]["refused"] == 1


def test_the_text_puts_the_disconnect_first(mixed: Statistics) -> None:
    text = render(mixed, View(width=120), tables=("capture", "connection")).decode()
    ends = [" ".join(line.split()[:-1]) for line in text.splitlines() if line.startswith("closed: ")]

    assert ends == [
        "closed: DISCONNECT by client 0x00 Normal disconnection 3",
        "closed: DISCONNECT by server 0x8e Session taken over 1",
        "closed: no DISCONNECT, FIN by server 1",
        "closed: no DISCONNECT, reset by client 1",
        "closed: still open at the end of the capture 1",
        "closed: refused, FIN by server 1",
        "closed: incompletely captured, FIN by server 1",
    ]
    for end in ("no DISCONNECT, FIN by server", "no DISCONNECT, reset by client", "DISCONNECT by server 0x8e"):
        assert sum(line.rstrip().endswith(end) for line in text.splitlines()) == 1


def test_clients_in_trouble_come_first_and_an_address_of_several_says_so(mixed: Statistics) -> None:
    text = render(mixed, View(width=80), tables=("client",)).decode()
    rows = {line.split()[0]: line.rstrip() for line in text.splitlines() if line.endswith(tuple("0123456789 "))}
    names = [row["client_identifier"] for row in document(mixed)["clients"]]

    assert names[:3] == ["dies", "rival", "stranger"]
    assert [name for name in rows if name in names][:4] == ["dies", "rival", "stranger", "polite"]
    assert document(mixed, sort="packets")["clients"][0]["client_identifier"] == "polite"
    assert rows["dies"].endswith(" 192.0.2.8 +1")
    assert rows["polite"].endswith(" 192.0.2.7")


def test_every_order(mixed: Statistics) -> None:
    def first(sort: str) -> Any:
        return next(order(mixed.clients.values(), sort, 1)).client_identifier

    assert first("disconnects") == "dies"
    assert first("refused") == "stranger"
    assert first("reconnects") == "polite"
    names = [row.client_identifier for row in order(mixed.clients.values(), "name", None)]
    assert names == sorted(names)
    for sort in SORTS:
        for rows in (mixed.connections, list(mixed.clients.values())):
            assert len(list(order(rows, sort, None))) == len(rows)


def test_silence_is_that_of_the_worst_connection() -> None:
    statistics = statistics_of("keep-alive")
    rows = order(statistics.clients.values(), "silence", None)

    assert [row.client_identifier for row in rows] == ["asleep", "awake"]
    actual_document = document(statistics, sort="silence")
    assert actual_document["clients"][0]["keep_alive_share"] == max(
        row["keep_alive_share"] for row in actual_document["connections"] if row["client_identifier"] == "asleep"
    )


def test_topics_without_a_measure_are_sorted_by_packets() -> None:
    statistics = statistics_of("v5-topic-alias-client")
    usual = [row.topic for row in order(statistics.topics.values(), "packets", None)]

    for sort in ("trouble", "reconnects", "refused", "disconnects", "silence", "latency"):
        assert [row.topic for row in order(statistics.topics.values(), sort, None)] == usual
    assert [row.topic for row in order(statistics.topics.values(), "name", None)] == sorted(map(str, usual))


def trial(name: str) -> dict[str, Any]:
    path = corpora.path("captures", "trials", name)
    statistics = Statistics()
    for event in dissect(statistics.frames(open_capture([path]))):
        statistics.feed(event)
    statistics.finish()
    return document(statistics)


def test_the_end_of_a_connection_is_its_first_fin() -> None:
    (result,) = trial("half.pcap")["connections"]

    assert (result["ending"], result["closed_how"], result["closed_by"]) == ("broken", "fin", "server")
    assert result["also_closed"]["how"] == "fin"
    assert result["also_closed"]["timestamp_ns"] - result["ended_ns"] == pytest.approx(6e9, rel=0.01)
    # A client owes nothing to a server that has closed.
    assert result["longest_silence_ns"] < 1.1 * SECOND


def test_silence_ends_where_the_server_ended() -> None:
    statistics = Statistics()
    talk = Talk(statistics)
    talk.publish("a", SECOND)
    talk.connection.closed_ns = 3 * SECOND
    talk.publish("a", 9 * SECOND)
    talk.connection.closed_how, talk.connection.closed_by = "fin", "server"
    talk.close(3 * SECOND)
    statistics.finish()

    assert statistics.connections[0].longest_silence_ns == 2 * SECOND


def test_discarded_segments_are_counted_and_one_direction_alone_is_named() -> None:
    actual_document = trial("tcp_data_after_rst.pcap")

    assert actual_document["totals"]["discarded"] == {"segments": 1, "bytes": 12}
    assert actual_document["captures"][0]["discarded"] == {"segments": 1, "bytes": 12}
    assert [row["one_sided"] for row in trial("tcp_asym_c.pcap")["connections"]] == ["client_to_server"]
    assert [row["one_sided"] for row in trial("half.pcap")["connections"]] == [None]
