"""Mutations of what packets mean to each other: identifiers, acknowledgements, aliases, quotas (5.0 4.3, 4.9)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from mqttscope.mutate.flow import CLIENT, SERVER, Step
from mqttscope.mutate.layout import Layout
from mqttscope.mutate.mutation import (
    ACCEPT,
    ALL_VERSIONS,
    ANY,
    PROTOCOL_ERROR,
    Demand,
    FlowChange,
    FlowTarget,
    Mutation,
    MutationKind,
    NotApplicableError,
    Reaction,
)
from mqttscope.mutate.samples import TOPIC, sample
from mqttscope.mutate.steps import MOST_PACKETS, free_identifiers, marked, opening, publish, put, send, wait

V3_1, V3_1_1, V5 = ProtocolVersion
_BOTH = (CLIENT, SERVER)
_Ack = Puback | Pubrec | Pubrel | Pubcomp
_ACKS: dict[str, type[_Ack]] = {"puback": Puback, "pubrec": Pubrec, "pubrel": Pubrel, "pubcomp": Pubcomp}


def _flow(slug: str, description: str, change: FlowChange, **more: object) -> Mutation:
    more.setdefault("senders", _BOTH)
    return Mutation(f"flow:{slug}", MutationKind.FLOW, description, change_flow=change, **more)  # type: ignore[arg-type]


def exchange_mutations() -> Iterator[Mutation]:
    """Acknowledgements, identifiers, aliases and quotas."""
    yield from _acknowledgements()
    yield from _identifiers()
    yield from _repeats()
    yield from _aliases()
    yield from _quotas()


def _acknowledgements() -> Iterator[Mutation]:
    for name, kind in _ACKS.items():

        def unknown(target: FlowTarget, kind: type[_Ack] = kind) -> list[Step]:
            identifier = free_identifiers(target, 1)[0]
            return put(target, [send(kind(packet_identifier=identifier), target.version)])

        yield _flow(
            f"acknowledge-unknown-{name}",
            f"{name.upper()} has an identifier that nothing has that waits for it.",
            unknown,
            statements=("5.0 MQTT-2.2.1-5", *(() if name == "pubcomp" else ("3.1.1 MQTT-2.3.1-6",))),
            # 5.0 has 0x92 for this in PUBREL and PUBCOMP; nothing says that the connection has to end.
            reaction=ANY,
        )
    for kind_, words in ((PacketType.SUBACK, "SUBSCRIBE"), (PacketType.UNSUBACK, "UNSUBSCRIBE")):

        def unasked(target: FlowTarget, kind_: PacketType = kind_) -> list[Step]:
            identifier = free_identifiers(target, 1)[0]
            return put(target, [send(sample(kind_, target.version, identifier), target.version)])

        yield _flow(
            f"acknowledge-unknown-{kind_.name.lower()}",
            f"{kind_.name} has an identifier that no {words} has.",
            unasked,
            senders=(SERVER,),
            statements=("5.0 MQTT-2.2.1-6", "3.1.1 MQTT-2.3.1-7"),
            reaction=ANY,
        )

    for name, kind in _ACKS.items():

        def another(target: FlowTarget, kind: type[_Ack] = kind) -> list[Step]:
            identifier = free_identifiers(target, 1)[0]
            places = target.flow.places(target.sender, kind.packet_type)
            if not places:
                raise NotApplicableError(f"the side sends no {kind.packet_type.name}")
            at = target.chance.pick(places)
            instead = send(kind(packet_identifier=identifier), target.version)
            return [*target.steps[:at], replace(instead, entry=at), *target.steps[at + 1 :]]

        yield _flow(
            f"acknowledge-wrong-identifier-{name}",
            f"{name.upper()} has another identifier than what it answers, which is never answered.",
            another,
            statements=("5.0 MQTT-2.2.1-5", *(() if name == "pubcomp" else ("3.1.1 MQTT-2.3.1-6",))),
            reaction=ANY,
        )

    def wrong(target: FlowTarget) -> list[Step]:
        for index, entry in enumerate(target.flow.entries):
            if entry.sender == target.sender and entry.packet_type == PacketType.PUBACK:
                identifier = entry.packet.packet_identifier  # type: ignore[union-attr]
                instead = send(Pubrec(packet_identifier=identifier), target.version)
                return [*target.steps[:index], replace(instead, entry=index), *target.steps[index + 1 :]]
        raise NotApplicableError("the side sends no PUBACK")

    yield _flow(
        "acknowledge-wrong-type",
        "A PUBLISH with QoS 1 is answered with PUBREC.",
        wrong,
        statements=("3.1 V31-PUBLISH-response", "3.1.1 MQTT-3.3.4-1", "5.0 MQTT-3.3.4-1"),
        reaction=PROTOCOL_ERROR,
    )

    def twice(target: FlowTarget) -> list[Step]:
        for index, entry in enumerate(target.flow.entries):
            if entry.sender == target.sender and entry.packet_type in (PacketType.PUBACK, PacketType.PUBCOMP):
                return [*target.steps[: index + 1], marked(target.steps[index]), *target.steps[index + 1 :]]
        raise NotApplicableError("the side sends no PUBACK and no PUBCOMP")

    yield _flow("acknowledge-twice", "A PUBACK or PUBCOMP is sent twice.", twice)

    def out_of_order(target: FlowTarget) -> list[Step]:
        entries = target.flow.entries
        acks = target.flow.places(target.sender, PacketType.PUBACK)
        for first, second in pairwise(acks):
            if any(entry.packet_type == PacketType.DISCONNECT for entry in entries[first:second]):
                continue
            if target.sender == CLIENT and _own_receive_maximum(target) < 2:
                break
            between = target.steps[first + 1 : second]
            swapped = [marked(target.steps[second]), marked(target.steps[first])]
            return [*target.steps[:first], *between, *swapped, *target.steps[second + 1 :]]
        raise NotApplicableError("the side sends no two PUBACKs that could change places")

    yield _flow(
        "acknowledge-out-of-order",
        "Two PUBACKs change places.",
        out_of_order,
        senders=(CLIENT,),
        statements=("3.1.1 MQTT-4.6.0-2", "5.0 MQTT-4.6.0-2"),
    )

    def answered_twice(target: FlowTarget) -> list[Step]:
        for index, entry in enumerate(target.flow.entries):
            if entry.sender == target.sender and entry.packet_type == PacketType.SUBACK:
                return [*target.steps[: index + 1], marked(target.steps[index]), *target.steps[index + 1 :]]
        raise NotApplicableError("the server sends no SUBACK")

    yield _flow(
        "suback-twice",
        "A SUBACK is sent twice.",
        answered_twice,
        senders=(SERVER,),
        statements=("3.1.1 MQTT-3.8.4-4", "5.0 MQTT-3.8.4-5"),
        reaction=ANY,
    )


def _own_receive_maximum(target: FlowTarget) -> int:
    """How many messages the other side may have in flight towards this one."""
    other = replace(target, sender=SERVER if target.sender == CLIENT else CLIENT)
    return other.limit("receive_maximum", 65_535)


def _identifiers() -> Iterator[Mutation]:
    by_sender = {
        CLIENT: ("3.1.1 MQTT-2.3.1-2", "5.0 MQTT-2.2.1-3"),
        SERVER: ("3.1.1 MQTT-2.3.1-4", "5.0 MQTT-2.2.1-4"),
    }
    for qos in (1, 2):

        def in_use(target: FlowTarget, qos: int = qos) -> list[Step]:
            if target.limit("receive_maximum", 65_535) < 2:
                raise NotApplicableError("the receiver takes one message at a time")
            identifier = free_identifiers(target, 1)[0]
            pair = [publish(target, qos, identifier, text) for text in ("/one", "/two")]
            # One segment, so that no acknowledgement can come between them.
            whole = b"".join(send(one, target.version).data for one in pair)
            return put(target, [send(whole, target.version)], rest=False)

        yield _flow(
            f"identifier-in-use-qos-{qos}",
            f"Two different PUBLISH packets with QoS {qos} have the same identifier at the same time.",
            in_use,
            statements=("3.1 V31-MSGID-in-flight", f"3.1.1 MQTT-4.3.{qos + 1}-1", f"5.0 MQTT-4.3.{qos + 1}-1"),
            sender_statements=by_sender,
            # A receiver that has acknowledged the first one has to take the second as a new one (QoS 1, 5.0
            # MQTT-4.3.2-5) or to acknowledge it as well (QoS 2, 5.0 MQTT-4.3.3-10); so does 3.1.1.
            reaction=ANY,
            later=True,
        )

    def subscribe(target: FlowTarget) -> list[Step]:
        identifier = free_identifiers(target, 1)[0]
        block = Properties() if target.version == V5 else None
        request = Subscribe(packet_identifier=identifier, properties=block, subscriptions=[Subscription(TOPIC)])
        whole = send(publish(target, 2, identifier), target.version).data + send(request, target.version).data
        return put(target, [send(whole, target.version)], rest=False)

    yield _flow(
        "identifier-of-publish-in-subscribe",
        "SUBSCRIBE has the identifier of a PUBLISH that is not acknowledged yet.",
        subscribe,
        senders=(CLIENT,),
        statements=("3.1 V31-MSGID-in-flight", "3.1.1 MQTT-2.3.1-2", "5.0 MQTT-2.2.1-3", "5.0 V5-ID-reuse-set"),
        # 5.0 has 0x91 for it in SUBACK; nothing obliges a server to remember identifiers across packet types.
        reaction=ANY,
        later=True,
    )


def _repeats() -> Iterator[Mutation]:
    def again(target: FlowTarget) -> list[Step]:
        identifier = free_identifiers(target, 1)[0]
        first = publish(target, 1, identifier)
        second = replace(first, dup=True)
        whole = send(first, target.version).data + send(second, target.version).data
        return put(target, [send(whole, target.version), wait(PacketType.PUBACK, identifier)])

    yield _flow(
        "publish-again-on-live-connection",
        "A PUBLISH is sent again with DUP although the connection is the same.",
        again,
        statements=("5.0 MQTT-4.4.0-1",),
        legal_in=(V3_1,),
        later=True,
    )

    def after_release(target: FlowTarget) -> list[Step]:
        identifier = free_identifiers(target, 1)[0]
        first = publish(target, 2, identifier)
        second = replace(first, dup=True)
        released = send(Pubrel(packet_identifier=identifier), target.version).data
        added = [
            send(first, target.version),
            wait(PacketType.PUBREC, identifier),
            send(released + send(second, target.version).data, target.version),
        ]
        return put(target, added, rest=False)

    yield _flow(
        "publish-again-after-pubrel",
        "A PUBLISH with QoS 2 is sent again after its PUBREL.",
        after_release,
        statements=("3.1.1 MQTT-4.3.3-1", "5.0 MQTT-4.3.3-6"),
        later=True,
    )


def _aliased(alias: int, topic: str) -> Publish:
    return Publish(topic_name=topic, properties=Properties(topic_alias=alias), payload=b"mutate")


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


def _aliases() -> Iterator[Mutation]:
    def unmapped(target: FlowTarget) -> list[Step]:
        return put(target, [send(_aliased(_alias(target), ""), V5)])

    yield _flow(
        "topic-alias-unmapped",
        "A PUBLISH has a Topic Alias that was never given a Topic Name, and no Topic Name.",
        unmapped,
        versions=(V5,),
        statements=("5.0 V5-PUBLISH-alias-unknown",),
        reaction=Reaction(Demand.CLOSE, (0x82, 0x94)),
    )

    def remapped(target: FlowTarget) -> list[Step]:
        alias = _alias(target)
        packets = [_aliased(alias, text) for text in (TOPIC + "/one", "", TOPIC + "/two", "")]
        return put(target, [send(one, V5) for one in packets])

    yield _flow(
        "topic-alias-remapped",
        "A Topic Alias is given a Topic Name, used, given another one and used again.",
        remapped,
        versions=(V5,),
        senders=(CLIENT,),
        legal_in=(V5,),
        reaction=ACCEPT,
    )


def _around_identifier(raw: bytes, version: ProtocolVersion) -> tuple[bytes, bytes]:
    """What stands before and after the Packet Identifier of a packet."""
    pieces = Layout(raw, version).pieces
    at = next(index for index, one in enumerate(pieces) if one.field == "packet_identifier")
    behind = b"".join(one.data for one in pieces[at + 1 :])
    return raw[: len(raw) - len(behind) - len(pieces[at].data)], behind


def _quotas() -> Iterator[Mutation]:
    def limit(target: FlowTarget) -> int:
        found = target.limit("receive_maximum", 65_535)
        if found > MOST_PACKETS:
            raise NotApplicableError(f"the Receive Maximum is above {MOST_PACKETS:,}")
        return found

    def overrun(target: FlowTarget) -> list[Step]:
        identifiers = free_identifiers(target, limit(target) + 1)
        packets = [send(publish(target, 2, one, f"/{one}"), V5).data for one in identifiers]
        return put(target, [send(b"".join(packets), V5)], opening(target), rest=False)

    yield _flow(
        "receive-maximum-overrun",
        "One message with QoS 2 more than the Receive Maximum is sent before any is complete.",
        overrun,
        versions=(V5,),
        statements=("5.0 MQTT-4.9.0-2",),
        sender_statements={CLIENT: ("5.0 MQTT-3.3.4-7",), SERVER: ("5.0 MQTT-3.3.4-9",)},
        reaction=Reaction(Demand.CLOSE, (0x93,)),
        later=True,
    )

    def filled(target: FlowTarget) -> list[Step]:
        identifiers = free_identifiers(target, min(limit(target), 100))
        packets = [send(publish(target, 1, one, f"/{one}"), V5) for one in identifiers]
        answers = [wait(PacketType.PUBACK, one) for one in identifiers]
        return put(target, [*packets, *answers], opening(target))

    yield _flow(
        "receive-maximum-filled",
        "As many messages with QoS 1 as the Receive Maximum allows (100 at most) are in flight at once.",
        filled,
        versions=(V5,),
        senders=(CLIENT,),
        legal_in=(V5,),
        reaction=ACCEPT,
    )

    def every(target: FlowTarget) -> list[Step]:
        window = min(target.limit("receive_maximum", 65_535), 100)
        # All are alike but for their identifiers, so that encoding one of them is enough.
        before, behind = _around_identifier(send(publish(target, 1, 1), target.version).data, target.version)
        added: list[Step] = []
        for start in range(1, 65_536, window):
            block = range(start, min(start + window, 65_536))
            data = b"".join(before + one.to_bytes(2, "big") + behind for one in block)
            added += [send(data, target.version), *(wait(PacketType.PUBACK, one) for one in block)]
        return put(target, added, opening(target))

    yield _flow(
        "every-identifier",
        "65,535 messages with QoS 1 are sent, each with another Packet Identifier.",
        every,
        senders=(CLIENT,),
        legal_in=ALL_VERSIONS,
        reaction=ACCEPT,
    )
