"""The lines that are no packets: connections that open and close, gaps, bytes that could not be read, bad captures."""

from __future__ import annotations

import re

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionClosed, ConnectionEnding, DiscardedEvent, Event, GapEvent, UnparsedEvent
from mqttscope.mqtt import (
    Direction,
    Disconnect,
    PacketType,
    Publish,
    Unparsed,
)
from mqttscope.net.frame import CaptureError
from mqttscope.report import notices
from mqttscope.report.base import Reporter, View
from mqttscope.report.ladder import Ladder
from mqttscope.report.text import TextLines
from mqttscope.report.tree import Tree
from mqttscope.session.connection import CONNECTED, Connection, OtherEnd
from tests import corpora
from tests.conftest import ROOT
from tests.each import each
from tests.report.make import C2S, MS, S2C, START_NS, V3_1_1, Lines, Talk, publish, shown


def test_an_assumed_version_is_marked_once_and_again_when_it_changes() -> None:
    talk = Talk(V3_1_1, known=False)
    texts = [line for line in shown(TextLines, [talk.say(publish()), talk.say(publish())], width=0) if "3.1.1?" in line]
    assert texts == ["── #0 MQTT 3.1.1? (assumed, from a run of packets; --mqtt-version sets it)"]


def test_aliases_that_were_not_kept_are_told_at_the_end() -> None:
    talk = Talk()
    talk.connection.client_side.aliases_dropped = 2
    assert line_of(talk.closed()).endswith("2 topic aliases dropped (limit 16777216 bytes)")


@pytest.mark.parametrize(
    ("how", "by", "sent", "expected"),
    [
        pytest.param("fin", "client", Disconnect(), "DISCONNECT by client, closed by client", id="in good order"),
        pytest.param("fin", "client", None, "closed by client without DISCONNECT", id="without DISCONNECT"),
        pytest.param("reset", "server", None, "reset by server without DISCONNECT", id="reset"),
        pytest.param("capture_end", None, None, "still open at the end of the capture", id="still open"),
        pytest.param(
            "fin", "client", Disconnect(reason_code=4),
            "DISCONNECT by client (Disconnect with Will Message), closed by client", id="with a reason",
        ),
    ],
)  # fmt: skip
def test_how_a_connection_ended(how: str, by: str | None, sent: Disconnect | None, expected: str) -> None:
    talk = Talk()
    talk.connection.phase = CONNECTED
    if sent is not None:
        talk.say(sent)

    assert f"#0 dev1 {expected} · " in line_of(talk.closed(how, by))


@each(
    "changes, expected",
    [
        (
            {
                "transport": "websocket",
                "details": {"path": "/mqtt", "subprotocol": "mqtt", "extensions": []},
                "handshake_seen": False,
                "roles_known": False,
                "roles_evidence": "well-known port",
            },
            " joined (WebSocket, /mqtt, subprotocol mqtt; roles assumed from well-known port)",
        ),
        (
            {
                "details": {"proxy": {"client": "192.0.2.1:9", "server": "192.0.2.2:1883"}},
                "version": V3_1_1,
                "version_evidence": "given",
            },
            " opened (PROXY for 192.0.2.1:9 to 192.0.2.2:1883; MQTT 3.1.1 as given)",
        ),
        (
            {
                "transport": "websocket",
                "details": {"path": "/mqtt?token=Xyzzy-Plugh-4711", "extensions": ["a", "b"], "masked": True},
            },
            " opened (WebSocket, /mqtt?token=Xyzzy-Plugh-4711, extensions a b)",
        ),
    ],
)
def test_what_is_special_about_a_connection_stands_where_it_opens(changes: dict[str, object], expected: str) -> None:
    talk = Talk()
    for name, value in changes.items():
        setattr(talk.connection, name, value)

    assert line_of(talk.opened(), show_secrets=True).endswith(f"#0 10.0.0.4:51234 → 10.0.0.2:1883{expected}")
    assert "Xyzzy" not in line_of(talk.opened())


def test_bytes_of_a_connect_that_could_not_be_read_are_not_shown() -> None:
    event = Talk().unparsed(Unparsed("reset", 20, b"\x10\x20secret", 0, 1))
    assert line_of(event).endswith("UNPARSED   20 bytes of a packet cut off by the reset (CONNECT)")
    assert b"secret".hex() in line_of(event, show_secrets=True)


