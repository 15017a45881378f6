"""Runs recorded servers: recorded connections on one side, connecting devices on the other, in one event loop.

`ServerRun` accepts the devices.  A `ServerDriver` drives the connection of one device: it gets its recording from the
run, passes on the packets of the device, and sends what its player returns.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import V5, MalformedReason, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.stream import StreamItem
from mqttscope.replay.drivers.client import MonotonicClock
from mqttscope.replay.live import Close, ReplayNote, Send
from mqttscope.replay.rewrite import RewriteError, convert
from mqttscope.replay.script import Ending, Script
from mqttscope.replay.server import (
    ConnectionMatcher,
    ServerOptions,
    ServerPlayer,
    ServerSessions,
    live_connection,
)
from mqttscope.replay.server.connection import MAX_SESSIONS
from mqttscope.replay.server.player import ServerWait
from mqttscope.replay.server.recorded import LATER, identifier_of, takers_over
from mqttscope.session.connection import Connection
from mqttscope.transport.link import CLOSE_TIMEOUT_S, Link
from mqttscope.transport.peer import LivePeer
from mqttscope.transport.recording import LinkRecorder
from mqttscope.transport.server import MAX_CONNECTIONS, Server

if TYPE_CHECKING:
    from mqttscope.transport.recording import Recording

MAX_TURN = 200
"""Maximum number of packets that one connection sends before others get their turn."""
TURN_NS = 2_000_000
"""Maximum time spent on packets of one connection before others get their turn."""
MAX_OWED = 1_000
"""Maximum number of answers waiting to be sent to a device; above it, the device is not read from."""
MAX_PACKET_BYTES = 1 << 20
"""Default maximum length of a packet of a device; longer recorded packets raise it."""
FIRST_PACKET_S = 10.0
"""Timeout for a device's first packet (5.0 3.1.4)."""
PACKET_TOO_LARGE = 0x95
_OTHERS = {
    b"\x16\x03": "it speaks TLS, which needs --listen-cert",
    b"GET ": "it speaks HTTP; WebSocket needs --websocket",
}
"""First bytes of other protocols, with the problem."""
MAX_UNFINISHED_BYTES = 64 * 1024 * 1024
"""Maximum size of the incomplete packets of all devices; a device that exceeds it is closed."""
HURRIED_CLOSE_S = 0.3
"""Time for devices to take the bytes sent, after a signal has ended the run."""
MAX_SERVED = 10_000
"""Maximum number of connections without a recording in the report; further ones are counted."""
MAX_REPORTED = 1_000
"""Maximum number of sentences about connections; further ones are counted."""


