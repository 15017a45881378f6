"""One device at its connection: finds its recording, hands on what it says, sends what its player wants."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import V5, MalformedReason
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.stream import PacketStream, StreamItem
from mqttscope.replay.live import Close, Send
from mqttscope.replay.script import Ending, Script
from mqttscope.replay.server.player import ServerPlayer, Wait
from mqttscope.replay.server.recorded import identifier_of

if TYPE_CHECKING:
    from mqttscope.transport.link import Link

MAX_TURN = 200
"""Packets that one connection sends before others get their turn."""
TURN_NS = 2_000_000
"""How long one connection is listened to before others get their turn."""
PIECE_BYTES = 4096
"""Bytes that are made into packets at a time."""
MAX_OWED = 1_000
"""Answers that wait to be sent to a device; while there are so many it is not listened to."""
MAX_PACKET_BYTES = 1 << 20
"""Longest packet of a device, unless said otherwise or the recording has longer ones."""
FIRST_PACKET_S = 10.0
"""How long a device may take for its first packet (5.0 3.1.4)."""
PACKET_TOO_LARGE = 0x95
_OTHERS = {
    b"\x16\x03": "it speaks TLS, which takes --listen-cert",
    b"GET ": "it speaks HTTP; where that is for a WebSocket, --websocket is needed",
}
"""How other protocols begin."""


class ServerHost(Protocol):
    """What a driver needs of those who run it."""

    @property
    def max_packet_bytes(self) -> int:
        """Longest packet of a device."""

    def now_ns(self) -> int:
        """Nanoseconds since 1970, which never go back."""

    def room(self, more: int) -> bool:
        """Count bytes of packets that are not complete; returns whether there is room for them."""

    def cast(self, driver: ServerDriver, first: ControlPacket | Malformed) -> ServerPlayer:
        """Who answers a connection that begins with this packet."""

    def horizon(self, driver: ServerDriver) -> int:
        """How far others have come."""

    def stir(self, driver: ServerDriver) -> None:
        """Something has happened that others may wait for."""

    def tell(self, sentence: str) -> None:
        """Say something to people."""


@dataclass(slots=True, eq=False)
class ServerDriver:
    """Drives a player; the listener of its link."""

    host: ServerHost
    link: Link
    player: ServerPlayer | None = None
    recorded: Script | None = None
    """The connection of the recording, as it was recorded."""
    finished: bool = False
    """Nothing more is said on it."""
    sent: int = 0
    heard: int = 0
    """Packets of the device."""
    name: str = ""
    """For people."""
    _stream: PacketStream = field(default_factory=PacketStream)
    _unread: deque[bytes] = field(default_factory=deque)
    """What came and was not looked at yet."""
    _items: deque[StreamItem] = field(default_factory=deque)
    """Packets that were read and not taken yet."""
    _held: int = 0
    """Bytes of a packet that is not complete, as the host counts them."""
    _ending: Ending | None = None
    """How the device has ended the connection, while there is something of it to take."""
    _paused: bool = False
    """The device does not take what is sent."""
    _listening: bool = True
    _arranged: bool = False
    _begun: bool = False
    """Something has been heard."""
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.name = str(self.link.remote)
        self._stream.max_packet_bytes = self.host.max_packet_bytes
        self._timer = asyncio.get_running_loop().call_later(FIRST_PACKET_S, self._silent)

    @property
    def settled(self) -> bool:
        """Whether the recording has nothing more for this connection."""
        return self.finished or self.recorded is None or (self.player is not None and self.player.exhausted)

    # Of the link

    def received(self, data: bytes) -> None:
        """Bytes of the device."""
        if self.player is None and not self.heard and not self._begun:
            self._begun = True
            what = next((told for start, told in _OTHERS.items() if data.startswith(start)), "")
            if what or data[0] >> 4 != packets.Connect.packet_type:
                # 5.0 MQTT-3.1.0-1; a packet that is none may never be complete.
                self._close(Close("fin", what or "it does not begin with a CONNECT"))
                return
        if self.finished:
            return
        self._unread.extend(data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))
        self.pump()
        self.host.stir(self)

    def ended(self, how: str, detail: str) -> None:
        """The device has ended the connection, or it broke."""
        if not self.finished:
            self._ending = self._ending or Ending(how, "client", self.host.now_ns(), detail)
            self.pump()

    def writable(self, on: bool) -> None:
        """Whether the device takes what is sent; while it does not, nothing is read from it either."""
        self._paused = not on
        self._listen()
        if on:
            self.wake()

    # Its own

    @property
    def _owes(self) -> bool:
        """Whether so many answers wait that the device has to."""
        return self.player is not None and len(self.player.device.queue) >= MAX_OWED

    def _listen(self) -> None:
        """Read from the device unless there is more than enough of it."""
        on = not (self._paused or self._unread or self._items or self._owes)
        if on is not self._listening:
            self._listening = on
            self.link.read(on)

    def _hear(self) -> None:
        """Take what the device has said, for a turn."""
        now = self.host.now_ns()
        until_ns = now + TURN_NS
        # Who has gone takes no answers any more.
        while not self.finished and (self._ending is not None or not (self._owes or self._paused)):
            if self._items:
                self._take(self._items.popleft(), now)
            elif self._unread:
                self._items.extend(self._stream.feed(self._unread.popleft()))
                self._limit()
            else:
                break
            if self.host.now_ns() > until_ns:
                self.wake()
                break
        if self._ending is not None and not self.finished and not (self._unread or self._items):
            self._over(self._ending)

    def _take(self, item: StreamItem, now_ns: int) -> None:
        """One packet of the device."""
        self.heard += 1
        packet = item if isinstance(item, ControlPacket | Malformed) else self._as_malformed(item.raw)
        if packet is None:
            return
        if self.player is None:
            self.player = self._begin(packet)
        self.player.receive(packet, now_ns)

    def _limit(self) -> None:
        """Refuse packets that are too long, and those for which there is no room beside others."""
        stream = self._stream
        skipped = stream.skipped
        if skipped is None:
            skipped = next((one for one in self._items if getattr(one, "reason", "") == "too_large"), None)  # type: ignore[assignment]
        if skipped is not None:
            self._refuse(f"a packet of {skipped.length:,} bytes: the limit is {stream.max_packet_bytes:,}")
            return
        held = stream.held
        more, self._held = held - self._held, held
        if not self.host.room(more) and more > 0:
            self._refuse("too many bytes of packets that are not complete, of all devices together")

    def _refuse(self, why: str) -> None:
        """End the connection because of a packet that is too large (5.0 4.13)."""
        player = self.player
        self._unread.clear()
        self._items.clear()
        if player is not None and player.live.version >= V5 and player.device.accepted:
            self.link.write(encode(packets.Disconnect(PACKET_TOO_LARGE), player.live.version))
        self._close(Close("fin", why))

    def wake(self) -> None:
        if not self._arranged and not self.finished:
            self._arranged = True
            asyncio.get_running_loop().call_soon(self.pump)

    def pump(self) -> None:
        """Say what is to be said now."""
        self._arranged = False
        if not self.finished:
            self._hear()
            self._say()
        if not self.finished:
            self._listen()

    def _say(self) -> None:
        player = self.player
        if self.finished or player is None:
            return
        now, sent = self.host.now_ns(), []
        close: Close | None = None
        for _ in range(MAX_TURN):
            # While the device does not read, only the end of its patience or ours is looked at.
            action = player.perform(now, self.host.horizon(self)) if not self._paused else Wait(now + 1_000_000_000)
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
            self.host.stir(self)

    def stop(self) -> None:
        if not self.finished:
            self._over(Ending("open", None, self.host.now_ns()))

    def _arrange(self, wait: Wait, now_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait.until_ns is not None:
            # The event loop rounds times to its clock; a moment later is surely not too early.
            seconds = max(0.0, (wait.until_ns - now_ns) / 1e9) + 0.0005
            self._timer = asyncio.get_running_loop().call_later(seconds, self.wake)

    def _begin(self, first: ControlPacket | Malformed) -> ServerPlayer:
        name = identifier_of(first)
        if name:
            self.name = f"{name} ({self.link.remote})"
        if self._timer is not None:
            self._timer.cancel()
        return self.host.cast(self, first)

    def _as_malformed(self, raw: bytes) -> Malformed | None:
        """Bytes that are no packet; those that the capture could not read either are passed over."""
        player = self.player
        if player is not None and player.script.lost_from_client:
            return None
        return Malformed(MalformedReason.TRUNCATED, 0, "", "no MQTT packet", raw)

    def _silent(self) -> None:
        if self.player is None and not self.finished:
            self.host.tell(f"{self.name}: closed, since no CONNECT came within {FIRST_PACKET_S:g} s")
            self._close(Close("fin"))

    def _close(self, close: Close) -> None:
        if close.why:
            self.host.tell(f"{self.name}: closed: {close.why}")
        if close.how == "reset":
            self.link.abort()
        self._over(Ending(close.how, "server", self.host.now_ns(), close.why))

    def _over(self, ending: Ending) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.finished = True
        self._unread.clear()
        self._items.clear()
        self.host.room(-self._held)
        self._held = 0
        if self.player is not None:
            self.player.ended(ending)
        self.link.close()
        self.host.stir(self)