@pytest.mark.parametrize(
    ("texts", "missed", "expected"),
    [
        pytest.param(
            {"version": "TLS 1.3", "server_name": "broker.example"}, 0,
            "· TLS 1.3 · server name broker.example · 3→ 1← records · 620→ 90← bytes", id="all known",
        ),
        pytest.param(
            {"version": None, "server_name": None}, 7,
            "· TLS version not seen · 3→ 1← records · 620→ 90← bytes · 7 bytes→ outside records", id="joined",
        ),
    ],
)  # fmt: skip
def test_the_end_of_tls_says_what_was_agreed_on_and_how_much_went_each_way(
    texts: dict[str, str | None], missed: int, expected: str
) -> None:
    talk = Talk(identifier=None)
    talk.connection.transport = "tls"
    talk.connection.details = {
        **texts,
        "client": {
            "records": {"handshake": 1, "application_data": 2},
            "bytes": {"handshake": 500, "application_data": 120},
            "unframed_bytes": missed,
        },
        "server": {"records": {"handshake": 1}, "bytes": {"handshake": 90}, "unframed_bytes": 0},
    }

    line = line_of(talk.closed())

    assert line.endswith(expected)
    assert "packets" not in line


REASON = re.compile(r"``(\w+)``")


def line_of(event: Event, **view: object) -> str:
    """The one line of an event."""
    (line,) = shown(TextLines, [event], **{"width": 0, **view})
    return line


def test_every_reason_of_the_layer_below_has_words() -> None:
    """The docstrings of the fields list them."""
    source = (ROOT / "mqttscope" / "net" / "flow.py").read_text("utf-8")
    result = {
        kind: {*REASON.findall(source.partition(f"class {kind}:")[2].partition("@dataclass")[0])}
        for kind in ("StreamGap", "SegmentDiscarded", "FlowClosed")
    }

    assert result["StreamGap"] == GapEvent.reasons.keys()
    assert result["SegmentDiscarded"] == DiscardedEvent.reasons.keys()
    assert result["FlowClosed"] == notices._CLOSED.keys()


@pytest.mark.parametrize("reason", [*GapEvent.reasons, "another"])
def test_a_gap_says_why(reason: str) -> None:
    words = GapEvent.reasons.get(reason, reason)

    assert line_of(Talk().gap(1460, reason)).endswith(f" GAP        1460 bytes {words}")
    assert line_of(Talk().gap(1, reason)).endswith(f" GAP        1 byte {words}")


@pytest.mark.parametrize("reason", [*notices._UNPARSED, "another"])
def test_bytes_of_no_packet_say_why_and_how_they_begin(reason: str) -> None:
    talk = Talk()
    words = notices._UNPARSED.get(reason, reason)

    few, many = Unparsed(reason, 3, b"\x01\x02\x03", 0, None), Unparsed(reason, 90, bytes(90), 5, PacketType.PUBACK)

    assert line_of(talk.unparsed(few), show_secrets=True).endswith(f"3 bytes {words}  0x010203")
    assert line_of(talk.unparsed(many), show_secrets=True).endswith(
        f"90 bytes {words} (PUBACK), 5 of them not captured  0x{'00' * notices.MAX_HEX}…"
    )
    # All but those of the header may be of a packet with a secret.
    assert line_of(talk.unparsed(few)).endswith("  0x010203" if reason == "proxy_header" else f"3 bytes {words}")


@pytest.mark.parametrize(
    ("direction", "head", "words"),
    [
        (C2S, b"GET / HTTP/1.1\r\n\r\n", " (the client speaks HTTP, not MQTT)"),
        (S2C, b"HTTP/1.1 400 Bad Request\r\n\r\n", " (the server answers in HTTP, not in MQTT)"),
        (S2C, b"<!DOCTYPE HTML>\n<html>", " (the server answers in HTML, not in MQTT)"),
        (C2S, b"<!DOCTYPE HTML>\n<html>", ""),
        (C2S, b"PROXY TCP4 10.0.0.4 10.0.0.2 51234 1883\r\n", ""),
        (C2S, b"\x00\x01", ""),
    ],
)
def test_a_side_that_begins_with_another_protocol_is_told(direction: Direction, head: bytes, words: str) -> None:
    def line(**changes: object) -> str:
        talk = Talk(identifier=None)
        for name, value in changes.items():
            setattr(talk.connection, name, value)
        unparsed = Unparsed("resynchronised", len(head), head, 0, None)
        return line_of(UnparsedEvent(talk.connection, direction, 1, START_NS, "a.pcap", unparsed))

    assert line().endswith(words)
    assert ("not MQTT)" in line() or "not in MQTT)" in line()) is bool(words)
    # Of what joins in the middle nobody knows what came first.
    assert "MQTT)" not in line(handshake_seen=False)


def test_only_the_first_bytes_of_a_side_are_another_protocol() -> None:
    talk = Talk()
    talk.say(publish())
    talk.connection.client_side.packets = 1

    assert "HTTP" not in line_of(talk.unparsed(Unparsed("resynchronised", 18, b"GET / HTTP/1.1\r\n\r\n", 0, None)))


def test_a_packet_that_breaks_the_layout_names_its_first_fault_and_counts_the_others() -> None:
    text = line_of(Talk().say(bytes.fromhex("30 07 00 02 c3 28 00 78 79")))
    many = line_of(Talk().say(bytes.fromhex("82 0b 00 01 00 00 02 c3 28 ff 00 01 61")))

    assert "utf8_ill_formed: topic_name at byte 4: not well-formed UTF-8: c3" in text
    assert "more fault" not in text
    assert re.search(r", [1-9] more faults?", many)


