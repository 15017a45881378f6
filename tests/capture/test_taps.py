"""Captures of several taps read as one: order, clocks, and the same result as one capture that lost nothing."""

from __future__ import annotations

import gzip
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mqttscope
from mqttscope.api.reading import CaptureReading
from mqttscope.capture import open_capture
from mqttscope.capture import taps as module
from mqttscope.capture.files import CapturePortion
from mqttscope.capture.taps import Taps, open_taps
from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.events import ConnectionClosed, GapEvent, MalformedEvent, PacketEvent
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame
from tests.capture.doubled import SHIFT_NS, in_one, moved, recorded, two_taps, write
from tests.conftest import ROOT
from tests.each import each, sampled

CAPTURES = sorted((ROOT / "captures").glob("*/*.pcap*"))
QOS = ROOT / "captures" / "v5-qos" / "capture.pcapng"
SECOND = 1_000_000_000

Said = list[tuple[object, ...]]


def said(*captures: Path, deduplicate: bool = True) -> tuple[Said, Said, Taps | None]:
    """What is read of captures: events without their places, and findings; and what is known of taps."""
    reading = CaptureReading([str(capture) for capture in captures], deduplicate=deduplicate)
    dissector = Dissector()
    linter = Linter([usual_rule(rule) for rule in select().values()], together=deduplicate)
    events: Said = []
    findings: Said = []
    for event in dissect_segments(reading.segments(Counter()), dissector=dissector):
        if isinstance(event, PacketEvent | MalformedEvent):
            packet = event.packet if isinstance(event, PacketEvent) else event.malformed
            shown: object = (str(event.direction), repr(packet), event.stream_offset)
        elif isinstance(event, GapEvent):
            shown = (event.length, event.reason)
        elif isinstance(event, ConnectionClosed):
            shown = (event.connection.details["tcp"], event.connection.closed_by, event.connection.closed_how)
        else:
            shown = None
        number = event.connection.number if hasattr(event, "connection") else -1
        events.append((type(event).__name__, number, getattr(event, "timestamp_ns", 0), shown))
        findings += [
            (finding.rule, finding.message, finding.timestamp_ns, finding.confidence) for finding in linter.feed(event)
        ]
    return events, findings, reading.taps


def packets(events: Said) -> Counter[tuple[object, ...]]:
    """The packets and gaps of events, whatever their order and their times."""
    return Counter((name, number, repr(shown)) for name, number, _, shown in events if name in _OF_STREAMS)


_OF_STREAMS = {"PacketEvent", "MalformedEvent", "GapEvent"}


@sampled("path", CAPTURES, ids=[path.parent.name for path in CAPTURES])
def test_a_doubled_capture_says_what_the_single_one_does(path: Path, tmp_path: Path) -> None:
    frames = recorded(path)
    other_frames, other = two_taps(frames)
    single = said(write(tmp_path / "single.pcapng", frames))

    assert said(write(tmp_path / "both.pcapng", in_one(other_frames, other)))[:2] == single[:2]
    if path.parent.name != "duplicated":
        assert said(tmp_path / "single.pcapng", deduplicate=False)[:2] == single[:2]


@sampled("path", CAPTURES, ids=[path.parent.name for path in CAPTURES])
def test_what_one_tap_lost_comes_from_the_other(path: Path, tmp_path: Path) -> None:
    """Two captures with clocks that differ, of which each lacks frames, say what one says that lacks none."""
    frames = recorded(path)
    other_frames, other = two_taps(frames, loss=0.03, shift_ns=3 * SECOND)
    single = said(write(tmp_path / "single.pcapng", frames))
    first, second = write(tmp_path / "a.pcapng", other_frames), write(tmp_path / "b.pcapng", other)
    joined = said(first, second)

    assert joined[:2] == single[:2]
    mixed = said(write(tmp_path / "both.pcapng", in_one(*two_taps(frames, loss=0.03))))
    assert packets(mixed[0]) == packets(single[0])


