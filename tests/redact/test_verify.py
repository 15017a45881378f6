"""Whether a copy has the findings of its original."""

from __future__ import annotations

from collections import Counter

from mqttscope.capture import open_capture
from mqttscope.dissect import Options
from mqttscope.redact.verify import Judgement, judge
from tests.conftest import ROOT

PLANTED = str(ROOT / "captures" / "planted-violations" / "capture.pcapng")


def test_frames_are_judged_with_and_without_the_fast_path() -> None:
    judgement = judge(lambda path: open_capture([PLANTED], direct=path), Options())

    assert judgement.findings
    assert judgement.differences(judge(lambda _: open_capture([PLANTED]), Options())) == []


def test_each_difference_is_told() -> None:
    before = Judgement(Counter({("PUB103", "error", "certain"): 2, ("HDR101", "error", "likely"): 1}), withheld=1)
    after = Judgement(Counter({("PUB103", "error", "certain"): 1, ("HDR101", "error", "likely"): 1}), withheld=3)

    assert before.differences(after) == [
        "2 before and 1 after of PUB103 (error, certain)",
        "1 before and 3 after that were withheld for lack of evidence",
    ]
    assert before.differences(before) == []