@dataclass(slots=True, eq=False)
class ServerDriver(LivePeer):
    """Drives the player of one device; the listener of its link."""

    link: Link
    run: ServerRun
    player: ServerPlayer | None = None
    recorded: Script | None = None
    """The connection as recorded."""
    sent: int = 0
    heard: int = 0
    """Number of packets of the device."""
    name: str = ""
    """Name of the device in reports."""
    _items: deque[StreamItem] = field(default_factory=deque)
    """Parsed packets not yet processed."""
    _incomplete_bytes: int = 0
    """Bytes of an incomplete packet, as counted by the run."""
    _ending: Ending | None = None
    """How the device ended the connection, while some of its packets are unprocessed."""
    _paused: bool = False
    """Whether the device does not read."""
    _begun: bool = False
    """Whether any bytes were received."""
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.name = str(self.link.remote)
        self.stream.max_packet_bytes = self.run.max_packet_bytes
        self._timer = asyncio.get_running_loop().call_later(FIRST_PACKET_S, self._on_silence)

    @property
    def settled(self) -> bool:
        """Whether the recording has nothing more for this connection."""
        return self.is_over or self.recorded is None or (self.player is not None and self.player.exhausted)

    # Called by the link

    def received(self, data: bytes) -> None:
        """Parse bytes of the device, and answer."""
        if self.player is None and not self.heard and not self._begun:
            self._begun = True
            problem = next((explanation for start, explanation in _OTHERS.items() if data.startswith(start)), "")
            if problem or data[0] >> 4 != packets.Connect.packet_type:
                # 5.0 MQTT-3.1.0-1; bytes of another protocol may never make a complete packet.
                self._close(Close("fin", problem or "it does not begin with a CONNECT"))
                return
        if self.is_over:
            return
        self.hold(data)
        self.pump()
        self.run.notify(self)

    def ended(self, how: str, detail: str) -> None:
        """The device has ended the connection, or it broke."""
        if not self.is_over:
            self._ending = self._ending or Ending(how, "client", self.run.now_ns(), detail)
            self.pump()

    def writable(self, on: bool) -> None:
        """Note whether the device reads; while it does not, nothing is read from it either."""
        self._paused = not on
        self.listen()
        if on:
            self.wake()

    # Internal

    @property
    def _is_backlogged(self) -> bool:
        return self.player is not None and len(self.player.device.queue) >= MAX_OWED

    @property
    def has_room(self) -> bool:
        """Whether all packets of the device are processed, and it reads the answers."""
        return not (self._paused or self._items or self._is_backlogged)

    def _process_received(self) -> None:
        """Process packets of the device, for one turn."""
        now = self.run.now_ns()
        until_ns = now + TURN_NS
        # A device that has gone gets no answers, so that its packets need not wait.
        while not self.is_over and (self._ending is not None or not (self._is_backlogged or self._paused)):
            if self._items:
                self._process(self._items.popleft(), now)
            elif self.unread:
                self.parse(self.unread.popleft())
            else:
                break
            if self.run.now_ns() > until_ns:
                self.wake()
                break
        if self._ending is not None and not self.is_over and not (self.unread or self._items):
            self._finish(self._ending)

    def _process(self, item: StreamItem, now_ns: int) -> None:
        self.heard += 1
        packet = item if isinstance(item, ControlPacket | Malformed) else self._as_malformed(item.raw)
        if packet is None:
            return
        if self.player is None:
            self.player = self._begin(packet)
        self.player.receive(packet, now_ns)

    def parse(self, data: bytes) -> None:
        """Cut bytes into packets; refuse packets that are too long, or that exceed the room left by other devices."""
        stream = self.stream
        self._items.extend(stream.feed(data))
        skipped = stream.skipped
        if skipped is None:
            skipped = next((item for item in self._items if getattr(item, "reason", "") == "too_large"), None)  # type: ignore[assignment]
        if skipped is not None:
            self._refuse(f"a packet of {skipped.length:,} bytes: the limit is {stream.max_packet_bytes:,}")
            return
        held = stream.held
        more, self._incomplete_bytes = held - self._incomplete_bytes, held
        if not self.run.reserve(more) and more > 0:
            self._refuse("too many bytes of packets that are not complete, of all devices together")

    def _refuse(self, why: str) -> None:
        """End the connection because of a packet that is too large (5.0 4.13)."""
        player = self.player
        self.unread.clear()
        self._items.clear()
        if player is not None and player.live.version >= V5 and player.device.accepted:
            self.link.write(encode(packets.Disconnect(PACKET_TOO_LARGE), player.live.version))
        self._close(Close("fin", why))

    def pump(self) -> None:
        """Process received packets, and send what is due."""
        self._is_woken = False
        if not self.is_over:
            self._process_received()
            self._send_due()
        if not self.is_over:
            self.listen()

    def _send_due(self) -> None:
        player = self.player
        if self.is_over or player is None:
            return
        now, sent = self.run.now_ns(), []
        close: Close | None = None
        for _ in range(MAX_TURN):
            # While the device does not read, only the timeouts are checked.
            action = (
                player.perform(now, self.run.horizon(self)) if not self._paused else ServerWait(now + 1_000_000_000)
            )
            if isinstance(action, Send):
                if action.data:
                    sent.append(action.data)
            elif isinstance(action, Close):
                close = action
                break
            else:
                self._arrange(action, now)
                break
        else:
            self.wake()
        if sent:
            self.link.write(b"".join(sent))
            self.sent += len(sent)
        if close is not None:
            self._close(close)
        elif player.exhausted:
            self.run.notify(self)

    def stop(self) -> None:
        if not self.is_over:
            self._finish(Ending("open", None, self.run.now_ns()))

    def _arrange(self, wait: ServerWait, now_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait.until_ns is not None:
            # The event loop rounds times to its clock; half a millisecond more is never too early.
            seconds = max(0.0, (wait.until_ns - now_ns) / 1e9) + 0.0005
            self._timer = asyncio.get_running_loop().call_later(seconds, self.wake)

    def _begin(self, first: ControlPacket | Malformed) -> ServerPlayer:
        name = identifier_of(first)
        if name:
            self.name = f"{name} ({self.link.remote})"
        if self._timer is not None:
            self._timer.cancel()
        return self.run.make_player(self, first)

    def _as_malformed(self, raw: bytes) -> Malformed | None:
        """Malformed packet for bytes that cannot be parsed; ``None`` if the capture lost bytes of the client too."""
        player = self.player
        if player is not None and player.script.lost_from_client:
            return None
        return Malformed(MalformedReason.TRUNCATED, 0, "", "not an MQTT packet", raw)

    def _on_silence(self) -> None:
        if self.player is None and not self.is_over:
            self.run.report(f"{self.name}: closed, since no CONNECT came within {FIRST_PACKET_S:g} s")
            self._close(Close("fin"))

    def _close(self, close: Close) -> None:
        if close.why:
            self.run.report(f"{self.name}: closed: {close.why}")
        if close.how == "reset":
            self.link.abort()
        self._finish(Ending(close.how, "server", self.run.now_ns(), close.why))

    def _finish(self, ending: Ending) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.is_over = True
        self.unread.clear()
        self._items.clear()
        self.run.reserve(-self._incomplete_bytes)
        self._incomplete_bytes = 0
        if self.player is not None:
            self.player.ended(ending)
        self.link.close()
        self.run.notify(self)


@dataclass(slots=True)
class ServedConnection:
    """A connection of a device, and the recorded connection given to it."""

    recorded: Script | None
    """The connection as recorded; ``None`` if the recording does not have one for this device."""
    played: Script | None
    """The recorded connection in the version that the device speaks."""
    live: Script


@dataclass(slots=True)
class ServerRun:
    """One run: call `start`, wait for ``stopping``, call `close`."""

    scripts: Sequence[Script]
    matcher: ConnectionMatcher
    options: ServerOptions = field(default_factory=ServerOptions)
    causal: bool = False
    """Whether steps recorded after an action of another connected device wait for that action."""
    keep_running: bool = False
    """Whether to continue when everything has been played."""
    tls: ssl.SSLContext | None = None
    websocket: bool = False
    max_connections: int = field(default_factory=lambda: MAX_CONNECTIONS)
    max_packet_bytes: int = field(default_factory=lambda: MAX_PACKET_BYTES)
    """Maximum length of a packet of a device; at least the length of the longest recorded one."""
    recording: Recording | None = None
    note: Callable[[str], None] = lambda _: None
    """Gets sentences for people."""
    served: list[ServedConnection] = field(default_factory=list)
    drivers: list[ServerDriver] = field(default_factory=list)
    """Drivers of open connections."""
    notes: dict[ReplayNote, int] = field(default_factory=dict)
    """Deviations from the recording, on connections that are over."""
    sent: int = 0
    received: int = 0
    connections: int = 0
    unlisted: int = 0
    """Number of connections beyond `MAX_SERVED`."""
    complete: bool = False
    """Whether everything recorded has been played."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    clock: MonotonicClock = field(default_factory=MonotonicClock)
    sessions: ServerSessions = field(default_factory=ServerSessions)
    server: Server | None = None
    _places: Callable[[], int] = field(default_factory=lambda: count().__next__)
    _recorder: LinkRecorder | None = None
    _looking: bool = False
    _hurried: bool = False
    _unfinished: int = 0
    _reported: int = 0

    def __post_init__(self) -> None:
        longest = (len(entry.raw) for script in self.scripts for entry in script.entries if entry.from_client)
        self.max_packet_bytes = max(self.max_packet_bytes, max(longest, default=0))

    async def start(self, host: str, port: int) -> None:
        """Start listening; raises :class:`OSError` if that is not possible."""
        self.clock = MonotonicClock()
        if self.recording is not None:
            self._recorder = LinkRecorder(self.recording)
        server = Server(
            self._arrived,
            tls=self.tls,
            websocket=self.websocket,
            recorder=self._recorder,
            max_connections=self.max_connections,
            note=self.report,
        )
        await server.listen(host, port)
        self.server = server

    def stop(self, *, hurry: bool = False) -> None:
        """Request the end; ``hurry`` leaves devices less time to take the bytes sent."""
        self._hurried |= hurry
        self.stopping.set()

    async def close(self) -> None:
        """End all connections and stop listening."""
        for driver in list(self.drivers):
            driver.stop()
            self._forget(driver)
        if self.server is not None:
            await self.server.close(HURRIED_CLOSE_S if self._hurried else CLOSE_TIMEOUT_S)
        if self._recorder is not None:
            self._recorder.rounds.close()
        if self._reported > MAX_REPORTED:
            self.note(f"further sentences about connections, left out: {self._reported - MAX_REPORTED:,}")
        if self.unlisted:
            self.note(f"further connections that the recording does not have, not in the report: {self.unlisted:,}")
        if self.sessions.forgotten:
            self.note(f"sessions forgotten, since more than {MAX_SESSIONS:,} were in use: {self.sessions.forgotten:,}")

    def _arrived(self, link: Link) -> ServerDriver:
        driver = ServerDriver(link, self)
        self.drivers.append(driver)
        self.connections += 1
        return driver

    # Called by the drivers

    def now_ns(self) -> int:
        return self.clock.now_ns()

    def report(self, sentence: str) -> None:
        self._reported += 1
        if self._reported <= MAX_REPORTED:
            self.note(sentence)

    def reserve(self, more: int) -> bool:
        """Count bytes of incomplete packets; returns whether there is room for them."""
        self._unfinished += more
        return self._unfinished <= MAX_UNFINISHED_BYTES

    def make_player(self, driver: ServerDriver, first: ControlPacket | Malformed) -> ServerPlayer:
        """A player for the connection that begins with this packet."""
        if isinstance(first, packets.Connect) and first.client_identifier:
            self._take_over(first.client_identifier)
        recorded = self.matcher.choose(first)
        now = self.now_ns()
        link = driver.link
        live = Script(Connection(self.connections - 1, str(link.remote), str(link.local), "", 0, now), opened_ns=now)
        live.connection.handshake_seen = True
        played = self._in_version(driver, recorded, first)
        driver.recorded = recorded
        if recorded is None:
            self.report(f"{driver.name}: the recording has no (further) connection for this client")
        else:
            # If its CONNECT cannot be read, only the recording gives the version.
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
        self._list(ServedConnection(recorded, played or recorded, live))
        return player

    def _list(self, served: ServedConnection) -> None:
        if served.recorded is None and len(self.served) >= MAX_SERVED:
            self.unlisted += 1
        else:
            self.served.append(served)

    def horizon(self, driver: ServerDriver) -> int:
        """Place of the first recorded packet that any other connected device still has to send."""
        if not self.causal:
            return LATER
        others = (other for other in self.drivers if other is not driver and not other.is_over)
        return min(
            (other.player.device.recorded.frontier for other in others if other.player is not None), default=LATER
        )

    def notify(self, driver: ServerDriver) -> None:
        """Something has happened that other drivers may wait for."""
        if driver.is_over and driver in self.drivers:
            self._forget(driver)
        if self.causal:
            for other in self.drivers:
                if other is not driver:
                    other.wake()
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._check_complete)

    def _check_complete(self) -> None:
        """Note when everything has been played, and stop then."""
        self._looking = False
        if not self.matcher.free and all(driver.settled for driver in self.drivers):
            self.complete = True
            if not self.keep_running:
                self.stop()

    def _forget(self, driver: ServerDriver) -> None:
        if driver not in self.drivers:
            # Stopping a driver may have removed it already.
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
            if player is not None and not other.is_over and player.live.connection.client_identifier == identifier:
                player.take_over(self.now_ns())
                other.pump()

    def _earlier(self, recorded: Script) -> list[Script]:
        name = recorded.connection.client_identifier
        same_client = (script for script in self.scripts if name and script.connection.client_identifier == name)
        return [script for script in same_client if script.opened_place < recorded.opened_place]

    def _in_version(
        self, driver: ServerDriver, recorded: Script | None, first: ControlPacket | Malformed
    ) -> Script | None:
        """The recording in the version that the device speaks; ``None`` if it cannot be converted."""
        if recorded is None or not isinstance(first, packets.Connect) or first.version == recorded.version:
            return recorded
        versions = f"{driver.name}: speaks MQTT {first.version.text}, the recorded client {recorded.version.text}"
        try:
            converted, _ = convert([recorded], ProtocolVersion(first.version))
        except RewriteError as error:
            self.report(f"{versions}; it is answered without the recording: {error}")
            return None
        self.report(versions)
        return converted[0]
