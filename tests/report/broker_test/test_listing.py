"""All mutations as a list, and what is where in a capture of mutated flows."""

from __future__ import annotations

import json

from mqttscope.broker_test.fit import NumberedCase
from mqttscope.mutate import mutation
from mqttscope.report.base import View
from mqttscope.report.broker_test.listing import WrittenCase, comment, document, listing_json, summary, write_listing
from mqttscope.report.page import Page
from tests.broker_test.flows import HASH, make_case, script


def listed(*names: str) -> str:
    page = Page(View(width=120, unicode=False))
    write_listing(page, [mutation(name) for name in names], "client")
    return page.encoded().decode()


def test_each_says_what_it_breaks_and_what_is_demanded() -> None:
    text = listed("publish:qos-3", "publish.topic_name:spaces", "flow:second-connect")

    assert "publish:qos-3\n  Both QoS bits of PUBLISH are set.\n" in text
    assert "5.0: breaks MQTT-3.3.1-4; close with 0x81" in text
    assert "3.1, 3.1.1, 5.0: legal; accept" in text
    assert text.endswith("3 mutations\n")


def test_what_comes_before_the_version_is_told_with_the_statement_that_a_linter_cites() -> None:
    name = "connect.protocol_name:cut-before"
    rows = listing_json(mutation(name), "client")["versions"]

    text = "5.0: breaks V5-LENGTH-overrun; close with 0x81; seen in a capture as V311-LENGTH-overrun of 3.1.1"
    assert text in listed(name)
    assert rows["5.0"]["cited_instead"] == ["3.1.1 V311-LENGTH-overrun"]
    assert rows["3.1.1"]["cited_instead"] == []


def test_the_list_for_programs_says_what_a_list_needs() -> None:
    row, of_server = (listing_json(mutation("publish:qos-3"), sender) for sender in ("client", "server"))

    assert of_server["schema"] == 1
    assert of_server["versions"]["5.0"]["statements"] == ["5.0 MQTT-3.3.1-4"]
    assert of_server["versions"]["5.0"]["demanded_by"] == ["5.0 V5-ERROR-client-closes"]
    assert json.loads(json.dumps(row)) == row
    assert row["versions"]["5.0"] == {
        "verdict": "violation",
        "statements": ["5.0 MQTT-3.3.1-4"],
        "demand": "close",
        "reason_codes": [0x81],
        "within_keep_alive": False,
        "demanded_by": ["5.0 MQTT-4.13.1-1"],
        "cited_instead": [],
    }


def row(name: str) -> WrittenCase:
    """The third connection."""
    return WrittenCase(2, 40, NumberedCase(17, 0, make_case(name, script())))


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