def test_the_losses_of_each_tap_are_counted(tmp_path: Path) -> None:
    frames = recorded(ROOT / "captures" / "hasty-clients" / "capture.pcapng")
    other_frames, other = two_taps(frames[1:-1], loss=0.05)
    other_frames, other = [frames[0], *other_frames, frames[-1]], [moved(frames[0]), *other, moved(frames[-1])]
    taps = said(write(tmp_path / "a.pcapng", other_frames), write(tmp_path / "b.pcapng", other))[2]

    assert taps is not None
    counts = [(tap.frames, tap.only, tap.missed) for tap in taps.deduplication.taps()]
    lost, other_lost = len(frames) - len(other_frames), len(frames) - len(other)
    assert lost > 5
    assert other_lost > 5
    assert counts == [(len(other_frames), other_lost, lost), (len(other), lost, other_lost)]
    assert taps.deduplication.copies == len(frames) - lost - other_lost
    assert [name for name, _ in taps.named()] == [str(tmp_path / "a.pcapng"), str(tmp_path / "b.pcapng")]


def read(*captures: Path | str, taps: Taps | None = None, stdin: io.BytesIO | None = None) -> list[Frame]:
    items = open_taps([str(capture) for capture in captures], taps or Taps(), stdin=stdin)
    return [item for item in items if isinstance(item, Frame)]


@each("ahead_ns", [0, 1_003_000_000, -700_000_000, 3600 * SECOND, -3600 * SECOND])
def test_the_difference_of_clocks_is_measured_and_taken_off(
    tmp_path_factory: pytest.TempPathFactory, ahead_ns: int
) -> None:
    folder = tmp_path_factory.mktemp("clocks")
    frames = recorded(QOS)
    other_frames, other = two_taps(frames, loss=0.1, shift_ns=ahead_ns)
    first, second = write(folder / "a.pcapng", other_frames), write(folder / "b.pcapng", other)
    taps = Taps()

    assert [frame.timestamp_ns for frame in read(first, second, taps=taps)] == [frame.timestamp_ns for frame in frames]
    assert {source.name: source.ahead_ns for source in taps.sources} == {str(first): 0, str(second): ahead_ns}
    assert [source.name for source in taps.corrected()] == [str(second)] * bool(ahead_ns)
    shifted = [frame.timestamp_ns for frame in read(second, first)]
    assert shifted == [frame.timestamp_ns + ahead_ns for frame in frames], "the clock is that of the first one named"


def test_the_way_between_two_taps_is_no_difference_of_clocks(tmp_path: Path) -> None:
    """One tap is near the client, and one near the server: each sees what the other side sends later."""
    frames = recorded(QOS)
    way_ns = 20_000_000
    far = [
        replace(frame, timestamp_ns=frame.timestamp_ns + (way_ns if _is_of_client(frame) else -way_ns))
        for frame in frames
    ]
    far.sort(key=lambda frame: frame.timestamp_ns)
    taps = Taps()
    read(write(tmp_path / "near.pcapng", frames), write(tmp_path / "far.pcapng", far), taps=taps)

    assert all(abs(source.ahead_ns) < way_ns / 10 for source in taps.sources)


def _is_of_client(frame: Frame) -> bool:
    return frame.data[34:36] != (1883).to_bytes(2, "big")


def test_captures_that_have_nothing_in_common_keep_their_times(tmp_path: Path) -> None:
    names = ("v5-qos", "v311-qos", "ipv6")
    paths = [
        write(tmp_path / f"{name}.pcapng", recorded(ROOT / "captures" / name / "capture.pcapng")) for name in names
    ]
    taps = Taps()
    frames = read(*paths, taps=taps)

    alone = [frame.timestamp_ns for path in paths for frame in recorded(path)]
    assert [frame.timestamp_ns for frame in frames] == sorted(alone)
    assert not any(source.like for source in taps.sources)
    assert taps.named() == []


def test_rotated_captures_of_two_taps_are_joined(tmp_path: Path) -> None:
    frames = recorded(ROOT / "captures" / "hasty-clients" / "capture.pcapng")
    other_frames, other = two_taps(frames, loss=0.02, shift_ns=2 * SECOND)
    paths = [write(tmp_path / f"a{at}.pcapng", other_frames[at : at + 100]) for at in range(0, len(other_frames), 100)]
    paths += [write(tmp_path / f"b{at}.pcapng", other[at : at + 150]) for at in range(0, len(other), 150)]
    single = write(tmp_path / "single.pcap", frames)

    assert [frame.timestamp_ns for frame in read(*paths)] == [frame.timestamp_ns for frame in frames]
    assert said(*paths)[0] == said(single)[0]


