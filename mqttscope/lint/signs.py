"""Signs: unusual features of a packet in its context, computed once for all rules.

Nearly every packet of a capture is normal: no side was silent for too long, the answer is the next one due, the client
is subscribed to the topic.  A rule declares signs (``Rule.signs``), and the engine asks it only about packets with one
of them.  A rule does not rely on that: asked about a packet without its signs, it finds nothing.  A test asks every
rule about every packet and compares the results.

Rules do rely on the conditions of ``Rule.when``.  The conditions that most packets have are bits here too.
"""

from __future__ import annotations

from typing import Any, Final

from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.strings import has_odd_fields
from mqttscope.mqtt import ControlPacket, Subscription, packets
from mqttscope.mqtt.properties import BY_NAME
from mqttscope.mqtt.topics import topic_filter_problem
from mqttscope.payloads.sparkplug_topics import is_related

QOS: Final = 1 << 0
DUP: Final = 1 << 1
RETAIN: Final = 1 << 2
PROPERTIES: Final = 1 << 3
REASON_CODE: Final = 1 << 4
ODD_STRINGS: Final = 1 << 5
EXPIRES_OR_RETAINED: Final = 1 << 6
BITS: Final = {
    "qos": QOS,
    "dup": DUP,
    "retain": RETAIN,
    "properties": PROPERTIES,
    "reason_code": REASON_CODE,
    "odd_strings": ODD_STRINGS,
    "expires_or_retained": EXPIRES_OR_RETAINED,
}
"""Attributes of packets that ``Rule.when`` may name and that have a bit."""

