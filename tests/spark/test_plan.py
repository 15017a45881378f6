"""Plans: ranges of captures, packed into tasks."""

from __future__ import annotations

from pathlib import Path

from mqttscope.capture.locations import Location, find
from mqttscope.capture.ranges import SPLIT_BYTES, WHOLE, Range, Settled, Split
from mqttscope.spark.plan import (
    FILE_COST,
    SMALLEST_TASK,
    Planned,
    Task,
    good_size,
    measured,
    pack,
    plan,
    read_plan,
    settled,
    splits,
    write_plan,
)
from tests.capture.test_ranges import short_chains
from tests.spark.samples import everything


def test_walking_and_measuring_make_the_same_plan_and_text_keeps_it(tmp_path: Path) -> None:
    locations = find(everything(tmp_path))

    with short_chains():
        walked = plan(locations, {}, 1500)
        apart = settled(measured(task, {}) for task in splits(locations, {}, 1500))

    for one, other in zip(walked, apart, strict=True):
        assert (one.location.name, one.location.fault) == (other.location.name, other.location.fault)
        if "damaged" not in one.location.name and "cut" not in one.location.name:
            assert (one.settled.ranges, one.head) == (other.settled.ranges, other.head)
    again = read_plan(write_plan(walked))
    assert [(one.head, one.settled, one.location.target) for one in again] == [
        (one.head, one.settled, one.location.target) for one in walked
    ]
    assert write_plan(again) == write_plan(walked)


def test_a_capture_that_changes_between_cutting_and_measuring(tmp_path: Path) -> None:
    (path := tmp_path / "c.pcap").write_bytes(b"x")
    task = Task(0, Location("c", str(path), 1000), split=Split(100, 200))

    assert measured(task, {})["fault"] == "it has changed"


def test_names_need_not_be_utf_8() -> None:
    planned = [Planned(Location("b\udcff.pcap", "/x/b\udcff.pcap", 7))]

    assert write_plan(planned).isascii()
    assert read_plan(write_plan(planned)) == planned


def test_remote_captures_stay_whole_without_a_measure() -> None:
    (one,) = plan([Location("s3://b/a", "s3://b/a", 1 << 40)], {}, 1 << 20)

    assert one.settled.ranges == (WHOLE,)


def test_what_is_read_in_one_piece_says_so_once() -> None:
    fault = Settled((Range(0, 50, 1, 2), Range(50, None, 3)), "why", 60)
    tasks = Planned(Location("a", "/a", 100), b"head", fault).tasks(4)

    assert [task.head for task in tasks] == [b"", b"head"]
    assert [[note.message for note in task.notes] for task in tasks] == [["is read in one piece from here on: why"], []]
    (task,) = Planned(Location("a", "/a", fault="does not exist")).tasks(0)
    assert task.part is None
    assert task.cost == 0
    assert [note.message for note in task.notes] == ["does not exist"]


def test_small_captures_share_a_task() -> None:
    small = [Task(number, Location("a", "/a", 1000), WHOLE) for number in range(100)]
    large = [Task(100, Location("b", "/b", 1 << 30), Range(at << 20, (at + 64) << 20, 1, 1)) for at in (0, 64, 128)]

    assert [len(group) for group in pack(small, 25 * (FILE_COST + 1000))] == [25] * 4
    assert [len(group) for group in pack([*small[:3], *large], 64 << 20)] == [3, 1, 1, 1]
    assert pack([], 1) == []
    assert Task(0, Location("a", "/a", 500), split=Split(100, 300)).cost == FILE_COST + 200


def test_sizes_where_nobody_says() -> None:
    def size(*sizes: int) -> int:
        return good_size(Location("a", "/a", one) for one in sizes)

    assert size(1000) == SMALLEST_TASK
    assert size(200 << 20) == 200 << 16
    assert size(1 << 40, 1 << 40) == SPLIT_BYTES
