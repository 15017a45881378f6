"""Replays from a program; the broker is a stand-in that plays the other half, or one that does otherwise."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import mqttscope
from tests.cli.running import capture
from tests.proxy.rig import free_port

QOS = capture("v311-qos")


def test_what_is_played_does_not_differ_from_itself(tmp_path: Path) -> None:
    record = tmp_path / "live.pcapng"
    with mqttscope.StandIn(QOS, pace="causal") as broker:
        result = mqttscope.Replay(QOS, broker=broker.url, pace="causal", record=record).run()

    assert result.ok
    assert (result.connections, result.connected, result.sent, result.received) == (2, 2, 13, 11)
    assert 0 < result.seconds < 60
    document = result.to_dict()
    assert (document["event"], document["packets_sent"], document["pace"]) == ("replay", 13, "causal")
    assert len(list(mqttscope.open(record))) == 24


def test_what_the_broker_does_otherwise_is_a_difference_without_secrets() -> None:
    with mqttscope.StandIn(capture("v311-many-filters"), pace="asap") as broker:
        result = mqttscope.Replay(QOS, broker=broker.url, pace="asap", patience=0.2).run()

    assert not result.ok
    assert result.differences
    assert {difference["event"] for difference in result.differences} == {"difference"}
    assert result.connections == 2


def test_a_broker_that_is_not_there_is_a_failure_of_the_connection() -> None:
    result = mqttscope.Replay(QOS, broker=f"mqtt://127.0.0.1:{free_port()}", pace="asap").run()

    assert (result.ok, result.connected) == (False, 0)
    assert sum(result.failures.values()) == 2


def test_inside_a_loop_the_twin_is_awaited() -> None:
    async def main() -> tuple[mqttscope.Replayed, mqttscope.Replayed]:
        async with mqttscope.AsyncStandIn(QOS, pace="causal", repeat=True) as broker:
            replay = mqttscope.AsyncReplay(QOS, broker=broker.url, pace="causal")
            with pytest.raises(RuntimeError, match=r"await AsyncReplay\(\.\.\.\)\.run\(\)"):
                mqttscope.Replay(QOS, broker=broker.url).run()
            return await replay.run(), await replay.run()

    assert all(replayed.ok for replayed in asyncio.run(main()))


def test_a_run_that_is_cancelled_ends_its_connections() -> None:
    async def main() -> mqttscope.Served:
        async with mqttscope.AsyncStandIn(QOS, pace="asap") as broker:
            run = asyncio.create_task(mqttscope.AsyncReplay(QOS, broker=broker.url, pace="0.01x").run())
            async with asyncio.timeout(20):
                while not broker._serving.connections:
                    await asyncio.sleep(0.01)
                run.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await run
                while not all(driver.is_over for driver in broker._serving.drivers):
                    await asyncio.sleep(0.01)
            return await broker.finish(0)

    assert not asyncio.run(main()).complete


def test_nothing_is_sent_to_another_host_unless_that_is_allowed() -> None:
    with pytest.raises(mqttscope.ArgumentError, match=r"192\.0\.2\.1:1883 is another host: allow_remote=True allows"):
        mqttscope.Replay(QOS, broker="mqtt://192.0.2.1").run()


def test_what_cannot_be_meant_is_an_error_before_anything_is_sent(tmp_path: Path) -> None:
    for broker in ("127.0.0.1:1883", "mqtt://u:hunter2@127.0.0.1", "http://127.0.0.1"):
        with pytest.raises(mqttscope.MqttscopeError) as caught:
            mqttscope.Replay(QOS, broker=broker)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(mqttscope.ArgumentError):
        mqttscope.Replay(QOS, broker="mqtt://127.0.0.1", pace="fast")
    with pytest.raises(mqttscope.NothingRecordedError):
        mqttscope.Replay(QOS, broker="mqtt://127.0.0.1", clients="nobody")
    with pytest.raises(OSError, match="nowhere"):
        mqttscope.Replay(QOS, broker="mqtt://127.0.0.1:1", record=tmp_path / "nowhere" / "a.pcapng").run()
