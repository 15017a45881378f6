"""Delivery to subscribers (DLV)."""

from collections.abc import Iterable
from typing import Any

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, on, opened, server
from mqttscope.lint.message_model import Messages, Pairing
from mqttscope.lint.rule import V5, Needs
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from mqttscope.session.matching import Match, Subscribed

ALL_SUBSCRIPTIONS = Needs.OPENING | Needs.SESSION_BIRTH | Needs.WHOLE_RECEIVER
"""What a capture must have for the table of subscriptions to hold all of them."""
SECOND_NS = 1_000_000_000
_SHOWN = 3


def filters_of(subscriptions: Iterable[Subscribed]) -> str:
    """The Topic Filters of subscriptions for a message: the first few."""
    names = [one.topic_filter for one in subscriptions]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


def paired(packet: Publish, at: RuleContext) -> Pairing | None:
    """What a server sends for the first time, with what it had received; ``None`` where nothing can be said of it."""
    if packet.dup:
        return None
    return at.model(Messages).pairing(packet, at)


def steady_match(topic: str, since_ns: int, at: RuleContext) -> Match | None:
    """The subscriptions of a client that match a topic, where all are known and none has changed since some time."""
    match = at.history.subscriptions.match(topic)
    if not match.known or not match.subscriptions or match.replaces or match.ended or match.extended:
        return None
    for one in match.subscriptions:
        if one.granted is None or one.granted_ns >= since_ns or one.ending_ns is not None or one.doubtful:
            return None
    return match


def waited_until_ns(packet: Publish, topic: str, at: RuleContext) -> int | None:
    """Until when a message has waited in the server for certain; ``None`` where the capture does not say.

    That is when the subscriber connected, or subscribed where the message is retained: what comes later may have
    waited in the network.
    """
    connack = at.history.connack_sent
    if connack is None:
        return None
    since_ns = connack.timestamp_ns
    if packet.retain:
        match = at.history.subscriptions.match(topic)
        if not match.retain_as_published:
            asked = [one.timestamp_ns for one in match.subscriptions if one.asks_for_retained]
            since_ns = max(since_ns, min(asked, default=0))
    return since_ns


def subscriber(
    version: ProtocolVersion = V5,
    *filters: str,
    connection: int = 1,
    identifier: str = "c2",
    granted: int = 1,
    connect: Properties | None = None,
) -> tuple[Step, ...]:
    """For examples: a client that subscribes to ``a``, or to what is given."""
    rows = [Subscription(name, granted) for name in filters or ("a",)]
    return on(
        connection,
        *opened(version, client_identifier=identifier, connect=connect),
        client(Subscribe(1, subscriptions=rows)),
        server(Suback(1, reason_codes=[granted] * len(rows))),
    )


def message(payload: bytes = b"21.5", **fields: Any) -> Publish:
    """For examples: a PUBLISH on ``a``, QoS 1 unless given; ``properties`` are keywords of them."""
    qos = fields.pop("qos", 1)
    known = {"dup": False, "retain": False, "topic_name": "a", "packet_identifier": 1 if qos else None, **fields}
    block = known.pop("properties", None)
    return Publish(qos=qos, properties=None if block is None else Properties(**block), payload=payload, **known)


def publishes(*packets: Publish, after: float = 2) -> tuple[Step, ...]:
    """For examples: the first client publishes messages of QoS 0 or 1."""
    steps: list[Step] = []
    for packet in packets:
        steps.append(client(packet, after=after))
        if packet.packet_identifier is not None:
            steps.append(server(Puback(packet.packet_identifier)))
        after = 0.01
    return tuple(steps)
