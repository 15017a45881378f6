from mqttscope.lint.live_clients import ClientIdentifierUse, LiveClients
from mqttscope.lint.rules import SECOND_NS, V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connack, Direction
from mqttscope.session.history import NEVER_NS

SILENT_NS = 90 * SECOND_NS
"""After this much silence a connection may have ended unnoticed, whatever its Keep Alive."""
MOMENT_NS = SECOND_NS
"""Maximum time between the close of the connection that had the identifier and the CONNACK that reuses it."""


class AssignedClientIdNotUnique(Rule):
    """A server assigns a Client Identifier that belongs to another session.

    The two clients then share one session: one is disconnected when the other connects, or receives its messages.
    Reported if the other client is connected and was active recently, or has a session that has not expired.  A server
    that derives the identifier from the user name assigns it to all clients of that user: that is a warning.

    Instead, generate identifiers that no session uses, with enough random bits.
    """

    code = "CON426"
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    versions = (V5,)
    also = {V5: ("MQTT-3.1.3-6", "MQTT-3.2.2-16")}
    sender = Direction.SERVER_TO_CLIENT
    when = "properties"
    needs = Needs.OPENING
    models = (LiveClients,)

    good = examples("""
        another identifier
            opened client=- < assigned_client_identifier=auto-1; @1 opened client=- < assigned_client_identifier=auto-2
        the other client has disconnected, and its session has ended
            opened client=- < assigned_client_identifier=auto-1; > disconnect; > fin
            @1 opened client=- < assigned_client_identifier=auto-1
        its session has expired
            opened client=- session_expiry_interval=60 < assigned_client_identifier=auto-1; > disconnect; > fin
            +100 > nothing; @1 opened client=- < assigned_client_identifier=auto-1
        silent long enough to be gone
            opened client=- < assigned_client_identifier=auto-1; +200 > nothing
            @1 opened client=- < assigned_client_identifier=auto-1
        the other client was perhaps never accepted
            > connect client=auto-1; @1 opened client=- < assigned_client_identifier=auto-1
        the client itself sends its assigned identifier
            opened client=- session_expiry_interval=60 < assigned_client_identifier=auto-1
            @1 opened client=auto-1 resume < present
        the session expiry of the other client was lost by the capture
            opened client=- session_expiry_interval=600 < assigned_client_identifier=auto-1
            lost > disconnect code=0 session_expiry_interval=0; > fin; @2 opened client=c3; +10 @2 > pingreq
            @1 opened client=- < assigned_client_identifier=auto-1
    """)
    bad = examples("""
        identifier of a connected client
            opened client=- < assigned_client_identifier=auto-1
            @1 opened client=- < assigned_client_identifier=auto-1 !properties.assigned_client_identifier
        identifier that another client chose itself, in 3.1.1
            opened 3.1.1 client=auto-1; +50 > pingreq; < pingresp; +50 > nothing
            @1 opened 5.0 client=- < assigned_client_identifier=auto-1 !properties.assigned_client_identifier
        identifier of a client that is disconnected because of it
            opened client=- < assigned_client_identifier=auto-1; @1 > connect client=-; < disconnect code=0x8e; < fin
            @1 < connack assigned_client_identifier=auto-1 !properties.assigned_client_identifier
        identifier of a session that has not expired
            opened client=- session_expiry_interval=600 < assigned_client_identifier=auto-1; > disconnect; > fin
            +100 > nothing
            @1 opened client=- < assigned_client_identifier=auto-1 !properties.assigned_client_identifier
        same user: only a warning
            opened client=- user_name=bob < assigned_client_identifier=bob
            @1 opened client=- user_name=bob < assigned_client_identifier=bob !properties.assigned_client_identifier
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Look for another session with the assigned identifier."""
        connect = at.history.connect
        assigned = packet.properties.assigned_client_identifier if packet.properties else None
        if not assigned or packet.reason_code or at.history.connack is not None:
            return None
        if connect is None or connect.client_identifier:
            return None
        other = at.model(LiveClients).names.get(assigned)
        how = None if other is None or other.key == at.key else self._usage(other, at)
        if other is None or how is None:
            return None
        same_user = bool(connect.user_name) and other.user_name == connect.user_name
        doubtful = same_user or at.is_apart(other.capture)
        return self.report(
            "properties.assigned_client_identifier",
            f"CONNACK assigns Client Identifier {assigned!r}, which {how}",
            severity=Severity.WARNING if doubtful else None,
            confidence=Confidence.HEURISTIC if doubtful else None,
            related=(other.connack,),
        )

    @staticmethod
    def _usage(other: ClientIdentifierUse, at: RuleContext) -> str | None:
        """Who has the identifier, or ``None`` if that is uncertain."""
        now = at.timestamp_ns
        if other.until_ns == NEVER_NS:
            history = at.history_of(other.key)
            if history is None or history.client.disconnect is not None or history.behind_a_hole:
                return None
            heard_ns = max(history.client.segment_ns, other.connack.timestamp_ns)
            return "another connected client already has" if now - heard_ns <= SILENT_NS else None
        if other.taken_ns and now - other.taken_ns <= MOMENT_NS:
            return "another client had until it was disconnected with 0x8E a moment ago"
        return "belongs to a session that has not expired" if now + SECOND_NS < other.until_ns else None
