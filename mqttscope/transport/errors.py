"""Why a connection was not made, in words for people."""

from __future__ import annotations

import os
import socket
import ssl
from enum import StrEnum

from mqttscope.errors import MqttscopeError
from mqttscope.transport.target import Target
from mqttscope.transport.websocket import WebSocketError


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
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror):
        # asyncio says less of it in more words.
        return os.strerror(error.errno)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
