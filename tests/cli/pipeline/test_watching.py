"""The line of a batch."""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

from mqttscope.cli.pipeline.watching import Run, _signals, line
from mqttscope.lake.options import LakeOptions
from mqttscope.net.frame import CaptureError
from mqttscope.spark.watch import Taken


def test_what_is_said_of_a_batch() -> None:
    rows = {"packets": 1234, "messages": 50, "findings": 2, "ingest_errors": 2}
    wrong = [CaptureError("a.pcap", "is empty")]
    taken = Taken(7, rows, 1000, 1_700_000_000_000_000_000, 2_500_000, errors=wrong)

    assert line(taken, 1_700_000_004.2) == (
        "batch 7: 1234 packets, 2 new findings, 1 error of captures, 1000 flows open, 2.5 MB waiting,"
        " newest frame 4 s old"
    )
    assert line(Taken(0, {"packets": 1}), 5) == "batch 0: 1 packet, 0 new findings, 0 flows open"
    # Of captures that are not of today it means nothing.
    assert " old" not in line(taken, 1_800_000_000)


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


def test_errors_of_captures_are_told_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(["captures"], "lake", LakeOptions(), None, {}, 2.5, False, 1 << 20, 60, True)
    run._tell(Taken(0, errors=[CaptureError(f"b\udcff-{number}.pcap", "is cut", 90, 2) for number in range(12)]))
    run._tell(Taken(1, {"ingest_errors": 4}))

    told = capsys.readouterr().err.splitlines()
    assert told[0] == "mqttscope: b\\xff-0.pcap: is cut at offset 90 (2 frames before it were read)"
    assert told[10:] == ["mqttscope: 2 more errors are in the table ingest_errors"]
    assert run.errors == 12


def test_what_is_said_before_the_first_batch() -> None:
    run = Run(["captures", "b*"], "lake", LakeOptions(), None, {}, 2.5, False, 1 << 20, 60, False)

    assert run._begun() == "watching captures, b* for lake: every 2.5 s, until Ctrl-C"
    run.once = True
    assert run._begun() == "watching captures, b* for lake: what is there now"
