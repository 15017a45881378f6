"""One device at its connection, without sockets: what its driver says, and when it is not listened to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from mqttscope.mqtt import ControlPacket, Malformed
from mqttscope.replay.drivers.server import MAX_TURN, TURN_NS, ServerDriver
from mqttscope.replay.script import Script
from mqttscope.replay.server import ServerOptions, ServerPlayer, ServerSessions, live_connection
from mqttscope.session import Connection
from tests.replay.server.desk import HELLO, MESSAGES
from tests.replay.talk import record, said_bytes


@dataclass
class Wire:
    """The link of a device."""

    remote: str = "device:1"
    sent: bytes = b""
    reading: bool = True
    how: str = ""

    def write(self, data: bytes) -> None:
        self.sent += data

    def read(self, on: bool) -> None:
        self.reading = on

    def close(self) -> None:
        self.how = self.how or "fin"

    def abort(self) -> None:
        self.how = "reset"


@dataclass
class Hall:
    """Who runs the driver."""

    scripts: list[Script]
    max_packet_bytes: int = 1_000
    told: list[str] = field(default_factory=list)
    has_room: bool = True
    speed: float | None = None
    clock_ns: int = 1_000_000_000
    look_ns: int = 0
    """How much later it is each time that somebody looks at the clock."""

    def now_ns(self) -> int:
        self.clock_ns += self.look_ns
        return self.clock_ns

    def room(self, more: int) -> bool:
        return self.has_room

    def cast(self, driver: ServerDriver, first: ControlPacket | Malformed) -> ServerPlayer:
        driver.recorded = self.scripts.pop()
        live = Script(Connection(0, "device", "hall", "", 0, 0))
        options = ServerOptions(speed=self.speed)
        return ServerPlayer(
            script=driver.recorded, live=live_connection(live), sessions=ServerSessions(), options=options
        )

    def horizon(self, driver: ServerDriver) -> int:
        return 1 << 62

    def stir(self, driver: ServerDriver) -> None:
        pass

    def tell(self, sentence: str) -> None:
        self.told.append(sentence)


@asynccontextmanager
async def driven(text: str = HELLO, **more: Any) -> AsyncIterator[tuple[ServerDriver, Wire, Hall]]:
    """A driver in the hands of a test."""
    wire, hall = Wire(), Hall(record(text), **more)
    driver = ServerDriver(hall, wire)  # type: ignore[arg-type]
    yield driver, wire, hall
    driver.stop()


async def test_a_device_is_answered_and_its_end_is_noted() -> None:
    async with driven(MESSAGES) as (driver, wire, hall):
        for line in ("connect", "subscribe 1 t/#:2"):
            driver.received(said_bytes("dev", line))
        assert driver.heard == 2
        assert driver.sent == 3
        assert not driver.settled
        driver.ended("fin", "")
        assert driver.finished
        assert driver.player is not None
        assert driver.player.live.script.ending.by == "client"
        assert wire.sent[:1] == b"\x20"
        assert hall.told == []


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"\x16\x03\x01", "it speaks TLS"), (b"GET / HTTP/1.1\r\n", "it speaks HTTP"), (b"\xc0\x00", "does not begin")],
)
async def test_who_does_not_begin_with_connect_is_closed(data: bytes, why: str) -> None:
    async with driven() as (driver, wire, hall):
        driver.received(data)
        (told,) = hall.told
        assert why in told
        assert wire.how == "fin"


async def test_a_packet_that_is_too_long_ends_the_connection() -> None:
    async with driven() as (driver, wire, hall):
        driver.received(said_bytes("dev", "connect"))
        driver.received(said_bytes("dev", f"publish a {'x' * 2_000}"))
        assert wire.sent.endswith((b"\xe0\x02\x95\x00", b"\xe0\x01\x95"))
        assert "the limit is 1,000" in hall.told[0]
    async with driven(has_room=False) as (driver, _, hall):
        driver.received(b"\x10\x20\x00")
        assert "of all devices together" in hall.told[0]


async def test_a_device_that_takes_nothing_is_not_listened_to() -> None:
    async with driven() as (driver, wire, _):
        driver.received(said_bytes("dev", "connect"))
        driver.writable(False)
        assert not wire.reading
        before = wire.sent
        driver.received(said_bytes("dev", "pingreq"))
        assert wire.sent == before
        driver.writable(True)
        driver.pump()
        assert wire.sent == before + b"\xd0\x00"
        assert wire.reading


async def test_who_says_much_is_listened_to_in_turns() -> None:
    """The clock is looked at when a turn begins, and after each piece and each packet that is taken."""
    async with driven() as (driver, wire, hall):
        driver.received(said_bytes("dev", "connect"))
        hall.look_ns = TURN_NS // 10
        driver.received(b"\xc0\x00" * 25)
        assert driver.heard == 1 + 10
        assert not wire.reading
        driver.pump()
        assert driver.heard == 1 + 10 + 11
        driver.pump()
        assert driver.heard == 1 + 25
        assert wire.reading
        assert wire.sent.endswith(b"\xd0\x00" * 25)


async def test_many_answers_are_sent_in_turns() -> None:
    async with driven() as (driver, wire, _):
        driver.received(said_bytes("dev", "connect"))
        driver.received(b"\xc0\x00" * (MAX_TURN + 50))
        assert wire.sent.count(b"\xd0\x00") <= MAX_TURN
        while len(wire.sent) < 2 * (MAX_TURN + 50):
            driver.pump()
        assert wire.sent.endswith(b"\xd0\x00" * (MAX_TURN + 50))
