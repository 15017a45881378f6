"""Laws that hold for every human format: lines fit, nothing of the capture reaches the terminal as a command.

Every format takes every capture of the project.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionClosed, ConnectionEnding, Event, MalformedEvent, PacketEvent
from mqttscope.mqtt import Auth, Connack, Connect, Properties, Will
from mqttscope.net.frame import CaptureDrops, CaptureSecrets
from mqttscope.report.base import Reporter, View
from mqttscope.report.jsonl import EventJsonLines
from mqttscope.report.ladder import Ladder
from mqttscope.report.table import Table
from mqttscope.report.text import TextLines
from mqttscope.report.tree import Tree
from tests.conftest import ROOT
from tests.each import each
from tests.report.make import SECRET, V3_1, V3_1_1, V5, Lines, Talk, conversation, hostile, publish, shown

ANSI = re.compile(r"\x1b\[[0-9;]*m")
FORMATS = [TextLines, Tree, Ladder]
WIDTHS = [40, 60, 80, 120, 200]


def check(lines: Iterable[str], width: int, *, unicode: bool = True) -> None:
    for line in lines:
        plain = ANSI.sub("", line)
        odd = plain if not plain.isprintable() else ""
        bad = [char for char in odd if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
        assert not bad, f"{bad!r} in {line!r}"
        assert not width or cell_len(plain) <= width, f"{cell_len(plain)} columns: {plain!r}"
        assert unicode or plain.isascii(), line


@pytest.mark.long
@each("colour", [False, True], ids=["plain", "colour"])
@each("width", [0, *WIDTHS])
@each("events", [conversation, hostile])
@each("kind", FORMATS)
def test_lines_fit_and_are_harmless(
    kind: type[Reporter], events: Callable[[], Iterable[Event]], width: int, colour: bool
) -> None:
    for unicode, time in ((True, "iso"), (True, "relative"), (False, "delta")):
        lines = shown(kind, events(), width=width, colour=colour, unicode=unicode, time=time, show_secrets=True)
        check(lines, width, unicode=unicode)


@pytest.mark.parametrize("payload", ["text", "hex", "json", "cbor", "msgpack", "none"])
@pytest.mark.parametrize("kind", FORMATS)
def test_every_payload_view_fits_and_is_harmless(kind: type[Reporter], payload: str) -> None:
    for width in (40, 80):
        check(shown(kind, [*conversation(), *hostile()], width=width, payload=payload), width)


@pytest.mark.parametrize("width", [0, *WIDTHS])
@pytest.mark.parametrize("kind", FORMATS)
def test_colour_changes_nothing_but_colour(kind: type[Reporter], width: int) -> None:
    plain = [line.rstrip() for line in shown(kind, conversation(), width=width)]
    colour = [ANSI.sub("", line).rstrip() for line in shown(kind, conversation(), width=width, colour=True)]
    if kind is Tree:  # letters under the hexdump stand in for colours
        assert len(colour) < len(plain)
        assert [line for line in plain if line in set(colour)] == colour
    else:
        assert colour == plain


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=40)
PACKETS = st.one_of(
    st.builds(
        lambda topic, payload, properties: publish(topic, payload, properties=properties),
        TEXT,
        st.binary(max_size=80) | TEXT.map(str.encode),
        st.none() | st.builds(lambda a, b: Properties(content_type=a, user_property=[(a, b)]), TEXT, TEXT),
    ),
    st.builds(
        lambda name, user, topic: Connect(
            protocol_level=5, client_identifier=name, user_name=user, will=Will(topic, user.encode())
        ),
        TEXT,
        TEXT,
        TEXT,
    ),
    st.binary(min_size=2, max_size=60),
)


@given(st.lists(PACKETS, max_size=4), st.integers(40, 200), st.booleans(), st.sampled_from(FORMATS))
@settings(max_examples=120, derandomize=True, deadline=None)
def test_any_packets_fit_and_are_harmless(packets: list[Any], width: int, unicode: bool, kind: type[Reporter]) -> None:
    talk = Talk(V5, known=False)
    events = (talk.say(packet) for packet in packets)
    check(shown(kind, events, width=width, unicode=unicode), width, unicode=unicode)


@given(st.binary(min_size=1, max_size=80), st.sampled_from([V3_1, V3_1_1, V5]), st.sampled_from(FORMATS))
@settings(max_examples=200, derandomize=True, deadline=None)
def test_any_bytes_are_shown_without_an_error(raw: bytes, version: Any, kind: type[Reporter]) -> None:
    check(shown(kind, [Talk(version).say(raw)], width=80), 80)


CONNECT = bytes.fromhex("10 1e 0004 4d515454 05 c2 003c 00 0001 63 0001 75") + b"\x00\x0d" + SECRET[:13]


def broken_connects() -> list[bytes]:
    whole = bytearray(CONNECT)
    whole[1] = len(whole) - 2
    damaged = []
    for at in range(len(whole) - len(SECRET)):
        for value in (0x00, 0xFF, whole[at] ^ 0x80, whole[at] ^ 0x40):
            copy = bytearray(whole)
            copy[at] = value
            damaged.append(bytes(copy))
    return [bytes(whole), bytes(whole[:-1]), bytes(whole) + b"x", *damaged]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_password_is_never_shown_however_broken_its_connect(kind: type[Reporter]) -> None:
    for raw in broken_connects():
        if raw[0] >> 4 != 1:
            continue  # it is no CONNECT any more
        text = "\n".join(shown(kind, [Talk(V5).say(raw)], width=0))
        assert SECRET.decode()[4:] not in text, raw.hex()
        assert SECRET.hex(" ")[12:24] not in text, raw.hex()
        assert SECRET.hex()[8:16] not in text, raw.hex()


@pytest.mark.parametrize("kind", FORMATS)
def test_secrets_are_shown_when_asked_for(kind: type[Reporter]) -> None:
    assert SECRET.decode() in "\n".join(shown(kind, conversation(), width=400, show_secrets=True))
    assert SECRET.decode() not in "\n".join(shown(kind, conversation(), width=400))


def json_lines(sink: Lines, view: View) -> EventJsonLines:
    """JSON Lines, made as the other reporters are."""
    return EventJsonLines(sink, show_secrets=view.show_secrets)


@pytest.mark.parametrize("kind", [*FORMATS, Table, json_lines])
def test_authentication_data_and_tokens_in_paths_are_secrets(kind: type[Reporter]) -> None:
    def events() -> Iterator[Event]:
        talk = Talk(V5)
        talk.connection.transport = "websocket"
        talk.connection.details = {"path": f"/mqtt?token={SECRET.decode()}&user=me&{SECRET.decode()}", "extensions": []}
        yield talk.opened()
        properties = Properties(authentication_method="m", authentication_data=SECRET)
        yield talk.say(Connect(protocol_level=5, client_identifier="c", properties=properties))
        yield talk.answer(Connack(properties=properties))
        yield talk.say(Auth(0x18, properties))
        yield talk.closed()

    views: list[dict[str, str]] = [{}, {"payload": "hex"}]
    for view in views:
        text = "\n".join(shown(kind, events(), width=0, **view))
        assert "correct" not in text
        assert SECRET.hex(" ")[:12] not in text
        assert SECRET.hex()[:8] not in text
    text = "\n".join(shown(kind, events(), width=0, show_secrets=True))
    assert "correct" in text
    if kind is not Table:
        assert f"/mqtt?token={SECRET.decode()}" in text
        assert "/mqtt?token=***&user=***&***" in "\n".join(shown(kind, events(), width=0))


CAPTURES = sorted((ROOT / "captures").glob("*/capture.pcapng"))


def test_there_are_captures() -> None:
    assert len(CAPTURES) > 40


@each("path", CAPTURES, ids=[path.parent.name for path in CAPTURES])
@pytest.mark.long
def test_every_format_shows_every_packet(path: Path) -> None:
    sinks = [Lines() for _ in range(5)]
    narrow = View(width=80)
    reporters = (
        TextLines(sinks[0], View(width=0)),
        Tree(sinks[1], narrow),
        Ladder(sinks[2], narrow),
        Table(sinks[3], narrow),
        EventJsonLines(sinks[4]),
    )
    packets: list[Any] = []
    others = ended = 0
    ending: set[int] = set()
    for event in dissect(open_capture([str(path)])):
        if isinstance(event, PacketEvent | MalformedEvent):
            packets.append((event.number, event.type))
        elif isinstance(event, ConnectionEnding):
            ending.add(event.connection.number)
            others += 1
        elif isinstance(event, ConnectionClosed) and event.connection.number in ending:
            # The end has its line; there is a second one where something came after it.
            ended += 1
        elif not isinstance(event, CaptureDrops | CaptureSecrets):
            others += 1
        for reporter in reporters:
            reporter.feed(event)
    for reporter in reporters:
        reporter.close()
    assert [(row["packet"], row["type"]) for row in map(json.loads, sinks[4].lines) if "packet" in row] == packets
    rows = list(csv.DictReader(io.StringIO(sinks[3].data.decode(), newline="")))
    assert [(int(row["packet"]), row["type"] or None) for row in rows] == packets
    shown = len([line for line in sinks[0].lines if "? (assumed" not in line])
    assert len(packets) + others <= shown <= len(packets) + others + ended
    named = [line for line in sinks[1].lines if re.search(r"  packet \d+ · ", line)]
    assert len(named) == len(packets)
    assert max((cell_len(line) for sink in sinks[1:3] for line in sink.lines), default=0) <= 80
