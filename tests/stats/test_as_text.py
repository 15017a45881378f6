"""How statistics are shown to people."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rich.cells import cell_len

from mqttscope.mqtt.packets import Puback, Publish
from mqttscope.report.base import View
from mqttscope.stats.as_json import document
from mqttscope.stats.as_text import render
from mqttscope.stats.collect import Statistics
from mqttscope.stats.rows import TABLES
from tests.each import each, sampled
from tests.stats.talk import NAMES, S2C, SECOND, Talk, statistics_of

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def view(width: int = 80, *, colour: bool = False, unicode: bool = True) -> View:
    return View(width=width, colour=colour, unicode=unicode)


def shown(statistics: Statistics, width: int = 80, **options: Any) -> str:
    return render(statistics, view(width), **options).decode()


def section(text: str, title: str) -> str:
    return text.split(f"\n{title}\n")[1].split("\n\n")[0].strip("\n")


def test_topics() -> None:
    text = shown(statistics_of("v5-topic-alias-client"), tables=("topic",))

    assert section(text, "Topics") == (
        "topic                    published  delivered         bytes  QoS 0/1/2  from  to\n"
        "────────────────────────────────────────────────────────────────────────────────\n"
        "plant/line1/humidity             3          3  █▉     125 B      6/0/0     1   1\n"
        "plant/line1/temperature          2          2  █▎      99 B      4/0/0     1   1\n"
        "plant/line2/pressure             2          2  █▎      90 B      4/0/0     1   1\n"
        "plant/line3/level                1          1  ▋       49 B      2/0/0     1   1"
    )


def test_latencies() -> None:
    text = shown(statistics_of("keep-alive"))

    assert section(text, "Latency") == (
        "handshake           by      count    min    p50     p90     p99     max    mean\n"
        "───────────────────────────────────────────────────────────────────────────────\n"
        "CONNECT → CONNACK   client      2  83 µs  83 µs  353 µs  353 µs  353 µs  218 µs\n"
        "PINGREQ → PINGRESP  client      6  92 µs  98 µs  143 µs  143 µs  143 µs  110 µs"
    )


@each(
    "name, width, limits, expected",
    [
        ("lost-segment", 80, {}, [r"\A1 capture · 52 frames · 1\.06 s · 2 connections · 2 clients · 1 topic\n",
                                  r"\A.*\n.*\n.*1 gap \(33 B lost\)"]),
        # A refusal is named as its version names it.
        ("refused-connect", 100, {}, [r"refused, 3\.1\.1: 0x02 Connection Refused, identifier rejected +1 ",
                                      r"refused, 5\.0: 0x87 Not authorized +2 "]),
        ("keep-alive", 100, {}, [r"476 % of 1 s"]),
        ("v5-flow-control", 120, {}, [r"0/20, 3/2"]),
        # What is beyond the limits is said.
        ("v5-topic-alias-client", 80, {"topics": 1, "connections": 1},
         [r"beyond the limits, in the totals only: 2 connections", r"12 messages of further topics"]),
        ("v5-qos", 120, {"releases": 0, "live_connections": 1},
         [r"2 PUBREL packets without a measured PUBCOMP: too many pending · \d connections cut off: too many open"]),
    ],
)  # fmt: skip
def test_what_is_said_of_a_capture(name: str, width: int, limits: dict[str, int], expected: list[str]) -> None:
    text = shown(statistics_of(name, limits=limits), width=width)

    assert [other_text for other_text in expected if not re.search(other_text, text)] == []


@pytest.mark.long
@sampled("name", NAMES)
def test_no_line_is_wider_than_the_terminal(name: str) -> None:
    statistics = statistics_of(name)
    for width in (40, 60, 80, 120, 200):
        text = render(statistics, view(width)).decode()

        assert max(map(cell_len, text.splitlines())) <= width


@sampled("name", NAMES)
def test_a_terminal_without_unicode_gets_ascii_of_the_same_width(name: str) -> None:
    text = render(statistics_of(name), view(80, unicode=False)).decode()

    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 80


def test_wider_terminals_show_more_and_without_a_limit_80_columns_are_used() -> None:
    statistics = statistics_of("v5-topic-alias-client")
    narrow, wide = (section(shown(statistics, width), "Connections").splitlines()[0] for width in (80, 140))

    assert set(narrow.split()) < set(wide.split())
    assert "server" in wide
    assert shown(statistics, width=0) == shown(statistics, width=80)


def test_what_is_captured_never_reaches_the_terminal_as_a_command() -> None:
    statistics = Statistics()
    talk = Talk(statistics, identifier="\x1b]0;owned\x07\r\n[red]id[/red]\u202e\udcff")
    talk.publish("a/\x1b[2J\x9b31m\x00\x7f[bold]b/\u200b\ufeff\udc80")
    talk.close(SECOND)
    statistics.finish()
    for unicode in (True, False):
        text = render(statistics, view(200, unicode=unicode), tables=TABLES).decode()
        lines = text.replace("\n", "")

        assert lines.isprintable()
        assert r"\x1b]0;owned\x07\r\n[red]id[/red]\u202e\xff" in text
        assert re.search(r"a/\\x1b\[2J\\(x|u00)9b31m\\x00\\x7f\[bold\]b/\\u200b\\ufeff\\x80", text)


def test_long_names_lose_their_middle_and_wide_characters_count_twice() -> None:
    statistics = Statistics()
    talk = Talk(statistics)
    talk.publish("plant/" + "x" * 65_000 + "/temperature")
    talk.publish("工厂/" * 40 + "温度")
    statistics.finish()
    text = shown(statistics, tables=("topic",))
    first, second = section(text, "Topics").splitlines()[2:]

    assert re.match(r"plant/x+…x*ature ", first) or re.match(r"plant/x+…\w*ture ", first)
    assert "…" in second
    assert "温度" in second
    assert all(cell_len(line) <= 80 for line in text.splitlines())


def test_colour_only_where_it_is_wanted_and_the_same_text_below_it() -> None:
    statistics = statistics_of("v5-topic-alias-client")
    plain = render(statistics, view(colour=False)).decode()
    coloured = render(statistics, view(colour=True)).decode()

    assert "\x1b" not in plain
    assert ANSI.search(coloured)
    bare = ANSI.sub("", coloured)
    assert [line.rstrip() for line in bare.splitlines()] == plain.splitlines()


def test_neither_terminal_nor_environment_change_what_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = statistics_of("v5-topic-alias-client")
    plain, coloured = (render(statistics, view(colour=colour)) for colour in (False, True))
    for name, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("COLUMNS", "30"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)

        assert render(statistics, view(colour=False)) == plain
        assert render(statistics, view(colour=True)) == coloured


def test_more_rows_than_asked_for_are_said() -> None:
    statistics = Statistics()
    talk = Talk(statistics)
    for number in range(15):
        talk.publish(f"topic/{number}")
    statistics.finish()
    text = shown(statistics, tables=("topic",), top=4)

    assert len(re.findall(r"^topic/\d+", text, re.MULTILINE)) == 4
    assert "… and 11 topics more" in text


def test_only_the_tables_asked_for() -> None:
    text = shown(statistics_of("v5-topic-alias-client"), tables=("client",))

    assert "\nClients\n" in text
    assert not any(f"\n{title}\n" in text for title in ("Packets", "Latency", "Connections", "Topics"))


@pytest.mark.parametrize(
    ("sort", "first"), [("packets", "busy"), ("bytes", "fat"), ("rate", "brief"), ("latency", "slow")]
)
def test_each_order_puts_another_client_first(sort: str, first: str) -> None:
    statistics = Statistics()
    for number, name in enumerate(("busy", "fat", "brief", "slow")):
        talk = Talk(statistics, number, name)
        for _ in range(30 if name == "busy" else 4):
            talk.publish("a", SECOND, payload=bytes(5_000 if name == "fat" else 1))
        if name == "slow":
            talk.send(Publish(topic_name="a", qos=1, packet_identifier=1, raw=b"\x32\x02"), SECOND, S2C)
            talk.send(Puback(packet_identifier=1, raw=b"\x40\x02\0\x01"), 3 * SECOND)
        talk.close(SECOND // 100 if name == "brief" else 10 * SECOND)
    statistics.finish()

    assert document(statistics, sort=sort)["clients"][0]["client_identifier"] == first
    assert document(statistics, sort=sort)["connections"][0]["client_identifier"] == first
    assert section(shown(statistics, sort=sort), "Clients").splitlines()[2].startswith(first)