NOT_MINIMAL: Final = 1 << 8
"""The Remaining Length has more bytes than it needs."""
OVERSIZED: Final = 1 << 9
"""The packet exceeds the receiver's Maximum Packet Size."""
SILENT: Final = 1 << 10
"""The client has sent nothing for longer than its Keep Alive."""
CARRIES: Final = 1 << 11
"""Unanswered messages of an earlier connection of the session matter (`History.carries`)."""
STATE_LOST: Final = 1 << 12
"""The client wanted to continue a session that the server did not have."""
ZERO_IDENTIFIER: Final = 1 << 13
"""The packet identifier is 0."""
TAKEN: Final = 1 << 14
"""The packet identifier of a PUBLISH belongs to an unfinished exchange."""
WINDOW_FULL: Final = 1 << 15
"""The number of messages in flight has reached the receiver's Receive Maximum."""
ABOVE_MAXIMUM: Final = 1 << 16
"""The QoS is higher than the server's Maximum QoS."""
UNRESOLVED: Final = 1 << 17
"""The topic of a PUBLISH is unknown."""
UNMATCHED: Final = 1 << 18
"""The client has no active subscription for the message."""
NO_LOCAL: Final = 1 << 19
"""All matching subscriptions have No Local."""
REPLACED: Final = 1 << 20
"""A matching subscription has replaced another one."""
IDENTIFIED: Final = 1 << 21
"""Several subscriptions match and one has a Subscription Identifier, or one matches and the packet lacks its own."""
ABOVE_GRANTED: Final = 1 << 22
"""The QoS is higher than any granted one."""
REPEATED: Final = 1 << 23
"""A property occurs more than once."""
ODD_ALIAS: Final = 1 << 24
"""The Topic Alias of a PUBLISH is 0, or above the receiver's Topic Alias Maximum."""
SUBSCRIPTION_IDENTIFIER: Final = 1 << 25
RESPONSE_TOPIC: Final = 1 << 26
PAYLOAD_FORMAT: Final = 1 << 27
ODD_ANSWER: Final = 1 << 28
"""An acknowledgment is not the next one of an exchange on this connection."""
OUT_OF_ORDER: Final = 1 << 29
"""An acknowledgment that was due earlier is missing."""
ODD_ALIASES: Final = 1 << 30
"""The other side has sent a wrong Topic Alias."""
HEADER_FLAGS: Final = 1 << 31
"""The flags of the fixed header differ from the required ones."""
UNPRINTABLE: Final = 1 << 32
"""A string has a character that is not printable."""
WILDCARD: Final = 1 << 33
"""The topic of a PUBLISH has a wildcard."""
NAMELESS: Final = 1 << 34
"""A PUBLISH has neither a topic nor a Topic Alias."""
ODD_VALUE: Final = 1 << 35
"""A property has an invalid value."""
FROM_SERVER: Final = 1 << 36
FOREIGN_IDENTIFIER: Final = 1 << 37
"""A PUBLISH has a Subscription Identifier that belongs to no matching subscription."""
WRONG_SENDER: Final = 1 << 38
"""The packet type may be sent only by the other side."""
DISCONNECTED: Final = 1 << 39
"""The sender has already sent DISCONNECT."""
REFUSED: Final = 1 << 40
"""The server has refused the connection."""
EARLY: Final = 1 << 41
"""The packet precedes the CONNECT or the CONNACK that must come first."""
AGAIN: Final = 1 << 42
"""The packet repeats a CONNECT or a CONNACK, or answers a SUBSCRIBE or UNSUBSCRIBE again."""
ODD_CONNECT: Final = 1 << 43
"""Protocol name, flags or Client Identifier of a CONNECT are not allowed in every version."""
WEBSOCKET: Final = 1 << 44
"""A CONNECT arrives through a WebSocket."""
ODD_FILTER: Final = 1 << 45
"""A SUBSCRIBE or UNSUBSCRIBE has no filter, or one that is empty, shared, or has a forbidden wildcard or option."""
UNAVAILABLE: Final = 1 << 46
"""The server has announced that it does not support some kind of subscription."""
ODD_COUNT: Final = 1 << 47
"""A SUBACK or UNSUBACK has a different number of Reason Codes than there are filters."""
ABOVE_REQUESTED: Final = 1 << 48
"""A SUBACK grants a higher QoS than was requested."""
UNAWARE: Final = 1 << 49
"""The packet identifier of a PUBLISH was free again, and TCP shows that its sender had not received the answer."""
SPARKPLUG: Final = 1 << 50
"""The topic, the will or a filter belongs to Sparkplug, or looks as if it should."""
ALL: Final = (1 << 51) - 1
SIGNS: Final = {
    "dup": DUP,
    "not_minimal": NOT_MINIMAL,
    "oversized": OVERSIZED,
    "silent": SILENT,
    "carries": CARRIES,
    "state_lost": STATE_LOST,
    "zero_identifier": ZERO_IDENTIFIER,
    "taken": TAKEN,
    "window_full": WINDOW_FULL,
    "above_maximum": ABOVE_MAXIMUM,
    "unresolved": UNRESOLVED,
    "unmatched": UNMATCHED,
    "no_local": NO_LOCAL,
    "replaced": REPLACED,
    "identified": IDENTIFIED,
    "above_granted": ABOVE_GRANTED,
    "repeated": REPEATED,
    "odd_alias": ODD_ALIAS,
    "subscription_identifier": SUBSCRIPTION_IDENTIFIER,
    "response_topic": RESPONSE_TOPIC,
    "payload_format_indicator": PAYLOAD_FORMAT,
    "odd_answer": ODD_ANSWER,
    "out_of_order": OUT_OF_ORDER,
    "odd_aliases": ODD_ALIASES,
    "header_flags": HEADER_FLAGS,
    "unprintable": UNPRINTABLE,
    "wildcard": WILDCARD,
    "nameless": NAMELESS,
    "odd_value": ODD_VALUE,
    "from_server": FROM_SERVER,
    "foreign_identifier": FOREIGN_IDENTIFIER,
    "wrong_sender": WRONG_SENDER,
    "disconnected": DISCONNECTED,
    "refused": REFUSED,
    "early": EARLY,
    "again": AGAIN,
    "odd_connect": ODD_CONNECT,
    "websocket": WEBSOCKET,
    "odd_filter": ODD_FILTER,
    "unavailable": UNAVAILABLE,
    "odd_count": ODD_COUNT,
    "above_requested": ABOVE_REQUESTED,
    "unaware": UNAWARE,
    "sparkplug": SPARKPLUG,
}
"""Signs that ``Rule.signs`` may name, with their bits."""

