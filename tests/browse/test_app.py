"""The browser in use: one test is one sitting."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests import tools

tools.package("textual")

from mqttscope.browse.app import MODES, NOTHING_FOUND
from mqttscope.browse.dialogs import KEYS, ExportScreen, HelpScreen
from mqttscope.report.base import View
from tests.browse.driving import Driver, drive
from tests.browse.made import capture
from tests.conftest import ROOT

QOS = capture("v5-qos")


def test_looking_around() -> None:
    async def steps(at: Driver) -> None:
        assert "v5-qos · 24 packets · 2 connections" in at.screen[0]
        assert "0 closed" in at.line("logger")
        assert "CONNECT" in at.screen[7]
        assert "? help" in at.status
        assert "packet 0, frame 4" in at.status
        assert "packet_type = 1" in at.text
        await at.press("end")
        assert at.browser.row == len(at.browser.index.rows) - 1
        await at.press("home", "pagedown")
        assert at.browser.row == at.browser.packets.scrollable_content_region.height - 1
        # The cursor in the tree shows the bytes, and the other way round.
        await at.press("g", "down", "tab", "down", "down", "down", "down")
        assert at.browser.focused is at.browser.bottom
        assert at.browser.bytes_pane.marked == range(1)
        await at.press("tab", "right", "right", "right")
        assert at.browser.focused is at.browser.bytes_pane
        assert at.browser.bytes_pane.offset_at == 3
        assert at.browser.bytes_pane.marked == range(2, 8)
        line = at.browser.bottom.linked.start
        assert "protocol_name" in at.browser.bottom._line(line)
        # The mouse does the same.
        await at.pilot.click("#packets", offset=(10, 4))
        await at.settle()
        assert at.browser.row == 3
        assert at.browser.focused is at.browser.packets
        await at.pilot.click("#bytes", offset=(6 + 3 * 2, 1))
        await at.settle()
        assert at.browser.bytes_pane.offset_at == 2

    drive(steps, QOS)


def test_views_of_a_packet() -> None:
    async def steps(at: Driver) -> None:
        await at.type(":")
        await at.type("10")
        await at.press("enter")
        row = at.browser.row
        assert row is not None
        assert at.browser.index.rows[row].number == 10
        for key, mode in zip("1234", MODES, strict=True):
            await at.press(key)
            assert at.browser.mode == mode
            assert f"{key} {mode.upper()}" in at.text
        assert "no finding for this packet" in at.text
        await at.press("3")
        assert "├─" in at.text
        assert at.browser.bytes_pane.has_class("gone")
        # From a rung to its packet.
        await at.press("tab", "up", "up", "enter")
        assert at.browser.row != row
        await at.press("2", "v")
        assert at.browser.view.payload == "text"
        assert "as text" in at.text
        await at.press("t")
        assert at.browser.view.time == "delta"
        await at.press("t", "t", "t")
        local = datetime(2026, 11, 20, 20, 47, tzinfo=UTC).astimezone()
        assert f"{local:%H:%M}:5" in at.screen[7]
        # A pane alone, the connections hidden, and both back.
        await at.press("shift+tab", "z")
        assert at.browser.screen.maximized is at.browser.packets
        await at.press("z", "o")
        assert at.browser.screen.maximized is None
        assert not at.line("connections #")
        await at.press("o")
        assert at.line("connections #")
        await at.type(":")
        await at.type("999")
        await at.press("enter")
        assert "packet 999 does not exist" in at.status

    drive(steps, QOS)


def test_choosing_packets() -> None:
    async def steps(at: Driver) -> None:
        browser = at.browser
        count = len(browser.index.rows)
        # By a filter, whose errors stand at their characters and whose words Tab completes.
        await at.press("f")
        await at.type("qos = 1")
        assert at.line("unexpected character").index("^") == len("filter: qos ")
        await at.press("enter")
        assert browser.prompt.display
        await at.press("ctrl+u")
        await at.type("pub")
        assert "words: puback" in at.text
        await at.press("tab")
        assert browser.prompt.input.value == "puback "
        await at.press("ctrl+u")
        await at.type("type == publish and qos == 2")
        await at.press("enter")
        assert not browser.prompt.display
        assert f"{len(browser.selection)} shown" in at.screen[0]
        assert 0 < len(browser.selection) < 4
        assert "filter type == publish" in at.text
        # What is in brackets is no markup of the screen.
        browser.filter_by('user_property["[bold]k[/]"] == "v" or qos == 2')
        await at.settle()
        assert '["[bold]k[/]"]' in at.text
        browser.filter_by("type == publish and qos == 2")
        await at.settle()
        # The other packets of its exchange are not among those, which is said.
        await at.press("p")
        assert "of this exchange is not shown; Esc shows all" in at.text
        await at.press("escape", "p")
        assert browser.wanted is None
        assert len(browser.selection) == count
        assert "PUBREC" in at.text
        row = browser.row
        await at.press("p", "p", "p")
        await at.press("p")
        assert browser.row == row
        # By connection.
        await at.press("c")
        assert browser.connection == 1 or browser.connection == 0
        assert len(browser.selection) == browser.index.connections.rows[browser.connection]
        assert browser.row == row
        await at.press("c")
        assert len(browser.selection) == count
        await at.press("shift+tab", "down", "enter")
        assert browser.connection == 0
        await at.press("escape")
        assert len(browser.selection) == count
        # By marks.
        await at.press("u")
        assert "nothing is marked" in at.status
        await at.press("home", "m", "space", "u")
        assert len(browser.selection) == 2
        assert "2 marked" in at.screen[0]
        assert at.screen[6].startswith(" *") or at.screen[7].startswith(" *")
        await at.press("M")
        assert len(browser.selection) == count
        # By message.
        await at.press("home", "d")
        assert "only a PUBLISH" in at.status
        await at.press("f")
        await at.type("publish")
        await at.press("enter", "d")
        assert "published by sensor-1 in packet" in at.status
        assert "one message" in at.text
        assert 2 <= len(browser.selection) < count
        await at.press("escape")
        assert len(browser.selection) == count

    drive(steps, QOS)


def test_searching_and_findings() -> None:
    async def steps(at: Driver) -> None:
        browser = at.browser
        await at.press("slash")
        await at.type("plant/7")
        await at.press("enter")
        assert "found: plant/7" in at.status
        first = browser.packets.cursor
        await at.press("n")
        assert browser.packets.cursor > first
        await at.press("N")
        assert browser.packets.cursor == first
        # A search begins with an empty line; nothing in it is the text before.
        await at.press("slash")
        assert browser.prompt.input.value == ""
        await at.press("enter")
        assert "found: plant/7" in at.status
        assert browser.packets.cursor > first
        await at.press("slash")
        await at.type("not there")
        await at.press("enter")
        assert "not found in topics and payloads" in at.status
        await at.press("home", "right_square_bracket")
        assert browser.mode == "found"
        assert "error[PUB101]" in at.text
        assert "PUB101" in at.status
        row = browser.row
        await at.press("right_square_bracket", "left_square_bracket")
        assert browser.row == row
        await at.press("x")
        assert {browser.index.rows[number].severity > 0 for number in map(browser.selection.__getitem__, range(5))} == {
            True
        }
        await at.press("x", "end", "right_square_bracket", "right_square_bracket", "right_square_bracket")
        assert "no further finding" in at.status
        assert "E29" in at.screen[0]

    drive(steps, capture("planted-violations"), lint=True)


def test_findings_beyond_the_limit_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.browse.index.MAX_FINDINGS", 20)

    async def steps(at: Driver) -> None:
        assert len(at.browser.index.findings) == 20
        assert "limit: 10 more findings not shown" in at.screen[0]

    drive(steps, capture("planted-violations"), lint=True, size=(120, 24))


def test_what_is_closed_before_it_is_there_fails_nobody() -> None:
    async def steps(at: Driver) -> None:
        for screen in (HelpScreen(), ExportScreen("2 packets", lambda name: "")):
            at.browser.push_screen(screen)
            at.browser.pop_screen()
            await at.press("down")
            assert not at.browser.return_code

    drive(steps, QOS)


def test_help_and_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The path of a folder is shown, and a long one is wrapped.
    monkeypatch.chdir("/")
    written: list[tuple[list[int], str]] = []

    def frames(packets: Sequence[int], path: str) -> int:
        written.append((list(packets), path))
        return 7

    async def steps(at: Driver) -> None:
        await at.press("question_mark")
        assert "next and previous finding" in at.text
        await at.press("escape")
        await at.press("down", "m", "m", "w")
        assert "write 2 marked packets" in at.text
        await at.press("down", "enter")
        box = at.browser.screen.query_one("#file")
        assert box.value == "packets.jsonl"  # type: ignore[attr-defined]
        for name, expected in (("", "is empty"), ("nowhere/a", "is not a directory"), (str(tmp_path), "is a directory"),
                           (str(QOS), "is an input capture")):  # fmt: skip
            box.value = name  # type: ignore[attr-defined]
            await at.press("enter")
            assert expected in at.text
        target = tmp_path / "a.jsonl"
        target.write_text("before")
        box.value = str(target)  # type: ignore[attr-defined]
        await at.press("enter")
        assert "Enter again replaces it" in at.text
        await at.press("enter")
        assert "2 rows written" in at.status
        assert [json.loads(line)["packet"] for line in target.read_text().splitlines()] == [1, 2]
        await at.press("w", "enter")
        at.browser.screen.query_one("#file").value = str(tmp_path / "a.pcapng")  # type: ignore[attr-defined]
        await at.press("enter")
        assert "7 frames written" in at.status
        await at.press("w", "escape")
        assert at.browser.screen is at.browser.screen_stack[0]

    drive(steps, QOS, write_frames=frames)
    assert written == [([1, 2], str(tmp_path / "a.pcapng"))]


def test_the_documentation_shows_this_screen_and_all_keys() -> None:
    text = (ROOT / "docs" / "browse.md").read_text("utf-8")
    screen: list[str] = []

    async def steps(at: Driver) -> None:
        await at.press("right_square_bracket", "1", "tab", *["down"] * 8)
        screen.extend(line.rstrip() for line in at.screen)

    drive(steps, capture("planted-violations"), lint=True)
    assert text.partition("```text\n")[2].partition("\n```")[0].splitlines() == screen
    for title, rows in KEYS:
        for keys, reported_text in rows:
            assert f"| {title} | `{keys}` | {reported_text} |" in text


def test_sizes_and_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(at: Driver) -> None:
        assert at.browser.no_color
        assert not at.browser.view.colour
        await at.press("down", "down")
        assert "CONNACK" in at.line("CONNACK")
        await at.pilot.resize_terminal(200, 60)
        await at.settle()
        assert all(len(line) == 200 for line in at.screen)
        assert "1970" not in at.text
        assert "→ broker CONNECT" in at.text
        await at.pilot.resize_terminal(60, 16)
        await at.settle()
        assert len(at.screen) == 16
        await at.press("q")

    monkeypatch.setenv("NO_COLOR", "1")
    drive(steps, QOS, view=View(colour=True, time="iso"))


def test_sentences_are_wrapped_in_a_narrow_pane() -> None:
    async def steps(at: Driver) -> None:
        await at.press("4")
        lines = [line[:40].strip() for line in at.screen]
        start = next(number for number, line in enumerate(lines) if "no finding for" in line)
        assert " ".join(lines[start : start + 2]) == NOTHING_FOUND

    drive(steps, QOS, size=(80, 24))


def test_what_cannot_be_read_is_said() -> None:
    async def steps(at: Driver) -> None:
        assert "0 packets" in at.screen[0]
        assert "does not exist" in at.text
        await at.press("p", "c", "right_square_bracket", "3", "2", "4", "m", "u", "escape", "f")
        await at.type("gap")
        await at.press("enter")
        await at.press("P")
        assert "only a live capture can be paused" in at.status

    drive(steps, Path("nowhere/capture.pcapng"))
