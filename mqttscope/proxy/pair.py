"""One client and its connection to the broker: bytes go across unchanged, and what happens is told to the recording."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from mqttscope.mqtt.codec import NEED_MORE, packet_end
from mqttscope.net.proxy_protocol import header_length
from mqttscope.transport import sockets
from mqttscope.transport.recording import Recording
from mqttscope.transport.sockets import Delivery
from mqttscope.transport.websocket import Framing
from mqttscope.transport.wire import Wire

HIGH_WATER_BYTES = 256 * 1024
"""Bytes for a side that does not take them; beyond, its partner is not read from any more."""
HALF_CLOSED_S = 60.0
"""How long a connection may be silent that one side has closed and the other has not."""
MAX_HEAD_BYTES = 65_536
"""Maximum length of what a client sends before its first packet: a header of the PROXY protocol, an HTTP request."""
_TLS_RECORD_HEADER = 5


class FirstPacket:
    """Whether a client has said its first packet, whatever carries that; only the beginning of it is kept.

    TLS that passes through unread counts with its first record.
    """

    def __init__(self) -> None:
        self.complete = False
        self._head = bytearray()
        self._left: int | None = None
        """Bytes of the packet still to come, once its length is known."""
        self._prefaced = False
        """No header of the PROXY protocol is to come any more."""
        self._web: Framing | None = None

    def feed(self, data: bytes) -> bool:
        """Take what the client says; returns whether its first packet is complete."""
        if self._web is not None:
            received = self._web.receive(data)
            # What is no WebSocket is for the broker to refuse.
            self.complete = bool(received.ended)
            data = received.data
        if self._left is not None:
            self._left -= len(data)
        elif data and not self.complete:
            room = MAX_HEAD_BYTES + 1 - len(self._head)
            self._head += data[:room]
            self._look(data[room:])
        self.complete = self.complete or (self._left is not None and self._left <= 0)
        return self.complete

    def _look(self, rest: bytes) -> None:
        """Read the beginning; ``rest`` follows it and is not kept."""
        head = bytes(self._head)
        if not self._prefaced and self._web is None:
            preface = header_length(head)
            if preface is None:
                self._left = 0 if len(head) > MAX_HEAD_BYTES else None
                return
            self._prefaced = True
            del self._head[:preface]
            head = head[preface:]
        if not head:
            return
        if self._web is None and b"GET ".startswith(head[:4]):
            end = head.find(b"\r\n\r\n") + 4
            if (len(head) if end < 4 else end) > MAX_HEAD_BYTES:
                # A longer head is for the broker to refuse.
                self._left = 0
            elif end >= 4:
                self._web = Framing(False, bytes)
                self._head.clear()
                self.feed(head[end:] + rest)
            return
        if self._web is None and head[:2] == b"\x16\x03":
            if len(head) >= _TLS_RECORD_HEADER:
                self._left = _TLS_RECORD_HEADER + int.from_bytes(head[3:5], "big") - len(head) - len(rest)
            return
        body, end = packet_end(head, 0, len(head))
        if body != NEED_MORE:
            # A fifth length byte is for the broker to refuse.
            self._left = end - len(head) - len(rest) if body > 0 else 0


class End(asyncio.Protocol):
    """One end: what arrives is recorded and forwarded to the partner."""

    def __init__(self, pair: Pair, *, from_client: bool) -> None:
        self.pair = pair
        self.from_client = from_client
        self.transport: asyncio.Transport | None = None
        self.partner: End
        self.finished = False
        """Nothing more comes from it."""
        self.lost = False
        self.delivery: Delivery | None = None
        """What of its partner's stream has reached it; `None` before it is connected."""
        self._backlog: list[bytes] = []
        """What is for it before it is connected."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected, and through with TLS."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.delivery = Delivery(transport)
        transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        if self.from_client:
            # Not read before there is somebody to forward to.
            transport.pause_reading()
            self.pair.opened()
        for data in self._backlog:
            self.forward(data)
        self._backlog.clear()

    def data_received(self, data: bytes) -> None:
        """Record, then forward."""
        pair = self.pair
        recording = pair.recording
        assert self.delivery is not None
        pair.heard(self.from_client, data)
        recording.take(pair.wire.data(self.from_client, data, recording.now(), self.delivery.read()))
        self.partner.forward(data)

    def forward(self, data: bytes) -> None:
        """Send what the partner said."""
        transport = self.transport
        if transport is None or self.delivery is None:
            self._backlog.append(data)
            return
        if self.lost or transport.is_closing():
            return
        self.delivery.writing(len(data))
        transport.write(data)
        self.pair.dirty()

    def known(self) -> int:
        """How far it had certainly received its partner's stream when it sent what is read from it next."""
        return 0 if self.delivery is None else self.delivery.known()

    def eof_received(self) -> bool:
        """It has nothing more to say; it may still listen."""
        self.finish()
        return self.delivery is None or self.delivery.plain

    def finish(self) -> None:
        """Record the end of its stream and pass it on."""
        if self.finished:
            return
        self.finished = True
        pair, partner = self.pair, self.partner
        recording = pair.recording
        recording.take(pair.wire.close(self.from_client, recording.now(), self.known()))
        partner.heard_all()
        if partner.finished:
            self.close()
        else:
            pair.half_closed()

    def heard_all(self) -> None:
        """Its partner has nothing more to say; it may still speak, where the transport lets it."""
        transport = self.transport
        if self.finished or transport is None or not transport.can_write_eof():
            self.close()
        elif not transport.is_closing():
            transport.write_eof()

    def pause_writing(self) -> None:
        """It does not take what its partner says: the partner has to wait."""
        self.partner.read(False)

    def resume_writing(self) -> None:
        self.partner.read(True)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: in good order, or by a reset, which the partner gets as well."""
        if exc is not None and not self.lost:
            if not self.from_client and (isinstance(exc, ssl.SSLError) or self._says_nothing()):
                # In TLS 1.3 a broker refuses a client's certificate, or that there is none, after the handshake.  When
                # it has not read everything by then, a reset may overtake its alert.
                self.pair.refused = exc
            self.pair.abort(self.from_client)
        self.lost = True
        self.finish()
        self.partner.close()
        self.pair.end_lost()

    def _says_nothing(self) -> bool:
        """Whether it speaks TLS and has said nothing inside."""
        delivery = self.delivery
        return delivery is not None and not delivery.plain and not self.pair.wire.sent(self.from_client)

    def read(self, on: bool) -> None:
        """Read from it, or let it wait."""
        transport = self.transport
        if transport is not None and not self.finished and not transport.is_closing():
            if on:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def close(self) -> None:
        """Close it once it has got what is for it."""
        # A transport with TLS does not take it well when it is closed again.
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None and not self.lost:
            sockets.reset(self.transport)


class Pair:
    """A connection of a client and the one made for it to the broker, until both are gone."""

    def __init__(
        self,
        wire: Wire,
        recording: Recording,
        on_dirty: Callable[[Pair], None],
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        patience_s: float = 0.0,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``loop`` has the clock; without one nothing is limited in time.

        ``patience_s``: how long client and broker may take for their first packets, 0 forever.  ``note`` gets a
        sentence when the connection is given up.
        """
        self.wire = wire
        self.recording = recording
        self.note = note
        self._loop = loop
        self._patience_s = patience_s
        self._first: FirstPacket | None = FirstPacket()
        self._answered = False
        """The broker has said something."""
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.client = End(self, from_client=True)
        self.server = End(self, from_client=False)
        self.client.partner, self.server.partner = self.server, self.client
        self.refused: Exception | None = None
        """Why the broker has ended TLS."""
        self.gone = asyncio.Event()
        """Set once both ends are gone."""
        self._on_dirty = on_dirty
        self._is_dirty = False

    def opened(self) -> None:
        self.recording.take(self.wire.open(self.recording.now()))

    def heard(self, from_client: bool, data: bytes) -> None:
        """A side said something: the time to say it in is over.

        A client may be heard before the broker is connected, and no time is limited yet.
        """
        if self.client.finished or self.server.finished:
            if self._timer is not None and self._loop is not None:
                self._heard_at = self._loop.time()
        elif not from_client:
            self._answered = True
            if self._first is None:
                self._relax()
        elif self._first is not None and self._first.feed(data):
            self._first = None
            if self._timer is not None:
                self._relax()
                self._await_first()

    def half_closed(self) -> None:
        """One side has closed: the other may continue, but not be silent forever."""
        self._relax()
        if self._loop is not None:
            self._heard_at = self._loop.time()
            self._timer = self._loop.call_later(HALF_CLOSED_S, self._look_half_closed, self._loop)

    def _look_half_closed(self, loop: asyncio.AbstractEventLoop) -> None:
        left = self._heard_at + HALF_CLOSED_S - loop.time()
        if left > 0:
            self._timer = loop.call_later(left, self._look_half_closed, loop)
            return
        open_side = "broker" if self.client.finished else "client"
        self._give_up(f"the {open_side} was silent for {HALF_CLOSED_S:g} s after the other side had closed")

    def _await_first(self) -> None:
        """Limit the time of the first packet that is still to come, if any."""
        if self._patience_s and self._loop is not None and not (self._first is None and self._answered):
            what = "the broker did not answer the client's first packet" if self._first is None else "no CONNECT came"
            why = f"{what} within {self._patience_s:g} s"
            self._timer = self._loop.call_later(self._patience_s, self._give_up, why)

    def _relax(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self, why: str) -> None:
        """End both connections: somebody else needs the place."""
        self._timer = None
        if self.gone.is_set():
            return
        self.note(f"{self.wire.client}: closed: {why}")
        self.recording.take(self.wire.abort(False, self.recording.now()))
        self.client.abort()
        self.server.abort()
        if self.server.transport is None:
            self.server.lost = True
            self.end_lost()

    def join(self) -> None:
        """The broker is connected too: continue."""
        if self.client.lost:
            self.server.abort()
        elif self.client.finished:
            # Not all event loops heed it when reading is paused as soon as a connection is made.
            self.server.heard_all()
        else:
            self._await_first()
            self.client.read(True)

    def dirty(self) -> None:
        """Bytes were sent whose arrival is to be recorded."""
        if not self._is_dirty:
            self._is_dirty = True
            self._on_dirty(self)

    def acknowledge(self) -> bool:
        """Record what has arrived meanwhile; returns whether something is still under way."""
        wire, recording = self.wire, self.recording
        now = recording.now()
        open_ends = False
        for end in (self.client, self.server):
            recording.take(wire.acknowledge(end.from_client, end.known(), now))
            open_ends |= not end.lost and wire.acknowledged(end.from_client) < wire.sent(not end.from_client)
        self._is_dirty = open_ends
        return open_ends

    def abort(self, from_client: bool) -> None:
        self.recording.take(self.wire.abort(from_client, self.recording.now()))
        (self.server if from_client else self.client).abort()

    def refuse(self) -> None:
        """There is no broker: the client gets what it would have got from its host."""
        self.recording.take(self.wire.abort(False, self.recording.now()))
        self.client.abort()
        self.server.lost = True
        self.end_lost()

    def end_lost(self) -> None:
        """Look whether both are gone."""
        if self.client.lost and self.server.lost and not self.gone.is_set():
            self._relax()
            self.recording.take(self.wire.settle(self.recording.now()))
            self.gone.set()

    def drop(self) -> None:
        self.client.close()
        self.server.close()
