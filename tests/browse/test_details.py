"""Fields, payloads, ladders and findings of a packet, with the bytes that they are about."""

from __future__ import annotations

import gzip
import json

import pytest

from mqttscope.api.reading import CaptureReading
from mqttscope.browse.details import PAYLOADS, detail, end_lines, finding_lines, ladder_lines, payload_lines
from mqttscope.browse.index import Index
from mqttscope.browse.rows import RowKind
from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionClosed, PacketEvent
from mqttscope.report.base import LineCollector, View
from mqttscope.report.ladder import Ladder
from tests.browse.made import CAPTURES, builder, built, capture
from tests.each import each

VIEW = View(width=100)


@each("path", CAPTURES[::4], ids=lambda path: str(path.parent.name))
def test_every_row_can_be_shown(path: object) -> None:
    index = built(path)  # type: ignore[arg-type]
    for row in range(len(index.rows)):
        packet_details = detail(index, row, VIEW)
        assert packet_details.lines
        for line in packet_details.lines:
            assert -1 <= line.start <= line.end <= len(packet_details.raw)
        if index.rows[row].kind <= RowKind.ODD_PACKET:
            # Every byte belongs to a field.
            covered = {at for line in packet_details.lines if line.start >= 0 for at in range(line.start, line.end)}
            assert covered == set(range(len(packet_details.raw)))


def publish(index: Index) -> int:
    return next(at for at in range(len(index.rows)) if index.rows[at].header >> 4 == 3)


def test_payload_views() -> None:
    index = built(capture("v5-qos"))
    event = detail(index, publish(index), VIEW).event
    assert isinstance(event, PacketEvent)
    payload = json.dumps({"t": 21.5, "unit": "C"}).encode()
    shown = {}
    for kind in PAYLOADS:
        event.packet.payload = payload  # type: ignore[attr-defined]
        shown[kind] = [line.text for line in payload_lines(event, View(width=100, payload=kind))]
    assert shown["json"][0] == "24 bytes as json"
    assert '  "t": 21.5,' in shown["json"]
    assert shown["hex"][1].startswith("7b 22 74 22")
    assert shown["text"][1] == payload.decode()
    event.packet.payload = gzip.compress(payload)  # type: ignore[attr-defined]
    assert payload_lines(event, VIEW)[0].text.endswith("as gzip, json")
    other = detail(index, 1, VIEW).event
    assert "not a PUBLISH" in payload_lines(other, VIEW)[0].text


@pytest.mark.parametrize("name", ["v5-qos", "v311-qos", "joined-v5"])
def test_the_ladder_is_that_of_inspect(name: str) -> None:
    path, view = capture(name), View(width=100, time="iso")
    index = built(path)
    for number in range(len(index.connections)):
        sink = LineCollector()
        ladder = Ladder(sink, view)
        for event in dissect(open_capture([path])):
            connection = getattr(event, "connection", None)
            if connection is not None and connection.number == number and not isinstance(event, ConnectionClosed):
                ladder.feed(event)
        rungs = ladder_lines(index, number, int(index.connections.first_rows[number]), view)
        # But for what nobody has answered.
        assert [rung.text.split(" · unanswered")[0] for rung in rungs] == [
            line.split(" · unanswered")[0] for line in sink.lines
        ]
        assert {index.rows[rung.row].connection for rung in rungs} == {number}


def test_a_ladder_around_the_last_row_has_those_before_it() -> None:
    index = built(capture("hasty-clients"))
    number = max(range(len(index.connections)), key=lambda connection: index.connections.rows[connection])
    last = int(index.connections.last_rows[number])
    rungs = ladder_lines(index, number, last, VIEW)

    assert (rungs[0].row, rungs[-1].row) == (index.connections.first_rows[number], last)


def test_findings_are_explained() -> None:
    index = built(capture("planted-violations"), lint=True)
    row = int(index.findings.rows[0])
    lines = finding_lines(index.findings.of_row(row), VIEW)
    text = "\n".join(line.text for line in lines)

    assert "PUB101" in text
    assert "breaks 5.0 MQTT-3.3.1-4" in text
    assert any(line.start >= 0 for line in lines)


def test_secrets_are_hidden() -> None:
    index = built(capture("v5-enhanced-auth"))
    for row in range(len(index.rows)):
        packet_details, whole = detail(index, row, VIEW), detail(index, row, View(width=100, show_secrets=True))
        for start, end in packet_details.hidden:
            assert set(packet_details.raw[start:end]) == {ord("*")}
            assert whole.raw[start:end] != packet_details.raw[start:end]
            assert any("hidden" in line.text for line in packet_details.lines)


def test_whether_tcp_acknowledged_a_packet() -> None:
    path = capture("half-open")
    new_builder = builder(path, acknowledgments=CaptureReading([str(path)]).acknowledgments())
    new_builder.start()
    assert new_builder.wait(60)
    index = new_builder.index
    shown = [line.text.strip() for row in range(len(index.rows)) for line in detail(index, row, VIEW).lines]
    assert shown.count("TCP: acknowledged") == 11
    assert shown.count("TCP: never acknowledged") == 1


def test_an_end_has_the_answers_about_its_edge_node() -> None:
    index = built(capture("sparkplug-deviations"), lint=True)
    lines = end_lines(index, 1, View(width=200))

    (place,) = (number for number, line in enumerate(lines) if "edge node plant/valve: rebirth" in line.text)
    assert any("normal end" in line.text for line in lines[:place])
    received = next(line for line in lines[place:] if "valve received the rebirth request" in line.text)
    assert index.rows[received.row].frame == 43
    assert not any("edge node" in line.text for line in end_lines(index, 3, View(width=200)))
