"""A lake in the browser: the same rows as of its captures, and what a lake does not keep."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mqttscope.browse.rows import IndexRow
from tests import tools

tools.package("duckdb")

from mqttscope.analysis.local import LocalEngine
from mqttscope.browse.building import CaptureFiles, TemporarySpool
from mqttscope.browse.following import MessageSearch, partner
from mqttscope.browse.index import Index
from mqttscope.browse.lakes import LakeBuilder, LakeIndex
from mqttscope.browse.originals import Originals
from mqttscope.browse.rows import PACKETS, RowKind
from mqttscope.capture import PcapngWriter, open_capture
from mqttscope.cli.browsing import LakeTables, SourceCapture
from mqttscope.cli.options import FileOptions, ProtocolOptions
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lake.manifest import open_lake
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.writer import write_lake
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.mqtt.packets import Publish
from mqttscope.net.frame import CaptureError, Frame
from mqttscope.report.base import View
from tests.browse.driving import Driver, drive
from tests.browse.made import SECONDS, built, capture

NAMES = ("v5-qos", "planted-violations", "mixed-versions", "lost-segment", "alias-both-directions")
RULES = tuple(usual_rule(rule) for rule in select().values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with payloads and one without, and copies of their captures."""
    path = tmp_path_factory.mktemp("lakes")
    for name in NAMES:
        shutil.copy(capture(name), path / f"{name}.pcapng")
    cut = path / "truncated-file.pcapng"
    cut.write_bytes(capture("late-connect").read_bytes()[:-10])
    paths = [*(str(path / f"{name}.pcapng") for name in NAMES), str(cut)]
    write_lake(paths, str(path / "full"), LakeOptions(payload_limit=65_536, rules=RULES))
    write_lake(paths[:2], str(path / "bare"), LakeOptions(rules=RULES))
    return path


@pytest.fixture
def opened() -> Iterator[Any]:
    """Opens a lake: what would fill its index."""
    with ExitStack() as left:

        def open_one(path: Path) -> LakeBuilder:
            spool, files = TemporarySpool(), CaptureFiles()
            left.callback(spool.close)
            left.callback(files.close)
            manifest = open_lake(path)
            originals = Originals(
                manifest.captures, lambda name, digests: SourceCapture(name, digests, FileOptions(), ProtocolOptions())
            )
            left.callback(originals.stop)
            engines = [left.enter_context(LocalEngine(path, manifest, memory=128 << 20)) for _ in range(2)]
            index = LakeIndex(spool, files, LakeTables(engines[0]), originals)
            builder = LakeBuilder(index, LakeTables(engines[1]), 0)
            left.callback(builder.stop)
            return builder

        yield open_one


def filled(builder: LakeBuilder) -> LakeIndex:
    builder.start()
    assert builder.wait(SECONDS)
    assert builder.failure == ""
    return builder.index


def told(index: Index) -> list[tuple[Any, ...]]:
    """What the rows of packets say, in the order of time."""
    out = []
    for number, row in enumerate(index.rows.run(0, len(index.rows))):
        if row.kind not in (*PACKETS, RowKind.MALFORMED):
            continue
        event = index.event(number)
        assert isinstance(event, PacketEvent | MalformedEvent)
        what = event.packet if isinstance(event, PacketEvent) else event.malformed
        root = index.rows.of_packet(row.root)
        out.append(
            (
                row.timestamp_ns, Path(event.capture).stem, row.frame, str(event.direction), event.type, event.topic,
                getattr(what, "packet_identifier", None), getattr(what, "payload", None),
                getattr(what, "client_identifier", None), getattr(what, "reason_code", None) or 0,
                event.connection.client, event.connection.version, row.severity, row.header,
                None if root is None else (index.rows[root].timestamp_ns, index.rows[root].frame),
            )
        )  # fmt: skip
    return sorted(out, key=lambda row: row[:4])


def packets_of(index: Index) -> list[tuple[int, IndexRow]]:
    """The rows of packets that are no malformed ones, with their numbers."""
    return [(number, row) for number, row in enumerate(index.rows.run(0, len(index.rows))) if row.kind in PACKETS]


def read_original(index: LakeIndex, path: Path) -> None:
    """Wait until the capture has been read for its bytes."""
    index.originals.state(str(path))
    while index.originals.is_reading:
        pass


@pytest.mark.parametrize("name", ["planted-violations", "mixed-versions"])
def test_a_lake_has_the_rows_of_its_capture(name: str, tmp_path: Path, opened: Any) -> None:
    path = tmp_path / f"{name}.pcapng"
    shutil.copy(capture(name), path)
    write_lake([str(path)], str(tmp_path / "lake"), LakeOptions(payload_limit=65_536, rules=RULES))
    index = filled(opened(tmp_path / "lake"))
    wanted = built(path, lint=True)

    assert told(index) == told(wanted)
    assert len(index.findings) == len(wanted.findings)
    assert [list(finding) for finding in index.connections.findings] == [
        list(finding) for finding in wanted.connections.findings
    ]
    for number in range(len(wanted.connections)):
        mine, its = index.connections[number], wanted.connections[number]
        for field in ("client", "server", "client_identifier", "version", "closed_how", "phase", "keep_alive"):
            assert getattr(mine, field) == getattr(its, field), field
        assert mine.client_side.packets == its.client_side.packets


