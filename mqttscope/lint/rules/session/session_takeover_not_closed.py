from dataclasses import dataclass, field

from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Connection, Findings, Needs, Rule, examples, forget_oldest
from mqttscope.mqtt import Connack, Direction, Disconnect

MAX_LIVE = 16
"""Maximum number of connections tracked per client; the first one that was taken over is dropped first."""


@dataclass(slots=True)
class AcceptedConnection:
    """A connection that was accepted and has not ended."""

    user_name: str | None
    taken_ns: int = 0
    """Time when another connection was accepted with the same Client Identifier; 0 before."""
    taken_by: str = ""
    """Address of the client that took the session over."""
    taken_in: str = ""
    """The capture with the takeover."""
    connack: Related | None = None
    """The CONNACK of the takeover."""


@dataclass(slots=True)
class ClientConnections:
    """The connections of one client."""

    live: dict[ConnectionKey, AcceptedConnection] = field(default_factory=dict)


class SessionTakeoverNotClosed(Rule):
    """A server continues to use a connection after it has accepted another with the same Client Identifier.

    Each Client Identifier has one session.  Two connections that share it receive each other's messages and acknowledge
    with the same packet identifiers.  Reported if the server still sends packets to a client that has also been active
    since the takeover.  A connection that merely stays open is not reported, since its client may be gone.  If the two
    connections are in different captures, it is a heuristic warning: they may belong to different servers with the same
    address.

    Instead, close the older connection before you accept the new one, in MQTT 5.0 with DISCONNECT 0x8E (Session taken
    over).
    """

    code = "SES307"
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.1.4-3": ""},
        V3_1_1: {"MQTT-3.1.4-2": ""},
        V3_1: {"V31-CONNECT-client-id-unique": ""},
    }
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING
    settings = {"timeout": 30}
    Memory = ClientConnections

    good = examples("""
        closed
            opened; @1 opened; < disconnect code=0x8e; < fin; +40 @1 > pingreq; @1 < pingresp
        closed a few seconds later
            opened 3.1.1; @1 opened; +1 > pingreq; < pingresp; +3 < fin; +40 @1 > pingreq; @1 < pingresp
        the client of the older connection is gone
            opened; @1 opened; +40 < publish a
        the new connection is refused
            opened; @1 opened < code=0x88; +40 > pingreq; < pingresp
        a client with the same identifier but another user name
            opened user_name=alice; @1 opened user_name=bob; +40 > pingreq; < pingresp
        another client
            opened; @1 opened client=c2; +40 > pingreq; < pingresp
        both clients have identifiers assigned by the server
            opened client=- < assigned_client_identifier=auto-1; @1 opened client=- < assigned_client_identifier=auto-2
            +40 > pingreq; < pingresp
        the first connection was not captured from the start
            lost > connect; < connack; @1 opened; +40 > pingreq; < pingresp
    """)
    bad = examples("""
        the older connection continues
            opened; @1 opened; +31 > pingreq; < pingresp !
        in 3.1.1, with messages
            opened 3.1.1 resume; @1 opened resume < present; +20 > pingreq; +20 < publish a !; +20 < publish a
        in 3.1
            opened 3.1; @1 opened; +50 > pingreq; < pingresp !
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Store the accepted connection, and start the timeout for older ones of the client."""
        connect, connection = at.history.connect, at.connection
        if packet.reason_code or at.history.connack is not None or connect is None or not connect.client_identifier:
            return None
        if not connection.client_identifier:
            return None
        live: dict[ConnectionKey, AcceptedConnection] = at.memory(self).live
        event = at.event
        for key, older in live.items():
            if older.user_name == connect.user_name and not older.taken_ns and key != at.key:
                older.taken_ns, older.taken_by, older.taken_in = event.timestamp_ns, connection.client, event.capture
                older.connack = Related("the other CONNACK", at.number, event.frame, event.timestamp_ns)
                at.ask(self, older.taken_ns + self.nanoseconds("timeout"), key)
        live[at.key] = AcceptedConnection(connect.user_name)
        forget_oldest(live, MAX_LIVE)
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Check whether the server still sends packets here after the timeout."""
        live = at.memory(self).live.get(at.key)
        if live is None or connection.closed_by == "server" or at.history.server.disconnect is not None:
            return None
        heard = at.client.last_timestamp_ns
        event = at.event
        is_server_packet = getattr(event, "packet", None) is not None and at.direction is Direction.SERVER_TO_CLIENT
        if not is_server_packet or isinstance(event.packet, Disconnect):  # type: ignore[union-attr]
            at.ask(self, event.timestamp_ns)
            return None
        if heard is None or heard <= live.taken_ns:
            at.ask(self, event.timestamp_ns)
            return None
        waited = (event.timestamp_ns - live.taken_ns) / SECOND_NS
        apart = at.is_apart(live.taken_in)
        return self.report(
            "",
            f"Client Identifier {at.client_name!r} has two live connections: {connection.client}, and {live.taken_by} "
            f"since {waited:,.0f} s",
            # The captures may be of different servers with the same address.
            severity=Severity.WARNING if apart else None,
            confidence=Confidence.HEURISTIC if apart else None,
            related=() if live.connack is None else (live.connack,),
        )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        if at.history.connack is not None and connection.client_identifier:
            at.memory(self).live.pop(at.key, None)
        return None