def test_only_captures_whose_time_has_come_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = recorded(QOS)
    paths = [str(write(tmp_path / f"{at:02}.pcapng", frames[at : at + 5])) for at in range(0, len(frames), 5)]
    opened: list[str] = []

    def noted(sources: Sequence[str], **argument: Any) -> Iterator[Frame | CaptureNotice]:
        opened.append(sources[0])
        return open_capture(sources, **argument)

    monkeypatch.setattr(module, "open_capture", noted)
    items = open_taps(paths, Taps())
    next(items)
    measured = len(opened)
    assert opened[-1] == paths[0], "what was opened to measure clocks is closed"
    for _ in frames[6:]:
        next(items)

    assert opened[measured:] == paths[1:-1], "the last one begins later"
    assert len(list(items)) == 5
    assert opened[measured:] == paths[1:]


def test_standard_input_and_compressed_captures_are_taps_too(tmp_path: Path) -> None:
    frames = recorded(QOS)
    other_frames, other = two_taps(frames, loss=0.1, shift_ns=0)
    first, second = write(tmp_path / "a.pcapng", other_frames), write(tmp_path / "b.pcapng", other)
    packed = tmp_path / "b.pcapng.gz"
    packed.write_bytes(gzip.compress(second.read_bytes()))

    for actual_frames in (read(first, "-", stdin=io.BytesIO(second.read_bytes())), read(first, packed)):
        assert [frame.timestamp_ns for frame in actual_frames] == [frame.timestamp_ns for frame in frames]


def test_what_cannot_be_read_is_said_and_the_rest_is_read(tmp_path: Path) -> None:
    frames = recorded(QOS)
    first = write(tmp_path / "a.pcapng", frames)
    damaged = tmp_path / "b.pcapng"
    damaged.write_bytes(first.read_bytes()[:-30])
    items = list(open_taps([str(first), str(tmp_path / "absent.pcapng"), str(damaged)], Taps()))

    errors = [(item.capture, item.frames) for item in items if isinstance(item, CaptureError)]
    assert errors == [(str(tmp_path / "absent.pcapng"), 0), (str(damaged), len(frames) - 1)]
    assert sum(isinstance(item, Frame) for item in items) == len(frames)


def test_parts_of_captures_are_read_as_parts(tmp_path: Path) -> None:
    from mqttscope.capture.fingerprint import head_crc

    first = write(tmp_path / "a.pcapng", recorded(QOS))
    size = first.stat().st_size
    with first.open("rb") as file:
        part = CapturePortion(0, size // 2, head_crc(file, size // 2))
    taps = Taps()
    frames = [
        open_tap for open_tap in open_taps([str(first)], taps, parts={str(first): part}) if isinstance(open_tap, Frame)
    ]

    assert 0 < len(frames) < len(recorded(QOS))
    assert part.was_opened


def test_few_equal_segments_measure_no_clock(tmp_path: Path) -> None:
    frames = recorded(QOS)[:2]
    later = [replace(frame, timestamp_ns=frame.timestamp_ns + SHIFT_NS) for frame in frames]
    taps = Taps()
    read(write(tmp_path / "a.pcapng", frames), write(tmp_path / "b.pcapng", later), taps=taps)

    assert not any(source.like for source in taps.sources)
    assert taps.deduplication.copies == 2


def test_the_library_reads_taps_as_one(tmp_path: Path) -> None:
    path = ROOT / "captures" / "planted-violations" / "capture.pcapng"
    taps = zip(("near", "far"), two_taps(recorded(path)), strict=True)
    near, far = (write(tmp_path / f"{name}.pcapng", frames) for name, frames in taps)

    once, twice = mqttscope.lint(path), mqttscope.lint(near, far, deduplicate=True)
    assert (
        [(finding.rule, finding.confidence) for finding in twice]
        == [(finding.rule, finding.confidence) for finding in once]
        != []
    )
    with mqttscope.open(near, far, deduplicate=True) as captures, mqttscope.open(path) as single:
        assert [capture.raw for capture in captures] == [packet.raw for packet in single] != []
        assert any("are copies and were left out" in note for note in captures.notes)
