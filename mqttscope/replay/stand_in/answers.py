"""Answers: the recorded ones made to fit what the device asked, and conforming ones where the recording has none."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass

from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import V3_1, V5
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import BY_NAME, EMPTY, Properties
from mqttscope.replay.script import Entry
from mqttscope.replay.stand_in.connection_matching import Session, Subscribed
from mqttscope.session.connection import Connection

FAILURE = 0x80
NO_SUBSCRIPTION, NOT_FOUND = 0x11, 0x92
_FOR_PEOPLE = (BY_NAME["reason_string"].identifier, BY_NAME["user_property"].identifier)
_ASSIGNED = BY_NAME["assigned_client_identifier"].identifier
_RESPONSE = BY_NAME["response_information"].identifier
_AUTHENTICATION = (BY_NAME["authentication_method"].identifier, BY_NAME["authentication_data"].identifier)
_ALWAYS_TOLD = (packets.Connack, packets.Publish, packets.Disconnect)


def without(packet: ControlPacket, numbers: Iterable[int]) -> ControlPacket:
    """The packet without some of its properties."""
    block: Properties | None = getattr(packet, "properties", None)
    unwanted = set(numbers)
    if block is None or not unwanted.intersection(number for number, _ in block.items):
        return packet
    made = copy.copy(packet)
    made.raw = b""
    made.properties = Properties.of(one for one in block.items if one[0] not in unwanted)  # type: ignore[attr-defined]
    return made


def encoded(packet: ControlPacket, live: Connection, connect: packets.Connect | None) -> tuple[ControlPacket, bytes]:
    """An answer with what the device wants to hear, and its bytes; empty where it would be too long.

    Reason String and User Properties are left out where the device said so (5.0 MQTT-3.1.2-29), and where they would
    exceed its Maximum Packet Size (MQTT-3.4.2-2 and others).
    """
    asked = EMPTY if connect is None or connect.properties is None else connect.properties
    if asked.request_problem_information == 0 and not isinstance(packet, _ALWAYS_TOLD):
        packet = without(packet, _FOR_PEOPLE)
    raw = packet.raw or encode(packet, live.version)
    limit = live.client_side.maximum_packet_size
    if limit is not None and len(raw) > limit:
        packet = without(packet, _FOR_PEOPLE)
        raw = packet.raw or encode(packet, live.version)
        if len(raw) > limit:
            return packet, b""
    return packet, raw


def readdressed(recorded: ControlPacket, identifier: int) -> ControlPacket:
    """A recorded answer for another packet identifier."""
    if recorded.packet_identifier == identifier:  # type: ignore[attr-defined]
        return recorded
    made = copy.copy(recorded)
    made.packet_identifier = identifier  # type: ignore[attr-defined]
    made.raw = b""
    return made


def connack(
    recorded: packets.Connack | None, connect: packets.Connect, *, present: bool, assigned: str | None
) -> packets.Connack:
    """CONNACK for a device: what the recorded one says, as far as it is about this device (5.0 3.2).

    ``assigned``: the Client Identifier that the device gets for want of its own.
    """
    version = connect.version
    made = packets.Connack() if recorded is None else copy.copy(recorded)
    flag: bool | None = present and not made.reason_code
    if version == V3_1:
        flag = None
    block = made.properties or EMPTY
    asked = connect.properties or EMPTY
    unwanted = {_ASSIGNED}
    if not asked.request_response_information:
        unwanted.add(_RESPONSE)
    if asked.authentication_method is None:
        unwanted.update(_AUTHENTICATION)
    items = [one for one in block.items if one[0] not in unwanted]
    if assigned is not None:
        at = next((index for index, one in enumerate(block.items) if one[0] == _ASSIGNED), len(items))
        items.insert(at, (_ASSIGNED, assigned))
    if made.session_present != flag or tuple(items) != block.items or recorded is None:
        made.raw = b""
    made.session_present = flag
    made.properties = Properties.of(items) if version >= V5 else None
    return made


@dataclass(slots=True)
class Grants:
    """What the recorded server granted to a client, by Topic Filter."""

    asked: dict[str, tuple[int, int]]
    """QoS that was asked for, and the Reason Code that was given; the last one counts."""

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Grants:
        """From the SUBSCRIBEs and SUBACKs of a client."""
        asked: dict[str, tuple[int, int]] = {}
        for entry in entries:
            answer, request = entry.packet, entry.answers.packet if entry.answers is not None else None
            if isinstance(answer, packets.Suback) and isinstance(request, packets.Subscribe):
                for row, code in zip(request.subscriptions, answer.reason_codes, strict=False):
                    asked[row.topic_filter] = row.maximum_qos, code
        return cls(asked)

    def code(self, row: Subscription, live: Connection) -> int:
        """The Reason Code for a Topic Filter of the device (5.0 3.9.3, 3.1.1 3.9.3)."""
        wanted = min(row.maximum_qos, live.maximum_qos)
        found = self.asked.get(row.topic_filter)
        if found is None:
            return wanted
        before, code = found
        if code >= FAILURE:
            return code if live.version >= V5 else FAILURE
        return wanted if code >= before else min(wanted, code)


def suback(
    request: packets.Subscribe,
    recorded: tuple[packets.Subscribe, packets.Suback] | None,
    grants: Grants,
    live: Connection,
) -> packets.Suback:
    """SUBACK: the recorded Reason Codes where the same is asked for, else filter by filter."""
    identifier = request.packet_identifier
    if recorded is not None:
        before, answer = recorded
        rows = [(one.topic_filter, one.maximum_qos) for one in before.subscriptions]
        if rows == [(one.topic_filter, one.maximum_qos) for one in request.subscriptions]:
            made = readdressed(answer, identifier)
            assert isinstance(made, packets.Suback)
            return made
    codes = []
    for position, row in enumerate(request.subscriptions):
        code = grants.code(row, live)
        if recorded is not None and position < len(recorded[0].subscriptions) == len(recorded[1].reason_codes):
            same = recorded[0].subscriptions[position]
            if same.topic_filter == row.topic_filter:
                # This very answer, where the client had asked for it more than once.
                here = Grants({row.topic_filter: (same.maximum_qos, recorded[1].reason_codes[position])})
                code = here.code(row, live)
        codes.append(code)
    return packets.Suback(identifier, EMPTY if live.version >= V5 else None, codes)


def subscribe(session: Session, request: packets.Subscribe, answer: packets.Suback) -> None:
    """Keep what was granted (5.0 MQTT-3.8.4-3)."""
    block = request.properties
    identifier = None if block is None else block.subscription_identifier
    number = identifier[0] if isinstance(identifier, list) and identifier else identifier
    for row, code in zip(request.subscriptions, answer.reason_codes, strict=False):
        if code < FAILURE:
            session.subscriptions[row.topic_filter] = Subscribed(
                row, min(code, row.maximum_qos), number if isinstance(number, int) else None
            )


def unsuback(
    request: packets.Unsubscribe,
    recorded: tuple[packets.Unsubscribe, packets.Unsuback] | None,
    session: Session,
    live: Connection,
) -> packets.Unsuback:
    """UNSUBACK: the recorded one where the same is asked for, else filter by filter (5.0 3.11)."""
    identifier = request.packet_identifier
    if live.version < V5:
        return packets.Unsuback(identifier)
    if recorded is not None and recorded[0].topic_filters == request.topic_filters and recorded[1].reason_codes:
        made = readdressed(recorded[1], identifier)
        assert isinstance(made, packets.Unsuback)
        return made
    codes = [0 if one in session.subscriptions else NO_SUBSCRIPTION for one in request.topic_filters]
    return packets.Unsuback(identifier, EMPTY, codes)


def acknowledgement(
    kind: type[packets.Puback] | type[packets.Pubrec] | type[packets.Pubrel] | type[packets.Pubcomp],
    identifier: int,
    recorded: ControlPacket | None,
    live: Connection,
) -> ControlPacket:
    """PUBACK, PUBREC, PUBREL or PUBCOMP as recorded; where the recorded one is of another type, its failure alone."""
    if isinstance(recorded, kind):
        return readdressed(recorded, identifier)
    code = getattr(recorded, "reason_code", None) or 0
    failure = code if code >= FAILURE and live.version >= V5 and kind in (packets.Puback, packets.Pubrec) else None
    return kind(identifier, failure)
