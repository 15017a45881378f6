"""How statistics tell ends of connections apart, and who comes first."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.mqtt.packets import Connack, Disconnect
from mqttscope.report.base import View
from mqttscope.session.connection import CONNECTING
from mqttscope.stats.as_json import SORTS, document, order
from mqttscope.stats.as_text import render
from mqttscope.stats.collect import Statistics
from tests.conftest import shared_path
from tests.stats.talk import S2C, SECOND, Talk, statistics_of


def ended(
    statistics: Statistics,
    number: int,
    identifier: str,
    *,
    how: str = "fin",
    by: str | None = "server",
    disconnect: tuple[Any, int] | None = None,
    code: int = 0,
    address: str = "",
    **state: Any,
) -> None:
    """One connection with a CONNECT and a CONNACK, and its end."""
    talk = Talk(statistics, number, None)
    if address:
        talk.connection.client = f"{address}:50000"
    talk.connection.client_identifier, talk.connection.revision = identifier, 1
    talk.connection.connect_packet, talk.connection.phase = 0, CONNECTING
    talk.connection.client_side.packets = 1
    talk.send(Connack(reason_code=code, raw=b"\x20\x03\x00\x00\x00"), SECOND, S2C)
    if disconnect is not None:
        direction, reason = disconnect
        talk.send(Disconnect(reason_code=reason, raw=b"\xe0\x01\x00"), 2 * SECOND, direction)
    talk.connection.closed_how, talk.connection.closed_by = how, by
    for name, value in state.items():
        setattr(talk.connection, name, value)
    talk.close(3 * SECOND)


@pytest.fixture
def mixed() -> Statistics:
    from mqttscope.mqtt.constants import Direction

    statistics = Statistics()
    client, server = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
    for number in range(3):
        ended(statistics, number, "polite", disconnect=(client, 0), address="192.0.2.7")
    ended(statistics, 3, "dies", address="192.0.2.8")
    ended(statistics, 4, "dies", how="reset", by="client", address="192.0.2.9")
    ended(statistics, 5, "rival", disconnect=(server, 0x8E))
    ended(statistics, 6, "stranger", code=0x87)
    ended(statistics, 7, "running", how="capture_end", by=None)
    ended(statistics, 8, "holey", gaps=1)
    statistics.finish()
    return statistics


def test_ends_with_a_disconnect_are_told_from_broken_ones(mixed: Statistics) -> None:
    found = document(mixed)

    assert [row["ending"] for row in found["connections"]] == [
        "disconnected", "disconnected", "disconnected", "broken", "broken", "broken", "refused", "open", "unknown",
    ]  # fmt: skip
    assert found["totals"]["connections"]["endings"] == {
        "disconnected": 3, "broken": 3, "refused": 1, "open": 1, "unknown": 1,
    }  # fmt: skip
    by_name = {row["client_identifier"]: row for row in found["clients"]}
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
        "closed: (not all of it is known) FIN by server 1",
    ]
    for end in ("no DISCONNECT, FIN by server", "no DISCONNECT, reset by client", "DISCONNECT by server 0x8e"):
        assert sum(line.rstrip().endswith(end) for line in text.splitlines()) == 1


def test_an_address_of_several_says_so(mixed: Statistics) -> None:
    text = render(mixed, View(width=80), tables=("client",)).decode()
    addresses = {line.split()[0]: line for line in text.splitlines() if line.startswith(("dies", "polite"))}

    assert addresses["dies"].rstrip().endswith(" 192.0.2.8 +1")
    assert addresses["polite"].rstrip().endswith(" 192.0.2.7")


def test_clients_in_trouble_come_first(mixed: Statistics) -> None:
    text = render(mixed, View(width=80), tables=("client",)).decode()
    names = [row["client_identifier"] for row in document(mixed)["clients"]]

    assert names[:3] == ["dies", "rival", "stranger"]
    assert text.index("\ndies ") < text.index("\nrival ") < text.index("\nstranger ") < text.index("\npolite ")
    packets = document(mixed, sort="packets")["clients"]
    assert packets[0]["client_identifier"] == "polite"


def test_every_order(mixed: Statistics) -> None:
    def first(sort: str) -> str | None:
        return order(mixed.clients.values(), sort, 1)[0].client_identifier

    assert first("disconnects") == "dies"
    assert first("refused") == "stranger"
    assert first("reconnects") == "polite"
    names = [row.client_identifier for row in order(mixed.clients.values(), "name", None)]
    assert names == sorted(names)  # type: ignore[type-var]
    for sort in SORTS:
        for rows in (mixed.connections, list(mixed.clients.values())):
            assert len(order(rows, sort, None)) == len(rows)  # type: ignore[type-var]


def test_silence_is_that_of_the_worst_connection() -> None:
    statistics = statistics_of("keep-alive")
    rows = order(statistics.clients.values(), "silence", None)

    assert [row.client_identifier for row in rows] == ["asleep", "awake"]
    found = document(statistics, sort="silence")
    assert found["clients"][0]["keep_alive_share"] == max(
        row["keep_alive_share"] for row in found["connections"] if row["client_identifier"] == "asleep"
    )


def test_topics_without_a_measure_are_sorted_by_packets() -> None:
    statistics = statistics_of("v5-topic-alias-client")
    usual = [row.topic for row in order(statistics.topics.values(), "packets", None)]

    for sort in ("trouble", "reconnects", "refused", "disconnects", "silence", "latency"):
        assert [row.topic for row in order(statistics.topics.values(), sort, None)] == usual
    assert [row.topic for row in order(statistics.topics.values(), "name", None)] == sorted(map(str, usual))


def trial(name: str) -> dict[str, Any]:
    path = shared_path("captures", "trials", name)
    statistics = Statistics()
    for event in dissect(statistics.frames(open_capture([path]))):
        statistics.feed(event)
    statistics.finish()
    return document(statistics)


def test_the_end_of_a_connection_is_its_first_fin() -> None:
    (found,) = trial("half.pcap")["connections"]

    assert (found["ending"], found["closed_how"], found["closed_by"]) == ("broken", "fin", "server")
    assert found["also_closed"]["how"] == "fin"
    assert found["also_closed"]["timestamp_ns"] - found["ended_ns"] == pytest.approx(6e9, rel=0.01)
    # A client owes nothing to a server that has closed.
    assert found["longest_silence_ns"] < 1.1 * SECOND


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


def test_discarded_segments_are_counted() -> None:
    found = trial("tcp_data_after_rst.pcap")

    assert found["totals"]["discarded"] == {"segments": 1, "bytes": 12}
    assert found["captures"][0]["discarded"] == {"segments": 1, "bytes": 12}


def test_one_direction_alone_is_named() -> None:
    assert [row["one_sided"] for row in trial("tcp_asym_c.pcap")["connections"]] == ["client_to_server"]
    assert [row["one_sided"] for row in trial("half.pcap")["connections"]] == [None]
