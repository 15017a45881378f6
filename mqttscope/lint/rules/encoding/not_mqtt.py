from mqttscope.events import MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.lint.rules import Confidence, Connection, Findings, Report, Rule, RuleContext, Severity, examples
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.foreign import ANSWERS
from mqttscope.secrets.findings import RUN
from mqttscope.session.connection import port_of

_PLAIN_PORT = ":1883"
_UNUSUAL = frozenset(name for _, name in ANSWERS)
"""Protocols: the finding shows their first bytes."""
MAX_SHOWN = RUN - 1
"""Maximum number of bytes shown of an answer: longer runs may contain secrets, and reports would hide them."""


class NotMqtt(Rule):
    """A connection to an MQTT port starts with another protocol, or carries no data at all.

    The client may be a browser, a scanner, a TLS client on the plain port or the health check of a load balancer: the
    broker closes the connection, and its log fills up.  That is info.  If the server answers a CONNECT in another
    protocol, it is not a broker, or the port is for TLS or HTTP: that is an error.  From then on no other rule checks
    this connection, since it is not MQTT.

    Instead, configure the program with the right port; let health checks send a CONNECT or use a separate port.
    """

    code = "ENC109"
    severity = Severity.INFO
    severities = (Severity.ERROR, Severity.INFO)
    confidence = Confidence.LIKELY

    good = examples("""
        MQTT
            opened; > fin
        the capture ends before anything was sent
            version 5.0
        the server closes before anything was sent
            < fin
    """)
    bad = examples(r"""
        an HTTP request
            silent > raw "GET / HTTP/1.1\r\nHost: broker.example\r\nUser-Agent: curl/8\r\nAccept: */*\r\n\r\n" !; > fin
        TLS on the plain port
            silent > raw 16 03 01002f0100002b0303 11*32 000004130113020100 !; > fin
        a PROXY protocol header, with MQTT after it
            silent > raw "PROXY TCP4 10.0.0.4 10.0.0.2 51234 1883\r\n" !; opened
        a probe that connects and closes
            > fin !
        a web server answers
            > connect 3.1.1; silent < raw "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" !; < fin
        a web server answers without a status line
            > connect 3.1.1; silent < raw "<!DOCTYPE HTML>\n<html><title>Error response</title></html>\n" !; < fin
        a mail server answers
            > connect 3.1.1; silent < raw "220 mail.example ESMTP ready for everything that is a mail\r\n" !; < fin
        a TLS port answers with an alert
            > connect 3.1.1; silent < raw 15 03 0300020228 !; < fin
    """)

    def check_foreign(self, protocol: str, at: RuleContext) -> Findings:
        """Report bytes that match the start of another protocol."""
        greeting = at.history.greeting
        if greeting and isinstance(at.event, PacketEvent):
            return self._server_finding(protocol, greeting, at, overdue=True)
        if not at.from_client and at.receiver.packets:
            return self._server_finding(protocol, _raw(at.event), at)
        return self.report(
            "",
            f"connection to port {port_of(at.connection.server)}: the first bytes are {protocol}, not MQTT",
            sender=Direction.CLIENT_TO_SERVER,
        )

    def _server_finding(self, protocol: str, head: bytes, at: RuleContext, *, overdue: bool = False) -> Report:
        """A finding about a server that does not speak MQTT; ``overdue`` if the answer came in an earlier event."""
        name = f"{protocol} ({_excerpt(head)})" if protocol in _UNUSUAL else protocol
        return self.report(
            "",
            f"the server answers in {name}, not in MQTT: port {port_of(at.connection.server)} is not a plain MQTT port",
            severity=Severity.ERROR,
            confidence=Confidence.CERTAIN,
            sender=Direction.SERVER_TO_CLIENT,
            overdue=overdue,
        )

    def check_opened(self, connection: Connection, at: RuleContext) -> Findings:
        """Report TLS on the plain MQTT port."""
        if connection.transport != "tls" or not connection.server.endswith(_PLAIN_PORT):
            return None
        if any("mqtt" in str(name).lower() for name in _as_list(connection.details.get("alpn_offered"))):
            return None
        return self.report(
            "",
            f"connection to port {port_of(connection.server)}: the first bytes are TLS, not plain MQTT",
            sender=Direction.CLIENT_TO_SERVER,
        )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Report a connection without any data."""
        if connection.transport != "tcp" or not connection.handshake_seen or connection.gaps:
            return None
        if connection.closed_how not in ("fin", "reset") or _bytes_seen(connection):
            return None
        if connection.closed_by == "server":
            # The server closed before the client could send.
            return None
        return self.report(
            "",
            f"connection to port {port_of(connection.server)} was closed before anything was sent",
            sender=Direction.CLIENT_TO_SERVER,
        )


def _raw(event: object) -> bytes:
    if isinstance(event, MalformedEvent):
        return event.malformed.raw
    return event.unparsed.raw if isinstance(event, UnparsedEvent) else b""


def _excerpt(head: bytes) -> str:
    """The start of an answer, in hexadecimal if it is not text."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:MAX_SHOWN]
    if text.isascii() and text.decode().isprintable():
        return repr(text.decode() + "...")
    return f"0x{head[:MAX_SHOWN].hex()}..."


def _as_list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _bytes_seen(connection: Connection) -> bool:
    """Whether either side sent any data, according to TCP."""
    counters = connection.details.get("tcp")
    if not isinstance(counters, dict):
        return True
    return any(side["data_segments"] for side in counters.values())
