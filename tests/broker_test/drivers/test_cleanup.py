"""Cleaning up after cases, when the broker serves and when it does not."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.broker_test.conversation import Conversation
from mqttscope.broker_test.drivers.cleanup import Cleaner, residue
from mqttscope.broker_test.drivers.probe_client import BrokerAccess
from mqttscope.mqtt import Connack, Connect, ControlPacket, Properties, ProtocolVersion, Puback, Publish, encode
from mqttscope.mqtt.parts import Will
from tests.broker_test.broken import Fault, broken
from tests.broker_test.flows import V3_1_1, V5, target
from tests.each import each
from tests.proxy.rig import PATIENCE_S, free_port


def talk(*packets: ControlPacket | bytes, version: ProtocolVersion = V5) -> Conversation:
    conversation = Conversation(version)
    for number, packet in enumerate(packets):
        from_client = not isinstance(packet, Connack | Puback)
        conversation.add(from_client, packet if isinstance(packet, bytes) else encode(packet, version), number)
    return conversation


def closed(conversation: Conversation, how: str = "fin") -> Conversation:
    """A conversation that the broker ended."""
    conversation.add(False, b"", 9, ends=how)
    return conversation


def connect(name: str = "dev", **more: object) -> Connect:
    return Connect(protocol_level=5, client_identifier=name, **{"properties": Properties(), **more})  # type: ignore[arg-type]


def publish(topic: str, *, payload: bytes = b"x", retain: bool = True, **more: Any) -> Publish:
    return Publish(topic_name=topic, payload=payload, retain=retain, **{"properties": Properties(), **more})


def acknowledged(topic: str) -> Publish:
    return publish(topic, qos=1, packet_identifier=1)


CONNACK = Connack(properties=Properties())


def test_sessions_and_retained_messages() -> None:
    actual_residue = residue(
        talk(connect(), publish("kept"), publish("passing", retain=False), publish("deleted", payload=b""))
    )

    assert actual_residue.sessions == [(V5, "dev")]
    assert actual_residue.topics == ["kept"]


def test_topics_behind_aliases_and_of_wills() -> None:
    aliased = Properties(topic_alias=1)
    will = Will("last/words", b"x", will_retain=True, properties=Properties())
    named = publish("named", retain=False, properties=aliased)

    assert residue(talk(connect(will=will), named, publish("", properties=aliased))).topics == ["last/words", "named"]


def test_what_is_malformed_may_have_been_tolerated() -> None:
    conversation = talk(Connect(client_identifier="dev"), b"\x37\x06\x00\x01a\x00\x01x", version=V3_1_1)

    assert residue(conversation).topics == ["a"]


def test_identifiers_that_the_broker_assigned() -> None:
    connack = Connack(session_present=False, properties=Properties(assigned_client_identifier="auto-1"))

    assert residue(talk(connect(""), connack)).sessions == [(V5, "auto-1")]


def test_what_the_broker_never_took_is_not_there() -> None:
    """Nobody could delete it either: a client that keeps the protocol cannot name it."""
    ill_formed, wild = b"\x31\x06\x00\x02\xc0\x80\x00x", acknowledged("a/#")
    row = connect(), CONNACK, wild, ill_formed
    conversation = closed(talk(connect(), CONNACK, wild, Puback(packet_identifier=1), ill_formed))

    assert residue(closed(talk(*row))).topics == []
    assert residue(talk(*row)).topics == ["a/#", "\udcc0\udc80"]
    assert residue(conversation).topics == ["a/#"]
    assert residue(conversation).doubtful == set()


def test_what_it_closed_for_and_did_not_acknowledge_may_not_be_there() -> None:
    row = connect(), CONNACK, acknowledged("a\n")
    left, open_ = residue(closed(talk(*row))), residue(talk(*row))

    assert (left.topics, left.doubtful) == (["a\n"], {"a\n"})
    assert (open_.topics, open_.doubtful) == (["a\n"], set())


def test_what_the_broker_refused_is_not_there() -> None:
    assert residue(talk(connect(), acknowledged("a"), Puback(1, 0x87))).topics == []
    assert residue(talk(connect(), acknowledged("a"), Puback(1, 0x10))).topics == ["a"]


def test_a_will_on_no_topic_name_needs_a_connection() -> None:
    will = Will("a/#", b"x", will_retain=True, properties=Properties())
    refused = residue(talk(connect(will=will), Connack(reason_code=0x90, properties=Properties())))
    let_in = residue(talk(connect(will=will), CONNACK))

    assert (refused.topics, let_in.topics) == ([], ["a/#"])
    assert let_in.names() == ["session dev", "retained message a/#"]


@each(
    "version, chunks, is_lasting",
    [
        (V5, [connect(), CONNACK], False),
        (V5, [connect(properties=Properties(session_expiry_interval=9))], True),
        (V5, [connect(), Connack(properties=Properties(session_expiry_interval=9))], True),
        (V3_1_1, [Connect(client_identifier="dev", clean_start=True)], False),
        (V3_1_1, [Connect(client_identifier="dev", clean_start=False)], True),
    ],
)
def test_which_sessions_outlive_their_connections(
    version: ProtocolVersion, chunks: list[ControlPacket], is_lasting: bool
) -> None:
    assert residue(talk(*chunks, version=version)).lasting == ({"dev"} if is_lasting else set())


def kept(*topics: str, **more: object) -> Conversation:
    """A client that leaves retained messages."""
    return talk(connect("dev", **more), CONNACK, *map(publish, topics))


async def test_what_is_owed_is_settled_once() -> None:
    async with broken(Fault.NONE) as broker:
        cleaner = Cleaner(BrokerAccess(target(broker.port)))
        cleaner.remember(kept("a"))
        cleaner.remember(kept("b"))
        assert await cleaner.settle(V3_1_1, PATIENCE_S) == []
        assert await cleaner.finish(V3_1_1, PATIENCE_S) == ""


async def test_a_broker_that_closes_for_a_topic_keeps_nothing_there() -> None:
    """For a topic with a space it closes, when we publish there and when we delete."""
    async with broken(Fault.REFUSE) as broker:
        cleaner = Cleaner(BrokerAccess(target(broker.port)))
        for how, left in (("fin", []), ("", ["retained message a b"])):
            cleaner.remember(closed(kept("a b", "c"), how))
            assert await cleaner.settle(V3_1_1, PATIENCE_S) == left


@pytest.mark.parametrize("block", [Properties(), Properties(session_expiry_interval=60)])
async def test_a_session_that_ended_with_its_connection_is_not_left(block: Properties) -> None:
    """A broker that wants an authentication refuses the client that is to clean up."""
    async with broken(Fault.LOGIN) as broker:
        cleaner = Cleaner(BrokerAccess(target(broker.port)))
        cleaner.remember(kept(properties=block))
        assert await cleaner.settle(V3_1_1, PATIENCE_S) == (["session dev"] if block else [])


@pytest.mark.parametrize("fault", [Fault.NO_ACKNOWLEDGEMENT, Fault.MAXIMUM_QOS_0])
async def test_where_qos_1_leads_nowhere(fault: Fault) -> None:
    """It is deleted at QoS 0 where the broker says that it takes nothing else, and else not known to be gone."""
    silent = fault is Fault.NO_ACKNOWLEDGEMENT
    async with broken(fault) as broker:
        cleaner = Cleaner(BrokerAccess(target(broker.port)))
        cleaner.remember(kept("a"))
        # Only silence takes the time that may be waited; an answer ends the wait.
        left = await cleaner.settle(V5, 0.2 if silent else PATIENCE_S)

    assert left == (["retained message a"] if silent else [])


async def test_where_nobody_serves_what_may_be_left_is_named() -> None:
    port = free_port()
    cleaner = Cleaner(BrokerAccess(target(port)))
    cleaner.remember(kept("a"))
    cleaner.remember(kept("b"))

    sentence = await cleaner.finish(V3_1_1, 0.1)
    names = "session dev, retained message a, retained message b"
    assert sentence == f"may be left on mqtt://127.0.0.1:{port}: {names}"
