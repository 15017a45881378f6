"""One client and its connection to the broker: forwards bytes unchanged and reports each event to the recording."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from mqttscope.mqtt.codec import NEED_MORE, packet_end
from mqttscope.net.proxy_protocol import header_length
from mqttscope.transport import sockets
from mqttscope.transport.recording import Recording
from mqttscope.transport.sockets import DeliveryTracker
from mqttscope.transport.websocket import Framing
from mqttscope.transport.wire import SyntheticConnection

HIGH_WATER_BYTES = 256 * 1024
"""Bytes kept for a side that does not read; beyond that, the proxy stops reading from the other side."""
HALF_CLOSED_S = 60.0
"""Maximum silence of a connection that only one side has closed."""
MAX_HEAD_BYTES = 65_536
"""Maximum length of the bytes before a client's first packet: a PROXY protocol header, an HTTP request."""
_TLS_RECORD_HEADER = 5


class FirstPacket:
    """Detects when a client has sent its first packet, over any transport; keeps only its beginning.

    For TLS that passes through encrypted, the first TLS record counts.
    """

    def __init__(self) -> None:
        self.complete = False
        self._head = bytearray()
        self._left: int | None = None
        """Bytes of the packet still to come, once its length is known."""
        self._prefaced = False
        """Whether a PROXY protocol header can no longer come."""
        self._web: Framing | None = None

    def feed(self, data: bytes) -> bool:
        """Take bytes of the client; returns whether its first packet is complete."""
        if self._web is not None:
            received = self._web.receive(data)
            # The broker refuses bytes that are not a WebSocket.
            self.complete = bool(received.ended)
            data = received.data
        if self._left is not None:
            self._left -= len(data)
        elif data and not self.complete:
            room = MAX_HEAD_BYTES + 1 - len(self._head)
            self._head += data[:room]
            self._parse_head(data[room:])
        self.complete = self.complete or (self._left is not None and self._left <= 0)
        return self.complete

    def _parse_head(self, rest: bytes) -> None:
        """Parse the beginning; ``rest`` follows it and is not kept."""
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
                # The broker refuses a longer head.
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
            # The broker refuses a fifth length byte.
            self._left = end - len(head) - len(rest) if body > 0 else 0


