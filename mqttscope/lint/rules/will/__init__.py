"""The Will Message (WIL)."""

import zlib

from mqttscope.lint.rules import ConnectionKey, RuleContext
from mqttscope.lint.wills import StoredWill, Wills
from mqttscope.mqtt.packets import Publish
from mqttscope.session.matching import Match


def will_of(packet: Publish, at: RuleContext) -> tuple[ConnectionKey, StoredWill, Match] | None:
    """The will that a live message to a subscriber must be, and the matching subscriptions.

    ``None`` if it may be something else: a retained or repeated message, a published one, or another will.
    """
    topic = at.topic
    if topic is None or packet.dup or packet.missing:
        return None
    stored = at.model(Wills).alone(topic, zlib.crc32(packet.payload), at)
    if stored is None:
        return None
    match = at.history.subscriptions.match(topic)
    if not match.subscriptions or not match.known or match.extended:
        return None
    if packet.retain and not match.retain_as_published:
        return None
    return *stored, match


def was_connected(ended_ns: int, at: RuleContext) -> bool:
    """Whether the subscriber connected before the end of the connection with the will, so the message is not old."""
    sent = at.history.connack_sent
    return sent is not None and sent.timestamp_ns < ended_ns
