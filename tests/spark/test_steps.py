"""What lies between two offsets."""

from __future__ import annotations

from pathlib import Path

from mqttscope.spark.following import Follower
from mqttscope.spark.offsets import Offset
from mqttscope.spark.steps import tasks
from tests.spark.growth import PAST, put
from tests.spark.samples import frames, pcap


def test_tasks_between_two_offsets(tmp_path: Path) -> None:
    content = pcap(frames(9))
    put(tmp_path / "a.pcap", content[:800])
    put(tmp_path / "b.pcap", pcap(frames(2)), quiet=True)
    follower = Follower([str(tmp_path)])
    start = Offset()
    middle = follower.step(start)
    put(tmp_path / "a.pcap", content)
    end = follower.step(middle)

    first, second = tasks(start, middle)
    assert (first.file, first.location.name, first.start, first.frames_before) == (0, str(tmp_path / "a.pcap"), 0, 0)
    assert [(note.message, note.frame) for note in first.notes] == [("growing", 5)]
    assert second.grown is not None
    assert (second.grown.end, second.grown.size) == (None, len(pcap(frames(2))))
    (only,) = tasks(middle, end)
    assert (only.start, only.frames_before, only.cost) == (774, 5, 600 + (256 << 10))
    assert [(note.message, note.offset, note.count) for note in only.notes] == [("growing", len(content), 0)]
    assert tasks(end, end) == []


def test_a_capture_that_goes_on_after_its_end(tmp_path: Path) -> None:
    content = pcap(frames(9))
    put(tmp_path / "a.pcap", content[:800], quiet=True)
    follower = Follower([str(tmp_path)])
    start = follower.step(Offset())
    put(tmp_path / "a.pcap", content, quiet=True)
    assert (tmp_path / "a.pcap").stat().st_mtime == PAST

    (task,) = tasks(start, follower.step(start))
    assert (task.start, task.frames_before) == (774, 5)
    assert task.told_link_types == {1}
