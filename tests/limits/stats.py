"""Inputs at the limits of the package stats."""

from __future__ import annotations

from mqttscope.mqtt.packets import Pubrel
from mqttscope.net.frame import CaptureError
from mqttscope.stats import as_html
from mqttscope.stats.collect import Statistics
from mqttscope.stats.rows import Histogram
from tests.stats.talk import Talk
from tests.stats.test_sparkplug import DATA, counted


def damaged(*captures: str) -> Statistics:
    """An error of each capture."""
    statistics = Statistics()
    for capture in captures:
        statistics.feed(CaptureError(capture, "cut", None, 0))
    statistics.finish()
    return statistics


def captures(count: int) -> tuple[int, int]:
    """How many captures have a row, and how many errors are counted beside them."""
    statistics = damaged(*map(str, range(count)))
    return len(statistics.captures), statistics.other_capture.error_count


def errors(count: int) -> tuple[int, int]:
    """Of so many errors of one capture, those that are kept, and those that are counted."""
    (row,) = damaged(*["a"] * count).captures.values()
    return len(row.errors), row.error_count


def connected(count: int, *, each: int = 1, closes: bool = True) -> Statistics:
    """So many clients with ``each`` connections, one after the other or at the same time."""
    statistics = Statistics()
    for number in range(count * each):
        talk = Talk(statistics, number, f"client {number % count}")
        if closes:
            talk.close()
    statistics.finish()
    return statistics


def connections(count: int) -> tuple[int, int]:
    """How many connections have a row, and how many are counted beside them."""
    statistics = connected(count)
    return len(statistics.connections), statistics.other_outcomes.connections


def clients(count: int) -> tuple[int, int]:
    """How many clients have a row, and how many connections of others are counted."""
    statistics = connected(count)
    return len(statistics.clients), statistics.other_client.connections


def closed_early(count: int) -> int:
    """Of so many connections at a time, those that are counted as ended before their end."""
    return connected(count, closes=False).early_closed


def addresses(count: int) -> tuple[int, bool]:
    """How many addresses of a client are kept, and whether it is said that there were more."""
    statistics = connected(1, each=count)
    (row,) = statistics.clients.values()
    return len(row.addresses), row.more_addresses


def topics(*names: str) -> tuple[int, int, int, bool]:
    """How many topics have a row, messages of others, pairs of a topic and its client, and whether these are all."""
    statistics = Statistics()
    talk = Talk(statistics)
    for name in names:
        talk.publish(name)
    statistics.finish()
    rows = statistics.topics.values()
    pairs = sum(len(row.clients[0]) for row in rows)
    return len(rows), statistics.other_topic.messages[0], pairs, all(row.complete[0] for row in rows)


def publishers(count: int) -> tuple[int, bool]:
    """How many clients of one topic are told apart, and whether these are all."""
    statistics = Statistics()
    for number in range(count):
        Talk(statistics, number, f"client {number}").publish("a")
    row = statistics.topics["a"]
    return len(row.clients[0]), row.complete[0]


def releases_missed(count: int) -> int:
    """Of so many PUBREL packets, those whose PUBCOMP is not waited for."""
    statistics = Statistics()
    talk = Talk(statistics)
    for identifier in range(1, count + 1):
        talk.send(Pubrel(packet_identifier=identifier, raw=b"\x62\x02\0\0"))
    return statistics.missed_releases


def shortened(value: int) -> int:
    """By how much a latency in nanoseconds is counted too short."""
    histogram = Histogram()
    histogram.add(value)
    return value - histogram.maximum


def time_line(count: int, *, each: int = 1) -> str:
    return "".join(as_html.overview(connected(count, each=each)))


def edge_nodes(count: int) -> tuple[int, int]:
    """How many edge nodes have a row, and how many messages are of further ones."""
    nodes = counted(*(DATA.format(1).replace("/e", f"/e{number}") for number in range(count)))
    return len(nodes.rows), nodes.left_out
