from mqttscope.lint.live_clients import InUse, LiveClients
from mqttscope.lint.rules import SECOND_NS, V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connack, Direction
from mqttscope.session.history import NEVER_NS

SILENT_NS = 90 * SECOND_NS
"""A connection that has been silent for longer, whatever its Keep Alive, may be gone without the capture knowing."""
MOMENT_NS = SECOND_NS
"""How long before its CONNACK the server may have closed the connection that had the identifier."""


class AssignedClientIdNotUnique(Rule):
    """A server assigns a Client Identifier that another session has.

    The two clients share one session then: one is thrown out when the other connects, or gets its messages.  It is
    reported where the other one is connected and has spoken lately, or has a session that has not expired.  Servers
    that make the identifier of the user name give it to all clients of a user: that is a warning.

    Instead, make identifiers that no session has, from enough random bits.
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
        the other one has left, and its session with it
            opened client=- < assigned_client_identifier=auto-1; > disconnect; > fin
            @1 opened client=- < assigned_client_identifier=auto-1
        its session has expired
            opened client=- session_expiry_interval=60 < assigned_client_identifier=auto-1; > disconnect; > fin
            +100 > nothing; @1 opened client=- < assigned_client_identifier=auto-1
        silent for so long that it may be gone
            opened client=- < assigned_client_identifier=auto-1; +200 > nothing
            @1 opened client=- < assigned_client_identifier=auto-1
        the other one is not known to have been accepted
            > connect client=auto-1; @1 opened client=- < assigned_client_identifier=auto-1
        the client itself gives the identifier that it was assigned
            opened client=- session_expiry_interval=60 < assigned_client_identifier=auto-1
            @1 opened client=auto-1 resume < present
        how long the session is kept was in bytes that were lost
            opened client=- session_expiry_interval=600 < assigned_client_identifier=auto-1
            lost > disconnect code=0 session_expiry_interval=0; > fin; @2 opened client=c3; +10 @2 > pingreq
            @1 opened client=- < assigned_client_identifier=auto-1
    """)
    bad = examples("""
        of a client that is connected
            opened client=- < assigned_client_identifier=auto-1
            @1 opened client=- < assigned_client_identifier=auto-1 !properties.assigned_client_identifier
        of a client that gave it itself, in 3.1.1
            opened 3.1.1 client=auto-1; +50 > pingreq; < pingresp; +50 > nothing
            @1 opened 5.0 client=- < assigned_client_identifier=auto-1 !properties.assigned_client_identifier
        of a client that is thrown out because of it
            opened client=- < assigned_client_identifier=auto-1; @1 > connect client=-; < disconnect code=0x8e; < fin
            @1 < connack assigned_client_identifier=auto-1 !properties.assigned_client_identifier
        of a session that has not expired
            opened client=- session_expiry_interval=600 < assigned_client_identifier=auto-1; > disconnect; > fin
            +100 > nothing
            @1 opened client=- < assigned_client_identifier=auto-1 !properties.assigned_client_identifier
        of the same user: only a warning
            opened client=- user_name=bob < assigned_client_identifier=bob
            @1 opened client=- user_name=bob < assigned_client_identifier=bob !properties.assigned_client_identifier
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Look the assigned identifier up."""
        connect = at.history.connect
        assigned = packet.properties.assigned_client_identifier if packet.properties else None
        if not assigned or packet.reason_code or at.history.connack is not None:
            return None
        if connect is None or connect.client_identifier:
            return None
        one = at.model(LiveClients).names.get(assigned)
        how = None if one is None or one.key == at.key else self._used(one, at)
        if one is None or how is None:
            return None
        same_user = bool(connect.user_name) and one.user_name == connect.user_name
        doubtful = same_user or at.is_apart(one.capture)
        return self.report(
            "properties.assigned_client_identifier",
            f"CONNACK assigns Client Identifier {assigned!r}, which {how}",
            severity=Severity.WARNING if doubtful else None,
            confidence=Confidence.HEURISTIC if doubtful else None,
            related=(one.connack,),
        )

    @staticmethod
    def _used(one: InUse, at: RuleContext) -> str | None:
        """Who has the identifier; ``None`` where that is not certain."""
        now = at.timestamp_ns
        if one.until_ns == NEVER_NS:
            history = at.history_of(one.key)
            if history is None or history.client.disconnect is not None or history.behind_a_hole:
                return None
            heard_ns = max(history.client.segment_ns, one.connack.timestamp_ns)
            return "another client has that is connected" if now - heard_ns <= SILENT_NS else None
        if one.taken_ns and now - one.taken_ns <= MOMENT_NS:
            return "another client had until it was disconnected with 0x8E just now"
        return "belongs to a session that has not expired" if now + SECOND_NS < one.until_ns else None
