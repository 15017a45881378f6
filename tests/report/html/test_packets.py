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
from mqttscope.report.html.packets import PacketPage
from mqttscope.stats.as_html import MeasuredPage
from tests.cli.running import CAPTURES
from tests.report.browser import elements
from tests.report.html.reader import documents, read
from tests.report.html.test_page import HOSTILE
from tests.report.make import Talk as Said
from tests.report.make import conversation, hostile, publish
from tests.report.test_jsonl import objects
from tests.secrets.sinks import Text
from tests.stats.talk import S2C, Talk

MS = 1_000_000
COUNT = 50_000


def made(events: Iterable[Event], *, limit: int | None = None, **view: Any) -> tuple[bytes, PacketPage]:
    sink = Text()
    page = PacketPage(sink, View(**view))
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

    assert documents(page) == [row for row in objects(events()) if row["event"] != "connection_ending"]
    assert len(documents(page)) > 5
    assert not read(page).tags & {"img", "iframe", "a", "object"}
    for show in (False, True):
        page, _ = made(events(), show_secrets=show, payload_limit=3)
        assert documents(page) == objects(events(), show_secrets=show, payload_limit=3)


@pytest.mark.long
def test_what_decoders_make_of_payloads_is_in_the_rows_and_in_the_table(tmp_path: Path) -> None:
    talk = Said()
    events = [talk.say(publish("a/1", b'{"t": 21.5}')), talk.say(publish("a/2", b"{"))]
    decoders = Decoders((PayloadTable("a/+", "json"),))
    page, _ = made(events, payloads=decoders)
    result = [row["payload"] for row in documents(page) if row.get("payload")]

    assert result[0] == {"format": "json", "value": {"t": 21.5}}
    assert result[1]["format"] == "json"
    assert result[1]["error"]
    shown = str(elements(page, tmp_path)).partition('<div class="rows"')[2]
    assert '{"t":21.5}' in shown.partition("<code")[0]
    assert "not shown as json: it is not JSON" in shown


def test_beyond_the_limit_packets_are_counted_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "MAX_BYTES", 1)
    page, report = made(conversation())
    total = counted(objects(conversation()))
    [opened] = documents(page)

    assert opened["event"] == "connection_opened"
    assert report.cut().startswith(f"the page lists the first 0 of {total} packets; ")
    assert f"The page lists the first 0 of {total} packets;" in " ".join(read(page).texts)
    assert made(conversation(), limit=total + 1)[1].cut() == ""
    asked, report = made(conversation(), limit=total)
    assert report.cut() == f"the page ends after {total} packets (--limit); the capture may contain more"
    assert "(--limit); the capture" in " ".join(read(asked).texts)


def test_ends_and_damage_are_listed_with_the_packets_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    talks = [Said(number=number, identifier=f"dev{number}") for number in range(3)]
    events = [talk.say(publish(f"a/{at}", b"x")) for at in range(20) for talk in talks]
    events += [talks[1].gap(5), talks[2].closed(), talks[1].say(publish("a/20", b"x")), talks[1].closed()]
    size = made(events[:6])[1].page.size
    monkeypatch.setattr(packets, "FIRST_BYTES", size)
    page, report = made(events)
    rows = [(row["connection"], row.get("topic") or row["event"]) for row in documents(page)]

    assert rows[:6] == [(number, f"a/{at}") for at in range(2) for number in range(3)]
    last = [f"a/{at}" for at in range(20 - packets.MAX_BEFORE, 20)]
    assert rows[6:] == [
        *((1, topic) for topic in [*last, "gap"]), *((2, topic) for topic in [*last, "connection_closed"]),
        (1, "a/20"), (1, "connection_closed"),
    ]  # fmt: skip
    assert report.cut() == (
        "the page lists the first 6 of 61 packets, and 17 of the others, before ends and damage; its charts and tables "
        "count all; --limit N lists N"
    )


def test_events_without_packets_are_limited_too() -> None:
    events: list[Any] = []
    for number in range(30):
        Talk(cast(Any, _Kept(events)), number, None).close()
    page, report = made(events, limit=2)
    assert len(documents(page)) == 2 * packets.ROWS_A_PACKET
    assert report.cut() == "the page lists the first 8 events; its charts and tables count all"
    assert made(events[:8])[1].cut() == ""


