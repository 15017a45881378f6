"""Signs: what is out of the ordinary about a packet where it stands, worked out once for all rules.

Nearly every packet of a capture is as it should be: nobody was silent for too long, the answer is the one that was due,
the topic is one that the client has subscribed to.  A rule names the signs without which it has nothing to say
(``Rule.signs``), and the engine asks it only about packets that bear one of them.  A rule does not rely on that: asked
about a packet without its signs, it finds nothing.  A test asks every rule about every packet and holds both equal.

What a rule does rely on are the conditions of ``Rule.when``.  As far as most packets have them, they are bits here too.
"""

from __future__ import annotations

from typing import Any, Final

from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.strings import has_odd_fields
from mqttscope.mqtt import ControlPacket, Subscription, packets
from mqttscope.mqtt.properties import BY_NAME
from mqttscope.mqtt.topics import topic_filter_problem

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
"""What ``Rule.when`` may name of packets, with its bit."""

NOT_MINIMAL: Final = 1 << 8
"""Remaining Length takes more bytes than it needs."""
OVERSIZED: Final = 1 << 9
"""The packet is longer than the receiver takes."""
SILENT: Final = 1 << 10
"""The client has sent nothing for longer than its Keep Alive."""
CARRIES: Final = 1 << 11
"""Messages of an earlier connection of the session matter (`History.carries`)."""
STATE_LOST: Final = 1 << 12
"""The client wanted to continue a session, and the server had none."""
ZERO_IDENTIFIER: Final = 1 << 13
"""The packet identifier is 0."""
TAKEN: Final = 1 << 14
"""The packet identifier of a PUBLISH belongs to an exchange that is not over."""
WINDOW_FULL: Final = 1 << 15
"""As many messages are in flight as the receiver takes at a time."""
ABOVE_MAXIMUM: Final = 1 << 16
"""The QoS is higher than the server has announced."""
UNRESOLVED: Final = 1 << 17
"""The topic of a PUBLISH is not known."""
UNMATCHED: Final = 1 << 18
"""The client has no subscription in force for what it gets."""
NO_LOCAL: Final = 1 << 19
"""All of its subscriptions that match have No Local."""
REPLACED: Final = 1 << 20
"""One of them has replaced another."""
IDENTIFIED: Final = 1 << 21
"""Several of them match and one has a Subscription Identifier, or it does and the packet has none."""
ABOVE_GRANTED: Final = 1 << 22
"""The QoS is higher than was ever granted."""
REPEATED: Final = 1 << 23
"""A property comes more than once."""
ODD_ALIAS: Final = 1 << 24
"""The Topic Alias of a PUBLISH is 0, or higher than the receiver takes."""
SUBSCRIPTION_IDENTIFIER: Final = 1 << 25
RESPONSE_TOPIC: Final = 1 << 26
PAYLOAD_FORMAT: Final = 1 << 27
ODD_ANSWER: Final = 1 << 28
"""An acknowledgment is not the next one that an exchange of this connection waits for."""
OUT_OF_ORDER: Final = 1 << 29
"""An acknowledgment that was due earlier has not come."""
ODD_ALIASES: Final = 1 << 30
"""The other side has sent a Topic Alias that is wrong."""
HEADER_FLAGS: Final = 1 << 31
"""The flags of the fixed header are not those of the table."""
UNPRINTABLE: Final = 1 << 32
"""A string has a character that is not printable."""
WILDCARD: Final = 1 << 33
"""The topic of a PUBLISH has a wildcard."""
NAMELESS: Final = 1 << 34
"""A PUBLISH has neither a topic nor a Topic Alias."""
ODD_VALUE: Final = 1 << 35
"""The value of a property is none that it may have."""
FROM_SERVER: Final = 1 << 36
FOREIGN_IDENTIFIER: Final = 1 << 37
"""A PUBLISH has a Subscription Identifier of no subscription that matches."""
WRONG_SENDER: Final = 1 << 38
"""The other side would have to send this type of packet."""
DISCONNECTED: Final = 1 << 39
"""The sender has sent DISCONNECT before."""
REFUSED: Final = 1 << 40
"""The server has refused the connection."""
EARLY: Final = 1 << 41
"""It comes before the CONNECT or the CONNACK that should come first."""
AGAIN: Final = 1 << 42
"""There was a CONNECT, or a CONNACK, or an answer to the same SUBSCRIBE or UNSUBSCRIBE before."""
ODD_CONNECT: Final = 1 << 43
"""Protocol name, flags or Client Identifier of a CONNECT are some that not every version allows."""
WEBSOCKET: Final = 1 << 44
"""A CONNECT comes through a WebSocket."""
ODD_FILTER: Final = 1 << 45
"""A SUBSCRIBE or UNSUBSCRIBE has no filter, or one that is empty, is shared, or has a wildcard or an option that is
not allowed."""
UNAVAILABLE: Final = 1 << 46
"""The server has announced that it does not have some kind of subscription."""
ODD_COUNT: Final = 1 << 47
"""A SUBACK or UNSUBACK has not as many Reason Codes as there are filters."""
ABOVE_REQUESTED: Final = 1 << 48
"""A SUBACK grants a higher QoS than was asked for."""
ALL: Final = (1 << 49) - 1
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
}
"""What ``Rule.signs`` may name, with its bit."""

