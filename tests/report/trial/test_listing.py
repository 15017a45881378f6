"""All mutations as a list."""

from __future__ import annotations

from mqttscope.mutate import mutation
from mqttscope.report.base import View
from mqttscope.report.page import Page
from mqttscope.report.trial.listing import listing_json, write_listing


def test_each_says_what_it_breaks_and_what_is_demanded() -> None:
    page = Page(View(width=120, unicode=False))
    names = ("publish:qos-3", "publish.topic_name:spaces", "flow:second-connect")
    write_listing(page, [mutation(name) for name in names], "client")
    said = page.encoded().decode()

    assert "publish:qos-3\n  Both QoS bits of PUBLISH are set.\n" in said
    assert "5.0: breaks MQTT-3.3.1-4; close with 0x81" in said
    assert "3.1, 3.1.1, 5.0: legal; accept" in said
    assert said.endswith("3 mutations\n")


def test_for_programs() -> None:
    document = listing_json(mutation("publish:qos-3"), "server")

    assert document["schema"] == 1
    assert document["versions"]["5.0"]["statements"] == ["5.0 MQTT-3.3.1-4"]
    assert document["versions"]["5.0"]["demanded_by"] == ["5.0 V5-ERROR-client-closes"]
