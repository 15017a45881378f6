"""Inputs at the limits of the package browse."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from mqttscope.browse import panes
from mqttscope.browse.building import CaptureFiles
from mqttscope.browse.decoding import births_before
from mqttscope.browse.details import ladder_lines, payload_lines
from mqttscope.browse.dialogs import completion_text
from mqttscope.browse.following import MessageSearch, partner
from mqttscope.browse.index import FoundRows, Index
from mqttscope.browse.lakes import _ExchangeRoots
from mqttscope.browse.lines import RowLines, progress
from mqttscope.browse.rows import BLOCK_ROWS, MAX_COUNT, ROW_BYTES, RowStore
from mqttscope.browse.selection import Search, ShownRows
from mqttscope.events import Event
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.mqtt import PacketType, Puback
from mqttscope.payloads.sparkplug_topics import read_topic
from mqttscope.report.base import View
from tests.browse.test_rows import Memory, row
from tests.payloads.samples import BIRTH, DATA, NBIRTH_TOPIC, NDATA_TOPIC
from tests.report.make import MS, Talk, publish

__all__ = ["MAX_COUNT", "completion_text", "progress"]
VIEW = View(width=100, payload="text")
FINDING = Finding(
    "PUB103", "", Severity.ERROR, Confidence.CERTAIN, "", (), "5.0", "a.pcap", 1, 0, 0, "", "", None, None, 0, None, "",
    None, None, None,
)  # fmt: skip


def indexed(events: Iterable[Event]) -> Index:
    """An index of events."""
    index = Index(Memory(), CaptureFiles())
    for event in events:
        index.feed(event)
    return index


def apart(distance: int) -> int | None:
    """The row of the PUBACK so many rows after the PUBLISH, which is row 1, that is found from there."""

    def events() -> Iterator[Event]:
        talk = Talk()
        yield talk.opened()
        yield talk.say(publish(qos=1, packet_identifier=1))
        yield from (talk.say(publish()) for _ in range(distance - 1))
        yield talk.answer(Puback(packet_identifier=1))

    return partner(indexed(events()), 1)


def followed(distance: int = 1, after: int = MS) -> tuple[int, bool]:
    """Deliveries that are found of a message, so many rows and nanoseconds later; whether rows were left out."""

    def events() -> Iterator[Event]:
        sender, receiver = Talk(), Talk(number=1, identifier="dev2", client="10.0.0.5:51234")
        yield sender.opened()
        yield receiver.opened()
        yield sender.say(publish())
        receiver.now = sender.now
        yield from (sender.say(publish("other")) for _ in range(distance - 1))
        receiver.packets = sender.packets
        yield receiver.answer(publish(), after=after)

    following = MessageSearch(indexed(events()), 2)
    while not following.is_over:
        following.advance(1)
    return following.message.deliveries, following.message.is_cut


def has_birth(distance: int) -> bool:
    """Whether the BIRTH so many rows before data of Sparkplug B is found."""

    def events() -> Iterator[Event]:
        talk = Talk()
        yield talk.opened()
        yield talk.say(publish(NBIRTH_TOPIC, BIRTH))
        yield from (talk.say(publish()) for _ in range(distance - 1))
        yield talk.say(publish(NDATA_TOPIC, DATA))

    births = births_before(indexed(events()), 1 + distance, NDATA_TOPIC)
    return bool(births.metrics_of(read_topic(NDATA_TOPIC)).aliases)


def rows_of(count: int) -> Index:
    """An index of one connection with so many rows."""
    talk = Talk()
    return indexed(talk.say(publish()) if at else talk.opened() for at in range(count))


def left_out(rows: int) -> list[str]:
    """What the ladder of a connection says of rows that it does not show."""
    return [rung.text for rung in ladder_lines(rows_of(rows), 0, 0, VIEW) if rung.row < 0]


def last_line(count: int) -> str:
    """What is shown last of a payload of so many lines."""
    return payload_lines(Talk().say(publish(payload=b"\n".join([b"x"] * count))), VIEW)[-1].text


def is_first_connection_kept(count: int) -> bool:
    """Whether the first of as many connections, when it is shown again, is the object that it was."""
    talks = [Talk(number=number) for number in range(count)]
    index = indexed(event for talk in talks for event in (talk.opened(), talk.closed()))
    first, *_, last = (index.event(row) for row in (*range(0, 2 * count, 2), 0))
    return first.connection is last.connection  # type: ignore[union-attr]


def is_first_line_kept(count: int) -> bool:
    """Whether the first of as many lines, when it is shown again, is the object that it was."""
    lines = RowLines(rows_of(count), VIEW)
    for number in range(count):
        lines.line(number)
    first, *_, last = (lines.line(number, marked=True) for number in (*range(count), 0))
    return first is last


def is_first_strip_kept(count: int) -> bool:
    """Whether the first of as many painted lines, when it is shown again, is the object that it was."""
    panes._strips.clear()
    first, *_, last = (panes.segments_of(f"line {number}") for number in (*range(count), 0))
    return first is last


def noted(count: int) -> tuple[int, int]:
    """How many of so many findings are kept, and how many are counted alone."""
    findings = FoundRows(Memory())
    for number in range(count):
        findings.add(number, FINDING)
    return len(findings), findings.left_out


def row_before_end(count: int) -> int:
    """The row of the first of as many packets of a connection, by its frame."""
    talk = Talk()
    index = indexed([talk.opened(), *(talk.say(publish()) for _ in range(count))])
    return index.row_of_frame(0, index.rows[1].frame)


def exchange_after(count: int) -> int:
    """The packet that began the exchange of a PUBACK, the oldest of as many exchanges."""
    exchanges = _ExchangeRoots()
    for number in range(count):
        exchanges.root(0, False, PacketType.PUBLISH, number + 1, number, again=False)
    return exchanges.root(0, True, PacketType.PUBACK, 1, count, again=False)


def spilled(count: int) -> int:
    """Blocks of so many rows that are not in memory."""
    memory = Memory()
    store = RowStore(memory)
    for number in range(count):
        store.append(row(number))
    return len(memory.data) // (BLOCK_ROWS * ROW_BYTES)


def read_again(folder: Path, count: int) -> bytes:
    """What is read of the first of as many captures if another file has replaced it."""
    files = CaptureFiles()
    paths = [folder / f"{number}.pcap" for number in range(count)]
    for path in paths:
        path.write_bytes(b"first")
        assert files.can_read(str(path))
    (folder / "other").write_bytes(b"other")
    os.replace(folder / "other", paths[0])
    data = files.read(str(paths[0]), 0, 5)
    files.close()
    return data


def searched(size: int) -> tuple[bool, str]:
    """Whether text at the end of a compressed payload, unpacked of so many bytes, is found; what is said."""
    text = "needle"
    payload = gzip.compress(bytes(size - len(text)) + text.encode(), mtime=0)
    talk = Talk()
    index = indexed(event for event in (talk.opened(), talk.say(publish(payload=payload))))
    search = Search(ShownRows(index), text, -1, back=False, show_secrets=False)
    search.advance(lambda: False)
    return search.match is not None, search.left_out
