"""Inputs at the limits of the package spark that need no Spark."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

from mqttscope.lake.manifest import Manifest
from mqttscope.spark.follower import CaptureFollower, Offset
from mqttscope.spark.ingest import good_partitions
from mqttscope.spark.small_batch import remembers_much
from tests.spark.samples import frames, pcap

__all__ = ["good_partitions"]


def remembers(count: int) -> bool:
    """Whether so many states of flows are too much for one process."""
    return remembers_much(Manifest(state_files=["state/1.parquet"], rows={"state/1.parquet": count}))


def is_complete(seconds: float, folder: Path) -> bool:
    """Whether a capture is taken for complete that has not changed for so long."""
    path, now = folder / "a.pcap", 1_800_000_000
    path.write_bytes(pcap(frames(2)))
    os.utime(path, (now, now))
    with patch("mqttscope.spark.follower.time.time", lambda: now + seconds):
        (capture,) = CaptureFollower([str(folder)]).step(Offset()).captures.values()
    return capture.size is not None
