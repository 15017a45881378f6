"""All mutations as a list."""

from __future__ import annotations

from mqttscope.mutate import mutation
from mqttscope.report.base import View
from mqttscope.report.broker_test.listing import listing_json, write_listing
from mqttscope.report.page import Page


def test_each_says_what_it_breaks_and_what_is_demanded() -> None:
    page = Page(View(width=120, unicode=False))
    names = ("publish:qos-3", "publish.topic_name:spaces", "flow:second-connect")
    write_listing(page, [mutation(name) for name in names], "client")
    said = page.encoded().decode()

    assert "publish:qos-3\n  Both QoS bits of PUBLISH are set.\n" in said
    assert "5.0: breaks MQTT-3.3.1-4; close with 0x81" in said
    assert "3.1, 3.1.1, 5.0: legal; accept" in said
    assert said.endswith("3 mutations\n")


def test_what_comes_before_the_version_is_told_with_the_statement_that_a_linter_cites() -> None:
    page = Page(View(width=120, unicode=False))
    one = mutation("connect.protocol_name:cut-before")
    write_listing(page, [one], "client")
    rows = listing_json(one, "client")["versions"]

    assert "5.0: breaks V5-LENGTH-overrun; close with 0x81; seen in a capture as V311-LENGTH-overrun of 3.1.1" in (
        page.encoded().decode()
    )
    assert rows["5.0"]["cited_instead"] == ["3.1.1 V311-LENGTH-overrun"]
    assert rows["3.1.1"]["cited_instead"] == []


def test_for_programs() -> None:
    document = listing_json(mutation("publish:qos-3"), "server")

    assert document["schema"] == 1
    assert document["versions"]["5.0"]["statements"] == ["5.0 MQTT-3.3.1-4"]
    assert document["versions"]["5.0"]["demanded_by"] == ["5.0 V5-ERROR-client-closes"]
