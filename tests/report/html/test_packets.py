"""The page of packets: its rows are the lines of JSON Lines, a browser makes elements of few, and none of them runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import Event
from mqttscope.payloads.decoders import Decoders, PayloadTable
from mqttscope.report.base import View
from mqttscope.report.html import packets
from mqttscope.report.html.packets import Packets
from mqttscope.stats.as_html import Measured
from tests.cli.running import CAPTURES
from tests.report.browser import elements
from tests.report.html.reader import blocks, read
from tests.report.html.test_page import HOSTILE
from tests.report.make import Talk as Said
from tests.report.make import conversation, hostile, publish
from tests.report.test_jsonl import objects
from tests.secrets.sinks import Text
from tests.stats.talk import S2C, Talk

MS = 1_000_000
COUNT = 50_000


def made(events: Iterable[Event], *, limit: int | None = None, **view: Any) -> tuple[bytes, Packets]:
    sink = Text()
    page = Packets(sink, View(**view))
    page.limit = limit
    for event in events:
        page.feed(event)
    page.close()
    return sink.whole(), page


def counted(rows: list[Any]) -> int:
    """How many of these rows are of packets."""
    return sum(row["event"] in ("packet", "malformed") for row in rows)


@pytest.mark.parametrize("events", [conversation, hostile])
def test_rows_are_the_lines_of_json_lines(events: Any) -> None:
    page, _ = made(events())

    assert blocks(page, "events") == objects(events())
    assert len(blocks(page, "events")) > 5
    assert not read(page).tags & {"img", "iframe", "a", "object", "b"}
    for show in (False, True):
        page, _ = made(events(), show_secrets=show, payload_limit=3)
        assert blocks(page, "events") == objects(events(), show_secrets=show, payload_limit=3)


@pytest.mark.long
def test_what_decoders_make_of_payloads_is_in_the_rows_and_in_the_table(tmp_path: Path) -> None:
    talk = Said()
    events = [talk.say(publish("a/1", b'{"t": 21.5}')), talk.say(publish("a/2", b"{"))]
    decoders = Decoders((PayloadTable("a/+", "json"),))
    page, _ = made(events, payloads=decoders)
    found = [row["payload"] for row in blocks(page, "events") if row.get("payload")]

    assert found[0] == {"format": "json", "value": {"t": 21.5}}
    assert found[1]["format"] == "json"
    assert found[1]["error"]
    seen = str(elements(page, tmp_path))
    assert 'json: {"t":21.5}' in seen
    assert "{ (not json: " in seen


def test_beyond_the_limit_packets_are_counted_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "MAX_PACKETS", 3)
    page, report = made(conversation())
    total = counted(objects(conversation()))

    assert counted(blocks(page, "events")) == 3
    assert report.cut().startswith(f"the page lists the first 3 of {total} packets; ")
    assert f"The page lists the first 3 of {total} packets;" in " ".join(read(page).said)
    assert made(conversation(), limit=total + 1)[1].cut() == ""
    asked, report = made(conversation(), limit=total)
    assert report.cut() == f"the page ends after {total} packets, as --limit asks; the capture may hold more"
    assert "as --limit asks" in " ".join(read(asked).said)


def test_events_without_packets_are_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "MAX_PACKETS", 2)
    events: list[Any] = []
    for number in range(30):
        Talk(cast(Any, _Kept(events)), number, None).close()
    page, report = made(events)
    assert len(blocks(page, "events")) == 2 * packets.ROWS_A_PACKET
    assert report.cut() == "the page lists the first 8 events; its charts and tables count all"
    assert made(events[:8])[1].cut() == ""


class _Kept:
    def __init__(self, events: list[Any]) -> None:
        self.feed = events.append


def test_a_capture_without_mqtt_is_a_page_too() -> None:
    page, _ = made([])

    assert "script" not in read(page).tags
    assert "<h1>Packets</h1>" in page.decode()


def hostile_page() -> bytes:
    """A page in which every name is one that nobody should use."""
    sink = Text()
    page = Measured(Packets(sink, View()))
    for number, name in enumerate(HOSTILE):
        talk = Talk(cast(Any, page), number, name)
        talk.publish(name.replace("\x00", ""), number * MS, payload=name.encode())
        talk.publish(f"a/{name}", number * MS, S2C)
        talk.close(number * MS + 1)
    page.close()
    return sink.whole()


@pytest.mark.long
def test_a_browser_shows_hostile_names_as_text(tmp_path: Path) -> None:
    page = hostile_page()
    shown = elements(page, tmp_path)
    body = shown[shown.index('<section id="list"') :].partition("<script>")[0]

    assert "data-owned" not in shown
    assert "<img" not in shown
    assert "&lt;img src=x onerror=" in body
    for harm in ("\u202e", "\u2066", "\u200b", "\u2028", "\x1b", "\ufeff"):
        assert harm not in body, repr(harm)
    assert "\\u202eevil\\u2066" in body
    assert "ladder of connection 0" in body


@pytest.mark.long
def test_every_capture_can_be_filtered_and_every_connection_drawn(tmp_path: Path) -> None:
    events = [event for path in CAPTURES for event in dissect(open_capture([str(path)]))]
    page, report = made(_Renumbered().of(events))
    shown = elements(
        page, tmp_path,
        act="const select=document.querySelector('#ladder select');const ends=document.documentElement.dataset;"
        "for(const one of select.options){select.value=one.value;select.dispatchEvent(new Event('change'))}"
        "ends.drawn=select.options.length;filter.value='e';filter.dispatchEvent(new Event('input'));"
        "setTimeout(()=>{for(const one of document.querySelectorAll('.events .open'))one.click();"
        "document.querySelectorAll('script.events').forEach((one)=>one.remove())},1000)",
    )  # fmt: skip

    assert report.packets > 2_500
    connections = len({row["connection"] for row in blocks(page, "events") if "connection" in row})
    assert f'data-drawn="{connections}"' in shown
    assert f" of {len(blocks(page, 'events')):,} lines match" in shown
    assert shown.count('class="fields"') == 100


class _Renumbered:
    """Connections of several captures as if they were of one."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}

    def of(self, events: list[Event]) -> Iterable[Event]:
        for event in events:
            connection: Any = getattr(event, "connection", None)
            if connection is not None:
                connection.number = self.numbers.setdefault(id(connection), len(self.numbers))
            yield event


