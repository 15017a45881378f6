"""The end of a connection in its place, and afterwards what came later."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionClosed, ConnectionEnding, DiscardedEvent
from mqttscope.mqtt import Disconnect, Publish
from mqttscope.report import endings
from mqttscope.report.base import View
from mqttscope.report.ladder import Ladder
from mqttscope.report.text import TextLines
from mqttscope.report.tree import Tree
from mqttscope.session.connection import CONNECTED, Connection, OtherEnd
from tests.conftest import shared_path
from tests.report.make import C2S, MS, S2C, START_NS, Lines, Talk

FORMATS = (TextLines, Ladder, Tree)


def shown(*events: Any, format_: Any = TextLines, width: int = 0) -> list[str]:
    sink = Lines()
    reporter = format_(sink, View(width=width, time="relative"))
    for event in events:
        reporter.feed(event)
    reporter.close()
    return sink.lines


def ended(connection: Connection, at_ns: int, how: str = "fin", by: str = "server") -> ConnectionEnding:
    connection.closed_how, connection.closed_by = how, by
    connection.closed_frame, connection.closed_ns, connection.closed_capture = 8, at_ns, "a.pcap"
    return ConnectionEnding(connection, 8, at_ns, "a.pcap")


def closed(connection: Connection) -> ConnectionClosed:
    return ConnectionClosed(connection, connection.closed_frame, connection.closed_ns, "a.pcap")


@pytest.fixture
def connection() -> Connection:
    found = Talk().connection
    found.phase = CONNECTED
    return found


@pytest.mark.parametrize("format_", FORMATS)
def test_the_end_is_said_once(connection: Connection, format_: Any) -> None:
    lines = shown(ended(connection, START_NS), closed(connection), format_=format_)

    assert len(lines) == 1
    assert "#0 dev1 closed by server without DISCONNECT" in lines[0]


@pytest.mark.parametrize("format_", FORMATS)
def test_an_end_that_no_line_said_is_said_when_the_connection_is_closed(connection: Connection, format_: Any) -> None:
    end = ended(connection, START_NS + 5 * MS)
    connection.also_closed = OtherEnd("fin", 10, START_NS + 6_005 * MS, "a.pcap")

    lines = shown(closed(end.connection), format_=format_)

    assert len(lines) == 1
    assert "closed by server without DISCONNECT · 5.0 ms" in lines[0]
    assert lines[0].endswith(" · client closed 6.00 s later")


@pytest.mark.parametrize(
    ("how", "after", "expected"),
    [
        ("fin", endings.LATER_NS, "client closed 1.00 s later"),
        ("fin", endings.LATER_NS - 1, None),
        ("reset", 20_000, "client reset 20 µs later"),
        ("reset", endings.LATER_NS, "client reset 1.00 s later"),
    ],
)
def test_the_other_side(connection: Connection, how: str, after: int, expected: str | None) -> None:
    end = ended(connection, START_NS)
    connection.also_closed = OtherEnd(how, 10, START_NS + after, "a.pcap")

    lines = shown(end, closed(connection))[1:]

    assert lines == ([] if expected is None else [f"{after / 1e9:12.6f} ── #0 dev1 {expected}"])


def test_what_came_after_the_end(connection: Connection) -> None:
    end = ended(connection, START_NS)
    sink = Lines()
    text = TextLines(sink, View(width=0, time="relative"))
    text.feed(end)
    connection.apply(Publish(topic_name="a", payload=b"1", raw=bytes(5)), C2S, 1, 9, START_NS + MS)
    connection.apply(Disconnect(raw=b"\xe0\x00"), C2S, 2, 10, START_NS + MS)
    connection.gaps, connection.gap_bytes = 2, 30
    connection.discarded_segments, connection.discarded_bytes = 1, 62
    connection.copied_segments, connection.one_sided = 3, "client_to_server"
    text.feed(closed(connection))

    assert sink.lines[1].split("#0 ")[1] == (
        "dev1 2→ 0← packets after that (7 bytes) · DISCONNECT by client after that · 2 gaps (30 bytes)"
        " · 1 segment discarded (62 bytes) · 3 segments captured twice · only client to server captured"
    )
    assert sink.lines[1].startswith(" " * 13)


def test_ends_beyond_the_limit_are_said_again(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "MAX_ENDINGS", 0)

    assert len(shown(ended(connection, START_NS), closed(connection))) == 2


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("after_close", "after the connection was closed"),
        ("after_reset", "after the connection was reset"),
        ("after_fin", "after the FIN of this side"),
        ("out_of_window", "with numbers that belong to no connection"),
        ("before_start", "before the first byte that was read"),
        ("late_copy", "that came again after the end"),
        ("late", "that came after their gap was given up"),
        ("something_new", "something_new"),
    ],
)
def test_discarded_segments_have_a_line(connection: Connection, format_: Any, reason: str, told: str) -> None:
    event = DiscardedEvent(connection, S2C, 12, START_NS, "a.pcap", 62, reason)
    (line,) = shown(event, format_=format_)

    assert "DISCARDED" in line
    assert f"62 bytes {told}" in line
    assert "#0 dev1" in line


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(connection: Connection, width: int) -> None:
    end = ended(connection, START_NS)
    connection.also_closed = OtherEnd("reset", 10, START_NS + 3_600_000 * MS, "a.pcap")
    connection.discarded_segments, connection.one_sided = 7, "server_to_client"
    lines = shown(
        end, closed(connection), DiscardedEvent(connection, C2S, 9, START_NS, "a.pcap", 1, "after_fin"), width=width
    )

    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "half.pcap",
            [
                "    1.000295 ── #0 c1 closed by server without DISCONNECT · 1.00 s · 1→ 1← packets · 16→ 4← bytes",
                "    7.000533 ── #0 c1 client closed 6.00 s later",
            ],
        ),
        (
            "tcp_data_after_rst.pcap",
            [
                "    0.006000 ── #0 cli reset by server without DISCONNECT · 6.0 ms · 2→ 1← packets · 27→ 5← bytes",
                "    0.007000 #0 cli    → broker DISCARDED  12 bytes after the connection was reset",
            ],
        ),
    ],
)
def test_trials(name: str, expected: list[str]) -> None:
    path = shared_path("captures", "trials", name)

    assert shown(*dissect(open_capture([path])))[-2:] == expected
