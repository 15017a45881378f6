"""The project's own captures, read from end to end, against what their descriptions promise."""

from __future__ import annotations

import io
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import Options, dissect
from mqttscope.events import PacketEvent
from mqttscope.mqtt import PacketType
from mqttscope.report.jsonl import EventJsonLines
from tests.conftest import ROOT
from tests.corpus.reading import Found, read
from tests.each import each

FOLDERS = sorted(path.parent for path in (ROOT / "captures").glob("*/about.toml"))
each_capture = each("folder", FOLDERS, ids=lambda folder: str(folder.name))

GAPS_AT_THE_ENDS = {
    "client-side-only": "the client acknowledges the whole stream of a server of which nothing was captured",
    "server-side-only": "the server acknowledges the whole stream of a client of which nothing was captured",
}
"""Captures with gaps outside of the captured bytes, which their descriptions do not count."""
MALFORMED_FOR_US = {
    "refused-protocol-level": "a CONNECT of an unknown protocol level is laid out well, and reported as malformed",
    "protocol-level-accepted": "the same",
}
ASSUMED_FROM_THE_ANSWER = {"refused-protocol-level": ["3.1.1"], "protocol-level-accepted": ["3.1.1"]}
"""Captures without a version of their own, in which a CONNACK shows in which layout the server answers."""

COMMON = {"schema", "event", "capture", "frame", "timestamp", "timestamp_ns", "connection", "client", "server"}
OF_A_STREAM = COMMON | {"direction", "client_identifier", "version", "version_known"}
KEYS = {
    "packet": OF_A_STREAM | {"packet", "type", "length", "remaining_length"},
    "malformed": OF_A_STREAM | {"packet", "type", "length", "malformed"},
    "gap": OF_A_STREAM | {"length", "reason"},
    "unparsed": OF_A_STREAM | {"length", "reason", "missing", "raw"},
    "connection_opened": COMMON | {"transport", "handshake_seen", "roles_known", "roles_evidence"},
    "connection_ending": COMMON | {"client_identifier", "how", "by"},
    "discarded": OF_A_STREAM | {"length", "reason"},
    "connection_closed": COMMON
    | {
        "transport",
        "client_identifier",
        "version",
        "version_known",
        "how",
        "by",
        "packets",
        "bytes",
        "gaps",
        "gap_bytes",
        "discarded",
        "copied_segments",
        "one_sided",
        "also_closed",
    },
}
FIELDS: dict[str, set[str]] = {
    "connect": {"protocol_name", "protocol_level", "clean_start", "keep_alive", "client_identifier", "user_name",
                "password", "will"},
    "connack": {"session_present", "reason_code", "reason"},
    "publish": {"dup", "qos", "retain", "topic_name", "packet_identifier", "payload"},
    **{name: {"packet_identifier"} for name in ("puback", "pubrec", "pubrel", "pubcomp")},
    "subscribe": {"packet_identifier", "subscriptions"},
    "suback": {"packet_identifier", "reason_codes"},
    "unsubscribe": {"packet_identifier", "topic_filters"},
    "unsuback": {"packet_identifier"},
    "pingreq": set(),
    "pingresp": set(),
    "disconnect": set(),
    "auth": {"reason_code", "reason", "properties"},
}  # fmt: skip


def expected(folder: Path) -> dict[str, Any]:
    described: dict[str, Any] = tomllib.loads((folder / "about.toml").read_text(encoding="utf-8"))["expect"]
    return described


WITH_TOPICS = [folder.name for folder in FOLDERS if "topics" in expected(folder)]


def found_in(folder: Path) -> Found:
    return read(folder / "capture.pcapng")


def test_there_are_captures() -> None:
    assert len(FOLDERS) >= 70
    assert len(WITH_TOPICS) >= 5
    assert {folder.name for folder in FOLDERS} >= {*GAPS_AT_THE_ENDS, *MALFORMED_FOR_US}


@each_capture
def test_connections_and_their_transport(folder: Path) -> None:
    expect, result = expected(folder), found_in(folder)

    assert len(result.connections) == expect["connections"]
    assert {connection.transport for connection in result.connections} == {expect["transport"]}
    assert {int(connection.server.rpartition(":")[2]) for connection in result.connections} == set(expect["ports"])
    assert [connection.number for connection in result.connections] == list(range(expect["connections"]))
    assert sorted(connection.number for connection in result.closed) == list(range(expect["connections"]))
    assert not result.errors


@each_capture
def test_versions(folder: Path) -> None:
    result = found_in(folder)
    assumed = ASSUMED_FROM_THE_ANSWER.get(folder.name, [])

    assert sorted(result.versions()) == (assumed or expected(folder)["versions"])
    if assumed:
        assert not any(connection.version_known for connection in result.connections)


