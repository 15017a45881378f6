"""The client that keeps the protocol: what it publishes, what it finds out, and when it stops listening."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from mqttscope.broker_test.drivers import probe_client
from mqttscope.broker_test.drivers.probe_client import (
    FLOODED,
    BrokerAccess,
    BrokerHealth,
    ProbeClient,
    RefusedError,
    broker_health,
    forget_retained,
    speaks,
    witness,
)
from mqttscope.mqtt import Pingresp, encode
from mqttscope.session.connection import CONNECTED
from tests.broker_test.broken import Broker, Fault, broken
from tests.broker_test.flows import V3_1_1, V5, target
from tests.proxy.rig import free_port

T = TypeVar("T")
SHORT_S, LONG_S = 0.15, 5.0


def at(fault: Fault, do: Callable[[BrokerAccess, Broker], Awaitable[T]]) -> T:
    """What somebody comes to at a broker with a fault."""

    async def run() -> T:
        async with broken(fault) as broker:
            return await do(BrokerAccess(target(broker.port)), broker)

    return asyncio.run(run())


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_is_published_when_the_broker_has_taken_it_over(qos: int) -> None:
    async def run(access: BrokerAccess, broker: Broker) -> None:
        client = ProbeClient(access, V5)
        assert await client.connect(LONG_S)
        assert client.live.connection.phase is CONNECTED
        assert await client.publish("a", b"x", qos, LONG_S, retain=True)
        assert not client.live.connection.client_side.exchanges
        await client.leave()

    at(Fault.NONE, run)


def test_what_is_not_acknowledged_is_not_published() -> None:
    async def run(access: BrokerAccess, broker: Broker) -> list[bool]:
        client = ProbeClient(access, V5)
        await client.connect(LONG_S)
        found = [await client.publish("a", b"x", qos, SHORT_S) for qos in (0, 1)]
        await client.leave()
        return found

    assert at(Fault.NO_ACKNOWLEDGEMENT, run) == [True, False]


@pytest.mark.parametrize(("fault", "highest"), [(Fault.MAXIMUM_QOS, 1), (Fault.MAXIMUM_QOS_0, 0)])
def test_it_publishes_no_higher_than_the_broker_takes(fault: Fault, highest: int) -> None:
    async def run(access: BrokerAccess, broker: Broker) -> None:
        client = ProbeClient(access, V5)
        await client.connect(LONG_S)
        assert client.live.connection.maximum_qos == highest
        assert await client.publish("a", b"x", 2, LONG_S, retain=True)
        assert not client.how
        await client.leave()

    at(fault, run)


def test_a_witness_hears_itself_or_pings_where_it_may_not_subscribe() -> None:
    async def run(access: BrokerAccess, broker: Broker) -> tuple[bool, bool]:
        found = await witness(access, SHORT_S)
        assert found is not None
        came = await found.round_trip(LONG_S) is not None
        await found.leave()
        return found.hears, came

    assert at(Fault.NONE, run) == (True, True)
    assert at(Fault.NO_SUBSCRIBE, run) == (False, True)


def test_refusals_and_versions_are_told_apart() -> None:
    async def refused(access: BrokerAccess, broker: Broker) -> None:
        client = ProbeClient(access, V5)
        with pytest.raises(RefusedError, match="0x87"):
            await client.connect(LONG_S)
        await client.drop()
        assert await speaks(access, V5, LONG_S)

    async def old(access: BrokerAccess, broker: Broker) -> list[bool]:
        return [await speaks(access, version, LONG_S) for version in (V3_1_1, V5)]

    at(Fault.LOGIN, refused)
    assert at(Fault.OLD, old) == [True, False]


def test_the_health_of_a_broker() -> None:
    async def health(access: BrokerAccess, broker: Broker) -> list[BrokerHealth]:
        found = [await broker_health(access, V5, LONG_S)]
        broker.hanging = True
        return [*found, await broker_health(access, V5, SHORT_S)]

    assert at(Fault.NONE, health) == [BrokerHealth.SERVES, BrokerHealth.SILENT]
    assert at(Fault.LOGIN, lambda access, _: broker_health(access, V5, LONG_S)) is BrokerHealth.SERVES
    dead = BrokerAccess(target(free_port()))
    assert asyncio.run(broker_health(dead, V5, LONG_S)) is BrokerHealth.DEAD


def test_who_floods_a_client_that_asked_for_nothing_has_lost_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_client, "MAX_UNASKED", 100)

    async def run(access: BrokerAccess, broker: Broker) -> str:
        client = ProbeClient(access, V5)
        await client.connect(LONG_S)
        (other,) = broker.clients
        other.transport.write(encode(Pingresp(), V5) * 1_000)
        assert await client.until_ended(LONG_S)
        await client.drop()
        return client.how

    assert at(Fault.NONE, run) == FLOODED


def test_retained_messages_that_could_not_be_deleted_are_named() -> None:
    async def run(access: BrokerAccess, broker: Broker) -> list[str]:
        return await forget_retained(access, V5, ["a", "b c"], LONG_S)

    assert at(Fault.NONE, run) == []
    assert at(Fault.REFUSE, run) == ["b c"]
