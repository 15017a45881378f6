"""The broker of the simulation on a real socket, in the event loop of a replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mqttscope.mqtt import ControlPacket
from mqttscope.mqtt.stream import PacketStream
from mqttscope.replay.client.player import ClientOptions
from mqttscope.replay.run import BrokerTarget, Pace, Replay
from mqttscope.replay.script import Script
from mqttscope.transport.target import parse_broker
from tests.replay.simulation import Broker, Client


@dataclass
class Served:
    """Takes connections for a broker."""

    broker: Broker
    writers: dict[int, asyncio.StreamWriter] = field(default_factory=dict)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client, stream = self.broker.connect(), PacketStream()
        self.writers[id(client)] = writer
        while not client.closed and (data := await reader.read(65_536)):
            for item in stream.feed(data):
                assert isinstance(item, ControlPacket), item
                self.broker.take(client, item.raw)
            self.flush()
        client.closed = True
        writer.close()

    def flush(self) -> None:
        """Say what is to be said to all clients."""
        for client in self.broker.clients:
            self._flush(client, self.writers[id(client)])

    def _flush(self, client: Client, writer: asyncio.StreamWriter) -> None:
        if not writer.is_closing():
            writer.write(b"".join(client.to_client))
            client.to_client.clear()
            if client.closed:
                writer.close()


def replayed(
    scripts: Sequence[Script],
    pace: Pace | None = None,
    *,
    broker: Broker | None = None,
    options: ClientOptions | None = None,
    meanwhile: Callable[[Replay], Any] | None = None,
    patience_s: float = 5.0,
) -> Replay:
    """Replay against a broker on loopback; ``meanwhile`` is called 0.1 seconds after the start."""

    async def run() -> Replay:
        server = await asyncio.start_server(Served(broker or Broker()).serve, "127.0.0.1", 0)
        target = parse_broker(f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        replay = Replay(
            scripts, BrokerTarget(target), pace or Pace(None), options or ClientOptions(), patience_s=patience_s
        )
        if meanwhile is not None:
            asyncio.get_running_loop().call_later(0.1, meanwhile, replay)
        async with asyncio.timeout(30):
            await replay.run()
        server.close()
        return replay

    return asyncio.run(run())
