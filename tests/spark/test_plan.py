"""Plans: ranges of captures, packed into tasks."""

from __future__ import annotations

from pathlib import Path

from mqttscope.capture.locations import Location, find
from mqttscope.capture.ranges import SPLIT_BYTES, WHOLE, Range, RangeList, Split
from mqttscope.spark.plan import (
    FILE_COST,
    SMALLEST_TASK,
    CapturePlan,
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

    for capture_plan, other in zip(walked, apart, strict=True):
        assert (capture_plan.location.name, capture_plan.location.fault) == (other.location.name, other.location.fault)
        if "damaged" not in capture_plan.location.name and "cut" not in capture_plan.location.name:
            assert (capture_plan.settled.ranges, capture_plan.head) == (other.settled.ranges, other.head)
    again = read_plan(write_plan(walked))
    assert [(plan.head, plan.settled, plan.location.target) for plan in again] == [
        (plan.head, plan.settled, plan.location.target) for plan in walked
    ]
    assert write_plan(again) == write_plan(walked)


def test_a_capture_that_changes_between_cutting_and_measuring(tmp_path: Path) -> None:
    (path := tmp_path / "c.pcap").write_bytes(b"x")
    task = Task(0, Location("c", str(path), 1000), split=Split(100, 200))

    assert measured(task, {})["fault"] == "it has changed"


def test_names_need_not_be_utf_8() -> None:
    planned = [CapturePlan(Location("b\udcff.pcap", "/x/b\udcff.pcap", 7))]

    assert write_plan(planned).isascii()
    assert read_plan(write_plan(planned)) == planned


def test_remote_captures_stay_whole_without_a_measure() -> None:
    (capture_plan,) = plan([Location("s3://b/a", "s3://b/a", 1 << 40)], {}, 1 << 20)

    assert capture_plan.settled.ranges == (WHOLE,)


def test_what_is_read_in_one_piece_says_so_once() -> None:
    fault = RangeList((Range(0, 50, 1, 2), Range(50, None, 3)), "why", 60)
    tasks = CapturePlan(Location("a", "/a", 100), b"head", fault).tasks(4)

    assert [task.head for task in tasks] == [b"", b"head"]
    assert [[note.message for note in task.notes] for task in tasks] == [["is read in one piece from here on: why"], []]
    (task,) = CapturePlan(Location("a", "/a", fault="does not exist")).tasks(0)
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
        return good_size(Location("a", "/a", number) for number in sizes)

    assert size(1000) == SMALLEST_TASK
    assert size(200 << 20) == 200 << 16
    assert size(1 << 40, 1 << 40) == SPLIT_BYTES