PROTOCOL_NAMES: Final = {3: "MQIsdp", 4: "MQTT", 5: "MQTT"}
"""The protocol name for each protocol level."""
YES_OR_NO: Final = frozenset((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A))
"""Identifiers of properties with the values 0 and 1, although they occupy a byte."""
NOT_ZERO: Final = {0x0B: "1 to 268,435,455", 0x21: "1 to 65,535", 0x27: "1 and more"}
"""Identifiers of properties that must not be 0, with their allowed values."""
_EXPIRY: Final = BY_NAME["message_expiry_interval"].identifier
_ALIAS: Final = BY_NAME["topic_alias"].identifier
_USER_PROPERTY: Final = BY_NAME["user_property"].identifier
_IDENTIFIER: Final = BY_NAME["subscription_identifier"].identifier
_OF_PROPERTY: Final = {
    BY_NAME["subscription_identifier"].identifier: SUBSCRIPTION_IDENTIFIER,
    BY_NAME["response_topic"].identifier: RESPONSE_TOPIC,
    BY_NAME["payload_format_indicator"].identifier: PAYLOAD_FORMAT,
    _EXPIRY: EXPIRES_OR_RETAINED,
}


def signs_of(packet: ControlPacket, at: RuleContext) -> int:
    """The bits of a packet; all bits for a packet that is too damaged to judge."""
    try:
        if type(packet) is packets.Publish:
            return _of_publish(packet, at) | _of_any(packet, at)
        if type(packet) is packets.Pingreq or type(packet) is packets.Pingresp:
            wrong = at.from_client is not (type(packet) is packets.Pingreq)
            return _of_any(packet, at) | (WRONG_SENDER if wrong else 0)
        if isinstance(packet, packets.Acknowledgement):
            return _of_acknowledgment(packet, at) | _of_any(packet, at)
        return _of_other(packet, at) | _of_any(packet, at)
    except (TypeError, ValueError, AttributeError, LookupError):  # a field that could not be read
        pass
    return ALL


def _of_any(packet: ControlPacket, at: RuleContext) -> int:
    bits = 0
    raw = packet.raw
    if raw[1] >= 0x80 and not raw[2 if raw[2] < 0x80 else 3 if raw[3] < 0x80 else 4]:
        bits |= NOT_MINIMAL
    if packet.header_flags is not None:
        bits |= HEADER_FLAGS
    limit = at.receiver.maximum_packet_size
    if limit is not None and len(raw) + packet.missing > limit:
        bits |= OVERSIZED
    connection = at.connection
    if at.history.carries:
        bits |= CARRIES
    if at.from_client:
        last_ns = at.sender.last_timestamp_ns
        seconds = connection.keep_alive
        if seconds and last_ns is not None and at.timestamp_ns - last_ns > seconds * SECOND_NS:
            bits |= SILENT
        if connection.session_present is False and not connection.clean_start:
            bits |= STATE_LOST
    else:
        bits |= FROM_SERVER
    if not at.history.settled:
        bits |= _unsettled_bits(packet, at)
    return bits


def _unsettled_bits(packet: ControlPacket, at: RuleContext) -> int:
    """Bits of packets before CONNECT and CONNACK, or after a DISCONNECT."""
    bits, history = 0, at.history
    if at.party.disconnect is not None:
        bits |= DISCONNECTED
    connack = history.connack
    if connack is not None and connack.reason_code:
        bits |= REFUSED
    if at.from_client:
        if (history.connect_sent is None or connack is None) and type(packet) is not packets.Connect:
            bits |= EARLY
    elif connack is None and type(packet) is not packets.Connack:
        bits |= EARLY
    return bits


