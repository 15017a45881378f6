from dataclasses import dataclass, field

from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Connection, Findings, Needs, Rule, examples, forget_oldest
from mqttscope.mqtt import Connack, Direction, Disconnect

MAX_LIVE = 16
"""Connections of one client that are followed; beyond them the one that was taken over first is forgotten."""


@dataclass(slots=True)
class Live:
    """A connection that was accepted and has not ended."""

    user_name: str | None
    taken_ns: int = 0
    """When another one was accepted with the same Client Identifier; 0 while none was."""
    taken_by: str = ""
    """Address of the client that has it now."""
    taken_in: str = ""
    """The capture that shows it."""
    connack: Related | None = None
    """The CONNACK that accepted it."""


@dataclass(slots=True)
class Connections:
    """The connections of one client."""

    live: dict[ConnectionKey, Live] = field(default_factory=dict)


class SessionTakeoverNotClosed(Rule):
    """A server continues with a connection although it has accepted another one with the same Client Identifier.

    There is one session for each Client Identifier.  Two connections that share it get each other's messages and
    acknowledge with the same packet identifiers.  What counts is that the server still speaks, and to a client that
    has spoken since; that a connection merely stays open is not reported, since the client may be gone.
    Where the two connections are in different captures it is a heuristic warning: these may be of different servers
    with one address.

    Instead, close the older connection before the new one is accepted, in MQTT 5.0 with DISCONNECT 0x8E (Session taken
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
    Memory = Connections

    good = examples("""
        closed
            opened; @1 opened; < disconnect code=0x8e; < fin; +40 @1 > pingreq; @1 < pingresp
        closed some seconds later
            opened 3.1.1; @1 opened; +1 > pingreq; < pingresp; +3 < fin; +40 @1 > pingreq; @1 < pingresp
        the client of the older connection is gone
            opened; @1 opened; +40 < publish a
        the new connection is refused
            opened; @1 opened < code=0x88; +40 > pingreq; < pingresp
        another user's client of the same name
            opened user_name=alice; @1 opened user_name=bob; +40 > pingreq; < pingresp
        another client
            opened; @1 opened client=c2; +40 > pingreq; < pingresp
        both had a name from the server
            opened client=- < assigned_client_identifier=auto-1; @1 opened client=- < assigned_client_identifier=auto-2
            +40 > pingreq; < pingresp
        the first connection was known by its end alone
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
        """Take note that a connection is accepted: others of the client have had their time."""
        connect, connection = at.history.connect, at.connection
        if packet.reason_code or at.history.connack is not None or connect is None or not connect.client_identifier:
            return None
        if not connection.client_identifier:
            return None
        live: dict[ConnectionKey, Live] = at.memory(self).live
        event = at.event
        for key, one in live.items():
            if one.user_name == connect.user_name and not one.taken_ns and key != at.key:
                one.taken_ns, one.taken_by, one.taken_in = event.timestamp_ns, connection.client, event.capture
                one.connack = Related("the other CONNACK", at.number, event.frame, event.timestamp_ns)
                at.ask(self, one.taken_ns + self.nanoseconds("timeout"), key)
        live[at.key] = Live(connect.user_name)
        forget_oldest(live, MAX_LIVE)
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Look whether the server, which has had its time, still speaks here."""
        one = at.memory(self).live.get(at.key)
        if one is None or connection.closed_by == "server" or at.history.server.disconnect is not None:
            return None
        heard = at.client.last_timestamp_ns
        event = at.event
        spoken = getattr(event, "packet", None) is not None and at.direction is Direction.SERVER_TO_CLIENT
        if not spoken or isinstance(event.packet, Disconnect):  # type: ignore[union-attr]
            at.ask(self, event.timestamp_ns)
            return None
        if heard is None or heard <= one.taken_ns:
            at.ask(self, event.timestamp_ns)
            return None
        waited = (event.timestamp_ns - one.taken_ns) / SECOND_NS
        apart = at.is_apart(one.taken_in)
        return self.report(
            "",
            f"Client Identifier {at.client_name!r} has two live connections: {connection.client}, and {one.taken_by} "
            f"since {waited:,.0f} s",
            # The captures may be of different servers with one address.
            severity=Severity.WARNING if apart else None,
            confidence=Confidence.HEURISTIC if apart else None,
            related=() if one.connack is None else (one.connack,),
        )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        if at.history.connack is not None and connection.client_identifier:
            at.memory(self).live.pop(at.key, None)
        return None
