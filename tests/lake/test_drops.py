"""Drops have a place, and from there on rules are less sure: flow by flow as in one process."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect_segments
from mqttscope.dissect import segments as segments_of
from mqttscope.lake.drops import Drop
from mqttscope.lake.scopes import AT_THE_END, BEFORE_ALL
from mqttscope.net.frame import CaptureDrops, Frame
from mqttscope.net.segment import Segment
from tests.lake.reading import CAPTURES, Tables, by_kernel, collect, options, segment_rows

(PLANTED,) = (path for path in CAPTURES if path.parent.name == "planted-violations")


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ((500, 2, 7), False),
        ((500, 2, 8), True),
        ((500, 1, 9), False),
        ((500, 3, 1), True),
        ((100, 2, 5 - BEFORE_ALL), False),
        ((101, 2, 5 - BEFORE_ALL), True),
        ((AT_THE_END, 5, 1), True),
    ],
)
def test_what_comes_behind_drops(place: tuple[int, int, int], expected: bool) -> None:
    assert Drop(2, 7, 100).is_before(place) is expected


def test_drops_before_all_segments_are_before_all_time_outs() -> None:
    assert Drop(0, 3).is_before((-5, 0, 1 - BEFORE_ALL))


def sure(tables: Tables) -> list[tuple[str, int, str]]:
    return sorted((row["rule"], row["frame"], row["confidence"]) for row in tables["findings"])


@pytest.mark.parametrize("frame", [0, 60, 100, 10_000])
def test_findings_of_flows_are_as_sure_as_those_of_all_together(frame: int) -> None:
    given = options(rules=tuple(options().narrow_rules()))
    frames = [one for one in open_capture([PLANTED]) if isinstance(one, Frame)]
    drops = CaptureDrops(str(PLANTED), 0, None, 3)
    together = collect(dissect_segments(segments_of([*frames[:frame], drops, *frames[frame:]])), given)
    found = [one for one in segments_of(frames) if isinstance(one, Segment)]
    last_ns = max((one.timestamp_ns for one in found if one.frame <= frame), default=None)

    apart = by_kernel(segment_rows(found), given, drops={str(PLANTED): Drop(0, frame, last_ns)})

    assert sure(apart) == sure(together)
    unsure = by_kernel(segment_rows(found), given, dropping={str(PLANTED)})
    assert (sure(apart) == sure(unsure)) is (frame == 0)


def test_what_an_earlier_run_knew_holds_from_the_beginning() -> None:
    found = [one for one in segments_of(open_capture([PLANTED])) if isinstance(one, Segment)]
    name = str(PLANTED)
    given = options()

    both = by_kernel(segment_rows(found), given, dropping={name}, drops={name: Drop(0, 10_000)})

    assert sure(both) == sure(by_kernel(segment_rows(found), given, dropping={name}))