class ProxySide(asyncio.Protocol):
    """One side of a proxied connection: records received bytes and forwards them to the other side."""

    def __init__(self, pair: ProxiedConnection, *, from_client: bool) -> None:
        self.pair = pair
        self.from_client = from_client
        self.transport: asyncio.Transport | None = None
        self.partner: ProxySide
        self.finished = False
        """Whether this side sends nothing more."""
        self.lost = False
        self.delivery: DeliveryTracker | None = None
        """How much of the partner's stream has reached this side; `None` before it is connected."""
        self._backlog: list[bytes] = []
        """Bytes for this side, kept until it is connected."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open and its TLS handshake complete."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.delivery = DeliveryTracker(transport)
        transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        if self.from_client:
            # Not read before the broker is connected.
            transport.pause_reading()
            self.pair.opened()
        for data in self._backlog:
            self.forward(data)
        self._backlog.clear()

    def data_received(self, data: bytes) -> None:
        """Record the bytes, then forward them."""
        pair = self.pair
        recording = pair.recording
        assert self.delivery is not None
        pair.heard(self.from_client, data)
        recording.write(pair.wire.data(self.from_client, data, recording.now(), self.delivery.read()))
        self.partner.forward(data)

    def forward(self, data: bytes) -> None:
        """Forward the partner's bytes to this side."""
        transport = self.transport
        if transport is None or self.delivery is None:
            self._backlog.append(data)
            return
        if self.lost or transport.is_closing():
            return
        self.delivery.writing(len(data))
        transport.write(data)
        self.pair.mark_dirty()

    def delivered(self) -> int:
        """How much of the partner's stream this side had certainly received when it sent the next bytes to be read."""
        return 0 if self.delivery is None else self.delivery.delivered()

    def eof_received(self) -> bool:
        """This side sends no more; it may still receive."""
        self.finish()
        return self.delivery is None or self.delivery.plain

    def finish(self) -> None:
        """Record the end of this side's stream and pass it on."""
        if self.finished:
            return
        self.finished = True
        pair, partner = self.pair, self.partner
        recording = pair.recording
        recording.write(pair.wire.close(self.from_client, recording.now(), self.delivered()))
        partner.on_partner_finished()
        if partner.finished:
            self.close()
        else:
            pair.half_closed()

    def on_partner_finished(self) -> None:
        """The partner sends no more; this side may continue, if its transport supports half-closing."""
        transport = self.transport
        if self.finished or transport is None or not transport.can_write_eof():
            self.close()
        elif not transport.is_closing():
            transport.write_eof()

    def pause_writing(self) -> None:
        """This side does not read: stop reading from the partner."""
        self.partner.read(False)

    def resume_writing(self) -> None:
        self.partner.read(True)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: in good order, or by a reset, which is passed on to the partner."""
        if exc is not None and not self.lost:
            if not self.from_client and (isinstance(exc, ssl.SSLError) or self._is_silent_in_tls()):
                # In TLS 1.3 a broker rejects a missing or wrong client certificate only after the handshake.  If it has
                # not read everything by then, a reset may overtake its alert.
                self.pair.refused = exc
            self.pair.abort(self.from_client)
        self.lost = True
        self.finish()
        self.partner.close()
        self.pair.check_gone()

    def _is_silent_in_tls(self) -> bool:
        """Whether this side speaks TLS and has sent no application data."""
        delivery = self.delivery
        return delivery is not None and not delivery.plain and not self.pair.wire.sent(self.from_client)

    def read(self, on: bool) -> None:
        """Resume or pause reading from this side."""
        transport = self.transport
        if transport is not None and not self.finished and not transport.is_closing():
            if on:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def close(self) -> None:
        """Close this side once its bytes are sent."""
        # asyncio's TLS transports do not tolerate being closed twice.
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None and not self.lost:
            sockets.reset(self.transport)


class ProxiedConnection:
    """A client's connection and the one made for it to the broker, until both are gone."""

    def __init__(
        self,
        wire: SyntheticConnection,
        recording: Recording,
        on_dirty: Callable[[ProxiedConnection], None],
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        patience_s: float = 0.0,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``loop`` provides the clock; without it the connection has no timeouts.

        ``patience_s``: timeout for the first packets of client and broker, 0: unlimited.  ``note`` gets a sentence when
        the connection is given up.
        """
        self.wire = wire
        self.recording = recording
        self.note = note
        self._loop = loop
        self._patience_s = patience_s
        self._first: FirstPacket | None = FirstPacket()
        self._answered = False
        """Whether the broker has sent anything."""
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.client = ProxySide(self, from_client=True)
        self.server = ProxySide(self, from_client=False)
        self.client.partner, self.server.partner = self.server, self.client
        self.refused: Exception | None = None
        """TLS error sent by the broker."""
        self.gone = asyncio.Event()
        """Set once both ends are gone."""
        self._on_dirty = on_dirty
        self._is_dirty = False

    def opened(self) -> None:
        self.recording.write(self.wire.open(self.recording.now()))

    def heard(self, from_client: bool, data: bytes) -> None:
        """A side sent data: end or prolong the timeout that waits for it.

        The client's data may arrive before the broker is connected; no timeout runs then.
        """
        if self.client.finished or self.server.finished:
            if self._timer is not None and self._loop is not None:
                self._heard_at = self._loop.time()
        elif not from_client:
            self._answered = True
            if self._first is None:
                self._cancel_timer()
        elif self._first is not None and self._first.feed(data):
            self._first = None
            if self._timer is not None:
                self._cancel_timer()
                self._await_first()

    def half_closed(self) -> None:
        """One side has closed: the other may continue, with a limit on its silence."""
        self._cancel_timer()
        if self._loop is not None:
            self._heard_at = self._loop.time()
            self._timer = self._loop.call_later(HALF_CLOSED_S, self._check_half_closed, self._loop)

    def _check_half_closed(self, loop: asyncio.AbstractEventLoop) -> None:
        left = self._heard_at + HALF_CLOSED_S - loop.time()
        if left > 0:
            self._timer = loop.call_later(left, self._check_half_closed, loop)
            return
        open_side = "broker" if self.client.finished else "client"
        self._give_up(f"the {open_side} was silent for {HALF_CLOSED_S:g} s after the other side had closed")

    def _await_first(self) -> None:
        """Start the timeout for the next expected first packet, if any."""
        if self._patience_s and self._loop is not None and not (self._first is None and self._answered):
            problem = (
                "the broker did not answer the client's first packet" if self._first is None else "no CONNECT came"
            )
            why = f"{problem} within {self._patience_s:g} s"
            self._timer = self._loop.call_later(self._patience_s, self._give_up, why)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self, why: str) -> None:
        """Reset both connections, so that they no longer take up a place."""
        self._timer = None
        if self.gone.is_set():
            return
        self.note(f"{self.wire.client}: closed: {why}")
        self.recording.write(self.wire.abort(False, self.recording.now()))
        self.client.abort()
        self.server.abort()
        if self.server.transport is None:
            self.server.lost = True
            self.check_gone()

    def join(self) -> None:
        """Start forwarding, since the broker is connected too."""
        if self.client.lost:
            self.server.abort()
        elif self.client.finished:
            # Some event loops still read after a pause that comes as soon as a connection is made.
            self.server.on_partner_finished()
        else:
            self._await_first()
            self.client.read(True)

    def mark_dirty(self) -> None:
        """Schedule recording the acknowledgment of bytes just sent."""
        if not self._is_dirty:
            self._is_dirty = True
            self._on_dirty(self)

    def acknowledge(self) -> bool:
        """Record new acknowledgments; returns whether bytes are still in flight."""
        wire, recording = self.wire, self.recording
        now = recording.now()
        open_ends = False
        for end in (self.client, self.server):
            recording.write(wire.acknowledge(end.from_client, end.delivered(), now))
            open_ends |= not end.lost and wire.acknowledged(end.from_client) < wire.sent(not end.from_client)
        self._is_dirty = open_ends
        return open_ends

    def abort(self, from_client: bool) -> None:
        self.recording.write(self.wire.abort(from_client, self.recording.now()))
        (self.server if from_client else self.client).abort()

    def refuse(self) -> None:
        """The broker cannot be reached: reset the client, as the broker's host would."""
        self.recording.write(self.wire.abort(False, self.recording.now()))
        self.client.abort()
        self.server.lost = True
        self.check_gone()

    def check_gone(self) -> None:
        """Finish the record once both sides are gone."""
        if self.client.lost and self.server.lost and not self.gone.is_set():
            self._cancel_timer()
            self.recording.write(self.wire.settle(self.recording.now()))
            self.gone.set()

    def drop(self) -> None:
        self.client.close()
        self.server.close()