@pytest.mark.long
def test_fifty_thousand_packets_stay_usable(tmp_path: Path) -> None:
    """Few elements, all packets found by the filter, the ladder of a connection in pages."""
    sink = Text()
    page = Measured(Packets(sink, View()))
    talks = [Talk(cast(Any, page), number, f"device-{number}") for number in range(10)]
    for at in range(COUNT - len(talks)):
        talks[at % 10].publish(f"plant/{at % 100}/state", at * MS, payload=b"%d" % at)
    page.close()
    written = sink.whole()
    assert len(written) < 700 * COUNT
    assert page.page.cut() == ""
    assert len(blocks(written, "events")) == COUNT + len(talks)

    shown = elements(
        written, tmp_path,
        act="filter.value='#3 plant/13/state -connect';filter.dispatchEvent(new Event('input'));"
        "document.querySelector('#ladder select').value='7';"
        "document.querySelector('#ladder select').dispatchEvent(new Event('change'));"
        "setTimeout(()=>{document.querySelector('.events .open').click();"
        # What is not looked at takes long to be written.
        "document.querySelectorAll('script.events').forEach((one)=>one.remove())},500)",
    )  # fmt: skip
    listed = shown[shown.index('<section id="list"') : shown.index('<section id="ladder"')]
    assert f"500 of {COUNT + 10:,} lines match" in listed
    assert "1 to 100 of 500" in listed
    assert listed.count("<tr") == 1 + 100 + 1
    assert "ladder of connection #3" in listed
    assert "remaining_length" in listed
    ladder = shown[shown.index('<section id="ladder"') :]
    assert "1 to 100 of 5,001" in ladder
    assert ladder.count('class="wire"') == 99
    assert "ladder of connection 7" in ladder
