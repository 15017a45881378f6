"""A run of recorded servers: recorded connections on one side, devices that connect on the other, in one event loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connect
from mqttscope.replay.drivers.client import MonotonicClock
from mqttscope.replay.drivers.server import MAX_PACKET_BYTES, ServerDriver
from mqttscope.replay.live import Note
from mqttscope.replay.rewrite import RewriteError, convert
from mqttscope.replay.script import Script
from mqttscope.replay.server import (
    ConnectionMatcher,
    ServerOptions,
    ServerPlayer,
    ServerSessions,
    live_connection,
)
from mqttscope.replay.server.connection import MAX_SESSIONS
from mqttscope.replay.server.recorded import LATER, takers_over
from mqttscope.session.connection import Connection
from mqttscope.transport.link import CLOSE_TIMEOUT_S
from mqttscope.transport.recording import Recorder
from mqttscope.transport.server import MAX_CONNECTIONS, Server, serve

if TYPE_CHECKING:
    from mqttscope.transport.link import Link
    from mqttscope.transport.recording import Recording

MAX_UNFINISHED_BYTES = 64 * 1024 * 1024
"""Of packets of all devices that are not complete; a device that would add to more is closed."""
HURRIED_CLOSE_S = 0.3
"""How long devices have to take what is sent where a signal has ended the run."""
MAX_SERVED = 10_000
"""Connections without a recording that are kept for the report; further ones are counted."""
MAX_SAID = 1_000
"""Sentences about connections; further ones are counted."""


@dataclass(slots=True)
class Served:
    """A connection of a device, and the recorded one that it was given."""

    recorded: Script | None
    """As recorded; ``None`` for one that the recording does not have."""
    played: Script | None
    """The same in the version that the device speaks."""
    live: Script


@dataclass(slots=True)
class ServerRun:
    """One run: `start`, wait for ``stopping``, `close`."""

    scripts: Sequence[Script]
    matcher: ConnectionMatcher
    options: ServerOptions = field(default_factory=ServerOptions)
    causal: bool = False
    """What was recorded after an action of another connected device waits for that action."""
    keep_running: bool = False
    """Do not end when everything has been played."""
    tls: ssl.SSLContext | None = None
    websocket: bool = False
    max_connections: int = field(default_factory=lambda: MAX_CONNECTIONS)
    max_packet_bytes: int = field(default_factory=lambda: MAX_PACKET_BYTES)
    """Longest packet of a device; at least as long as those that the recording has."""
    recording: Recording | None = None
    note: Callable[[str], None] = lambda _: None
    """Gets sentences for people."""
    served: list[Served] = field(default_factory=list)
    drivers: list[ServerDriver] = field(default_factory=list)
    """Those of connections that are open."""
    notes: dict[Note, int] = field(default_factory=dict)
    """What was done otherwise than recorded, on connections that are over."""
    sent: int = 0
    received: int = 0
    connections: int = 0
    unlisted: int = 0
    """Connections beyond `MAX_SERVED`."""
    complete: bool = False
    """Everything that was recorded has been played."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    clock: MonotonicClock = field(default_factory=MonotonicClock)
    sessions: ServerSessions = field(default_factory=ServerSessions)
    server: Server | None = None
    _places: Callable[[], int] = field(default_factory=lambda: count().__next__)
    _recorder: Recorder | None = None
    _looking: bool = False
    _hurried: bool = False
    _unfinished: int = 0
    _said: int = 0

    def __post_init__(self) -> None:
        longest = (len(one.raw) for script in self.scripts for one in script.entries if one.from_client)
        self.max_packet_bytes = max(self.max_packet_bytes, max(longest, default=0))

    async def start(self, host: str, port: int) -> None:
        """Listen; :class:`OSError` where that cannot be done."""
        self.clock = MonotonicClock()
        if self.recording is not None:
            self._recorder = Recorder(self.recording)
        self.server = await serve(
            host,
            port,
            self._arrived,
            tls=self.tls,
            websocket=self.websocket,
            recorder=self._recorder,
            max_connections=self.max_connections,
            note=self.tell,
        )

    def stop(self, *, hurry: bool = False) -> None:
        """Have it end; in a ``hurry`` devices have less time to take what is sent."""
        self._hurried |= hurry
        self.stopping.set()

    async def close(self) -> None:
        """End all connections and listen no more."""
        for driver in list(self.drivers):
            driver.stop()
            self._forget(driver)
        if self.server is not None:
            await self.server.close(HURRIED_CLOSE_S if self._hurried else CLOSE_TIMEOUT_S)
        if self._recorder is not None:
            self._recorder.rounds.close()
        if self._said > MAX_SAID:
            self.note(f"further sentences about connections, left out: {self._said - MAX_SAID:,}")
        if self.unlisted:
            self.note(f"further connections that the recording does not have, not in the report: {self.unlisted:,}")
        if self.sessions.forgotten:
            self.note(f"sessions forgotten, since more than {MAX_SESSIONS:,} were in use: {self.sessions.forgotten:,}")

    def _arrived(self, link: Link) -> ServerDriver:
        """A device has connected."""
        driver = ServerDriver(self, link)
        self.drivers.append(driver)
        self.connections += 1
        return driver

    # Of the drivers

    def now_ns(self) -> int:
        return self.clock.now_ns()

    def tell(self, sentence: str) -> None:
        self._said += 1
        if self._said <= MAX_SAID:
            self.note(sentence)

    def room(self, more: int) -> bool:
        """Count bytes of packets that are not complete; returns whether there is room for them."""
        self._unfinished += more
        return self._unfinished <= MAX_UNFINISHED_BYTES

    def cast(self, driver: ServerDriver, first: ControlPacket | Malformed) -> ServerPlayer:
        """Who answers a connection that begins with this packet."""
        if isinstance(first, Connect) and first.client_identifier:
            self._take_over(first.client_identifier)
        recorded = self.matcher.choose(first)
        now = self.now_ns()
        link = driver.link
        live = Script(Connection(self.connections - 1, str(link.remote), str(link.local), "", 0, now), opened_ns=now)
        live.connection.handshake_seen = True
        played = self._in_version(driver, recorded, first)
        driver.recorded = recorded
        if recorded is None:
            self.tell(f"{driver.name}: the recording has no connection for this client (any more)")
        else:
            # Where its CONNECT cannot be read nothing else says the version.
            live.connection.assume_version(recorded.version, "the recording")
        player = ServerPlayer(
            live=live_connection(live, keep=self.options.keep, next_place=self._places),
            script=played or Script(Connection(-1, "", "", "", 0, 0)),
            sessions=self.sessions,
            options=self.options,
            opened_ns=now,
            earlier=[] if recorded is None else self._earlier(recorded),
            taken_over=recorded is not None and bool(takers_over(recorded, self.scripts)),
        )
        self._list(Served(recorded, played or recorded, live))
        return player

    def _list(self, served: Served) -> None:
        if served.recorded is None and len(self.served) >= MAX_SERVED:
            self.unlisted += 1
        else:
            self.served.append(served)

    def horizon(self, driver: ServerDriver) -> int:
        """The place of the first recorded packet that a device still has to send, of all others that are connected."""
        if not self.causal:
            return LATER
        others = (one for one in self.drivers if one is not driver and not one.finished)
        return min((one.player.device.recorded.frontier for one in others if one.player is not None), default=LATER)

    def stir(self, driver: ServerDriver) -> None:
        """Something has happened that others may wait for."""
        if driver.finished and driver in self.drivers:
            self._forget(driver)
        if self.causal:
            for one in self.drivers:
                if one is not driver:
                    one.wake()
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Whether everything has been played."""
        self._looking = False
        if not self.matcher.free and all(one.settled for one in self.drivers):
            self.complete = True
            if not self.keep_running:
                self.stop()

    def _forget(self, driver: ServerDriver) -> None:
        if driver not in self.drivers:
            # To stop one may end it at once.
            return
        self.drivers.remove(driver)
        self.sent += driver.sent
        self.received += driver.heard
        for note, times in driver.player.live.notes.items() if driver.player is not None else ():
            self.notes[note] = self.notes.get(note, 0) + times

    def _take_over(self, identifier: str) -> None:
        """End another connection of the same client (5.0 MQTT-3.1.4-3)."""
        for other in list(self.drivers):
            player = other.player
            if player is not None and not other.finished and player.live.connection.client_identifier == identifier:
                player.take_over(self.now_ns())
                other.pump()

    def _earlier(self, recorded: Script) -> list[Script]:
        name = recorded.connection.client_identifier
        mine = (one for one in self.scripts if name and one.connection.client_identifier == name)
        return [one for one in mine if one.opened_place < recorded.opened_place]

    def _in_version(
        self, driver: ServerDriver, recorded: Script | None, first: ControlPacket | Malformed
    ) -> Script | None:
        """The recording in the version that the device speaks; ``None`` where it cannot be said in that."""
        if recorded is None or not isinstance(first, Connect) or first.version == recorded.version:
            return recorded
        told = f"{driver.name}: speaks MQTT {first.version.text}, the recorded client {recorded.version.text}"
        try:
            converted, _ = convert([recorded], ProtocolVersion(first.version))
        except RewriteError as error:
            self.tell(f"{told}; it is answered without the recording: {error}")
            return None
        self.tell(told)
        return converted[0]
