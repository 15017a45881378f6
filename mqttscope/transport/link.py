"""One connection that carries MQTT, whatever lies between (TCP, TLS, WebSocket), and why one was not made, in words.

Callbacks and no streams: what arrives is handed on in the turn of the event loop in which it was read.
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
from mqttscope.transport.recording import Recorder, Tap
from mqttscope.transport.sockets import Delivery
from mqttscope.transport.target import Target
from mqttscope.transport.websocket import ClientHandshake, Framing, ServerHandshake, WebSocketError
from mqttscope.transport.wire import Endpoint

HIGH_WATER_BYTES = 256 * 1024
"""Bytes that may wait to be sent before `Listener.writable` says to stop."""
CLOSE_TIMEOUT_S = 5.0
"""How long a closed link waits for the other side to take what is left and to close as well."""

FIN, RESET, FAILED = "fin", "reset", "failed"
"""How the other side ended: in good order, by a reset, or by breaking TLS or WebSocket."""

_NOT_OPENED = "it closed the connection instead of opening a WebSocket"


class Listener(Protocol):
    """Gets what happens to a link."""

    def received(self, data: bytes) -> None:
        """MQTT bytes came, cut anyhow.  Never after `Link.close` or `Link.abort`."""

    def ended(self, how: str, detail: str) -> None:
        """The other side ended: ``fin``, ``reset`` or ``failed``, and the same in words.

        At most once; not for what `Link.abort` does.  After ``fin`` the link may still be written to, unless TLS or
        WebSocket have ended with it; whoever has no more to say closes it.  Nothing is read after it, so that a reset
        which follows is noticed with the next bytes that are written.
        """

    def writable(self, on: bool) -> None:
        """More than `HIGH_WATER_BYTES` wait to be sent (false), or they have gone (true).  A promise to nobody."""


class Link(asyncio.Protocol):
    """One side of a connection; made by `client.connect` and by `server.serve`.

    All methods may be called at any time, in the thread of the event loop; after the end they do nothing.  Those of
    :class:`asyncio.Protocol` are the event loop's.
    """

    local: Endpoint
    remote: Endpoint

    def __init__(
        self,
        begin: Callable[[Link], Listener],
        handshake: ClientHandshake | ServerHandshake | None,
        *,
        is_client: bool,
        recorder: Recorder | None = None,
    ) -> None:
        self.closed = asyncio.Event()
        """The connection is gone."""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once MQTT can be spoken; an exception says why it cannot."""
        self.subprotocol: str | None = None
        """Of the WebSocket; `None` without one."""
        # Who asks too late, or never, is told by the end of the link.
        self.opened.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._begin = begin
        self._listener: Listener | None = None
        self._handshake = handshake
        self._framing: Framing | None = None
        self._is_client = is_client
        self._recorder = recorder
        self._tap: Tap | None = None
        self._transport: asyncio.Transport | None = None
        self._plain = True
        self._acknowledge: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._finished = False  # nothing more from us
        self._fin = False  # the transport has been told so
        self._closing = False
        self._aborted = False
        self._remote_finished = False
        self._ended = False
        self._heard = False

    @property
    def connected(self) -> bool:
        """Whether it has a connection, and that is through with TLS."""
        return self._transport is not None

    @property
    def unsent(self) -> int:
        """Bytes that wait until the other side takes them."""
        transport = self._transport
        return 0 if transport is None or transport.is_closing() else transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Send MQTT bytes; in a WebSocket, as one binary frame."""
        if data and not self._finished:
            self._send(data if self._framing is None else self._framing.send(data))

    def read(self, on: bool) -> None:
        """Read on, or let the other side wait."""
        transport = self._transport
        if transport is not None and not transport.is_closing() and not self._remote_finished and not self._closing:
            if on:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def half_close(self) -> None:
        """Say that no more is sent, and continue reading: FIN, or a close frame in a WebSocket.

        TLS knows no such thing in asyncio: the link sends nothing more, and the other side learns of it by `close`.
        """
        if self._finished or self._transport is None:
            return
        self._finished = True
        if self._framing is not None:
            self._send(self._framing.close())
        elif self._plain:
            self._shut()

    def close(self) -> None:
        """End in good order after what is written: close frame, close_notify, FIN.

        What still comes is read and passed over, so that no reset overtakes our last bytes.  `CLOSE_TIMEOUT_S` later
        the connection is given up.
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
            self._shut()

    def abort(self) -> None:
        """Give the connection up with a reset, whatever is still to be sent."""
        if self._aborted or self._transport is None or self.closed.is_set():
            return
        self._aborted = self._finished = True
        if self._tap is not None:
            self._tap.aborted(local=True)
        sockets.reset(self._transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected, and through with TLS."""
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
            delivery = Delivery(transport)
            self._tap = self._recorder.tap(self.local, self.remote, delivery, is_client=self._is_client)
        if self._handshake is None:
            self._open()
        elif isinstance(self._handshake, ClientHandshake):
            self._send(self._handshake.request)

    def data_received(self, data: bytes) -> None:
        """Record, unwrap, hand on."""
        if self._acknowledge is not None:
            self._acknowledge()
        self._heard = True
        if self._tap is not None:
            self._tap.received(data)
        if self._handshake is not None:
            rest = self._shake(data)
            if not rest:
                return
            data = rest
        if self._framing is not None:
            self._unwrap(data)
        elif self._listener is not None and not self._closing:
            self._listener.received(data)

    def eof_received(self) -> bool:
        """The other side has no more to say; it may still listen."""
        self._remote_finished = True
        if self._tap is not None:
            self._tap.finished(local=False)
        if self._framing is None or self._framing.ended:
            self._end(FIN, "the connection was closed")
        else:
            self._end(FIN, "the connection was closed without a close frame")
        if self._handshake is not None:
            self._fail(WebSocketError(_NOT_OPENED))
        elif self._finished or self._framing is not None:
            self._finished = True
            self._shut()
        return self._plain

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        if self._timer is not None:
            self._timer.cancel()
        tap = self._tap
        self._finished = True
        if exc is None:
            # What asyncio closes by itself is TLS whose other side has closed.
            if tap is not None and not self._aborted:
                tap.finished(local=True)
        elif not self._aborted and not (self._closing and isinstance(exc, ssl.SSLError | TimeoutError)):
            # The reset of a connection that we have closed already is news as well.
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

    def _shake(self, data: bytes) -> bytes | None:
        """Continue with the opening handshake of a WebSocket; returns the bytes after it."""
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
        """There will be no WebSocket."""
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
            self._shut()

    def _send(self, data: bytes) -> None:
        transport = self._transport
        if data and transport is not None and not self._fin and not transport.is_closing():
            if self._tap is not None:
                self._tap.sent(data)
            transport.write(data)

    def _shut(self) -> None:
        """End the stream towards the other side, and the connection once both have ended."""
        transport = self._transport
        assert transport is not None
        self._finished = True
        if transport.is_closing():
            return
        if not self._fin:
            self._fin = True
            if self._tap is not None:
                self._tap.finished(local=True)
            if self._plain and not self._remote_finished:
                with suppress(OSError):  # it is gone already
                    transport.write_eof()
        if self._remote_finished or not self._plain:
            transport.close()

    def _give_up(self) -> None:
        """The other side does not close."""
        transport = self._transport
        if transport is None or self.closed.is_set():
            return
        self._shut()
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
        # In TLS 1.3 a server refuses a client's certificate, or that there is none, after the handshake; when we have
        # written already, its reset may come before its reason.
        if isinstance(error, ssl.SSLError):
            return f"TLS was ended: {reason(error)}"
        if not isinstance(error, ConnectionError):
            return reason(error)
        if self._is_client and not self._plain and not self._heard:
            return "the connection was reset before anything came, as by brokers that want a client certificate"
        return "the connection was reset"


class LinkErrorKind(StrEnum):
    """What a `LinkError` is about."""

    UNRESOLVABLE = "unresolvable"
    """The host name leads nowhere."""
    REFUSED = "refused"
    """Nothing listens there."""
    TIMEOUT = "timeout"
    """No answer in time."""
    TLS = "tls"
    """TLS was not agreed on: certificates, versions, or a peer without TLS."""
    WEBSOCKET = "websocket"
    """The WebSocket was not opened."""
    OTHER = "other"


class LinkError(MqttscopeError):
    """A connection that was not made; the text is one sentence that names the broker and says why."""

    def __init__(self, kind: LinkErrorKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


_CERTIFICATE = {
    9: "its certificate is not valid yet",
    10: "its certificate has expired",
    18: "its certificate is signed by itself, and is not among the trusted ones",
    19: "its certificate comes from a CA that is not trusted",
    20: "its certificate comes from a CA that is not trusted",
    21: "its certificate comes from a CA that is not trusted",
    23: "its certificate was revoked",
    26: "its certificate is not one for servers",
}
"""What OpenSSL's codes of verification mean (X509_V_ERR_...), as far as people meet them."""
_WRONG_NAME = (62, 64)
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "UNEXPECTED_MESSAGE")


def link_error(error: BaseException, target: Target, *, timeout_s: float, server_name: str | None = None) -> LinkError:
    """What happened on the way to ``target`` as a `LinkError`.

    ``server_name`` is the name that the certificate had to be for, ``timeout_s`` how long was waited.
    """
    kind, why = _why(error, target, timeout_s, server_name or target.host)
    return LinkError(kind, f"cannot connect to {target}: {why}")


def _why(error: BaseException, target: Target, timeout_s: float, server_name: str) -> tuple[LinkErrorKind, str]:
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
    """Why a connection was not made, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return str(getattr(error, "reason", None) or error).replace("_", " ").lower()
    if isinstance(error, TimeoutError) and not error.args:
        return "no answer in time"
    if isinstance(error, ConnectionResetError) and not error.args:
        # As asyncio calls a close during the TLS handshake.
        return "the connection was closed"
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror):
        # asyncio says less of it in more words.
        return os.strerror(error.errno)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