PROTOCOL_NAMES: Final = {3: "MQIsdp", 4: "MQTT", 5: "MQTT"}
"""The protocol name that goes with each protocol level."""
YES_OR_NO: Final = frozenset((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A))
"""Identifiers of properties that are 0 or 1, though they fill a byte."""
NOT_ZERO: Final = {0x0B: "1 to 268,435,455", 0x21: "1 to 65,535", 0x27: "1 and more"}
"""Identifiers of properties that may not be 0, with what they may be."""
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
    """The bits of a packet; all of them where it is too damaged to say."""
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
    found = 0
    raw = packet.raw
    if raw[1] >= 0x80 and not raw[2 if raw[2] < 0x80 else 3 if raw[3] < 0x80 else 4]:
        found |= NOT_MINIMAL
    if packet.header_flags is not None:
        found |= HEADER_FLAGS
    limit = at.receiver.maximum_packet_size
    if limit is not None and len(raw) + packet.missing > limit:
        found |= OVERSIZED
    connection = at.connection
    if at.history.carries:
        found |= CARRIES
    if at.from_client:
        last_ns = at.sender.last_timestamp_ns
        seconds = connection.keep_alive
        if seconds and last_ns is not None and at.timestamp_ns - last_ns > seconds * SECOND_NS:
            found |= SILENT
        if connection.session_present is False and not connection.clean_start:
            found |= STATE_LOST
    else:
        found |= FROM_SERVER
    if not at.history.settled:
        found |= _of_unsettled(packet, at)
    return found


def _of_unsettled(packet: ControlPacket, at: RuleContext) -> int:
    """What is said of packets before CONNECT and CONNACK were seen, or after a DISCONNECT."""
    found, history = 0, at.history
    if at.party.disconnect is not None:
        found |= DISCONNECTED
    connack = history.connack
    if connack is not None and connack.reason_code:
        found |= REFUSED
    if at.from_client:
        if (history.connect_sent is None or connack is None) and type(packet) is not packets.Connect:
            found |= EARLY
    elif connack is None and type(packet) is not packets.Connack:
        found |= EARLY
    return found


