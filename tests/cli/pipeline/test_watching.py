"""The line of a batch."""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

from mqttscope.cli.pipeline.watching import _signals, line
from mqttscope.spark.watch import Taken


def test_what_is_said_of_a_batch() -> None:
    rows = {"packets": 1234, "messages": 50, "findings": 2, "ingest_errors": 1}
    taken = Taken(7, rows, 1000, 1_700_000_000_000_000_000, 2_500_000)

    assert line(taken, 1_700_000_004.2) == (
        "batch 7: 1234 packets, 2 new findings, 1 error of captures, 1000 flows open, 2.5 MB wait, 4 s behind"
    )
    assert line(Taken(0, {"packets": 1}), 5) == "batch 0: 1 packet, 0 new findings, 0 flows open"
    # Of captures that are not of today it means nothing.
    assert "behind" not in line(taken, 1_800_000_000)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_watch(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with _signals() as over:
        assert not over.is_set()
        os.kill(os.getpid(), number)
        assert over.wait(5)
        # The next one ends the program.
        assert signal.getsignal(number) is before
    assert signal.getsignal(number) is before
