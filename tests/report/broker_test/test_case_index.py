"""What is where in a capture of mutated flows."""

from __future__ import annotations

import json

from mqttscope.broker_test.fit import Numbered
from mqttscope.report.broker_test.case_index import WrittenCase, comment, document, summary
from tests.broker_test.flows import HASH, make_case, script


def row(name: str) -> WrittenCase:
    """The third connection."""
    return WrittenCase(2, 40, Numbered(17, 0, make_case(name, script())))


def test_the_comment_has_name_statement_and_reaction() -> None:
    assert comment(row("publish:qos-3")) == "publish:qos-3 (case 17): 5.0: breaks MQTT-3.3.1-4; close with 0x81"
    assert comment(row("publish.topic_name:spaces")) == "publish.topic_name:spaces (case 17): 5.0: legal; accept"


def test_the_index_is_one_document() -> None:
    about = summary("out \udcff.pcapng", "site.pcapng", HASH, 1, 1)
    shown = json.loads(document(about, [row("flow:first-packet-puback")]))

    assert (shown["event"], shown["connections"]) == ("written", 1)
    assert shown["file"] == {"length": 12, "hex": b"out \xff.pcapng".hex()}
    (flow,) = shown["flows"]
    assert (flow["connection"], flow["frame"], flow["number"]) == (2, 40, 17)
    assert (flow["client"], flow["server"]) == ("198.51.100.1:49154", "192.0.2.1:1883")
    assert (flow["statements"], flow["cited_instead"]) == (["5.0 MQTT-3.1.0-1"], ["3.1.1 MQTT-3.1.0-1"])
    assert flow["reaction"]["demand"] == "close"
