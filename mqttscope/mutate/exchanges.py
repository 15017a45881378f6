"""Mutations of exchanges of packets: identifiers, acknowledgements, aliases, quotas (5.0 4.3, 4.9)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.packets import Publish, Pubrec, Pubrel, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from mqttscope.mutate import steps
from mqttscope.mutate.flow import CLIENT, SERVER, SIDES, FlowStep
from mqttscope.mutate.layout import PacketLayout
from mqttscope.mutate.mutation import (
    ACCEPT,
    ALL_VERSIONS,
    ANY,
    ONLY_5,
    PROTOCOL_ERROR,
    V3_1,
    V5,
    Demand,
    FlowTarget,
    NotApplicableError,
    Reaction,
    refuse,
    row,
)
from mqttscope.mutate.samples import TOPIC, sample


def _acknowledge_unknown(kind: PacketType, target: FlowTarget) -> list[FlowStep]:
    identifier = steps.free_identifiers(target, 1)[0]
    return steps.insert(target, [steps.send(sample(kind, target.version, identifier), target.version)])


def _wrong_identifier(kind: PacketType, target: FlowTarget) -> list[FlowStep]:
    identifier = steps.free_identifiers(target, 1)[0]
    places = target.flow.places(target.sender, kind)
    refuse(not places, f"the side sends no {kind.name}")
    return steps.replace_step(target, target.chance.pick(places), sample(kind, target.version, identifier))


def _first_place(target: FlowTarget, kinds: tuple[PacketType, ...], missing: str) -> int:
    """Index of the first packet of the sender with one of these types."""
    for index, entry in enumerate(target.flow.entries):
        if entry.sender == target.sender and entry.packet_type in kinds:
            return index
    raise NotApplicableError(missing)


def _wrong_type(target: FlowTarget) -> list[FlowStep]:
    index = _first_place(target, (PacketType.PUBACK,), "the side sends no PUBACK")
    identifier = target.flow.entries[index].packet.packet_identifier  # type: ignore[union-attr]
    return steps.replace_step(target, index, Pubrec(packet_identifier=identifier))


def _twice(kinds: tuple[PacketType, ...], missing: str, target: FlowTarget) -> list[FlowStep]:
    return steps.repeat_step(target, _first_place(target, kinds, missing))


def _out_of_order(target: FlowTarget) -> list[FlowStep]:
    entries = target.flow.entries
    for first, second in pairwise(target.flow.places(target.sender, PacketType.PUBACK)):
        if any(entry.packet_type == PacketType.DISCONNECT for entry in entries[first:second]):
            continue
        if target.sender == CLIENT and _own_receive_maximum(target) < 2:
            break
        between = target.steps[first + 1 : second]
        swapped = [steps.mark_mutated(target.steps[second]), steps.mark_mutated(target.steps[first])]
        return [*target.steps[:first], *between, *swapped, *target.steps[second + 1 :]]
    raise NotApplicableError("the side sends no two PUBACKs that could be swapped")


def _own_receive_maximum(target: FlowTarget) -> int:
    """Receive Maximum of the sender: messages that the other side may have in flight."""
    other = replace(target, sender=SERVER if target.sender == CLIENT else CLIENT)
    return other.limit("receive_maximum", 65_535)


def _identifier_in_use(qos: int, target: FlowTarget) -> list[FlowStep]:
    refuse(target.limit("receive_maximum", 65_535) < 2, "the receiver accepts only one message at a time")
    identifier = steps.free_identifiers(target, 1)[0]
    # One segment, so that no acknowledgement can arrive between them.
    data = [steps.send(steps.publish(target, qos, identifier, text), target.version).data for text in ("/one", "/two")]
    return steps.insert(target, [steps.send(b"".join(data), target.version)], rest=False)


def _identifier_in_subscribe(target: FlowTarget) -> list[FlowStep]:
    identifier = steps.free_identifiers(target, 1)[0]
    block = Properties() if target.version == V5 else None
    request = Subscribe(packet_identifier=identifier, properties=block, subscriptions=[Subscription(TOPIC)])
    whole = (
        steps.send(steps.publish(target, 2, identifier), target.version).data + steps.send(request, target.version).data
    )
    return steps.insert(target, [steps.send(whole, target.version)], rest=False)


def _again(target: FlowTarget) -> list[FlowStep]:
    identifier = steps.free_identifiers(target, 1)[0]
    first = steps.publish(target, 1, identifier)
    whole = steps.send(first, target.version).data + steps.send(replace(first, dup=True), target.version).data
    return steps.insert(target, [steps.send(whole, target.version), steps.wait(PacketType.PUBACK, identifier)])


def _after_release(target: FlowTarget) -> list[FlowStep]:
    identifier = steps.free_identifiers(target, 1)[0]
    first = steps.publish(target, 2, identifier)
    release = steps.send(Pubrel(packet_identifier=identifier), target.version).data
    added = [
        steps.send(first, target.version),
        steps.wait(PacketType.PUBREC, identifier),
        steps.send(release + steps.send(replace(first, dup=True), target.version).data, target.version),
    ]
    return steps.insert(target, added, rest=False)


def _alias(target: FlowTarget) -> int:
    """A Topic Alias that the receiver accepts and the flow does not use."""
    used = {
        entry.packet.properties.topic_alias
        for entry in target.flow.entries
        if isinstance(entry.packet, Publish) and entry.packet.properties is not None
    }
    for alias in range(target.limit("topic_alias_maximum", 0), 0, -1):
        if alias not in used:
            return alias
    raise NotApplicableError("the receiver accepts no Topic Alias that is still free")


def _aliases(topics: tuple[str, ...], target: FlowTarget) -> list[FlowStep]:
    aliased = Properties(topic_alias=_alias(target))
    packets = (Publish(topic_name=topic, properties=aliased, payload=b"mutate") for topic in topics)
    return steps.insert(target, [steps.send(packet, V5) for packet in packets])


def _around_identifier(raw: bytes, version: ProtocolVersion) -> tuple[bytes, bytes]:
    """The bytes before and after the Packet Identifier of a packet."""
    pieces = PacketLayout(raw, version).pieces
    at = next(index for index, piece in enumerate(pieces) if piece.field == "packet_identifier")
    behind = b"".join(piece.data for piece in pieces[at + 1 :])
    return raw[: len(raw) - len(behind) - len(pieces[at].data)], behind


def _limit(target: FlowTarget) -> int:
    limit = target.limit("receive_maximum", 65_535)
    refuse(limit > steps.MOST_PACKETS, f"the Receive Maximum is above {steps.MOST_PACKETS:,}")
    return limit


def _overrun(target: FlowTarget) -> list[FlowStep]:
    identifiers = steps.free_identifiers(target, _limit(target) + 1)
    packets = [steps.send(steps.publish(target, 2, number, f"/{number}"), V5).data for number in identifiers]
    return steps.insert(target, [steps.send(b"".join(packets), V5)], steps.opening_index(target), rest=False)


def _filled(target: FlowTarget) -> list[FlowStep]:
    identifiers = steps.free_identifiers(target, min(_limit(target), 100))
    packets = [steps.send(steps.publish(target, 1, number, f"/{number}"), V5) for number in identifiers]
    answers = [steps.wait(PacketType.PUBACK, number) for number in identifiers]
    return steps.insert(target, [*packets, *answers], steps.opening_index(target))


def _every_identifier(target: FlowTarget) -> list[FlowStep]:
    window = min(target.limit("receive_maximum", 65_535), 100)
    # The packets differ only in their identifiers, so one of them is encoded for all.
    before, behind = _around_identifier(steps.send(steps.publish(target, 1, 1), target.version).data, target.version)
    added: list[FlowStep] = []
    for start in range(1, 65_536, window):
        block = range(start, min(start + window, 65_536))
        data = b"".join(before + number.to_bytes(2, "big") + behind for number in block)
        added += [steps.send(data, target.version), *(steps.wait(PacketType.PUBACK, number) for number in block)]
    return steps.insert(target, added, steps.opening_index(target))


_NOTHING_WAITS = "5.0 MQTT-2.2.1-5, 3.1.1 MQTT-2.3.1-6"
_ACKS = (
    (PacketType.PUBACK, _NOTHING_WAITS),
    (PacketType.PUBREC, _NOTHING_WAITS),
    (PacketType.PUBREL, _NOTHING_WAITS),
    (PacketType.PUBCOMP, "5.0 MQTT-2.2.1-5"),
)
EXCHANGES = (
    # 5.0 has reason code 0x92 for this in PUBREL and PUBCOMP; no statement demands the end of the connection.
    *(row(f"flow:acknowledge-unknown-{kind.name.lower()}",
          f"{kind.name} has an identifier that no unacknowledged message has.",
          partial(_acknowledge_unknown, kind), statements, ANY, senders=SIDES) for kind, statements in _ACKS),
    *(row(f"flow:acknowledge-unknown-{kind.name.lower()}", f"{kind.name} has an identifier that no {request} has.",
          partial(_acknowledge_unknown, kind), "5.0 MQTT-2.2.1-6, 3.1.1 MQTT-2.3.1-7", ANY, senders=(SERVER,))
      for kind, request in ((PacketType.SUBACK, "SUBSCRIBE"), (PacketType.UNSUBACK, "UNSUBSCRIBE"))),
    *(row(f"flow:acknowledge-wrong-identifier-{kind.name.lower()}",
          f"{kind.name} has a wrong identifier, so the packet that it should answer is never answered.",
          partial(_wrong_identifier, kind), statements, ANY, senders=SIDES) for kind, statements in _ACKS),
    row("flow:acknowledge-wrong-type", "A PUBLISH with QoS 1 is answered with PUBREC.", _wrong_type,
        "3.1 V31-PUBLISH-response, 3.1.1 MQTT-3.3.4-1, 5.0 MQTT-3.3.4-1", PROTOCOL_ERROR, senders=SIDES),
    row("flow:acknowledge-twice", "A PUBACK or PUBCOMP is sent twice.",
        partial(_twice, (PacketType.PUBACK, PacketType.PUBCOMP), "the side sends no PUBACK and no PUBCOMP"),
        senders=SIDES),
    row("flow:acknowledge-out-of-order", "Two PUBACKs are swapped.", _out_of_order,
        "3.1.1 MQTT-4.6.0-2, 5.0 MQTT-4.6.0-2"),
    row("flow:suback-twice", "A SUBACK is sent twice.",
        partial(_twice, (PacketType.SUBACK,), "the server sends no SUBACK"), "3.1.1 MQTT-3.8.4-4, 5.0 MQTT-3.8.4-5",
        ANY, senders=(SERVER,)),
    # A receiver that has acknowledged the first message must accept the second as a new one (QoS 1, 5.0 MQTT-4.3.2-5)
    # or acknowledge it as well (QoS 2, 5.0 MQTT-4.3.3-10); likewise in 3.1.1.
    *(row(f"flow:identifier-in-use-qos-{qos}",
          f"Two different messages with QoS {qos} are in flight with one Packet Identifier.",
          partial(_identifier_in_use, qos),
          f"3.1 V31-MSGID-in-flight, 3.1.1 MQTT-4.3.{qos + 1}-1, 5.0 MQTT-4.3.{qos + 1}-1, "
          "client 3.1.1 MQTT-2.3.1-2, client 5.0 MQTT-2.2.1-3, server 3.1.1 MQTT-2.3.1-4, server 5.0 MQTT-2.2.1-4",
          ANY, senders=SIDES, later=True) for qos in (1, 2)),
    # 5.0 has reason code 0x91 for this in SUBACK, but a server need not compare identifiers across packet types.
    row("flow:identifier-of-publish-in-subscribe",
        "SUBSCRIBE has the Packet Identifier of a PUBLISH that is still in flight.", _identifier_in_subscribe,
        "3.1 V31-MSGID-in-flight, 3.1.1 MQTT-2.3.1-2, 5.0 MQTT-2.2.1-3, 5.0 V5-ID-reuse-set", ANY, later=True),
    row("flow:publish-again-on-live-connection",
        "A PUBLISH is sent again with DUP without a reconnect.", _again, "5.0 MQTT-4.4.0-1", ANY,
        senders=SIDES, legal=(V3_1,), later=True),
    row("flow:publish-again-after-pubrel", "A PUBLISH with QoS 2 is sent again after its PUBREL.", _after_release,
        "3.1.1 MQTT-4.3.3-1, 5.0 MQTT-4.3.3-6", ANY, senders=SIDES, later=True),
    row("flow:topic-alias-unmapped",
        "A PUBLISH without a Topic Name has a Topic Alias that was never mapped to one.", partial(_aliases, ("",)),
        "5.0 V5-PUBLISH-alias-unknown", Reaction(Demand.CLOSE, (0x82, 0x94)), ONLY_5, SIDES),
    row("flow:topic-alias-remapped", "A Topic Alias is mapped to a Topic Name, used, remapped and used again.",
        partial(_aliases, (TOPIC + "/one", "", TOPIC + "/two", "")), "", ACCEPT, ONLY_5, legal=ONLY_5),
    row("flow:receive-maximum-overrun",
        "The number of messages in flight with QoS 2 exceeds the Receive Maximum by one.", _overrun,
        "5.0 MQTT-4.9.0-2, client 5.0 MQTT-3.3.4-7, server 5.0 MQTT-3.3.4-9", Reaction(Demand.CLOSE, (0x93,)),
        ONLY_5, SIDES, later=True),
    row("flow:receive-maximum-filled",
        "The number of messages in flight with QoS 1 reaches the Receive Maximum (at most 100).", _filled,
        "", ACCEPT, ONLY_5, legal=ONLY_5),
    row("flow:every-identifier", "65,535 messages with QoS 1 use every Packet Identifier once.",
        _every_identifier, "", ACCEPT, legal=ALL_VERSIONS),
)  # fmt: skip
"""Mutations of acknowledgements, identifiers, aliases and quotas."""
