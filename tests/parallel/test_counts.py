"""What processes count, added up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from mqttscope.dissect import dissect
from mqttscope.net.frame import Frame
from mqttscope.parallel.counts import add_up, overlapping
from mqttscope.parallel.walk import IndivisibleError
from tests.parallel.shared import CAPTURES, by_several, items_of, mixture, unwatched


@pytest.mark.parametrize("seed", range(3))
def test_sums_are_those_of_one_process(seed: int) -> None:
    items = mixture(seed)
    alone, skipped = unwatched(), Counter[str]()
    shown = len(list(dissect(items, dissector=alone, skipped=skipped)))
    counts = by_several(items, "jsonl", 3)[1]
    added, together = unwatched(), Counter[str]()
    add_up(counts, added, together)

    assert together == skipped
    assert sum(one.shown for one in counts) == shown
    for name in (
        "packets", "connections", "other_flows", "cut_bytes", "kept_bytes", "overlaps", "discarded_segments",
        "discarded_bytes", "copied_segments", "one_sided", "named_otherwise", "other_tls",
    ):  # fmt: skip
        assert (name, getattr(added, name)) == (name, getattr(alone, name))
    assert added.flows.opened_flows == alone.flows.opened_flows


def test_captures_that_overlap_are_named_in_order() -> None:
    frames = [one for one in items_of(CAPTURES[0]) if isinstance(one, Frame)]
    later = [replace(one, capture="later", timestamp_ns=one.timestamp_ns + 10**12) for one in frames]
    again = [replace(one, capture="again", timestamp_ns=one.timestamp_ns + 1) for one in frames]

    assert overlapping(by_several([*frames, *later, *again], "jsonl", 2)[1]) == ["again"]
    assert overlapping(by_several([*frames, *later], "jsonl", 2)[1]) == []


def test_equal_counts_of_servers_are_left_to_one_process() -> None:
    counts = by_several(items_of(CAPTURES[0]), "jsonl", 2)[1]
    for one, server in zip(counts, "ab", strict=True):
        one.connections, one.other_tls = 0, Counter({server: 3})

    with pytest.raises(IndivisibleError):
        add_up(counts, unwatched(), Counter())