def _of_publish(packet: packets.Publish, at: RuleContext) -> int:
    found = 0
    qos: int = packet.qos
    if packet.dup:
        found |= DUP
    if packet.retain:
        found |= RETAIN | EXPIRES_OR_RETAINED
    block = packet.properties
    items: tuple[tuple[int, Any], ...] = ()
    alias: int | None = None
    if block is not None and block.items:
        items = block.items
        found |= _of_block(items)
        alias = block.first(_ALIAS)
        if alias is not None and not 0 < alias <= at.receiver.topic_alias_maximum:
            found |= ODD_ALIAS
    name: str = packet.topic_name
    if not name:
        found |= ODD_STRINGS
        if alias is None:
            found |= NAMELESS
    else:
        known = _TOPICS.get(name)
        found |= _of_topic(name) if known is None else known
    if qos:
        found |= QOS
        identifier, sender = packet.packet_identifier, at.sender
        if not identifier:
            found |= ZERO_IDENTIFIER
        if identifier in sender.exchanges:
            found |= TAKEN
        if sender.in_flight >= at.receiver.receive_maximum:
            found |= WINDOW_FULL
    if at.from_client:
        if qos > at.connection.maximum_qos:
            found |= ABOVE_MAXIMUM
        if at.topic is None:
            found |= UNRESOLVED
        return found
    topic = at.topic
    if topic is None:
        return found | UNRESOLVED
    table = at.history.subscriptions
    match = table.found.get(topic)
    if match is None:
        match = table.match(topic)
    if not match.subscriptions:
        found |= UNMATCHED
    if match.all_no_local:
        found |= NO_LOCAL
    if match.replaces:
        found |= REPLACED
    carries = found & SUBSCRIPTION_IDENTIFIER
    if match.identifiers and (not carries or len(match.subscriptions) > 1):
        found |= IDENTIFIED
    if carries:
        for number, value in items:
            if number == _IDENTIFIER and value not in match.identifiers:
                found |= FOREIGN_IDENTIFIER
    if qos > match.highest_qos:
        found |= ABOVE_GRANTED
    return found


MAX_TOPICS: Final = 10_000
"""Topics of which the bits are remembered, since they recur."""
LONGEST_TOPIC: Final = 256
"""Characters of the longest of them."""
_TOPICS: Final[dict[str, int]] = {}


def _of_topic(name: str) -> int:
    found = 0
    if not name.isprintable():
        found |= ODD_STRINGS | UNPRINTABLE
    if "+" in name or "#" in name:
        found |= ODD_STRINGS | WILDCARD
    if len(name) <= LONGEST_TOPIC:
        if len(_TOPICS) >= MAX_TOPICS:
            _TOPICS.clear()
        _TOPICS[name] = found
    return found


def _of_block(items: tuple[tuple[int, Any], ...]) -> int:
    found, seen = PROPERTIES, 0
    for number, value in items:
        bit = 1 << number
        if seen & bit and number != _USER_PROPERTY:
            found |= REPEATED
        seen |= bit
        if type(value) is str:
            if not value.isprintable():
                found |= ODD_STRINGS | UNPRINTABLE
        elif type(value) is tuple:
            if not (value[0].isprintable() and value[1].isprintable()):
                found |= ODD_STRINGS | UNPRINTABLE
        elif (value == 0 and number in NOT_ZERO) or (number in YES_OR_NO and value > 1):
            found |= ODD_VALUE
        found |= _OF_PROPERTY.get(number, 0)
    return found


def _of_acknowledgment(packet: packets.Acknowledgement, at: RuleContext) -> int:
    found = 0
    identifier: int = packet.packet_identifier
    if packet.reason_code:
        found |= REASON_CODE
    block = packet.properties
    if block is not None and block.items:
        found |= _of_block(block.items)
    if not identifier:
        found |= ZERO_IDENTIFIER
    if at.other.odd_aliases:
        found |= ODD_ALIASES
    party = at.party
    if type(packet) is packets.Pubrel:
        waiting = party.owes_pubrel
        if identifier not in waiting:
            return found | ODD_ANSWER
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
            found |= ODD_ANSWER
    if len(waiting) > 1 and identifier in waiting and next(iter(waiting)) != identifier:
        found |= OUT_OF_ORDER
    return found