def _of_publish(packet: packets.Publish, at: RuleContext) -> int:
    bits = 0
    qos: int = packet.qos
    if packet.dup:
        bits |= DUP
    if packet.retain:
        bits |= RETAIN | EXPIRES_OR_RETAINED
    block = packet.properties
    items: tuple[tuple[int, Any], ...] = ()
    alias: int | None = None
    if block is not None and block.items:
        items = block.items
        bits |= _of_block(items)
        alias = block.first(_ALIAS)
        if alias is not None and not 0 < alias <= at.receiver.topic_alias_maximum:
            bits |= ODD_ALIAS
    name: str = packet.topic_name
    if not name:
        bits |= ODD_STRINGS
        if alias is None:
            bits |= NAMELESS
        elif at.topic is None or is_related(at.topic):  # an unknown topic may be any
            bits |= SPARKPLUG
    else:
        known = _TOPICS.get(name)
        bits |= _of_topic(name) if known is None else known
    if qos:
        bits |= QOS
        identifier, sender = packet.packet_identifier, at.sender
        if not identifier:
            bits |= ZERO_IDENTIFIER
        bits |= TAKEN if identifier in sender.exchanges else _of_free_identifier(identifier or 0, at)
        if sender.in_flight >= at.receiver.receive_maximum:
            bits |= WINDOW_FULL
    if at.from_client:
        if qos > at.connection.maximum_qos:
            bits |= ABOVE_MAXIMUM
        if at.topic is None:
            bits |= UNRESOLVED
        return bits
    topic = at.topic
    if topic is None:
        return bits | UNRESOLVED
    table = at.history.subscriptions
    match = table.matches.get(topic)
    if match is None:
        match = table.match(topic)
    if not match.subscriptions:
        bits |= UNMATCHED
    if match.all_no_local:
        bits |= NO_LOCAL
    if match.replaces:
        bits |= REPLACED
    carries = bits & SUBSCRIPTION_IDENTIFIER
    if match.identifiers and (not carries or len(match.subscriptions) > 1):
        bits |= IDENTIFIED
    if carries:
        for number, value in items:
            if number == _IDENTIFIER and value not in match.identifiers:
                bits |= FOREIGN_IDENTIFIER
    if qos > match.highest_qos:
        bits |= ABOVE_GRANTED
    return bits


def _of_free_identifier(identifier: int, at: RuleContext) -> int:
    """Whether the sender of a PUBLISH took an identifier before it had the answer that freed it."""
    ended = at.party.ended.get(identifier)
    return UNAWARE if ended is not None and 0 <= at.acknowledged < ended.answer_position else 0


MAX_TOPICS: Final = 10_000
"""Maximum number of topics with cached bits."""
LONGEST_TOPIC: Final = 256
"""Maximum length of such a topic, in characters."""
_TOPICS: Final[dict[str, int]] = {}


def _of_topic(name: str) -> int:
    bits = 0
    if not name.isprintable():
        bits |= ODD_STRINGS | UNPRINTABLE
    if "+" in name or "#" in name:
        bits |= ODD_STRINGS | WILDCARD
    if is_related(name):
        bits |= SPARKPLUG
    if len(name) <= LONGEST_TOPIC:
        if len(_TOPICS) >= MAX_TOPICS:
            _TOPICS.clear()
        _TOPICS[name] = bits
    return bits


def _of_block(items: tuple[tuple[int, Any], ...]) -> int:
    bits, seen = PROPERTIES, 0
    for number, value in items:
        bit = 1 << number
        if seen & bit and number != _USER_PROPERTY:
            bits |= REPEATED
        seen |= bit
        if type(value) is str:
            if not value.isprintable():
                bits |= ODD_STRINGS | UNPRINTABLE
        elif type(value) is tuple:
            if not (value[0].isprintable() and value[1].isprintable()):
                bits |= ODD_STRINGS | UNPRINTABLE
        elif (value == 0 and number in NOT_ZERO) or (number in YES_OR_NO and value > 1):
            bits |= ODD_VALUE
        bits |= _OF_PROPERTY.get(number, 0)
    return bits


def _of_acknowledgment(packet: packets.Acknowledgement, at: RuleContext) -> int:
    bits = 0
    identifier: int = packet.packet_identifier
    if packet.reason_code:
        bits |= REASON_CODE
    block = packet.properties
    if block is not None and block.items:
        bits |= _of_block(block.items)
    if not identifier:
        bits |= ZERO_IDENTIFIER
    if at.other.odd_aliases:
        bits |= ODD_ALIASES
    party = at.party
    if type(packet) is packets.Pubrel:
        waiting = party.owes_pubrel
        if identifier not in waiting:
            return bits | ODD_ANSWER
    else:
        running = at.receiver.exchanges.get(identifier)
        if type(packet) is packets.Puback:
            waiting = party.owes_puback
            usual = running is not None and running.kind == "publish" and running.qos == 1
        elif type(packet) is packets.Pubrec:
            waiting = party.owes_pubrec
            usual = running is not None and running.kind == "publish" and running.qos == 2 and identifier in waiting
        else:
            waiting = party.owes_pubcomp
            usual = running is not None and identifier in waiting
        if not usual:
            bits |= ODD_ANSWER
    if len(waiting) > 1 and identifier in waiting and next(iter(waiting)) != identifier:
        bits |= OUT_OF_ORDER
    return bits


