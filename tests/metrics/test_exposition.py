"""Metrics as text: names, values, and that no text of the traffic is in them."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.explain import Cause
from mqttscope.metrics.facts import LiveFacts
from mqttscope.mqtt import Connack, Connect, Puback, Publish
from mqttscope.net.frame import CaptureDrops
from mqttscope.secrets.findings import HidingOptions
from tests import tools
from tests.metrics.test_facts import ended
from tests.report.findings.samples import MADE
from tests.report.make import Talk

parser = tools.package("prometheus_client.openmetrics.parser")

from mqttscope.metrics.exposition import Exposition

HOSTILE = '"} 1\n# EOF\nevil{x="\\'
OLD = "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
PROMETHEUS = f"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,{OLD}"


def sample_facts(name: str = "dev1") -> LiveFacts:
    """Facts about a client that was refused, came back, and published."""
    facts, talk = LiveFacts(), Talk(identifier=name)
    for code in (5, 0):
        facts.feed(talk.opened())
        facts.feed(talk.say(Connect(client_identifier=name)))
        facts.feed(talk.answer(Connack(reason_code=code)))
    for after_ns in (1_000_000, 20_000_000_000):
        facts.feed(talk.say(Publish(topic_name=f"{name}/t", qos=1, packet_identifier=1, payload=b"1")))
        facts.feed(talk.answer(Puback(packet_identifier=1), after=after_ns))
    facts.feed(CaptureDrops("lo", 0, 10, 3))
    facts.end(ended(name, Cause.NOT_AUTHORIZED))
    facts.finding(replace(MADE, message=name, client_identifier=name), HidingOptions())
    facts.frames, facts.undecided = 40, 2
    return facts


def text_of(facts: LiveFacts, accept: str = "") -> str:
    exposition = Exposition(accept)
    return exposition.text(exposition.families(facts)).decode()


def samples(text: str) -> dict[str, float]:
    """Numbers other than 0 by their name and labels, as a reader of OpenMetrics reads them."""
    return {
        f"{sample.name}{''.join(f' {sample.labels[name]}' for name in sorted(sample.labels))}": sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
        if sample.value
    }


def test_numbers_have_the_names_of_the_documentation() -> None:
    buckets = {f"mqttscope_publish_ack_seconds_bucket {bound}": 1.0 for bound in (
        "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0",
    )}  # fmt: skip
    assert samples(text_of(sample_facts())) == buckets | {
        "mqttscope_packets_total client_to_server connect": 2, "mqttscope_packets_total server_to_client connack": 2,
        "mqttscope_packets_total client_to_server publish": 2, "mqttscope_packets_total server_to_client puback": 2,
        "mqttscope_connections": 2, "mqttscope_connections_opened_total": 2, "mqttscope_reconnects_total": 1,
        "mqttscope_refusals_total not_authorized": 1, "mqttscope_ends_total not_authorized": 1,
        "mqttscope_ends_undecided": 2, f"mqttscope_findings_total {MADE.rule} {MADE.severity}": 1,
        "mqttscope_publish_ack_seconds_bucket +Inf": 2, "mqttscope_publish_ack_seconds_count": 2,
        "mqttscope_publish_ack_seconds_sum": 20.001, "mqttscope_frames_total": 40, "mqttscope_frames_dropped_total": 3,
    }  # fmt: skip


def test_types_and_causes_begin_at_0_so_that_their_first_increase_is_seen() -> None:
    text = text_of(LiveFacts())
    assert 'mqttscope_ends_total{cause="keep_alive"} 0.0' in text
    assert 'mqttscope_packets_total{direction="client_to_server",type="auth"} 0.0' in text
    assert "still_open" not in text


def test_no_text_of_the_traffic_is_in_it() -> None:
    assert text_of(sample_facts(HOSTILE)) == text_of(sample_facts("dev1"))


def test_who_reads_the_older_format_alone_gets_it() -> None:
    facts = sample_facts()
    assert Exposition(PROMETHEUS).content_type == Exposition("*/*").content_type == Exposition().content_type
    assert Exposition(OLD).content_type == "text/plain; version=0.0.4; charset=utf-8"
    old = text_of(facts, OLD)
    assert "# TYPE mqttscope_connections_opened_total counter" in old
    assert "# EOF" not in old
    assert "mqttscope_connections_opened_total 2.0" in old
    assert "# TYPE mqttscope_connections_opened counter" in text_of(facts)


def test_the_number_of_series_does_not_depend_on_clients_and_topics() -> None:
    facts = sample_facts()
    before = text_of(facts).count("\n")
    for number in range(500):
        talk = Talk(number=number, identifier=f"c{number}")
        facts.feed(talk.say(Publish(topic_name=f"t/{number}", payload=b"1")))
        facts.end(ended(f"c{number}", Cause.NOT_AUTHORIZED, number))
    assert text_of(facts).count("\n") == before
