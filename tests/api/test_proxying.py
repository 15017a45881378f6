"""The proxy inside an event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import mqttscope
from tests.cli.running import capture

QOS = capture("v311-qos")


def test_questions_are_awaited(tmp_path: Path) -> None:
    async def main() -> None:
        async with mqttscope.AsyncStandIn(QOS, pace="causal") as broker, mqttscope.AsyncProxy(broker.url) as proxy:
            assert proxy.url == f"mqtt://127.0.0.1:{proxy.port}" == f"mqtt://{proxy.address}"
            await mqttscope.AsyncReplay(QOS, broker=proxy.url, pace="causal").run()
            assert len(await proxy.packets()) == 24
            assert [finding.rule for finding in await proxy.findings()] == ["CON108"]
            assert "info[CON108]" in await proxy.report()
            assert proxy.notes == []
            await proxy.assert_conformant(require_packets=24)
            with pytest.raises(AssertionError, match="25 are required"):
                await proxy.assert_conformant(require_packets=25)
            await proxy.write(tmp_path / "a.pcapng")

    asyncio.run(main())
    assert len(list(mqttscope.open(tmp_path / "a.pcapng"))) == 24
