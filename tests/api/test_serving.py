"""Stand-ins for a broker from a program; the device is a replay of the other half, or of another recording."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

import mqttscope
from mqttscope.api import serving
from mqttscope.replay.drivers.serve import ServerRun
from tests.cli.running import capture
from tests.each import each

QOS = capture("v311-qos")


def test_a_device_that_does_what_it_did_makes_no_difference() -> None:
    with mqttscope.StandIn(QOS, pace="causal") as broker:
        assert broker.url == f"mqtt://127.0.0.1:{broker.port}" == f"mqtt://{broker.address}"
        assert not broker.wait(0.01)
        with pytest.raises(RuntimeError, match="still runs"):
            _ = broker.served
        mqttscope.Replay(QOS, broker=broker.url, pace="causal").run()
        served = broker.finish()

    assert (served.recorded, served.played, served.sent, served.received) == (2, 2, 11, 13)
    assert served.complete
    assert served.differences == []
    assert served.to_dict()["event"] == "serve"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", broker.port), 5)


def test_what_a_device_does_otherwise_is_a_difference() -> None:
    with mqttscope.StandIn(QOS, pace="asap") as broker:
        mqttscope.Replay(QOS, broker=broker.url, pace="asap", clients="sensor-1").run()
        assert not broker.wait(0.01)

    assert not broker.served.complete
    assert [difference["kind"] for difference in broker.served.differences] == ["never-connected"]


def test_inside_a_loop_the_twin_is_awaited() -> None:
    async def main() -> mqttscope.Served:
        async with mqttscope.AsyncStandIn(QOS, pace="causal") as broker:
            assert not await broker.wait(0.01)
            await mqttscope.AsyncReplay(QOS, broker=broker.url, pace="causal").run()
            return await broker.finish()

    served = asyncio.run(main())
    assert (served.complete, served.differences) == (True, [])


def test_it_runs_once_and_says_where_it_cannot_listen() -> None:
    with mqttscope.StandIn(QOS) as broker:
        with pytest.raises(RuntimeError, match="only once"):
            broker.start()
        with pytest.raises(OSError, match=r"."):
            mqttscope.StandIn(QOS, listen=broker.address).start()
    with pytest.raises(RuntimeError, match="was not started"):
        mqttscope.StandIn(QOS).close()


@each("options", [{"pace": "x"}, {"listen": "x"}, {"clients": "x"}])
def test_what_cannot_be_meant_is_an_error_before_it_listens(options: dict[str, str]) -> None:
    with pytest.raises(mqttscope.MqttscopeError):
        mqttscope.StandIn(QOS, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("begins", [True, False])
def test_a_stand_in_that_does_not_begin_or_end_in_time_says_so(begins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, over, close = mqttscope.StandIn(QOS), threading.Event(), ServerRun.close

    async def wait(run: ServerRun, *_: object) -> None:
        await asyncio.to_thread(over.wait)
        if begins:
            await close(run)

    monkeypatch.setattr(ServerRun, "close" if begins else "start", wait)
    if begins:
        broker.start()
    monkeypatch.setattr(serving, "ANSWER_S", 0.05)
    with pytest.raises(TimeoutError, match=r"did not (start|end) within 0\.05 s"):
        broker.close() if begins else broker.start()
    over.set()
    assert broker._thread is not None
    broker._thread.join(20)
    assert not broker._thread.is_alive()
