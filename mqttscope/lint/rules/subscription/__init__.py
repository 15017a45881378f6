"""SUBSCRIBE, UNSUBSCRIBE and their answers (SUB)."""

from mqttscope.mqtt.codec import field_span
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Subscribe


def options_span(packet: Subscribe, index: int, version: ProtocolVersion) -> tuple[int, int] | None:
    """Offset and length of the options byte of a Topic Filter in a SUBSCRIBE."""
    span = field_span(packet, f"subscriptions[{index}].options", version) if packet.raw else None
    return None if span is None else (span.start, span.end - span.start)
