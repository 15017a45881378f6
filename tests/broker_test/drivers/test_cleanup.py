"""Cleaning up after cases, when the broker serves and when it does not."""

from __future__ import annotations

import asyncio

import pytest

from mqttscope.broker_test.conversation import Conversation
from mqttscope.broker_test.drivers import cleanup
from mqttscope.broker_test.drivers.cleanup import Cleaner, residue
from mqttscope.broker_test.drivers.probe_client import BrokerAccess
from mqttscope.mqtt import Connack, Connect, ControlPacket, Properties, Puback, Publish, encode
from mqttscope.mqtt.parts import Will
from tests.broker_test.broken import Fault, broken
from tests.broker_test.flows import V3_1_1, V5, target
from tests.proxy.rig import PATIENCE_S, free_port


def talk(*packets: ControlPacket | bytes, version: int = 5) -> Conversation:
    spoken = V5 if version == 5 else V3_1_1
    made = Conversation(spoken)
    for number, one in enumerate(packets):
        from_client = not isinstance(one, Connack | Puback)
        made.add(from_client, one if isinstance(one, bytes) else encode(one, spoken), number)
    return made


def connect(name: str, **more: object) -> Connect:
    return Connect(protocol_level=5, client_identifier=name, properties=Properties(), **more)  # type: ignore[arg-type]


def test_sessions_and_retained_messages() -> None:
    found = residue(
        talk(
            connect("dev"),
            Publish(topic_name="kept", payload=b"x", retain=True, properties=Properties()),
            Publish(topic_name="passing", payload=b"x", properties=Properties()),
            Publish(topic_name="deleted", payload=b"", retain=True, properties=Properties()),
        )
    )

    assert found.sessions == [(V5, "dev")]
    assert found.topics == ["kept"]


def test_topics_behind_aliases_and_of_wills() -> None:
    aliased = Properties(topic_alias=1)
    found = residue(
        talk(
            connect("dev", will=Will("last/words", b"x", will_retain=True, properties=Properties())),
            Publish(topic_name="named", payload=b"x", properties=aliased),
            Publish(topic_name="", payload=b"x", retain=True, properties=aliased),
        )
    )

    assert found.topics == ["last/words", "named"]


def test_what_is_malformed_may_have_been_tolerated() -> None:
    found = residue(talk(Connect(client_identifier="dev"), b"\x37\x06\x00\x01a\x00\x01x", version=4))

    assert found.topics == ["a"]


def test_identifiers_that_the_broker_assigned() -> None:
    told = Connack(session_present=False, properties=Properties(assigned_client_identifier="auto-1"))
    found = residue(talk(connect(""), told))

    assert found.sessions == [(V5, "auto-1")]


def test_what_the_broker_never_took_is_not_there() -> None:
    """Nobody could delete it either: a client that keeps the protocol cannot name it."""
    ill_formed, wild = (
        b"\x31\x06\x00\x02\xc0\x80\x00x",
        Publish(topic_name="a/#", qos=1, packet_identifier=1, payload=b"x", retain=True, properties=Properties()),
    )
    closed, open_ = (talk(connect("dev"), Connack(properties=Properties()), wild, ill_formed) for _ in range(2))
    closed.add(False, b"", 9, ends="fin")
    taken = talk(connect("dev"), Connack(properties=Properties()), wild, Puback(packet_identifier=1), ill_formed)
    taken.add(False, b"", 9, ends="fin")

    assert residue(closed).topics == []
    assert residue(open_).topics == ["a/#", "\udcc0\udc80"]
    assert residue(taken).topics == ["a/#"]
    assert residue(taken).doubtful == set()


def test_what_it_closed_for_and_did_not_acknowledge_may_not_be_there() -> None:
    message = Publish(topic_name="a\n", qos=1, packet_identifier=1, payload=b"x", retain=True, properties=Properties())
    closed, open_ = (talk(connect("dev"), Connack(properties=Properties()), message) for _ in range(2))
    closed.add(False, b"", 9, ends="fin")

    assert (residue(closed).topics, residue(closed).doubtful) == (["a\n"], {"a\n"})
    assert (residue(open_).topics, residue(open_).doubtful) == (["a\n"], set())


def test_what_the_broker_refused_is_not_there() -> None:
    message = Publish(topic_name="a", qos=1, packet_identifier=1, payload=b"x", retain=True, properties=Properties())

    assert residue(talk(connect("dev"), message, Puback(1, 0x87))).topics == []
    assert residue(talk(connect("dev"), message, Puback(1, 0x10))).topics == ["a"]


def test_a_will_on_no_topic_name_needs_a_connection() -> None:
    will = Will("a/#", b"x", will_retain=True, properties=Properties())
    refused = talk(connect("dev", will=will), Connack(reason_code=0x90, properties=Properties()))
    let_in = talk(connect("dev", will=will), Connack(properties=Properties()))

    assert (residue(refused).topics, residue(let_in).topics) == ([], ["a/#"])
    assert residue(let_in).told() == ["session dev", "retained message a/#"]