class _Kept:
    def __init__(self, events: list[Any]) -> None:
        self.feed = events.append


def test_a_capture_without_mqtt_is_a_page_too() -> None:
    page, _ = made([])

    assert 'id="list"' not in page.decode()
    assert "<h1>Packets</h1>" in page.decode()


def hostile_page() -> bytes:
    """A page in which every name is one that nobody should use."""
    sink = Text()
    page = MeasuredPage(PacketPage(sink, View()))
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
    body = shown[shown.index('<div class="rows"') :].partition("<script>")[0]

    assert "data-owned" not in shown
    assert "<img" not in shown
    assert "&lt;img src=x onerror=" in body
    for harm in ("\u202e", "\u2066", "\u200b", "\u2028", "\x1b", "\ufeff"):
        assert harm not in body, repr(harm)
    assert "\\u202eevil\\u2066" in body


@pytest.mark.long
def test_every_capture_can_be_filtered_and_every_connection_drawn(tmp_path: Path) -> None:
    events = [event for path in CAPTURES for event in dissect(open_capture([str(path)]))]
    page, report = made(_Renumbered().of(events))
    shown = elements(
        page, tmp_path,
        act="const select=document.querySelector('#list select');const ends=document.documentElement.dataset;"
        "for(const one of select.options){select.value=one.value;select.dispatchEvent(new Event('change'))}"
        "ends.drawn=select.options.length-1;select.value='';filter.value='e';filter.dispatchEvent(new Event('input'));"
        "setTimeout(()=>{for(const one of document.querySelectorAll('div.rows summary'))one.click();"
        "document.querySelectorAll('noscript').forEach((one)=>one.remove())},1000)",
    )  # fmt: skip

    assert report.packets > 2_500
    connections = len({row["connection"] for row in documents(page) if "connection" in row})
    assert f'data-drawn="{connections}"' in shown
    assert f" of {len(documents(page)):,} events match" in shown
    assert shown.count('class="outline"') == 100


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
    packet_page = PacketPage(sink, View())
    packet_page.limit = 2 * COUNT
    page = MeasuredPage(packet_page)
    talks = [Talk(cast(Any, page), number, f"device-{number}") for number in range(10)]
    for at in range(COUNT - len(talks)):
        talks[at % 10].publish(f"plant/{at % 100}/state", at * MS, payload=b"%d" % at)
    page.close()
    written = sink.whole()
    assert len(written) < 1_300 * COUNT
    assert page.page.cut() == ""
    assert len(documents(written)) == COUNT + len(talks)

    shown = elements(
        written, tmp_path,
        act="filter.value='#3 plant/13/state -connect';filter.dispatchEvent(new Event('input'));"
        "setTimeout(()=>{document.querySelector('div.rows summary').click();"
        # What is not looked at takes long to be written.
        "document.querySelectorAll('noscript').forEach((one)=>one.remove())},500)",
    )  # fmt: skip
    assert f"500 of {COUNT + 10:,} events match" in shown
    assert "1 to 100 of 500" in shown
    assert shown.count('<details data-c="3"') == 100
    assert "ladder of connection #3" in shown
    assert "remaining_length" in shown


@pytest.mark.long
def test_a_ladder_has_the_packets_of_its_connection(tmp_path: Path) -> None:
    sink = Text()
    page = MeasuredPage(PacketPage(sink, View()))
    for number in range(3):
        talk = Talk(cast(Any, page), number, f"device-{number}")
        for at in range(150):
            talk.publish("plant/state", at * MS)
    page.close()
    shown = elements(
        sink.whole(), tmp_path,
        act="const select=document.querySelector('#list select');select.value='1';"
        "select.dispatchEvent(new Event('change'));document.querySelectorAll('noscript').forEach((one)=>one.remove())",
    )  # fmt: skip

    assert 'class="ladder"' in shown
    assert "1 to 100 of 152" in shown
    assert shown.count('<details data-c="1"') == 100
    assert '<details data-c="2"' not in shown
