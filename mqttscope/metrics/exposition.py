"""Metrics for Prometheus, in the OpenMetrics text format or in the older format of Prometheus.

The package prometheus-client (the extra ``metrics``) writes both.  No label contains text of the traffic: packet types,
directions, reasons, causes, rules and severities are words of mqttscope, each from a set with a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import core, exposition
from prometheus_client.openmetrics import exposition as openmetrics

from mqttscope.explain import Cause
from mqttscope.metrics.facts import LATENCY_BOUNDS_NS, PACKET_LABELS, REASONS, LiveFacts
from mqttscope.mqtt.constants import Direction

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

OLD_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """The text of a scrape."""

    def __init__(self, accept: str = "") -> None:
        """``accept``: the Accept header; the older format is written only if it alone is accepted."""
        self._is_old = "text/plain" in accept and "openmetrics" not in accept
        self.content_type = OLD_CONTENT_TYPE if self._is_old else openmetrics.CONTENT_TYPE_LATEST

    def text(self, families: list[Metric]) -> bytes:
        """The families of metrics of `families` as text."""
        registry: Any = _Families(families)
        if self._is_old:
            return exposition.generate_latest(registry)
        text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return text

    def families(self, facts: LiveFacts) -> list[Metric]:
        """All metrics; they share nothing with the facts."""
        return list(self._families(facts))

    def _families(self, facts: LiveFacts) -> Iterator[Metric]:
        counter, gauge = core.CounterMetricFamily, core.GaugeMetricFamily
        packets = counter("mqttscope_packets", "MQTT packets.", labels=["type", "direction"])
        for kind, name in enumerate(PACKET_LABELS):
            for sender, direction in enumerate(Direction):
                packets.add_metric([name, direction], facts.packets[2 * kind + sender])
        yield packets
        yield gauge("mqttscope_connections", "Open MQTT connections.", facts.open)
        yield counter("mqttscope_connections_opened", "MQTT connections since the start.", facts.opened)
        yield counter("mqttscope_reconnects", "CONNECT of clients that connected before.", facts.reconnects.packets)
        refusals = counter("mqttscope_refusals", "CONNACK with a failure, by its Reason Code.", labels=["reason"])
        for reason in REASONS:
            refusals.add_metric([reason], facts.refusals[reason])
        yield refusals
        ends = counter("mqttscope_ends", "Ended connections, by the cause that explain finds.", labels=["cause"])
        for cause in Cause:
            if cause is not Cause.STILL_OPEN:
                ends.add_metric([cause], facts.ends[cause])
        yield ends
        yield gauge(
            "mqttscope_ends_undecided", "Ended connections with a cause that may still change.", facts.undecided
        )
        yield counter("mqttscope_ends_unexplained", "Ends without a cause, as reading lagged.", facts.unexplained)
        findings = counter("mqttscope_findings", "Findings of the linter.", labels=["rule", "severity"])
        for row in facts.findings.values():
            findings.add_metric([row.rule, row.severity], row.count)
        yield findings
        yield _latencies(facts)
        yield counter("mqttscope_frames", "Captured frames.", facts.frames)
        yield counter("mqttscope_frames_dropped", "Frames that the system dropped while capturing.", facts.dropped)
        yield counter("mqttscope_lost_bytes", "Bytes of TCP streams that the capture lacks.", facts.lost_bytes)
        yield counter(
            "mqttscope_discarded_rows", "Clients and topics discarded at a limit of the live page.", facts.forgotten
        )


class _Families:
    """Metrics in the place of a registry, which would need one collector for all runs of a process."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _latencies(facts: LiveFacts) -> Metric:
    buckets, count = [], 0
    bounds = [str(bound / 1e9) for bound in LATENCY_BOUNDS_NS]
    for bound, more in zip([*bounds, "+Inf"], facts.latency_counts, strict=True):
        count += more
        buckets.append((bound, count))
    return core.HistogramMetricFamily(
        "mqttscope_publish_ack_seconds", "Time from a PUBLISH to its PUBACK or PUBREC.",
        buckets=buckets, sum_value=facts.latency.total / 1e9, unit="seconds",
    )  # fmt: skip
