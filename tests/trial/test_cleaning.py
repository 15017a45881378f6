"""Cleaning up behind cases, when the broker serves and when it does not."""

from __future__ import annotations

import asyncio

import pytest

from mqttscope.mqtt import Connack, Connect, Properties, Publish, encode
from mqttscope.trial import cleaning
from mqttscope.trial.cleaning import Cleaner
from mqttscope.trial.conversation import Conversation
from mqttscope.trial.door import Door
from tests.proxy.rig import free_port
from tests.trial.broken import Fault, broken
from tests.trial.flows import V3_1_1, V5, target


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
            cleaner = Cleaner(Door(target(broker.port)))
            cleaner.owe(kept("a"))
            cleaner.owe(kept("b"))
            return await cleaner.settle(V3_1_1, 1.0), await cleaner.finish(V3_1_1, 1.0)

    assert asyncio.run(run()) == ([], "")


def test_a_broker_that_closes_for_a_topic_keeps_nothing_there() -> None:
    """For a topic with a space it closes, when we publish there and when we delete."""

    async def run() -> list[list[str]]:
        async with broken(Fault.REFUSE) as broker:
            cleaner = Cleaner(Door(target(broker.port)))
            told = []
            for how in ("fin", ""):
                made = kept("a b", "c")
                made.add(False, b"", 3, ends=how)
                cleaner.owe(made)
                told.append(await cleaner.settle(V3_1_1, 1.0))
            return told

    assert asyncio.run(run()) == [[], ["retained message a b"]]


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_session_that_ended_with_its_connection_is_not_left(seconds: int) -> None:
    """A broker that wants an authentication refuses the client that is to clean up."""

    async def run() -> list[str]:
        async with broken(Fault.LOGIN) as broker:
            cleaner = Cleaner(Door(target(broker.port)))
            made = Conversation(V5)
            block = Properties(session_expiry_interval=seconds) if seconds else Properties()
            made.add(True, encode(Connect(protocol_level=5, client_identifier="dev", properties=block), V5), 0)
            made.add(False, encode(Connack(properties=Properties()), V5), 1)
            cleaner.owe(made)
            return await cleaner.settle(V3_1_1, 1.0)

    assert asyncio.run(run()) == (["session dev"] if seconds else [])


@pytest.mark.parametrize("fault", [Fault.NO_ACKNOWLEDGEMENT, Fault.MAXIMUM_QOS_0])
def test_where_qos_1_leads_nowhere(fault: Fault) -> None:
    """It is deleted at QoS 0 where the broker says that it takes nothing else, and else not known to be gone."""

    async def run() -> list[str]:
        async with broken(fault) as broker:
            cleaner = Cleaner(Door(target(broker.port)))
            cleaner.owe(kept("a"))
            return await cleaner.settle(V5, 0.2)

    assert asyncio.run(run()) == (["retained message a"] if fault is Fault.NO_ACKNOWLEDGEMENT else [])


def test_where_nobody_serves_what_may_be_left_is_named() -> None:
    port = free_port()
    cleaner = Cleaner(Door(target(port)))
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
            cleaner = Cleaner(Door(target(broker.port)))
            cleaner.owe(kept("a"))
            return await cleaner.finish(V3_1_1, 60.0)

    monkeypatch.setattr(cleaning, "LAST_S", 0.1)
    assert asyncio.run(run()).endswith(": session dev, retained message a")
