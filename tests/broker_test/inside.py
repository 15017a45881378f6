"""A broker with faults inside this process, which can be started again like one that is a process of its own."""

from __future__ import annotations

import asyncio
import socket

from mqttscope.broker_test.process import Process
from tests.broker_test.broken import Broker, Fault
from tests.proxy.rig import free_port


class Inside(Process):
    """The broker in the place of a process."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(command="inside")
        self.fault = fault
        self.port = free_port()
        self.broker: Broker | None = None
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        if self.alive():
            return
        self.broker = Broker(self.fault)
        self.starts += 1
        task = asyncio.get_running_loop().create_task(self.broker.serve(socket.create_server(("127.0.0.1", self.port))))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def alive(self) -> bool:
        return self.broker is not None and not self.broker.stopped

    def stop(self, seconds: float = 0.0) -> None:
        if self.broker is not None:
            self.broker.stop()

    async def end(self) -> None:
        """Stop, and wait until every connection is gone."""
        if self.broker is not None:
            await self.broker.end()