def test_a_capture_that_cannot_be_opened_has_no_offset_and_no_frames() -> None:
    assert line_of(CaptureError("a.pcap", "does not exist")) == "!! a.pcap: does not exist"
    assert line_of(CaptureError("a.pcap", "ends", 0, 2)) == "!! a.pcap: ends at offset 0 (2 frames before it were read)"


@pytest.mark.parametrize("how", [*notices._CLOSED, "another"])
def test_how_it_ended_is_said_and_a_missing_disconnect_only_where_it_would_have_been_seen(how: str) -> None:
    def line(gaps: int = 0) -> str:
        talk = Talk()
        talk.connection.phase = CONNECTED
        talk.connection.gaps = gaps
        return line_of(talk.closed(how, None))

    assert f"#0 dev1 {notices._CLOSED.get(how, how)}" in line()
    assert (" without DISCONNECT" in line()) is (how in ("fin", "reset"))
    assert " without DISCONNECT" not in line(gaps=1)


FORMATS = (TextLines, Ladder, Tree)


def reported(*events: Event, format_: type[Reporter] = TextLines, width: int = 0) -> list[str]:
    return shown(format_, events, width=width, time="relative")


def ended(connection: Connection, at_ns: int = START_NS) -> ConnectionEnding:
    connection.closed_how, connection.closed_by = "fin", "server"
    connection.closed_frame, connection.closed_ns, connection.closed_capture = 8, at_ns, "a.pcap"
    return ConnectionEnding(connection, 8, at_ns, "a.pcap")


def closed(connection: Connection) -> ConnectionClosed:
    return ConnectionClosed(connection, connection.closed_frame, connection.closed_ns, "a.pcap")


@pytest.fixture
def connection() -> Connection:
    actual_connection = Talk().connection
    actual_connection.phase = CONNECTED
    return actual_connection


@pytest.mark.parametrize("format_", FORMATS)
def test_the_end_is_said_once_and_at_the_latest_when_the_connection_is_closed(
    connection: Connection, format_: type[Reporter]
) -> None:
    (line,) = reported(ended(connection), closed(connection), format_=format_)
    assert "#0 dev1 closed by server without DISCONNECT" in line

    end = ended(connection, START_NS + 5 * MS)
    connection.also_closed = OtherEnd("fin", 10, START_NS + 6_005 * MS, "a.pcap")
    (line,) = reported(closed(end.connection), format_=format_)
    assert "closed by server without DISCONNECT · 5.0 ms" in line
    assert line.endswith(" · client closed 6.00 s later")


@pytest.mark.parametrize(
    ("how", "after", "expected"),
    [
        ("fin", 6_000 * MS, "client closed 6.00 s later"),
        ("reset", 20_000, "client reset 20 µs later"),
        ("reset", 1_000 * MS, "client reset 1.00 s later"),
    ],
)
def test_the_other_side(connection: Connection, how: str, after: int, expected: str) -> None:
    end = ended(connection)
    connection.also_closed = OtherEnd(how, 10, START_NS + after, "a.pcap")

    lines = reported(end, closed(connection))[1:]

    assert lines == [f"{after / 1e9:12.6f} ── #0 dev1 {expected}"]


def test_what_came_after_the_end(connection: Connection) -> None:
    end = ended(connection)
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


@each(
    "reason, expected",
    [
        ("after_close", "after the connection was closed"),
        ("after_reset", "after the connection was reset"),
        ("after_fin", "after the FIN of this side"),
        ("out_of_window", "with numbers that belong to no connection"),
        ("in_reset", "beside a reset"),
        ("before_start", "before the first byte that was read"),
        ("late_copy", "that came again after the end"),
        ("late", "that came after their gap was given up"),
        ("damaged", "of a damaged segment: wrong checksum"),
        ("something_new", "something_new"),
    ],
)
def test_discarded_segments_have_a_line(connection: Connection, reason: str, expected: str) -> None:
    for format_ in FORMATS:
        event = DiscardedEvent(connection, S2C, 12, START_NS, "a.pcap", 62, reason)
        (line,) = reported(event, format_=format_)

        assert "DISCARDED" in line
        assert f"62 bytes {expected}" in line
        assert "#0 dev1" in line


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(connection: Connection, width: int) -> None:
    end = ended(connection)
    connection.also_closed = OtherEnd("reset", 10, START_NS + 3_600_000 * MS, "a.pcap")
    connection.discarded_segments, connection.one_sided = 7, "server_to_client"
    discarded = DiscardedEvent(connection, C2S, 9, START_NS, "a.pcap", 1, "after_fin")

    assert max(map(len, reported(end, closed(connection), discarded, width=width))) <= width


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
    path = corpora.path("captures", "trials", name)

    assert reported(*dissect(open_capture([path])))[-2:] == expected