def test_which_sessions_outlive_their_connections() -> None:
    def lasting(*packets: ControlPacket | bytes, version: int = 5) -> set[str]:
        return residue(talk(*packets, version=version)).lasting

    expiring = Connect(protocol_level=5, client_identifier="dev", properties=Properties(session_expiry_interval=9))
    assert lasting(connect("dev"), Connack(properties=Properties())) == set()
    assert lasting(expiring) == {"dev"}
    assert lasting(connect("dev"), Connack(properties=Properties(session_expiry_interval=9))) == {"dev"}
    assert lasting(Connect(client_identifier="dev", clean_start=True), version=4) == set()
    assert lasting(Connect(client_identifier="dev", clean_start=False), version=4) == {"dev"}


def kept(*topics: str) -> Conversation:
    made = Conversation(V5)
    made.add(True, encode(Connect(protocol_level=5, client_identifier="dev", properties=Properties()), V5), 0)
    made.add(False, encode(Connack(properties=Properties()), V5), 1)
    for topic in topics:
        made.add(True, encode(Publish(topic_name=topic, payload=b"x", retain=True, properties=Properties()), V5), 2)
    return made


def test_what_is_owed_is_settled_once() -> None:
    async def run() -> tuple[list[str], str]:
        async with broken(Fault.NONE) as broker:
            cleaner = Cleaner(BrokerAccess(target(broker.port)))
            cleaner.owe(kept("a"))
            cleaner.owe(kept("b"))
            return await cleaner.settle(V3_1_1, PATIENCE_S), await cleaner.finish(V3_1_1, PATIENCE_S)

    assert asyncio.run(run()) == ([], "")


def test_a_broker_that_closes_for_a_topic_keeps_nothing_there() -> None:
    """For a topic with a space it closes, when we publish there and when we delete."""

    async def run() -> list[list[str]]:
        async with broken(Fault.REFUSE) as broker:
            cleaner = Cleaner(BrokerAccess(target(broker.port)))
            told = []
            for how in ("fin", ""):
                made = kept("a b", "c")
                made.add(False, b"", 3, ends=how)
                cleaner.owe(made)
                told.append(await cleaner.settle(V3_1_1, PATIENCE_S))
            return told

    assert asyncio.run(run()) == [[], ["retained message a b"]]


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_session_that_ended_with_its_connection_is_not_left(seconds: int) -> None:
    """A broker that wants an authentication refuses the client that is to clean up."""

    async def run() -> list[str]:
        async with broken(Fault.LOGIN) as broker:
            cleaner = Cleaner(BrokerAccess(target(broker.port)))
            made = Conversation(V5)
            block = Properties(session_expiry_interval=seconds) if seconds else Properties()
            made.add(True, encode(Connect(protocol_level=5, client_identifier="dev", properties=block), V5), 0)
            made.add(False, encode(Connack(properties=Properties()), V5), 1)
            cleaner.owe(made)
            return await cleaner.settle(V3_1_1, PATIENCE_S)

    assert asyncio.run(run()) == (["session dev"] if seconds else [])


@pytest.mark.parametrize("fault", [Fault.NO_ACKNOWLEDGEMENT, Fault.MAXIMUM_QOS_0])
def test_where_qos_1_leads_nowhere(fault: Fault) -> None:
    """It is deleted at QoS 0 where the broker says that it takes nothing else, and else not known to be gone."""

    async def run() -> list[str]:
        async with broken(fault) as broker:
            cleaner = Cleaner(BrokerAccess(target(broker.port)))
            cleaner.owe(kept("a"))
            # Only silence takes the time that may be waited; an answer ends the wait.
            return await cleaner.settle(V5, 0.2 if fault is Fault.NO_ACKNOWLEDGEMENT else PATIENCE_S)

    assert asyncio.run(run()) == (["retained message a"] if fault is Fault.NO_ACKNOWLEDGEMENT else [])


def test_where_nobody_serves_what_may_be_left_is_named() -> None:
    port = free_port()
    cleaner = Cleaner(BrokerAccess(target(port)))
    cleaner.owe(kept("a"))
    cleaner.owe(kept(*(f"b{place}" for place in range(30))))

    told = asyncio.run(cleaner.finish(V3_1_1, 0.1))
    assert told.startswith(
        f"may be left on mqtt://127.0.0.1:{port}: session dev, retained message a, retained message b0"
    )
    assert told.endswith(" and 12 more")


def test_the_end_takes_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> str:
        async with broken(Fault.NONE) as broker:
            broker.hanging = True
            cleaner = Cleaner(BrokerAccess(target(broker.port)))
            cleaner.owe(kept("a"))
            return await cleaner.finish(V3_1_1, 60.0)

    monkeypatch.setattr(cleanup, "LAST_S", 0.1)
    assert asyncio.run(run()).endswith(": session dev, retained message a")