def test_captures_with_the_same_endpoints_at_the_same_time(tmp_path: Path, opened: Any) -> None:
    names = ("example-a-b-v311", "example-a-b-v5", "example-leading-slash", "example-length-too-long")
    paths = [str(shutil.copy(capture(name), tmp_path / f"{name}.pcapng")) for name in names]
    written = write_lake(paths, str(tmp_path / "lake"), LakeOptions(payload_limit=65_536, rules=RULES))
    index = filled(opened(tmp_path / "lake"))
    several = [built(Path(path), lint=True) for path in paths]

    assert len(index.connections) == written.rows["connections"] == len(paths)
    assert told(index) == sorted((row for index in several for row in told(index)), key=lambda row: row[:4])
    assert len({row.connection for row in index.rows.run(0, len(index.rows))}) == len(paths)
    for row in index.rows.run(0, len(index.rows)):
        assert index.captures[row.capture] == index.connections[row.connection].capture
    # Findings stand at the packets of their captures.
    assert sum(len(index.findings) for index in several) == len(index.findings) > 0
    for number in map(int, index.findings.rows):
        for finding in index.findings.of_row(number):
            assert finding.capture == index.captures[index.rows[number].capture]


def test_parts_of_captures_with_the_same_endpoints(tmp_path: Path, opened: Any) -> None:
    paths = []
    for name in ("example-a-b-v5", "example-leading-slash"):
        frames = [frame for frame in open_capture([capture(name)]) if isinstance(frame, Frame)]
        for part, some in enumerate((frames[:9], frames[9:])):
            paths.append(str(tmp_path / f"{name}-{part}.pcapng"))
            with open(paths[-1], "wb") as file, PcapngWriter(file) as writer:
                for frame in some:
                    writer.write(frame)
    written = write_lake(paths, str(tmp_path / "lake"), LakeOptions(payload_limit=65_536, rules=RULES))
    index = filled(opened(tmp_path / "lake"))

    assert len(index.connections) == written.rows["connections"] == 2
    assert index.packets == written.rows["packets"]


def test_exchanges_and_messages_are_found(folder: Path, opened: Any) -> None:
    for lake in ("full", "bare"):
        index = filled(opened(folder / lake))
        publish = next(
            number
            for number, row in packets_of(index)
            if row.header >> 4 == 3 and row.header & 6 == 4 and "v5-qos" in index.captures[row.capture]
        )
        answer = partner(index, publish)
        assert answer is not None
        event = index.event(answer)
        assert isinstance(event, PacketEvent)
        assert event.type == "pubrec"
        # Payloads are compared by their digests where there are none.
        following = MessageSearch(index, publish)
        while not following.is_over:
            following.advance(100)
        assert following.message.deliveries == 1
        assert len(following.message.rows) >= 4


