"""Filters, searches, and the way from one packet of an exchange to the next."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from mqttscope import filter as filters
from mqttscope.browse.index import Index
from mqttscope.browse.lines import RowLines
from mqttscope.browse.rows import PACKETS
from mqttscope.browse.selection import Search, ShownRows, searched
from mqttscope.events import PacketEvent
from mqttscope.report.base import View
from tests.browse.made import built, capture
from tests.cli.running import inspected
from tests.each import each


@pytest.fixture
def index() -> Index:
    return built(capture("v5-qos"))


def rows(selection: ShownRows, step: int = 7) -> list[int]:
    """All rows of a selection, looked for in small steps."""
    while not selection.is_complete:
        selection.advance(step)
    return [selection[at] for at in range(len(selection))]


def test_everything_is_there_at_once(index: Index) -> None:
    selection = ShownRows(index)

    assert selection.everything
    assert selection.is_complete
    assert selection.scanned == 1.0
    assert rows(selection) == list(range(len(index.rows)))
    assert selection.place(5) == 5
    assert selection.has(5)


@each(
    "expression",
    ["publish", "qos == 2 or pubrel", "connection == 1 and publish", 'topic contains "temp"', "time < +0.3s", "gap"],
)
def test_a_filter_selects_what_inspect_shows(expression: str) -> None:
    index = built(capture("v5-qos"))
    wanted = filters.compile(expression)
    wanted.start_ns = index.first_ns
    had = inspected(capture("v5-qos"), "--filter", expression).packets
    index_rows = [index.rows[row] for row in rows(ShownRows(index, wanted=wanted))]

    assert [row.number for row in index_rows if row.kind in PACKETS] == [line["packet"] for line in had]


def test_a_connection_alone(index: Index) -> None:
    for number in range(len(index.connections)):
        selection = ShownRows(index, connection=number)
        numbers = rows(selection)
        assert {index.rows[row].connection for row in numbers} == {number}
        assert len(numbers) == index.connections.rows[number]
    assert rows(ShownRows(index, connection=9)) == []


def test_marked_rows_and_rows_with_findings() -> None:
    index = built(capture("planted-violations"), lint=True)
    marked = ShownRows(index, rows={7, 3})

    assert rows(marked) == [3, 7]
    assert [marked.place(row) for row in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]
    assert [marked.has(row) for row in (3, 4)] == [True, False]
    assert rows(ShownRows(index, with_findings=True)) == sorted(set(index.findings.rows))


def found(index: Index, text: str, *, start: int = -1, back: bool = False, secrets: bool = False) -> list[int]:
    """The rows in which a text is found one after the other, until it is found again."""
    selection, places = ShownRows(index), list[int]()
    while True:
        search = Search(selection, text, start, back=back, show_secrets=secrets)
        while not search.is_over:
            search.advance(lambda: True)
        if search.match is None or search.match in places:
            return places
        places.append(search.match)
        start = search.match


def test_text_is_found_in_topics_and_payloads(index: Index) -> None:
    there = [at for at in range(len(index.rows)) if any(b"temperature" in text for text in texts(index, at))]

    assert len(there) > 5
    assert found(index, "temperature") == there
    assert found(index, "TEMPERATURE") == []
    assert found(index, "temperature", start=len(index.rows), back=True) == there[::-1]
    assert found(index, "nowhere at all") == []
    payloads = found(index, "21.1")
    assert payloads
    assert all(any(b"21.1" in text for text in texts(index, at)) for at in payloads)


def texts(index: Index, at: int) -> list[bytes]:
    return list(searched(index.event(at)))


def test_the_search_goes_round_once(index: Index) -> None:
    first, *_, last = found(index, "temperature")
    search = Search(ShownRows(index), "temperature", last, back=False, show_secrets=False)
    while not search.is_over:
        search.advance(lambda: False)

    assert (search.match, search.wrapped) == (first, True)


def test_what_is_hidden_is_not_found(tmp_path: Path) -> None:
    path = tmp_path / "token.pcapng"
    raw = capture("v5-qos").read_bytes()
    at = raw.index(b"plant/line1/temperature")
    # As long as the topic that it takes the place of; the checksum of TCP is not looked at.
    path.write_bytes(raw[:at] + b"password=hunter2hunter2"[:23] + raw[at + 23 :])
    index = built(path)
    hits = found(index, "hunter2", secrets=True)

    assert len(hits) == 1
    assert "hunter2" in RowLines(index, View(width=0, show_secrets=True)).line(hits[0])
    assert "hunter2" not in RowLines(index, View(width=0)).line(hits[0])
    assert found(index, "hunter2") == []
    assert found(index, "password=") == hits


def test_compressed_payloads_are_searched(index: Index) -> None:
    event = next(
        other_event
        for other_event in map(index.event, range(len(index.rows)))
        if isinstance(other_event, PacketEvent) and other_event.type == "publish"
    )
    event.packet.payload = gzip.compress(b"inside " * 20)  # type: ignore[attr-defined]

    assert any(b"inside inside" in raw for raw in searched(event))
