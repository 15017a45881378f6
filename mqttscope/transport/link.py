"""One MQTT connection over TCP, TLS or WebSocket, and the reason in words when it cannot be made.

Callbacks instead of streams: received bytes are passed on in the same turn of the event loop.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Protocol

from mqttscope.errors import MqttscopeError
from mqttscope.transport import sockets
from mqttscope.transport.recording import LinkRecord, LinkRecorder
from mqttscope.transport.sockets import DeliveryTracker
from mqttscope.transport.target import BrokerUrl
from mqttscope.transport.websocket import ClientHandshake, Framing, ServerHandshake, WebSocketError
from mqttscope.transport.wire import Endpoint

HIGH_WATER_BYTES = 256 * 1024
"""Bytes waiting to be sent above which `Listener.writable` reports false."""
CLOSE_TIMEOUT_S = 5.0
"""Time for the other side of a closed link to take the remaining bytes and to close too."""

FIN, RESET, FAILED = "fin", "reset", "failed"
"""How the other side ended: in good order, by a reset, or by breaking TLS or WebSocket."""

_NOT_OPENED = "it closed the connection instead of opening a WebSocket"


class Listener(Protocol):
    """Receives the events of a link."""

    def received(self, data: bytes) -> None:
        """MQTT bytes arrived, in pieces of any length.  Never called after `Link.close` or `Link.abort`."""

    def ended(self, how: str, detail: str) -> None:
        """The other side ended: ``how`` is ``fin``, ``reset`` or ``failed``, ``detail`` describes it for people.

        Called at most once, and not for `Link.abort`.  After ``fin`` the link can still be written to, unless TLS or
        WebSocket ended with it; a caller with nothing left to send closes it.  Nothing is read after ``fin``, so a
        later reset is noticed only with the next write.
        """

    def writable(self, on: bool) -> None:
        """False: more than `HIGH_WATER_BYTES` wait to be sent.  True: they have been sent.  Only a hint."""


class Link(asyncio.Protocol):
    """One side of a connection; created by `client.BrokerConnector` and by `server.Server`.

    All methods may be called at any time in the thread of the event loop, and do nothing after the end.  The methods of
    :class:`asyncio.Protocol` are called by the event loop.
    """

    local: Endpoint
    remote: Endpoint

    def __init__(
        self,
        begin: Callable[[Link], Listener],
        handshake: ClientHandshake | ServerHandshake | None,
        *,
        is_client: bool,
        recorder: LinkRecorder | None = None,
    ) -> None:
        self.closed = asyncio.Event()
        """Set when the connection is gone."""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when MQTT can be sent; otherwise its exception is the reason."""
        self.subprotocol: str | None = None
        """WebSocket subprotocol; `None` without WebSocket."""
        # A caller that does not await this learns of the failure by the end of the link.
        self.opened.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._begin = begin
        self._listener: Listener | None = None
        self._handshake = handshake
        self._framing: Framing | None = None
        self._is_client = is_client
        self._recorder = recorder
        self._record: LinkRecord | None = None
        self._transport: asyncio.Transport | None = None
        self._plain = True
        self._acknowledge: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._finished = False  # we send nothing more
        self._fin = False  # our FIN is sent
        self._closing = False
        self._aborted = False
        self._remote_finished = False
        self._ended = False
        self._heard = False

    @property
    def connected(self) -> bool:
        """Whether the connection is open and its TLS handshake complete."""
        return self._transport is not None

    @property
    def unsent(self) -> int:
        transport = self._transport
        return 0 if transport is None or transport.is_closing() else transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Send MQTT bytes; in a WebSocket, as one binary frame."""
        if data and not self._finished:
            self._send(data if self._framing is None else self._framing.send(data))

    def read(self, on: bool) -> None:
        """Resume or pause reading."""
        transport = self._transport
        if transport is not None and not transport.is_closing() and not self._remote_finished and not self._closing:
            if on:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def half_close(self) -> None:
        """Stop sending but continue reading: sends a FIN, or a close frame in a WebSocket.

        asyncio's TLS has no half-close: the link stops sending, and the other side learns of it by `close`.
        """
        if self._finished or self._transport is None:
            return
        self._finished = True
        if self._framing is not None:
            self._send(self._framing.close())
        elif self._plain:
            self._end_stream()

    def close(self) -> None:
        """Close in good order after the written bytes: close frame, close_notify, FIN.

        Incoming bytes are read and discarded, so that no reset overtakes our last bytes.  After `CLOSE_TIMEOUT_S` the
        connection is given up.
        """
        transport = self._transport
        if self._closing or self._aborted or transport is None:
            return
        self.read(True)
        self._finished = self._closing = True
        self._timer = asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, self._give_up)
        framing = self._framing
        if framing is not None:
            self._send(framing.close())
        if framing is None or framing.ended or self._remote_finished:
            self._end_stream()

    def abort(self) -> None:
        """Reset the connection; unsent bytes are lost."""
        if self._aborted or self._transport is None or self.closed.is_set():
            return
        self._aborted = self._finished = True
        if self._record is not None:
            self._record.aborted(local=True)
        sockets.reset(self._transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open and its TLS handshake complete."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._plain = transport.get_extra_info("sslcontext") is None
        transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        self._acknowledge = sockets.quick(transport) if self._is_client else None
        self.local = Endpoint.of(transport.get_extra_info("sockname"))
        self.remote = Endpoint.of(transport.get_extra_info("peername"))
        if self._recorder is None:
            sockets.prepare(transport)
        else:
            delivery = DeliveryTracker(transport)
            self._record = self._recorder.tap(self.local, self.remote, delivery, is_client=self._is_client)
        if self._handshake is None:
            self._open()
        elif isinstance(self._handshake, ClientHandshake):
            self._send(self._handshake.request)

    def data_received(self, data: bytes) -> None:
        """Record the bytes, unwrap them, and pass them on."""
        if self._acknowledge is not None:
            self._acknowledge()
        self._heard = True
        if self._record is not None:
            self._record.received(data)
        if self._handshake is not None:
            rest = self._continue_handshake(data)
            if not rest:
                return
            data = rest
        if self._framing is not None:
            self._unwrap(data)
        elif self._listener is not None and not self._closing:
            self._listener.received(data)

    def eof_received(self) -> bool:
        """The other side sends no more; it may still receive."""
        self._remote_finished = True
        if self._record is not None:
            self._record.finished(local=False)
        if self._framing is None or self._framing.ended:
            self._end(FIN, "the connection was closed")
        else:
            self._end(FIN, "the connection was closed without a close frame")
        if self._handshake is not None:
            self._fail(WebSocketError(_NOT_OPENED))
        elif self._finished or self._framing is not None:
            self._finished = True
            self._end_stream()
        return self._plain

    def connection_lost(self, exc: Exception | None) -> None:
        """Record and report how the connection ended."""
        if self._timer is not None:
            self._timer.cancel()
        tap = self._record
        self._finished = True
        if exc is None:
            # asyncio closes a connection by itself only if it is TLS and the other side has closed.
            if tap is not None and not self._aborted:
                tap.finished(local=True)
        elif not self._aborted and not (self._closing and isinstance(exc, ssl.SSLError | TimeoutError)):
            # A reset of a connection that we have already closed is recorded too.
            if tap is not None:
                tap.aborted(local=False)
            self._end(RESET if isinstance(exc, ConnectionError) else FAILED, self._ending(exc))
        if tap is not None:
            tap.gone()
        if not self.opened.done():
            if exc is None or isinstance(exc, ConnectionError):
                exc = WebSocketError(_NOT_OPENED)
            self.opened.set_exception(exc)
        self.closed.set()

    def pause_writing(self) -> None:
        if self._listener is not None and not self._finished:
            self._listener.writable(False)

    def resume_writing(self) -> None:
        if self._listener is not None and not self._finished:
            self._listener.writable(True)

    def _open(self) -> None:
        try:
            self._listener = self._begin(self)
        except Exception as error:
            self.opened.set_exception(error)
            self.abort()
            return
        if not self.opened.done():
            self.opened.set_result(None)

    def _continue_handshake(self, data: bytes) -> bytes | None:
        """Continue the WebSocket opening handshake; returns the bytes after it."""
        handshake = self._handshake
        assert handshake is not None
        try:
            rest = handshake.feed(data)
        except WebSocketError as error:
            self._fail(error)
            return None
        if rest is None:
            return None
        if isinstance(handshake, ServerHandshake):
            self._send(handshake.answer)
            if handshake.refused:
                self._fail(WebSocketError(handshake.refused))
                return None
        self._handshake, self.subprotocol = None, handshake.subprotocol
        self._framing = Framing(self._is_client, os.urandom)
        self._open()
        return rest

    def _fail(self, error: WebSocketError) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
        self._handshake = None
        self.close()

    def _unwrap(self, data: bytes) -> None:
        assert self._framing is not None
        received = self._framing.receive(data)
        if received.data and self._listener is not None and not self._closing:
            self._listener.received(received.data)
        if received.answer:
            self._send(received.answer)
        if not received.ended:
            return
        self._finished = True
        self._end(received.ended, received.detail)
        if received.ended == FAILED:
            self.close()
        if self._closing or not self._is_client:
            # RFC 6455 section 7.1.1: the server closes the TCP connection; a client that has closed need not wait.
            self._end_stream()

    def _send(self, data: bytes) -> None:
        transport = self._transport
        if data and transport is not None and not self._fin and not transport.is_closing():
            if self._record is not None:
                self._record.sent(data)
            transport.write(data)

    def _end_stream(self) -> None:
        """End our stream, and close the connection when both streams have ended."""
        transport = self._transport
        assert transport is not None
        self._finished = True
        if transport.is_closing():
            return
        if not self._fin:
            self._fin = True
            if self._record is not None:
                self._record.finished(local=True)
            if self._plain and not self._remote_finished:
                with suppress(OSError):  # the connection is gone already
                    transport.write_eof()
        if self._remote_finished or not self._plain:
            transport.close()

    def _give_up(self) -> None:
        """The other side did not close in time."""
        transport = self._transport
        if transport is None or self.closed.is_set():
            return
        self._end_stream()
        if transport.get_write_buffer_size():
            self.abort()
        elif not transport.is_closing():
            transport.close()

    def _end(self, how: str, detail: str) -> None:
        if not self._ended and not self._aborted:
            self._ended = True
            if self._listener is not None:
                self._listener.ended(how, detail)

    def _ending(self, error: Exception) -> str:
        # In TLS 1.3 a server rejects a missing or wrong client certificate only after the handshake.  If we have
        # already written by then, its reset may arrive before its alert.
        if isinstance(error, ssl.SSLError):
            return f"TLS was ended: {reason(error)}"
        if not isinstance(error, ConnectionError):
            return reason(error)
        if self._is_client and not self._plain and not self._heard:
            return "the connection was reset before anything came, as by brokers that want a client certificate"
        return "the connection was reset"


class LinkErrorKind(StrEnum):
    """Reason for a `LinkError`."""

    UNRESOLVABLE = "unresolvable"
    """The host name cannot be resolved."""
    REFUSED = "refused"
    """Nothing listens at the address."""
    TIMEOUT = "timeout"
    """No answer in time."""
    TLS = "tls"
    """The TLS handshake failed: certificates, versions, or a peer without TLS."""
    WEBSOCKET = "websocket"
    """The WebSocket handshake failed."""
    OTHER = "other"


class LinkError(MqttscopeError):
    """A connection could not be made; the message is one sentence with the broker and the reason."""

    def __init__(self, kind: LinkErrorKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


_CERTIFICATE = {
    9: "its certificate is not valid yet",
    10: "its certificate has expired",
    18: "its certificate is self-signed and not trusted",
    19: "its certificate comes from a CA that is not trusted",
    20: "its certificate comes from a CA that is not trusted",
    21: "its certificate comes from a CA that is not trusted",
    23: "its certificate was revoked",
    26: "its certificate is not for servers",
}
"""Reasons for OpenSSL's common verification codes (X509_V_ERR_...)."""
_WRONG_NAME = (62, 64)
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "UNEXPECTED_MESSAGE")