def _of_other(packet: Any, at: RuleContext) -> int:
    """What is said of all packets but PUBLISH with its acknowledgments and pings."""
    found = 0
    block = packet.properties
    if block is not None and block.items:
        found |= _of_block(block.items)
    if has_odd_fields(packet):
        found |= ODD_STRINGS | UNPRINTABLE
    if isinstance(packet, packets.Connect):
        found |= _of_connect(packet, at)
    elif isinstance(packet, (packets.Subscribe, packets.Unsubscribe)):
        found |= _of_request(packet, at)
    elif isinstance(packet, (packets.Suback, packets.Unsuback)):
        found |= _of_answer(packet, at)
    elif isinstance(packet, (packets.Connack, packets.Disconnect, packets.Auth)):
        if packet.reason_code:
            found |= REASON_CODE
        if isinstance(packet, packets.Connack):
            found |= WRONG_SENDER if at.from_client else 0
            found |= 0 if at.history.connack_sent is None else AGAIN
        elif isinstance(packet, packets.Disconnect):
            found |= 0 if at.from_client else WRONG_SENDER
    return found


def _of_connect(packet: packets.Connect, at: RuleContext) -> int:
    found = 0 if at.from_client else WRONG_SENDER
    if at.history.connect_sent is not None:
        found |= AGAIN
    if at.connection.websocket:
        found |= WEBSOCKET
    will = packet.will
    if will is not None and will.properties is not None:
        found |= _of_block(will.properties.items)
    if (
        packet.connect_flags is not None  # they do not follow from the other fields
        or (packet.password is not None and packet.user_name is None)
        or not (packet.client_identifier or packet.clean_start)
        or PROTOCOL_NAMES.get(packet.protocol_level) != packet.protocol_name
    ):
        found |= ODD_CONNECT
    return found


def _of_request(packet: packets.Subscribe | packets.Unsubscribe, at: RuleContext) -> int:
    found = 0 if at.from_client else WRONG_SENDER
    identifier: int = packet.packet_identifier
    if not identifier:
        found |= ZERO_IDENTIFIER
    if identifier in at.sender.exchanges:
        found |= TAKEN
    connection = at.connection
    if not (
        connection.wildcard_subscription_available
        and connection.subscription_identifier_available
        and connection.shared_subscription_available
    ):
        found |= UNAVAILABLE
    if isinstance(packet, packets.Subscribe):
        rows = packet.subscriptions
        odd = not rows or any(_is_odd(row) for row in rows)
    else:
        names = packet.topic_filters
        odd = not names or any(_is_odd_filter(name) for name in names)
    return found | (ODD_FILTER if odd else 0)


def _is_odd(row: Subscription) -> bool:
    return bool(row.reserved) or row.retain_handling == 3 or _is_odd_filter(row.topic_filter)


def _is_odd_filter(name: str) -> bool:
    if not name or name.startswith("$share"):
        return True
    return ("+" in name or "#" in name) and topic_filter_problem(name, shared=False) is not None


def _of_answer(packet: packets.Suback | packets.Unsuback, at: RuleContext) -> int:
    found = WRONG_SENDER if at.from_client else 0
    identifier: int = packet.packet_identifier
    if not identifier:
        found |= ZERO_IDENTIFIER
    kind = "subscribe" if isinstance(packet, packets.Suback) else "unsubscribe"
    running = at.receiver.exchanges.get(identifier)
    codes = packet.reason_codes
    if running is None or running.kind != kind:
        found |= ODD_ANSWER
    elif codes is not None and len(codes) != running.filters:
        found |= ODD_COUNT
    request = at.history.subscriptions.request_for(identifier, kind)
    if request is None:
        return found
    if request.answers:
        found |= AGAIN
    if codes is None:
        return found
    if len(codes) != len(request.topic_filters):
        found |= ODD_COUNT
    elif isinstance(packet, packets.Suback):
        for asked, code in zip(request.maximum_qos, codes, strict=False):
            if asked < code <= 2:
                found |= ABOVE_REQUESTED
    return found
