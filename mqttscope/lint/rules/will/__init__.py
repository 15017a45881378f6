"""The Will Message (WIL)."""

import zlib

from mqttscope.lint.rules import ConnectionKey, RuleContext
from mqttscope.lint.wills import StoredWill, Wills
from mqttscope.mqtt.packets import Publish
from mqttscope.session.matching import Match


def will_in(packet: Publish, at: RuleContext) -> tuple[ConnectionKey, StoredWill, Match] | None:
    """The will that a live message to a subscriber must be, and the subscriptions that it belongs to.

    ``None`` where it may be something else: a stored or repeated message, one that was published, another will.
    """
    topic = at.topic
    if topic is None or packet.dup or packet.missing:
        return None
    found = at.model(Wills).alone(topic, zlib.crc32(packet.payload), at)
    if found is None:
        return None
    match = at.history.subscriptions.match(topic)
    if not match.subscriptions or not match.known or match.extended:
        return None
    if packet.retain and not match.retain_as_published:
        return None
    return *found, match


def was_there(ended_ns: int, at: RuleContext) -> bool:
    """Whether the subscriber was connected before the connection with the will ended, so that nothing is older."""
    sent = at.history.connack_sent
    return sent is not None and sent.timestamp_ns < ended_ns
