"""IP fragments put together, in process; with Spark: test_reading.py."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'mqttscope[spark]'")

from mqttscope.capture import open_capture
from mqttscope.dissect import segments
from mqttscope.net.segment import Segment
from mqttscope.spark import fragments as module
from mqttscope.spark.fragments import assembled
from mqttscope.spark.rows import Batches
from mqttscope.spark.scan import Wanted, scan
from tests.spark.expected import all_of, segment_of_row
from tests.spark.samples import fragmented, pcap
from tests.spark.test_scan import SCHEMA, tasks


@pytest.mark.parametrize("split_bytes", [150, 1 << 20])
def test_fragments_of_several_ranges_and_captures_make_the_segments(tmp_path: Path, split_bytes: int) -> None:
    data = fragmented()
    (tmp_path / "a.pcap").write_bytes(pcap([*data, *data[:4]]))
    (tmp_path / "b.pcap").write_bytes(pcap(data[4:], seconds=1_700_000_013))
    sources = [str(tmp_path)]
    whole = [one for one in segments(open_capture(sources)) if isinstance(one, Segment)]
    batches = Batches(SCHEMA)
    parts = [
        batch
        for task in tasks(sources, split_bytes)
        for batch in scan(task, batches, Wanted(frozenset(["fragment"])), {})
    ]
    direct = [
        row
        for task in tasks(sources, split_bytes)
        for row in all_of(scan(task, batches, Wanted(frozenset(["segment"])), {}))
    ]

    with patch.object(module, "BATCH_ROWS", 1):
        made = list(all_of(assembled(parts)))

    found = [segment_of_row(row) for row in [*direct, *made] if row["kind"] == "segment"]
    assert len(found) == len(direct) + 2
    assert sorted(found, key=lambda one: (one.capture, one.frame)) == whole
    assert [(row["message"], row["count"]) for row in made if row["kind"] == "skipped"] == [
        ("not_tcp", 1),
        ("not_tcp", 1),
    ]
    assert list(assembled([])) == []
