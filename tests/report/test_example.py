"""Examples of rules as `inspect` shows them."""

from __future__ import annotations

import pytest

from mqttscope.lint.catalogue import all_rules, find
from mqttscope.lint.examples import expected
from mqttscope.lint.rule import Rule
from mqttscope.report.base import View
from mqttscope.report.example import render
from tests.report.test_harmless import check


def test_the_finding_is_under_its_packet() -> None:
    rule = find("PUB209")

    assert render(rule, rule.bad[0], View(width=100)) == [
        "    0.000000 #0 c1     → broker CONNECT    5.0, clean start, keep alive 60 s",
        "    0.010001 #0 c1     ← broker CONNACK    Success  10.0 ms  [maximum qos 1]",
        "    0.020002 #0 c1     → broker PUBLISH    q2 id=1 a  (empty)",
        "              ^ PUB209 error: PUBLISH 'a' has QoS 2, the server's Maximum QoS is 1 (qos)",
    ]


@pytest.mark.parametrize("rule", all_rules().values(), ids=all_rules())
def test_every_example_is_shown_with_its_findings(rule: type[Rule]) -> None:
    for example in (*rule.good, *rule.bad):
        lines = render(rule, example, View(width=100))
        check(lines, 100)
        assert lines
        shown = sum(line.startswith(" " * 14 + f"^ {rule.code} ") for line in lines)
        # What a rule finds in several places of a packet is one finding where it counts alike.
        packets = {packet for packet, _ in expected(example)}
        assert len(packets) <= shown <= len(expected(example))
