from __future__ import annotations

import errno
import socket
import ssl

import pytest

from mqttscope.transport.errors import LinkErrorKind, link_error, reason
from mqttscope.transport.target import parse_broker
from mqttscope.transport.websocket import WebSocketError


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "no answer in time"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed"), "Connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "SSL: WRONG VERSION NUMBER"),
        (UnicodeError("label too long"), "label too long"),
        (OSError(), "OSError"),
    ],
)
def test_reasons_are_words(error: BaseException, words: str) -> None:
    assert words.lower() in reason(error).lower()


def unverified(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "what OpenSSL says"
    return error


def failed(why: str) -> ssl.SSLError:
    error = ssl.SSLError(1, why)
    error.reason = why
    return error


@pytest.mark.parametrize(
    ("error", "kind", "why"),
    [
        (WebSocketError("it answers 404 Not Found"), LinkErrorKind.WEBSOCKET, "it answers 404 Not Found"),
        (
            socket.gaierror(-2, "Name or service not known"),
            LinkErrorKind.UNRESOLVABLE,
            "the host name broker cannot be resolved (Name or service not known)",
        ),
        (
            UnicodeError("label too long"),
            LinkErrorKind.UNRESOLVABLE,
            "the host name broker cannot be resolved (label too long)",
        ),
        (unverified(10), LinkErrorKind.TLS, "its certificate has expired"),
        (unverified(20), LinkErrorKind.TLS, "its certificate comes from a CA that is not trusted"),
        (unverified(62), LinkErrorKind.TLS, "its certificate is not for broker"),
        (unverified(99), LinkErrorKind.TLS, "its certificate is not accepted: what OpenSSL says"),
        (failed("WRONG_VERSION_NUMBER"), LinkErrorKind.TLS, "it does not speak TLS"),
        (failed("NO_SHARED_CIPHER"), LinkErrorKind.TLS, "TLS failed: no shared cipher"),
        (TimeoutError(), LinkErrorKind.TIMEOUT, "no answer within 2.5 s"),
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "no"),
            LinkErrorKind.REFUSED,
            "nothing listens there (connection refused)",
        ),
        (
            ConnectionResetError(),
            LinkErrorKind.TLS,
            "it closed the connection during the TLS handshake; perhaps it does not speak TLS",
        ),
        (OSError(errno.ENETUNREACH, "no"), LinkErrorKind.OTHER, "Network is unreachable"),
    ],
)
def test_links_say_why_they_are_not_there(error: Exception, kind: LinkErrorKind, why: str) -> None:
    said = link_error(error, parse_broker("mqtts://me@broker"), timeout_s=2.5)
    assert (said.kind, str(said)) == (kind, f"cannot connect to mqtts://broker:8883: {why}")


def test_the_name_that_a_certificate_is_not_for_may_be_given() -> None:
    said = link_error(unverified(64), parse_broker("mqtts://192.0.2.1"), timeout_s=1, server_name="broker.example")
    assert str(said).endswith("its certificate is not for broker.example")
