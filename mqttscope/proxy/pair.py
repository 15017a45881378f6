"""One client and its connection to the broker: bytes go across unchanged, and what happens is told to the recording."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from mqttscope.transport import sockets
from mqttscope.transport.delivery import Delivery
from mqttscope.transport.recording import Recording
from mqttscope.transport.wire import Wire

HIGH_WATER_BYTES = 256 * 1024
"""Bytes for a side that does not take them; beyond, its partner is not read from any more."""


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
        """It has caught up."""
        self.partner.read(True)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: in good order, or by a reset, which the partner gets as well."""
        if exc is not None and not self.lost:
            if not self.from_client and (isinstance(exc, ssl.SSLError) or self._says_nothing()):
                # In TLS 1.3 a broker refuses a client's certificate, or that there is none, behind the handshake.  When
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
        """Give it up with a reset."""
        if self.transport is not None and not self.lost:
            sockets.reset(self.transport)


class Pair:
    """A connection of a client and the one made for it to the broker, until both are gone."""

    def __init__(self, wire: Wire, recording: Recording, on_dirty: Callable[[Pair], None]) -> None:
        self.wire = wire
        self.recording = recording
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
        """The client is connected, and through with TLS."""
        self.recording.take(self.wire.open(self.recording.now()))

    def join(self) -> None:
        """The broker is connected too: go on."""
        if self.client.lost:
            self.server.abort()
        elif self.client.finished:
            # Not all event loops heed it when reading is paused as soon as a connection is made.
            self.server.heard_all()
        else:
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
        """One end has reset its connection."""
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
            self.recording.take(self.wire.settle(self.recording.now()))
            self.gone.set()

    def drop(self) -> None:
        """Close both: the proxy ends."""
        self.client.close()
        self.server.close()
