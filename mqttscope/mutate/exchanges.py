"""Mutations of what packets mean to each other: identifiers, acknowledgements, aliases, quotas (5.0 4.3, 4.9)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.packets import Publish, Pubrec, Pubrel, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from mqttscope.mutate import steps
from mqttscope.mutate.flow import CLIENT, SERVER, SIDES, Step
from mqttscope.mutate.layout import Layout
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


def _acknowledge_unknown(kind: PacketType, target: FlowTarget) -> list[Step]:
    identifier = steps.free_identifiers(target, 1)[0]
    return steps.put(target, [steps.send(sample(kind, target.version, identifier), target.version)])


def _wrong_identifier(kind: PacketType, target: FlowTarget) -> list[Step]:
    identifier = steps.free_identifiers(target, 1)[0]
    places = target.flow.places(target.sender, kind)
    refuse(not places, f"the side sends no {kind.name}")
    return steps.instead(target, target.chance.pick(places), sample(kind, target.version, identifier))


def _first_place(target: FlowTarget, kinds: tuple[PacketType, ...], missing: str) -> int:
    """Index of the first packet of the side with one of these types."""
    for index, entry in enumerate(target.flow.entries):
        if entry.sender == target.sender and entry.packet_type in kinds:
            return index
    raise NotApplicableError(missing)


def _wrong_type(target: FlowTarget) -> list[Step]:
    index = _first_place(target, (PacketType.PUBACK,), "the side sends no PUBACK")
    identifier = target.flow.entries[index].packet.packet_identifier  # type: ignore[union-attr]
    return steps.instead(target, index, Pubrec(packet_identifier=identifier))


def _twice(kinds: tuple[PacketType, ...], missing: str, target: FlowTarget) -> list[Step]:
    return steps.twice(target, _first_place(target, kinds, missing))


def _out_of_order(target: FlowTarget) -> list[Step]:
    entries = target.flow.entries
    for first, second in pairwise(target.flow.places(target.sender, PacketType.PUBACK)):
        if any(entry.packet_type == PacketType.DISCONNECT for entry in entries[first:second]):
            continue
        if target.sender == CLIENT and _own_receive_maximum(target) < 2:
            break
        between = target.steps[first + 1 : second]
        swapped = [steps.marked(target.steps[second]), steps.marked(target.steps[first])]
        return [*target.steps[:first], *between, *swapped, *target.steps[second + 1 :]]
    raise NotApplicableError("the side sends no two PUBACKs that could change places")


def _own_receive_maximum(target: FlowTarget) -> int:
    """Number of messages that the other side may have in flight towards this one."""
    other = replace(target, sender=SERVER if target.sender == CLIENT else CLIENT)
    return other.limit("receive_maximum", 65_535)


def _identifier_in_use(qos: int, target: FlowTarget) -> list[Step]:
    refuse(target.limit("receive_maximum", 65_535) < 2, "the receiver takes one message at a time")
    identifier = steps.free_identifiers(target, 1)[0]
    # One segment, so that no acknowledgement can come between them.
    data = [steps.send(steps.publish(target, qos, identifier, text), target.version).data for text in ("/one", "/two")]
    return steps.put(target, [steps.send(b"".join(data), target.version)], rest=False)


def _identifier_in_subscribe(target: FlowTarget) -> list[Step]:
    identifier = steps.free_identifiers(target, 1)[0]
    block = Properties() if target.version == V5 else None
    request = Subscribe(packet_identifier=identifier, properties=block, subscriptions=[Subscription(TOPIC)])
    whole = (
        steps.send(steps.publish(target, 2, identifier), target.version).data + steps.send(request, target.version).data
    )
    return steps.put(target, [steps.send(whole, target.version)], rest=False)


def _again(target: FlowTarget) -> list[Step]:
    identifier = steps.free_identifiers(target, 1)[0]
    first = steps.publish(target, 1, identifier)
    whole = steps.send(first, target.version).data + steps.send(replace(first, dup=True), target.version).data
    return steps.put(target, [steps.send(whole, target.version), steps.wait(PacketType.PUBACK, identifier)])


def _after_release(target: FlowTarget) -> list[Step]:
    identifier = steps.free_identifiers(target, 1)[0]
    first = steps.publish(target, 2, identifier)
    release = steps.send(Pubrel(packet_identifier=identifier), target.version).data
    added = [
        steps.send(first, target.version),
        steps.wait(PacketType.PUBREC, identifier),
        steps.send(release + steps.send(replace(first, dup=True), target.version).data, target.version),
    ]
    return steps.put(target, added, rest=False)


def _alias(target: FlowTarget) -> int:
    """A Topic Alias that the receiver takes and the flow does not use."""
    used = {
        entry.packet.properties.topic_alias
        for entry in target.flow.entries
        if isinstance(entry.packet, Publish) and entry.packet.properties is not None
    }
    for alias in range(target.limit("topic_alias_maximum", 0), 0, -1):
        if alias not in used:
            return alias
    raise NotApplicableError("the receiver takes no Topic Alias that is free")


def _aliases(topics: tuple[str, ...], target: FlowTarget) -> list[Step]:
    aliased = Properties(topic_alias=_alias(target))
    made = (Publish(topic_name=topic, properties=aliased, payload=b"mutate") for topic in topics)
    return steps.put(target, [steps.send(packet, V5) for packet in made])


def _around_identifier(raw: bytes, version: ProtocolVersion) -> tuple[bytes, bytes]:
    """The bytes before and after the Packet Identifier of a packet."""
    pieces = Layout(raw, version).pieces
    at = next(index for index, piece in enumerate(pieces) if piece.field == "packet_identifier")
    behind = b"".join(piece.data for piece in pieces[at + 1 :])
    return raw[: len(raw) - len(behind) - len(pieces[at].data)], behind


def _limit(target: FlowTarget) -> int:
    limit = target.limit("receive_maximum", 65_535)
    refuse(limit > steps.MOST_PACKETS, f"the Receive Maximum is above {steps.MOST_PACKETS:,}")
    return limit


def _overrun(target: FlowTarget) -> list[Step]:
    identifiers = steps.free_identifiers(target, _limit(target) + 1)
    packets = [steps.send(steps.publish(target, 2, number, f"/{number}"), V5).data for number in identifiers]
    return steps.put(target, [steps.send(b"".join(packets), V5)], steps.opening(target), rest=False)


def _filled(target: FlowTarget) -> list[Step]:
    identifiers = steps.free_identifiers(target, min(_limit(target), 100))
    packets = [steps.send(steps.publish(target, 1, number, f"/{number}"), V5) for number in identifiers]
    answers = [steps.wait(PacketType.PUBACK, number) for number in identifiers]
    return steps.put(target, [*packets, *answers], steps.opening(target))


def _every_identifier(target: FlowTarget) -> list[Step]:
    window = min(target.limit("receive_maximum", 65_535), 100)
    # The packets are alike but for their identifiers, so that encoding one of them is enough.
    before, behind = _around_identifier(steps.send(steps.publish(target, 1, 1), target.version).data, target.version)
    added: list[Step] = []
    for start in range(1, 65_536, window):
        block = range(start, min(start + window, 65_536))
        data = b"".join(before + number.to_bytes(2, "big") + behind for number in block)
        added += [steps.send(data, target.version), *(steps.wait(PacketType.PUBACK, number) for number in block)]
    return steps.put(target, added, steps.opening(target))


_NOTHING_WAITS = "5.0 MQTT-2.2.1-5, 3.1.1 MQTT-2.3.1-6"
_ACKS = (
    (PacketType.PUBACK, _NOTHING_WAITS),
    (PacketType.PUBREC, _NOTHING_WAITS),
    (PacketType.PUBREL, _NOTHING_WAITS),
    (PacketType.PUBCOMP, "5.0 MQTT-2.2.1-5"),
)
EXCHANGES = (
    # 5.0 has 0x92 for this in PUBREL and PUBCOMP; nothing says that the connection has to end.
    *(row(f"flow:acknowledge-unknown-{kind.name.lower()}",
          f"{kind.name} has an identifier that nothing has that waits for it.",
          partial(_acknowledge_unknown, kind), statements, ANY, senders=SIDES) for kind, statements in _ACKS),
    *(row(f"flow:acknowledge-unknown-{kind.name.lower()}", f"{kind.name} has an identifier that no {request} has.",
          partial(_acknowledge_unknown, kind), "5.0 MQTT-2.2.1-6, 3.1.1 MQTT-2.3.1-7", ANY, senders=(SERVER,))
      for kind, request in ((PacketType.SUBACK, "SUBSCRIBE"), (PacketType.UNSUBACK, "UNSUBSCRIBE"))),
    *(row(f"flow:acknowledge-wrong-identifier-{kind.name.lower()}",
          f"{kind.name} has another identifier than what it answers, which is never answered.",
          partial(_wrong_identifier, kind), statements, ANY, senders=SIDES) for kind, statements in _ACKS),
    row("flow:acknowledge-wrong-type", "A PUBLISH with QoS 1 is answered with PUBREC.", _wrong_type,
        "3.1 V31-PUBLISH-response, 3.1.1 MQTT-3.3.4-1, 5.0 MQTT-3.3.4-1", PROTOCOL_ERROR, senders=SIDES),
    row("flow:acknowledge-twice", "A PUBACK or PUBCOMP is sent twice.",
        partial(_twice, (PacketType.PUBACK, PacketType.PUBCOMP), "the side sends no PUBACK and no PUBCOMP"),
        senders=SIDES),
    row("flow:acknowledge-out-of-order", "Two PUBACKs change places.", _out_of_order,
        "3.1.1 MQTT-4.6.0-2, 5.0 MQTT-4.6.0-2"),
    row("flow:suback-twice", "A SUBACK is sent twice.",
        partial(_twice, (PacketType.SUBACK,), "the server sends no SUBACK"), "3.1.1 MQTT-3.8.4-4, 5.0 MQTT-3.8.4-5",
        ANY, senders=(SERVER,)),
    # A receiver that has acknowledged the first one has to take the second as a new one (QoS 1, 5.0 MQTT-4.3.2-5) or
    # to acknowledge it as well (QoS 2, 5.0 MQTT-4.3.3-10); so does 3.1.1.
    *(row(f"flow:identifier-in-use-qos-{qos}",
          f"Two different PUBLISH packets with QoS {qos} have the same identifier at the same time.",
          partial(_identifier_in_use, qos),
          f"3.1 V31-MSGID-in-flight, 3.1.1 MQTT-4.3.{qos + 1}-1, 5.0 MQTT-4.3.{qos + 1}-1, "
          "client 3.1.1 MQTT-2.3.1-2, client 5.0 MQTT-2.2.1-3, server 3.1.1 MQTT-2.3.1-4, server 5.0 MQTT-2.2.1-4",
          ANY, senders=SIDES, later=True) for qos in (1, 2)),
    # 5.0 has 0x91 for it in SUBACK; nothing obliges a server to remember identifiers across packet types.
    row("flow:identifier-of-publish-in-subscribe",
        "SUBSCRIBE has the identifier of a PUBLISH that is not acknowledged yet.", _identifier_in_subscribe,
        "3.1 V31-MSGID-in-flight, 3.1.1 MQTT-2.3.1-2, 5.0 MQTT-2.2.1-3, 5.0 V5-ID-reuse-set", ANY, later=True),
    row("flow:publish-again-on-live-connection",
        "A PUBLISH is sent again with DUP although the connection is the same.", _again, "5.0 MQTT-4.4.0-1", ANY,
        senders=SIDES, legal=(V3_1,), later=True),
    row("flow:publish-again-after-pubrel", "A PUBLISH with QoS 2 is sent again after its PUBREL.", _after_release,
        "3.1.1 MQTT-4.3.3-1, 5.0 MQTT-4.3.3-6", ANY, senders=SIDES, later=True),
    row("flow:topic-alias-unmapped",
        "A PUBLISH has a Topic Alias that was never given a Topic Name, and no Topic Name.", partial(_aliases, ("",)),
        "5.0 V5-PUBLISH-alias-unknown", Reaction(Demand.CLOSE, (0x82, 0x94)), ONLY_5, SIDES),
    row("flow:topic-alias-remapped", "A Topic Alias is given a Topic Name, used, given another one and used again.",
        partial(_aliases, (TOPIC + "/one", "", TOPIC + "/two", "")), "", ACCEPT, ONLY_5, legal=ONLY_5),
    row("flow:receive-maximum-overrun",
        "One message with QoS 2 more than the Receive Maximum is sent before any is complete.", _overrun,
        "5.0 MQTT-4.9.0-2, client 5.0 MQTT-3.3.4-7, server 5.0 MQTT-3.3.4-9", Reaction(Demand.CLOSE, (0x93,)),
        ONLY_5, SIDES, later=True),
    row("flow:receive-maximum-filled",
        "As many messages with QoS 1 as the Receive Maximum allows (100 at most) are in flight at once.", _filled,
        "", ACCEPT, ONLY_5, legal=ONLY_5),
    row("flow:every-identifier", "65,535 messages with QoS 1 are sent, each with another Packet Identifier.",
        _every_identifier, "", ACCEPT, legal=ALL_VERSIONS),
)  # fmt: skip
"""Acknowledgements, identifiers, aliases and quotas."""
