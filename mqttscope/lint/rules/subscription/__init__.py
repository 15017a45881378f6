"""SUBSCRIBE, UNSUBSCRIBE and their answers (SUB)."""

import re

from mqttscope.events import MalformedEvent
from mqttscope.lint.rules import RuleContext
from mqttscope.mqtt.packets import Suback, Subscribe, Unsuback
from mqttscope.session.subscriptions import SubscriptionRequest


def request_of(packet: Suback | Unsuback, at: RuleContext) -> SubscriptionRequest | None:
    """The request that a SUBACK or UNSUBACK answers.

    ``None`` if it is unknown, or if the client used the identifier for two packets at once: then the answer may belong
    to either, and the server is not at fault.
    """
    identifier = packet.packet_identifier
    if identifier in at.history.client.shared:
        return None
    kind = "subscribe" if isinstance(packet, Suback) else "unsubscribe"
    return at.history.subscriptions.request_for(identifier, kind)


def options_span(packet: Subscribe, index: int, at: RuleContext) -> tuple[int, int] | None:
    """Offset and length of the options byte of a Topic Filter in a SUBSCRIBE."""
    span = at.spans.of(packet, f"subscriptions[{index}].options") if packet.raw else None
    return None if span is None else (span.start, span.end - span.start)


def and_more(number: int) -> str:
    """The suffix for further Topic Filters after the first one in a finding."""
    return f" and {number - 1} more" if number > 1 else ""


def faulty_filter(field: str, at: RuleContext) -> str:
    """The Topic Filter of a malformed SUBSCRIBE that contains a field such as ``subscriptions[1].maximum_qos``."""
    packet = at.event.malformed.packet if isinstance(at.event, MalformedEvent) else None
    index = re.match(r"subscriptions\[(\d+)\]", field)
    if isinstance(packet, Subscribe) and packet.subscriptions and index is not None:
        number = int(index[1])
        if number < len(packet.subscriptions):
            return f" {packet.subscriptions[number].topic_filter!r}"
    return ""
