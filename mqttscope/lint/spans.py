"""Where in a packet a finding points to."""

from __future__ import annotations

from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lint.finding import Report
from mqttscope.lint.moment import Moment
from mqttscope.mqtt.codec import SpanIndex
from mqttscope.mqtt.declare import FaultReport


def place_of(report: Report, raw: bytes, at: Moment, fault: FaultReport | None) -> tuple[int | None, int | None]:
    """Offset and length in bytes of what a report blames; ``None`` where it is no part of a packet."""
    if not raw:
        return None, None
    if report.span is not None:
        return report.span
    if fault is not None:
        return place_of_fault(at.spans, raw, fault)
    event = at.event
    if not report.field:
        return 0, len(raw)
    packet = event.packet if isinstance(event, PacketEvent) else None
    if isinstance(event, MalformedEvent):
        packet = event.malformed.packet
    if packet is not None:
        span = at.spans.of(packet, report.field)
        if span is not None:
            return span.start, span.end - span.start
    return 0, len(raw)


def place_of_fault(spans: SpanIndex, raw: bytes, fault: FaultReport) -> tuple[int, int]:
    """The field that holds the fault; where a byte is missing, the place behind the last one."""
    start = min(fault.offset, len(raw))
    for span in spans.spans:
        if span.start <= start < span.end and (span.field == fault.field or not fault.field):
            return span.start, span.end - span.start
    return start, min(1, len(raw) - start)
