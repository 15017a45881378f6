"""The JSON document."""

from __future__ import annotations

import json

from mqttscope.report.fleet.document import document
from mqttscope.report.jsonl import dumps
from tests.report.fleet.samples import HOSTILE, NOW, empty, full


def test_keys_and_values() -> None:
    made = json.loads(dumps(document(full())))

    assert made["schema"] == 1
    assert list(made)[1:4] == ["lake", "asked", "overview"]
    assert made["asked"]["since"] == made["overview"]["first"] == "2026-01-02T03:04:05.123456789Z"
    assert made["overview"]["first_ns"] == NOW
    assert made["rules"]["total"] == 9
    assert made["by_client"]["rows"][0]["group"] == HOSTILE
    assert made["latency"]["end_to_end"] == {
        "count": 1_000, "p50_ns": 850_000, "p90_ns": 12_300_000, "p99_ns": 2_500_000_000, "maximum_ns": 3_000_000_000,
    }  # fmt: skip
    assert made["expiry"]["remaining"]["p50_s"] == 40
    assert made["reconnects"]["timeline"][1]["connects"] == 1
    assert made["reconnects"]["storms"]["rows"][0]["from"].endswith("Z")
    assert made["talk"]["topics"]["rows"][0]["publishers"]["count"] == 7


def test_nothing_has_the_same_keys() -> None:
    whole, nothing = document(full()), document(empty())

    assert list(whole) == list(nothing)
    assert nothing["overview"]["first"] is None
    assert nothing["rules"] == {"rows": [], "total": 0}