def _of_other(packet: Any, at: RuleContext) -> int:
    """Bits of all packets but PUBLISH, its acknowledgments, and pings."""
    bits = 0
    block = packet.properties
    if block is not None and block.items:
        bits |= _of_block(block.items)
    if has_odd_fields(packet):
        bits |= ODD_STRINGS | UNPRINTABLE
    if isinstance(packet, packets.Connect):
        bits |= _of_connect(packet, at)
    elif isinstance(packet, (packets.Subscribe, packets.Unsubscribe)):
        bits |= _of_request(packet, at)
    elif isinstance(packet, (packets.Suback, packets.Unsuback)):
        bits |= _of_answer(packet, at)
    elif isinstance(packet, (packets.Connack, packets.Disconnect, packets.Auth)):
        if packet.reason_code:
            bits |= REASON_CODE
        if isinstance(packet, packets.Connack):
            bits |= WRONG_SENDER if at.from_client else 0
            bits |= 0 if at.history.connack_sent is None else AGAIN
        elif isinstance(packet, packets.Disconnect):
            bits |= 0 if at.from_client else WRONG_SENDER
    return bits


def _of_connect(packet: packets.Connect, at: RuleContext) -> int:
    bits = 0 if at.from_client else WRONG_SENDER
    if at.history.connect_sent is not None:
        bits |= AGAIN
    if at.connection.websocket:
        bits |= WEBSOCKET
    will = packet.will
    if will is not None:
        bits |= SPARKPLUG if is_related(will.will_topic or "") else 0
        bits |= 0 if will.properties is None else _of_block(will.properties.items)
    if (
        packet.connect_flags is not None  # flags that contradict the other fields
        or (packet.password is not None and packet.user_name is None)
        or not (packet.client_identifier or packet.clean_start)
        or PROTOCOL_NAMES.get(packet.protocol_level) != packet.protocol_name
    ):
        bits |= ODD_CONNECT
    return bits


def _of_request(packet: packets.Subscribe | packets.Unsubscribe, at: RuleContext) -> int:
    bits = 0 if at.from_client else WRONG_SENDER
    identifier: int = packet.packet_identifier
    if not identifier:
        bits |= ZERO_IDENTIFIER
    if identifier in at.sender.exchanges:
        bits |= TAKEN
    connection = at.connection
    if not (
        connection.wildcard_subscription_available
        and connection.subscription_identifier_available
        and connection.shared_subscription_available
    ):
        bits |= UNAVAILABLE
    if isinstance(packet, packets.Subscribe):
        rows = packet.subscriptions
        odd = not rows or any(_is_odd(row) for row in rows)
        bits |= SPARKPLUG if any(is_related(row.topic_filter) for row in rows or ()) else 0
    else:
        names = packet.topic_filters
        odd = not names or any(_is_odd_filter(name) for name in names)
    return bits | (ODD_FILTER if odd else 0)


def _is_odd(row: Subscription) -> bool:
    return bool(row.reserved) or row.retain_handling == 3 or _is_odd_filter(row.topic_filter)


def _is_odd_filter(name: str) -> bool:
    if not name or name.startswith("$share"):
        return True
    return ("+" in name or "#" in name) and topic_filter_problem(name, shared=False) is not None


def _of_answer(packet: packets.Suback | packets.Unsuback, at: RuleContext) -> int:
    bits = WRONG_SENDER if at.from_client else 0
    identifier: int = packet.packet_identifier
    if not identifier:
        bits |= ZERO_IDENTIFIER
    kind = "subscribe" if isinstance(packet, packets.Suback) else "unsubscribe"
    running = at.receiver.exchanges.get(identifier)
    codes = packet.reason_codes
    if running is None or running.kind != kind:
        bits |= ODD_ANSWER
    elif codes is not None and len(codes) != running.filters:
        bits |= ODD_COUNT
    request = at.history.subscriptions.request_for(identifier, kind)
    if request is None:
        return bits
    if request.answers:
        bits |= AGAIN
    if codes is None:
        return bits
    if len(codes) != len(request.topic_filters):
        bits |= ODD_COUNT
    elif isinstance(packet, packets.Suback):
        for asked, code in zip(request.maximum_qos, codes, strict=False):
            if asked < code <= 2:
                bits |= ABOVE_REQUESTED
    return bits
