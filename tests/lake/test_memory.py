"""What is remembered of a flow, and taken up again; whatever the order of captures, every packet is a row, once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from mqttscope.dissect import Dissector
from mqttscope.dissect.flow_state import EndedFlow
from mqttscope.events import DiscardedEvent
from mqttscope.lake import memory as memories
from mqttscope.lake.memory import connection_of, remembered, resume
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.state import dump, load
from mqttscope.lake.tables import Collector
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.net.flow_expiry import LINGER_NS
from mqttscope.net.segment import FIN, Segment
from tests.dissect.secure import as_frame
from tests.dissect.talk import Talk
from tests.each import some
from tests.lake.fleet import content, segments, written
from tests.lake.parts import write_frames
from tests.lake.reading import (
    Row,
    Tables,
    by_kernel,
    collected,
    options,
    read_segments,
    remembered_row,
    segment_rows,
    tables_of,
)
from tests.mqtt.octets import framed, string

FOUND = segments(1, 3)


def test_a_connection_goes_on_with_its_tracker() -> None:
    lake_options = options()
    dissector, collector = Dissector(lake_options.reading()), Collector(lake_options)
    for segment in FOUND[:9]:
        for event in dissector.feed(segment):
            collector.feed(event)
    (memory,) = load(dump(remembered(dissector, collector)))

    again, next_one = Dissector(lake_options.reading()), Collector(lake_options)
    again.connections = 5
    resume(memory, again, next_one)

    (flow,) = again.flows.flows.values()
    assert connection_of(flow).number == 5
    assert next_one.trackers[5] == memory.tracker is not None
    assert again.connections == 6


def test_of_a_flow_that_is_over_late_segments_are_known_for_a_while() -> None:
    """They belong to the connection by its name, whatever number others have by now."""
    lake_options = options()
    dissector, collector = Dissector(lake_options.reading()), Collector(lake_options)
    for segment in FOUND:
        for event in dissector.feed(segment):
            collector.feed(event)
    (row,) = collected(collector)["connections"]
    now = FOUND[-1].timestamp_ns
    assert remembered(dissector, collector, now + LINGER_NS + 1) == []
    (memory,) = load(dump(remembered(dissector, collector, now)))
    assert isinstance(memory.flow.context, EndedFlow)

    again, next_one = Dissector(lake_options.reading()), Collector(lake_options)
    again.connections = 7
    resume(memory, again, next_one)
    late = next(segment for segment in FOUND if segment.flags & FIN)
    late.payload, late.flags, late.timestamp_ns = b"more", 24, now + 1
    events = list(again.feed(late))

    assert [type(event) for event in events] == [DiscardedEvent]
    for event in events:
        next_one.feed(event)
    (gap,) = collected(next_one)["gaps"]
    assert (gap["connection_id"], gap["event"], gap["event_in_connection"]) == (row["connection_id"], "discarded", 0)
    assert (gap["length"], gap["reason"], gap["stream_offset"]) == (4, "after_close", None)
    assert not next_one.trackers


HOUR_NS = 3_600 * 10**9


def ingested(
    paths: list[Path], order: tuple[int, ...], lake: Path, lake_options: LakeOptions | None = None
) -> list[Row]:
    for number in order:
        write_lake([paths[number]], lake, lake_options)
    rows: list[Row] = read_table(lake, "packets").to_pylist()
    return rows


def check(rows: list[Row], wanted: Counter[tuple[object, ...]]) -> None:
    assert Counter(map(content, rows)) == wanted
    keys = Counter((row["connection_id"], row["direction"], row["stream_offset"]) for row in rows)
    assert max(keys.values()) == 1


@pytest.fixture(scope="module")
def captured_segments() -> list[Segment]:
    return segments(9, 12)


@pytest.fixture(scope="module")
def wanted(captured_segments: list[Segment], tmp_path_factory: pytest.TempPathFactory) -> Counter[tuple[object, ...]]:
    folder = tmp_path_factory.mktemp("whole")
    write_lake(written(captured_segments, folder, 1), folder / "lake")
    rows = read_table(folder / "lake", "packets").to_pylist()
    assert len(rows) > 300
    return Counter(map(content, rows))


@pytest.mark.parametrize("order", some([*permutations(range(3))], 3), ids=str)
def test_three_parts_in_every_order(
    order: tuple[int, ...], captured_segments: list[Segment], wanted: Counter[tuple[object, ...]], tmp_path: Path
) -> None:
    check(ingested(written(captured_segments, tmp_path, 3), order, tmp_path / "lake"), wanted)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_many_parts_in_any_order(
    seed: int, captured_segments: list[Segment], wanted: Counter[tuple[object, ...]], tmp_path: Path
) -> None:
    chance = random.Random(seed)
    count = chance.randrange(4, 14)
    paths = written(captured_segments, tmp_path, count, seed=seed)
    order = tuple(chance.sample(range(count), count))

    check(ingested(paths, order, tmp_path / "lake"), wanted)

    # A second time nothing changes, in whatever order.
    check(ingested(paths, tuple(range(count)), tmp_path / "lake"), wanted)


@pytest.mark.parametrize("seed", some([1, 3], 2))
def test_parts_in_groups_in_any_order(seed: int, tmp_path: Path) -> None:
    """What waits after a hole is no secret where packets are found in it."""
    everything = segments(20, 12, seed=seed)
    (whole,) = written(everything, tmp_path / "whole", 1)
    paths = written(everything, tmp_path, 10, seed=seed)
    chance = random.Random(seed * 7 + 1)
    order = chance.sample(range(10), 10)
    while order:
        count = chance.randrange(1, 5)
        write_lake([paths[number] for number in sorted(order[:count])], tmp_path / "lake")
        del order[:count]

    check(
        read_table(tmp_path / "lake", "packets").to_pylist(),
        Counter(map(content, ingested([whole], (0,), tmp_path / "at once"))),
    )


@pytest.mark.long
def test_rows_say_what_they_could_not_know(captured_segments: list[Segment], tmp_path: Path) -> None:
    parts = written(captured_segments, tmp_path, 3)
    ingested(parts, (0, 1, 2), tmp_path / "in order")
    ingested(parts, (2, 0, 1), tmp_path / "lake")
    in_order = read_table(tmp_path / "in order", "connections").to_pylist()
    rows = read_table(tmp_path / "lake", "connections").to_pylist()

    assert not any(row["late"] for row in in_order)
    begun = {row["connection_id"] for row in in_order}
    late_ones = [row for row in rows if row["late"]]
    assert len(late_ones) > 3
    # They begin with the CONNECT, which the first part has: so they are the connections they would have been.
    assert {row["connection_id"] for row in late_ones} <= begun
    assert all(row["handshake_seen"] and row["version_known"] for row in late_ones)
    after = [row for row in rows if row["connection_id"] not in begun]
    assert after
    for row in after:
        assert (row["handshake_seen"], row["version_known"], row["client_identifier"]) == (False, False, None)
        assert row["roles_known"] is False


@pytest.mark.long
def test_a_part_that_fills_a_hole_that_was_given_up(captured_segments: list[Segment], tmp_path: Path) -> None:
    """Also where the connection has ended meanwhile."""
    parts = written(captured_segments, tmp_path, 3, seed=5)
    rows = ingested(parts, (0, 2, 1), tmp_path / "lake")
    gaps = read_table(tmp_path / "lake", "gaps").to_pylist()

    assert {row["event"] for row in gaps} == {"gap"}
    assert Counter(map(content, rows)) == Counter(map(content, ingested(parts, (0, 1, 2), tmp_path / "in order")))


def test_what_was_read_before_is_no_packet_again(
    captured_segments: list[Segment], wanted: Counter[tuple[object, ...]], tmp_path: Path
) -> None:
    """Captures that overlap: a second tap, or rotation that keeps the last minute."""
    half = len(captured_segments) // 2
    (whole,) = written(captured_segments, tmp_path / "whole", 1)
    (first,) = written(captured_segments[: half + 40], tmp_path / "first", 1)
    (second,) = written(captured_segments[half - 40 :], tmp_path / "second", 1)
    # Of connections that are still open: nothing is remembered of others for longer than two minutes.
    check(ingested([first, second, whole], (1, 0, 2), tmp_path / "lake"), wanted)


def test_connections_that_ended_are_no_others_again(
    captured_segments: list[Segment], wanted: Counter[tuple[object, ...]], tmp_path: Path
) -> None:
    """Their handshakes and FINs come again too."""
    (first,) = written(captured_segments[:-30], tmp_path / "first", 1)
    (second,) = written(captured_segments[40:], tmp_path / "second", 1)

    check(ingested([first, second], (0, 1), tmp_path / "lake"), wanted)
    assert len(read_table(tmp_path / "lake", "connections")) == 9


def test_a_capture_whose_clock_goes_back_is_not_late(captured_segments: list[Segment], tmp_path: Path) -> None:
    """The same file, read on after it has grown."""
    back = [replace(segment, timestamp_ns=segment.timestamp_ns - HOUR_NS) for segment in captured_segments[300:]]
    path = tmp_path / "growing.pcapng"
    for size in (300, len(captured_segments)):
        (new_path,) = written([*captured_segments[:300], *back][:size], tmp_path / str(size), 1)
        path.write_bytes(new_path.read_bytes())
        write_lake([path], tmp_path / "lake")

    assert not any(read_table(tmp_path / "lake", "connections").column("late").to_pylist())


def test_times_that_go_back_are_not_late_while_the_clock_reads_ahead(tmp_path: Path) -> None:
    """After a pause, which may be a step of the clock, some segments are read before the first of them is decided."""
    first_client = segments(1, 4)
    earlier = [replace(segment, timestamp_ns=segment.timestamp_ns - 60 * 10**9) for segment in first_client]
    port = (40_001).to_bytes(2, "big")
    other = [segment for segment in segments(2, 4, seed=2) if port in (segment.key[8:10], segment.key[10:12])]
    now_ns = other[9].timestamp_ns
    going_back = [
        replace(segment, timestamp_ns=now_ns - back)
        for segment, back in zip(other[10:13], (0, 10**8, 10**8), strict=True)
    ]
    (before,) = written([*earlier[:8], *other[:10]], tmp_path / "before", 1)
    (between,) = written([earlier[8], *going_back], tmp_path / "between", 1)
    hours_later = [replace(segment, timestamp_ns=segment.timestamp_ns + 5 * HOUR_NS) for segment in first_client]
    (after,) = written(hours_later, tmp_path / "after", 1)
    ingested([before, between, after], (0, 1, 2), tmp_path / "lake")

    rows = read_table(tmp_path / "lake", "connections").to_pylist()
    (row,) = (row for row in rows if row["client"].endswith(":40001"))
    assert (row["closed_how"], row["closed_capture"], row["closed_frame"]) == ("idle", str(between), 4)


def test_an_old_connection_with_the_same_numbers_is_another_one(tmp_path: Path) -> None:
    """Small stacks choose the same initial sequence numbers after each reboot."""
    now = segments(1, 5)
    before = [replace(segment, timestamp_ns=segment.timestamp_ns - 24 * HOUR_NS) for segment in now]
    (new,) = written(now, tmp_path / "new", 1)
    (old,) = written(before, tmp_path / "old", 1)
    rows = ingested([new, old], (0, 1), tmp_path / "lake")

    assert len({row["connection_id"] for row in rows}) == 2
    assert len(rows) == 2 * len(ingested([new], (0,), tmp_path / "one"))


@pytest.mark.long
def test_parts_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memories, "MAX_PARTS", 2)
    actual_segments = segments(2, 40)
    paths = written(actual_segments, tmp_path, 12)
    rows = ingested(paths, (11, 9, 7, 5, 3, 1, 0, 2, 4, 6, 8, 10), tmp_path / "lake")
    ends = Counter(read_table(tmp_path / "lake", "connections").column("closed_how").to_pylist())

    assert Counter(map(content, rows)) == Counter(map(content, ingested(paths, tuple(range(12)), tmp_path / "o")))
    # Those that had to go say that more may be elsewhere.
    assert ends["capture_end"] > 0


def test_a_part_of_which_nothing_more_comes_was_not_idle(tmp_path: Path) -> None:
    actual_segments = segments(2, 10)
    first, second = written(actual_segments, tmp_path, 2)
    later = [replace(segment, timestamp_ns=segment.timestamp_ns + 5 * HOUR_NS) for segment in segments(3, 2, seed=8)]
    (after,) = written(later, tmp_path / "later", 1)
    ingested([first, second, after], (1, 0, 2), tmp_path / "lake")

    rows = read_table(tmp_path / "lake", "connections").to_pylist()
    assert {row["closed_how"] for row in rows if row["late"]} == {"capture_end"}


def test_the_kernel_gives_the_same(captured_segments: list[Segment], tmp_path: Path) -> None:
    """Flow by flow, with state as rows: what Spark does."""
    paths = written(captured_segments, tmp_path, 4, seed=3)
    order = (2, 0, 3, 1)
    lake_options = options()
    tables: Tables = {}
    states: list[tuple[object, ...]] = []
    for number in order:
        read = read_segments(paths[number])
        now = max(segment.timestamp_ns for segment in read)
        documents = by_kernel([*states, *segment_rows(read)], lake_options, more=True, watermark_ns=now)
        states = [remembered_row(row["flow"], row["state"]) for row in documents.pop("state")]
        still = {name: documents.pop(name) for name in [*documents] if name.startswith("open/")}
        for name, rows in documents.items():
            tables.setdefault(name, []).extend(rows)
    for name, rows in still.items():
        tables.setdefault(name.removeprefix("open/"), []).extend(rows)

    for number in order:
        write_lake([paths[number]], tmp_path / "lake", lake_options)
    for name in ("packets", "connections", "messages"):
        wanted = read_table(tmp_path / "lake", name).to_pylist()
        assert sorted(map(_named, tables[name])) == sorted(map(_named, wanted)), name


def _named(row: Row) -> tuple[str, ...]:
    names = ("connection_id", "direction", "stream_offset", "late", "closed_how", "frame", "timestamp_ns", "state")
    return tuple(str(row.get(name)) for name in names)


def conversation(name: str) -> list[Segment]:
    """A connection with the numbers and times of all others that this function makes."""
    talk = Talk()
    talk.handshake()
    talk.client(framed(0x10, string("MQTT"), b"\4\2\0\x3c", string(name)))
    talk.server(framed(0x20, b"\0\0"))
    talk.client(framed(0x30, string("t"), name.encode()))
    talk.client(b"\xe0\0")
    talk.close()
    return talk.tape.segments


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_connections_with_equal_numbers_and_times(order: tuple[int, int], tmp_path: Path) -> None:
    """With other bytes they are two, and with equal bytes one, in one ingest and in two."""
    paths = [write_frames(tmp_path / f"{name}.pcapng", map(as_frame, conversation(name))) for name in ("aaaa", "bbbb")]
    chosen = [paths[at] for at in order]
    for path in chosen:
        write_lake([path], tmp_path / "two", options())
    write_lake(chosen, tmp_path / "one", options())
    for lake in (tmp_path / "one", tmp_path / "two"):
        rows = tables_of(lake)
        assert len(rows["packets"]) == 8
        assert len({row["connection_id"] for row in rows["connections"]}) == 2
        assert {row["client_identifier"] for row in rows["connections"]} == {"aaaa", "bbbb"}
        keys = {(row["connection_id"], row["direction"], row["stream_offset"]) for row in rows["packets"]}
        assert len(keys) == 8

    copied = [replace(segment, frame=segment.frame + 5) for segment in conversation("aaaa")]
    again = write_frames(tmp_path / "again.pcapng", [*map(as_frame, copied), *map(as_frame, conversation("bbbb")[:1])])
    for lake, captures in ((tmp_path / "once", [[paths[0], again]]), (tmp_path / "twice", [[paths[0]], [again]])):
        for some_captures in captures:
            write_lake(some_captures, lake, options())
        assert (len(tables_of(lake)["packets"]), len(tables_of(lake)["connections"])) == (4, 1)
