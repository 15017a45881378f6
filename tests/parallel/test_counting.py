"""Statistics of several processes: those of one."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.dissect import dissect_segments, segments
from mqttscope.net.frame import CaptureNotice
from mqttscope.parallel.counting import Together, count_share
from mqttscope.parallel.merge import Merge, read_batch
from mqttscope.parallel.walk import IndivisibleError, Share
from mqttscope.report.jsonl import dumps
from mqttscope.stats.as_json import document
from mqttscope.stats.collect import Statistics
from tests.each import some
from tests.parallel.shared import CAPTURES, Items, Kept, items_of, mixture, unwatched


def shown(statistics: Statistics) -> bytes:
    statistics.finish()
    tables: Any = ("capture", "connection", "client", "topic")
    assert statistics.along is not None
    bars = repr([(one.name, one.pieces) for one in statistics.along.bars()]).encode()
    return bars + dumps(document(statistics, tables=tables, sort=None, top=None, other_flows=0, skipped={}))


def counted(items: Items) -> Statistics:
    """What one process counts."""
    statistics = Statistics(along=True)
    for event in dissect_segments(segments(statistics.frames(items)), dissector=unwatched()):
        statistics.feed(event)
    statistics.finish()
    return statistics


def by_several(items: Items, count: int) -> bytes:
    told: list[CaptureNotice] = []
    merge, together = Merge(count), Together(count, told.append, along=True)
    parts = []
    for number in range(count):
        kept = Kept()
        parts.append(
            count_share(Share(number, count), kept, lambda direct: items, unwatched(), None, [False], timed=False)
        )
        for message in kept.sent:
            merge.add(number, read_batch(message))
    for entries in merge.take():
        together.take(entries)
    together.add(parts)
    return shown(together)


@pytest.mark.parametrize("count", some([2, 3], 2))
def test_all_captures_together_give_the_same(count: int) -> None:
    items = items_of(*CAPTURES)

    assert by_several(items, count) == shown(counted(items))


@pytest.mark.parametrize("seed", range(20, 28))
def test_damage_copies_disorder_and_time_outs_give_the_same(seed: int) -> None:
    items = mixture(seed)

    try:
        assert by_several(items, 2 + seed % 2) == shown(counted(items))
    except IndivisibleError as error:
        pytest.skip(str(error))


def test_seconds_are_those_of_all_flows() -> None:
    items = items_of(*CAPTURES[:40])
    whole = counted(items)

    assert max(row.window.peak_packets for row in whole.topics.values()) > 1
    assert by_several(items, 3) == shown(whole)
    assert by_several([], 2) == shown(counted([]))