def link_error(
    error: BaseException, target: BrokerUrl, *, timeout_s: float, server_name: str | None = None
) -> LinkError:
    """Convert an error on the way to ``target`` into a `LinkError`.

    ``server_name``: name that the certificate had to be valid for; ``timeout_s``: how long the caller waited.
    """
    kind, why = _why(error, target, timeout_s, server_name or target.host)
    return LinkError(kind, f"cannot connect to {target}: {why}")


def _why(error: BaseException, target: BrokerUrl, timeout_s: float, server_name: str) -> tuple[LinkErrorKind, str]:
    if isinstance(error, WebSocketError):
        return LinkErrorKind.WEBSOCKET, str(error)
    if isinstance(error, socket.gaierror | UnicodeError):
        return LinkErrorKind.UNRESOLVABLE, f"the host name {target.host} cannot be resolved ({reason(error)})"
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _WRONG_NAME:
            return LinkErrorKind.TLS, f"its certificate is not for {server_name}"
        return LinkErrorKind.TLS, _CERTIFICATE.get(error.verify_code, reason(error))
    if isinstance(error, ssl.SSLError):
        if error.reason in _NO_TLS:
            return LinkErrorKind.TLS, "it does not speak TLS"
        return LinkErrorKind.TLS, f"TLS failed: {reason(error)}"
    if isinstance(error, TimeoutError):
        return LinkErrorKind.TIMEOUT, f"no answer within {timeout_s:g} s"
    if isinstance(error, ConnectionRefusedError):
        return LinkErrorKind.REFUSED, "nothing listens there (connection refused)"
    if isinstance(error, ConnectionError) and target.tls:
        return LinkErrorKind.TLS, "it closed the connection during the TLS handshake; perhaps it does not speak TLS"
    return LinkErrorKind.OTHER, reason(error)


def reason(error: BaseException) -> str:
    """Why a connection failed, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return str(getattr(error, "reason", None) or error).replace("_", " ").lower()
    if isinstance(error, TimeoutError) and not error.args:
        return "no answer in time"
    if isinstance(error, ConnectionResetError) and not error.args:
        # asyncio reports a close during the TLS handshake this way.
        return "the connection was closed"
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror):
        # asyncio's message is longer and less exact.
        return os.strerror(error.errno)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