def test_bytes_come_from_the_capture(folder: Path, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(opened(folder / "bare"))
    rows = [number for number, _ in packets_of(index)]
    open_original: Any = index.originals._open_capture
    waiting: list[Any] = []

    def open_and_wait(*arguments: Any) -> Any:
        """Read the capture later: a short one may have been read before anybody looks."""
        reads: Any = open_original(*arguments)
        waiting.append(reads.builder.start)
        reads.builder.start = lambda: None
        return reads

    with monkeypatch.context() as patched:
        patched.setattr(index.originals, "_open_capture", open_and_wait)
        assert "is being read for its bytes" in index.remark(rows[0])
    waiting.pop()()
    wanted = {name: built(folder / f"{name}.pcapng") for name in NAMES[:2]}
    for name, original in wanted.items():
        mine = [number for number in rows if name in index.captures[index.rows[number].capture]]
        read_original(index, folder / f"{name}.pcapng")
        pairs = []
        for number in mine:
            event = index.exact(number)
            assert isinstance(event, PacketEvent)
            assert index.remark(number) == ""
            pairs.append((event.frame, event.packet.raw))
        assert sorted(pairs) == sorted((row.frame, original.raw(row)) for _, row in packets_of(original))
        assert not any(event.packet.missing for event in map(index.exact, mine) if isinstance(event, PacketEvent))


def test_captures_that_are_gone_or_changed(folder: Path, tmp_path: Path, opened: Any) -> None:
    paths = [tmp_path / "gone.pcapng", tmp_path / "changed.pcapng"]
    for path, name in zip(paths, NAMES[:2], strict=True):
        shutil.copy(folder / f"{name}.pcapng", path)
    write_lake(list(map(str, paths)), str(tmp_path / "lake"), LakeOptions())
    index = filled(opened(tmp_path / "lake"))
    paths[0].unlink()
    with paths[1].open("ab") as file:
        file.write(b"\0" * 8)

    reasons = ("gone.pcapng no longer exists", "changed.pcapng has changed since it was")
    for path, why in zip(paths, reasons, strict=True):
        read_original(index, path)
        number = next(
            at for at, row in packets_of(index) if row.header >> 4 == 3 and index.captures[row.capture] == str(path)
        )
        assert why in index.remark(number)
        event = index.exact(number)
        assert isinstance(event, PacketEvent)
        assert event.packet.missing > 0


@pytest.mark.long
def test_a_lake_in_use(folder: Path, opened: Any) -> None:
    filling = opened(folder / "full")

    async def steps(at: Driver) -> None:
        browser = at.browser
        assert f"{browser.index.packets} packets" in at.screen[0]
        assert "closed" in at.line("faulty")
        await at.press("down", "down", "down")
        # Connection, filter, search, findings, ladder, payload.
        await at.press("c")
        assert f"packets: connection {browser.connection}" in at.text
        await at.press("escape", "f")
        await at.type("publish and qos > 0")
        await at.press("enter")
        assert "filter publish and qos > 0" in at.text
        assert 0 < len(browser.selection) < browser.index.packets
        for number in range(len(browser.selection)):
            event = browser.index.event(browser.selection[number])
            if isinstance(event, CaptureError):
                continue
            assert isinstance(event, PacketEvent | MalformedEvent)
            packet = event.packet if isinstance(event, PacketEvent) else event.malformed.packet
            assert isinstance(packet, Publish)
            assert packet.qos > 0
        await at.press("escape", "/")
        await at.type("21.5")
        await at.press("enter")
        assert "found" in at.status
        await at.press("2")
        assert "21.5" in at.text
        await at.press("g", "]")
        assert browser.mode == "found"
        assert browser.row is not None
        assert browser.index.rows[browser.row].severity
        await at.press("x")
        assert all(browser.index.rows[browser.selection[number]].severity for number in range(len(browser.selection)))
        await at.press("escape", "3")
        assert "3 LADDER" in at.text
        await at.press("1", "end")
        # What is wrong with captures stands at the end.
        assert "truncated-file." in at.status

    drive(steps, filling=filling, view=View(colour=True, held="kept"))


@pytest.mark.long
def test_what_a_lake_does_not_keep(folder: Path, tmp_path: Path, opened: Any) -> None:
    copied = tmp_path / "bare"
    shutil.copytree(folder / "bare", copied)
    filling = opened(copied)
    # As on a machine that has the lake alone.
    filling.index.originals = Originals({}, None)

    async def steps(at: Driver) -> None:
        await at.press("f")
        await at.type("publish and qos < 3")
        await at.press("enter", "g")
        assert "none kept" in at.text
        await at.press("2")
        assert "rebuilt from the columns of the lake" in at.text
        assert re.search(r"\d+ bytes, none kept: the lake keeps no payloads \(ingest --payload-limit\)", at.text)
        assert "0 bytes" not in at.text
        await at.press("/")
        await at.type("nowhere")
        await at.press("enter")
        assert "the lake keeps no payloads" in at.status
        await at.press("f")
        await at.type('payload contains "x"')
        await at.press("enter")
        assert "the lake keeps no payloads" in at.status
        await at.press("escape", "down", "w")
        assert "a lake has no frames: inspect --write" in at.text
        assert "pcapng" not in at.line("jsonl") + at.line("packets.")
        await at.press("enter")
        box = at.browser.screen.query_one("#file")
        assert box.value == "packets.jsonl"  # type: ignore[attr-defined]
        box.value = str(tmp_path / "out.jsonl")  # type: ignore[attr-defined]
        await at.press("enter")
        assert "1 row written" in at.status
        assert (tmp_path / "out.jsonl").read_text().startswith('{"schema":1')

    drive(
        steps, filling=filling, view=View(colour=True, held="kept"), size=(120, 30),
        no_frames="a lake has no frames: inspect --write takes them out of the captures",
    )  # fmt: skip


def test_rows_of_a_lake_are_asked_for_a_page_at_a_time(
    folder: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mqttscope.browse import lakes

    whole = told(filled(opened(folder / "full")))
    monkeypatch.setattr(lakes, "PAGE_ROWS", 16)
    monkeypatch.setattr(lakes, "MAX_PAGES", 2)
    monkeypatch.setattr(lakes, "STRETCH_ROWS", 20)
    monkeypatch.setattr(lakes, "FIRST_ROWS", 5)
    monkeypatch.setattr(lakes, "MAX_STRETCHES", 3)
    index = filled(opened(folder / "full"))
    assert told(index) == whole
    assert len(index._pages) <= 2
    assert max(map(len, index._pages.values())) <= 16
    times = [row.timestamp_ns for row in index.rows.run(0, len(index.rows))]
    assert times == sorted(times)


def test_a_lake_that_is_damaged_meanwhile(folder: Path, tmp_path: Path, opened: Any) -> None:
    copied = tmp_path / "lake"
    shutil.copytree(folder / "full", copied)
    builder = opened(copied)
    for path in (copied / "packets").glob("*.parquet"):
        os.truncate(path, 100)
    builder.start()
    assert builder.wait(SECONDS)
    assert "cannot be read" in builder.failure