@each_capture
def test_packets_by_type(folder: Path) -> None:
    types = found_in(folder).types()
    if folder.name in MALFORMED_FOR_US:
        types["connect"] += 1

    assert types == expected(folder)["packets"]


@each_capture
def test_streams_with_malformed_packets(folder: Path) -> None:
    streams = {(event.connection.number, event.direction) for event in found_in(folder).malformed}

    assert len(streams) - (folder.name in MALFORMED_FOR_US) == expected(folder)["malformed"]


@each_capture
def test_gaps(folder: Path) -> None:
    gaps = found_in(folder).gaps
    if folder.name in GAPS_AT_THE_ENDS:
        assert expected(folder)["gaps"] == 0
        assert {gap.direction for gap in gaps} == {gaps[0].direction}
        assert all(gap.connection.side(gap.direction).packets == 0 for gap in gaps)
        return

    assert len(gaps) == expected(folder)["gaps"]


@pytest.mark.parametrize("name", WITH_TOPICS)
def test_topics_with_aliases_resolved(name: str) -> None:
    folder = ROOT / "captures" / name

    assert found_in(folder).topics() == expected(folder)["topics"]


@each_capture
@pytest.mark.long
def test_frames_and_numbers_are_in_order_where_nothing_had_to_be_searched(folder: Path) -> None:
    result = found_in(folder)
    events = [event for event in result.events if isinstance(event, PacketEvent)]
    if not (result.gaps or result.unparsed or result.malformed) and all(
        connection.handshake_seen for connection in result.connections
    ):
        assert [event.frame for event in events] == sorted(event.frame for event in events)

    numbers = [event.number for event in result.both]
    assert numbers == list(range(result.count))
    assert all(0 < event.frame <= expected(folder)["frames"] for event in events)


@each_capture
def test_sides_add_up_to_what_was_reported(folder: Path) -> None:
    result = found_in(folder)

    applied = [event for event in result.both if isinstance(event, PacketEvent) or event.malformed.complete]
    for connection in result.connections:
        for side, direction in (
            (connection.client_side, "client_to_server"),
            (connection.server_side, "server_to_client"),
        ):
            own = [event for event in applied if event.connection is connection and event.direction == direction]
            assert side.packets == len(own)
        assert connection.gaps == len([gap for gap in result.gaps if gap.connection is connection])


def lines_of(folder: Path) -> tuple[Found, list[dict[str, Any]]]:
    result = found_in(folder)
    sink = io.BytesIO()
    report = EventJsonLines(sink)
    # Read again: a report is written while events come, not afterwards.
    for event in dissect(open_capture([folder / "capture.pcapng"])):
        report.feed(event)
    report.close()
    return result, [json.loads(line) for line in sink.getvalue().decode("utf-8").splitlines()]


@each_capture
def test_every_event_is_one_line_of_json_with_the_promised_keys(folder: Path) -> None:
    result, lines = lines_of(folder)

    assert len(lines) == len(result.events)
    for line in lines:
        assert line["schema"] == 1
        assert set(line) >= KEYS[line["event"]], line
        assert line["timestamp"].endswith(f"{line['timestamp_ns'] % 10**9:09d}Z")


@each_capture
def test_each_packet_has_an_object_of_its_type(folder: Path) -> None:
    result, lines = lines_of(folder)
    packets = [line for line in lines if line["event"] == "packet"]
    by_number = {event.number: event for event in result.packets}

    assert len(packets) == len(result.packets)
    for line in packets:
        event = by_number[line["packet"]]
        assert line["type"] == event.type == PacketType(event.packet.raw[0] >> 4).name.lower()
        assert FIELDS[line["type"]] <= set(line[line["type"]]), line
        assert line["length"] == len(event.packet.raw) + event.packet.missing
        assert ("topic" in line) == (line["type"] == "publish")
        assert line.get("topic") == event.topic
        assert line["frame"] == event.frame
        if line["version"] == "5.0" and line["type"] not in ("pingreq", "pingresp"):
            assert isinstance(line[line["type"]]["properties"], dict)


@each_capture
def test_each_malformed_packet_says_what_is_wrong_and_where(folder: Path) -> None:
    result, lines = lines_of(folder)
    wrong = [line for line in lines if line["event"] == "malformed"]

    assert len(wrong) == len(result.malformed)
    for line in wrong:
        assert {"reason", "offset", "field", "reason_code", "raw"} <= set(line["malformed"])
        assert line["malformed"]["reason_code"] == 129


def test_the_user_may_say_that_a_strange_port_speaks_mqtt() -> None:
    folder = ROOT / "captures" / "strange-port-joined"
    ports = dict.fromkeys(expected(folder)["ports"], "mqtt")

    assert read(folder / "capture.pcapng", Options(ports=ports, detect=False)).types() == expected(folder)["packets"]
    assert not read(folder / "capture.pcapng", Options(detect=False)).connections
