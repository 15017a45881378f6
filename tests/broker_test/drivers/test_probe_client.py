"""The client that keeps the protocol: what it publishes, what it finds out, and when it stops listening."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest

from mqttscope.broker_test.drivers.probe_client import (
    BrokerAccess,
    BrokerHealth,
    ProbeClient,
    RefusedError,
    broker_health,
    forget_retained,
    forget_session,
    supports_version,
    witness,
)
from mqttscope.session.connection import CONNECTED
from tests.broker_test.broken import Broker, Fault, broken
from tests.broker_test.flows import V3_1_1, V5, target
from tests.proxy.rig import free_port

SHORT_S, LONG_S = 0.15, 5.0


@asynccontextmanager
async def accessible(fault: Fault) -> AsyncIterator[tuple[BrokerAccess, Broker]]:
    """A broker with a fault."""
    async with broken(fault) as broker:
        yield BrokerAccess(target(broker.port)), broker


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_is_published_when_the_broker_has_taken_it_over(qos: int) -> None:
    async with accessible(Fault.NONE) as (access, _):
        client = ProbeClient(access, V5)
        assert await client.connect(LONG_S)
        assert client.live.connection.phase is CONNECTED
        assert await client.publish("a", b"x", qos, LONG_S, retain=True)
        assert not client.live.connection.client_side.exchanges
        await client.leave()


async def test_what_is_not_acknowledged_is_not_published() -> None:
    async with accessible(Fault.NO_ACKNOWLEDGEMENT) as (access, _):
        client = ProbeClient(access, V5)
        await client.connect(LONG_S)
        assert [await client.publish("a", b"x", qos, SHORT_S) for qos in (0, 1)] == [True, False]
        await client.leave()


@pytest.mark.parametrize(("fault", "highest"), [(Fault.MAXIMUM_QOS, 1), (Fault.MAXIMUM_QOS_0, 0)])
async def test_it_publishes_no_higher_than_the_broker_takes(fault: Fault, highest: int) -> None:
    async with accessible(fault) as (access, _):
        client = ProbeClient(access, V5)
        await client.connect(LONG_S)
        assert client.live.connection.maximum_qos == highest
        assert await client.publish("a", b"x", 2, LONG_S, retain=True)
        assert not client.ended_by
        await client.leave()


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.NO_SUBSCRIBE])
async def test_a_witness_hears_itself_or_pings_where_it_may_not_subscribe(fault: Fault) -> None:
    async with accessible(fault) as (access, _):
        client = await witness(access, SHORT_S)
        assert client is not None
        assert await client.round_trip(LONG_S) is not None
        await client.leave()
        assert client.hears is (fault is Fault.NONE)


async def test_refusals_and_versions_are_told_apart() -> None:
    async with accessible(Fault.LOGIN) as (access, _):
        client = ProbeClient(access, V5)
        with pytest.raises(RefusedError, match="0x87"):
            await client.connect(LONG_S)
        await client.drop()
        assert await supports_version(access, V5, LONG_S)
    async with accessible(Fault.OLD) as (access, _):
        assert [await supports_version(access, version, LONG_S) for version in (V3_1_1, V5)] == [True, False]


async def test_the_health_of_a_broker() -> None:
    async with accessible(Fault.NONE) as (access, broker):
        assert await broker_health(access, V5, LONG_S) is BrokerHealth.SERVES
        broker.hanging = True
        assert await broker_health(access, V5, SHORT_S) is BrokerHealth.SILENT
    async with accessible(Fault.LOGIN) as (access, _):
        assert await broker_health(access, V5, LONG_S) is BrokerHealth.SERVES
    assert await broker_health(BrokerAccess(target(free_port())), V5, LONG_S) is BrokerHealth.DEAD


@pytest.mark.parametrize(("fault", "left"), [(Fault.NONE, []), (Fault.REFUSE, ["b c"])])
async def test_retained_messages_that_could_not_be_deleted_are_named(fault: Fault, left: list[str]) -> None:
    async with accessible(fault) as (access, _):
        assert await forget_retained(access, V5, ["a", "b c"], LONG_S) == left


@pytest.mark.parametrize(
    "ask",
    [
        lambda access: witness(access, LONG_S),
        lambda access: broker_health(access, V5, LONG_S),
        lambda access: supports_version(access, V5, LONG_S),
        lambda access: forget_session(access, V5, "a", LONG_S),
        lambda access: forget_retained(access, V5, ["a"], LONG_S),
    ],
)
async def test_who_is_cancelled_leaves_no_connection_behind(
    ask: Callable[[BrokerAccess], Coroutine[None, None, object]],
) -> None:
    async with accessible(Fault.NONE) as (access, broker):
        broker.hanging = True
        asking = asyncio.create_task(ask(access))
        while not broker.clients:
            await asyncio.sleep(0.001)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        async with asyncio.timeout(LONG_S / 2):
            while broker.clients:
                await asyncio.sleep(0.001)
