"""The topics in a packet, wherever they stand, put through functions; used by mappings and by copies of clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connack, Connect, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.properties import BY_NAME, Properties
from mqttscope.mqtt.topics import parse_shared

Change = Callable[[str], str]
Count = Callable[[str], None]
RESPONSE_TOPIC = BY_NAME["response_topic"].identifier
ASSIGNED_CLIENT_IDENTIFIER = BY_NAME["assigned_client_identifier"].identifier


def shared_too(change: Change) -> Change:
    """A change of Topic Filters that keeps the ``$share/ShareName/`` in front of them (5.0 4.8.2)."""

    def changed(topic_filter: str) -> str:
        shared = parse_shared(topic_filter)
        return change(topic_filter) if shared is None else f"$share/{shared[0]}/{change(shared[1])}"

    return changed


def with_topics(packet: ControlPacket, name: Change, topic_filter: Change, count: Count) -> ControlPacket:
    """The packet with other Topic Names, Will Topic, Response Topic and Topic Filters.

    The packet itself where nothing changes.  ``count`` is told the name of everything that was changed.
    """
    if isinstance(packet, Publish):
        return _publish(packet, name, count)
    if isinstance(packet, Subscribe):
        return _subscribe(packet, topic_filter, count)
    if isinstance(packet, Unsubscribe):
        filters = [_one(one, topic_filter, "Topic Filter", count) for one in packet.topic_filters]
        return packet if filters == packet.topic_filters else replace(packet, topic_filters=filters)
    if isinstance(packet, Connect) and packet.will is not None:
        will = packet.will
        topic = _one(will.will_topic, name, "Will Topic", count)
        block = _response_topic(will.properties, name, count)
        if topic != will.will_topic or block is not will.properties:
            return replace(packet, will=replace(will, will_topic=topic, properties=block))
    return packet


def _one(text: str, change: Change, thing: str, count: Count) -> str:
    changed = change(text)
    if changed != text:
        count(thing)
    return changed


def _publish(packet: Publish, name: Change, count: Count) -> Publish:
    # The name is empty where an alias stands for it.
    topic = _one(packet.topic_name, name, "Topic Name", count) if packet.topic_name else ""
    block = _response_topic(packet.properties, name, count)
    if topic == packet.topic_name and block is packet.properties:
        return packet
    return replace(packet, topic_name=topic, properties=block)


def _subscribe(packet: Subscribe, topic_filter: Change, count: Count) -> Subscribe:
    rows = [
        replace(row, topic_filter=_one(row.topic_filter, topic_filter, "Topic Filter", count))
        for row in packet.subscriptions
    ]
    return packet if rows == packet.subscriptions else replace(packet, subscriptions=rows)


def _response_topic(block: Properties | None, name: Change, count: Count) -> Properties | None:
    """Response Topic (5.0 3.3.2.3.5, 3.1.3.2.6)."""
    return changed_property(block, RESPONSE_TOPIC, lambda text: _one(text, name, "Response Topic", count))


def changed_property(block: Properties | None, identifier: int, change: Change) -> Properties | None:
    """A block with the text of one property put through a function; the block itself where nothing changes."""
    if not block or block.first(identifier) is None:
        return block
    made = Properties.of(
        (number, change(value) if number == identifier and isinstance(value, str) else value)
        for number, value in block.items
    )
    return block if made == block else made


def with_client(packet: ControlPacket, change: Change) -> ControlPacket:
    """The packet with another Client Identifier (5.0 3.1.3.1) or Assigned Client Identifier (5.0 3.2.2.3.7).

    An empty one, which asks the server to assign one, stays empty.
    """
    if isinstance(packet, Connect) and packet.client_identifier:
        name = change(packet.client_identifier)
        return packet if name == packet.client_identifier else replace(packet, client_identifier=name)
    if isinstance(packet, Connack) and packet.properties:
        block = changed_property(packet.properties, ASSIGNED_CLIENT_IDENTIFIER, change)
        return packet if block is packet.properties else replace(packet, properties=block)
    return packet
