from dataclasses import dataclass

from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Related, Report, Rule, RuleContext, Severity, examples
from mqttscope.lint.waiting import has_arrived, has_closed
from mqttscope.mqtt.constants import Direction, PacketType, reason_name
from mqttscope.mqtt.packets import Auth, Disconnect
from mqttscope.session.connection import C2S, S2C, Connection

REAUTHENTICATE = 0x19
FAILURE = 0x80


@dataclass(slots=True)
class Reauthentication:
    """A re-authentication in progress."""

    packet: int = -1
    """Number of the AUTH that began it; -1 without a re-authentication."""
    frame: int = 0
    timestamp_ns: int = 0


class AuthFailureNotClosed(Rule):
    """A connection stays open after its re-authentication has failed.

    A client that is no longer authenticated can continue.  The sign of failure is a DISCONNECT with a Reason Code of
    0x80 or more during re-authentication; the sender then has ``close_timeout`` seconds to close.  An exchange that
    merely stalls for ``timeout`` seconds is only info: the connection continues unchanged.

    Instead, send DISCONNECT with the reason and close the connection at once.
    """

    code = "AUT507"
    severities = (Severity.ERROR, Severity.INFO)
    confidence = Confidence.LIKELY
    versions = (V5,)
    statements = {V5: {"MQTT-4.12.1-2": ""}}
    needs = Needs.OPENING | Needs.WHOLE
    settings = {"timeout": 30, "close_timeout": 5}
    Memory = Reauthentication

    good = examples("""
        successful
            opened authentication_method=m authentication_data=1 < authentication_method=m
            > auth code=0x19 authentication_method=m authentication_data=1
            < auth code=0 authentication_method=m authentication_data=1; +25 > pingreq; < pingresp; +25 > pingreq
            < pingresp; > fin
        closed
            opened authentication_method=m authentication_data=1 < authentication_method=m
            > auth code=0x19 authentication_method=m authentication_data=1; < disconnect code=0x87; < fin
            @1 opened client=c2; +60 @1 > fin
        a later disconnect for another reason
            opened authentication_method=m authentication_data=1 < authentication_method=m
            > auth code=0x19 authentication_method=m authentication_data=1
            < auth code=0 authentication_method=m authentication_data=1; < disconnect code=0x8b; < fin
            @1 opened client=c2; +60 @1 > fin
        in several steps
            opened authentication_method=m authentication_data=1 < authentication_method=m
            > auth code=0x19 authentication_method=m authentication_data=1
            +20 < auth code=0x18 authentication_method=m authentication_data=1
            > auth code=0x18 authentication_method=m authentication_data=1
            +20 < auth code=0 authentication_method=m authentication_data=1; @1 opened client=c2; +60 @1 > fin
    """)
    bad = examples("""
        DISCONNECT, but the connection stays open
            opened authentication_method=m authentication_data=1 < authentication_method=m
            > auth code=0x19 authentication_method=m authentication_data=1; < disconnect code=0x87; > ack; +10 > fin !
        never completed
            opened authentication_method=m authentication_data=1 < authentication_method=m
            > auth code=0x19 authentication_method=m authentication_data=1; +25 > pingreq; < pingresp; +25 > pingreq
            < pingresp; > fin !
    """)

    def check(self, packet: Auth | Disconnect, at: RuleContext) -> Findings:
        """Track the re-authentication."""
        memory: Reauthentication = at.memory(self)
        if isinstance(packet, Auth):
            if at.from_client and packet.reason_code == REAUTHENTICATE and at.history.settled:
                memory.packet, memory.frame, memory.timestamp_ns = at.number, at.event.frame, at.timestamp_ns
                at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
            elif not at.from_client and not packet.reason_code:
                memory.packet = -1
        elif memory.packet >= 0:
            if (packet.reason_code or 0) < FAILURE:
                memory.packet = -1
            else:
                at.ask(self, at.timestamp_ns + self.nanoseconds("close_timeout"))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Check whether the re-authentication has ended, and how."""
        memory: Reauthentication = at.memory(self)
        if memory.packet < 0 or has_closed(at, C2S) or has_closed(at, S2C):
            return None
        for direction in (S2C, C2S):
            sent = at.history.party(direction).disconnect
            if sent is not None:
                memory.packet = -1 if sent.reason_code < FAILURE else memory.packet
                if memory.packet < 0 or not has_arrived(at.history.party(direction), sent.position):
                    return None
                name = reason_name(PacketType.DISCONNECT, sent.reason_code, V5)
                return self._report(f"failed (DISCONNECT 0x{sent.reason_code:02x}, {name})", direction, memory)
        last = max(
            (auth for auth in (at.history.client.auth, at.history.server.auth) if auth is not None),
            key=lambda auth: auth.timestamp_ns,
        )
        due_ns = last.timestamp_ns + self.nanoseconds("timeout")
        if at.timestamp_ns < due_ns:
            at.ask(self, due_ns)
            return None
        waits_for = S2C if last is at.history.client.auth else C2S
        if not has_arrived(at.history.party(waits_for.opposite), last.position):
            return None
        return self._report("was never completed", waits_for, memory, Severity.INFO)

    def _report(
        self, end: str, sender: Direction, memory: Reauthentication, severity: Severity | None = None
    ) -> Report:
        begun = Related.to("the AUTH that began it", memory)
        memory.packet = -1
        return self.report(
            "",
            f"re-authentication {end} but the connection stays open",
            severity=severity,
            sender=sender,
            related=(begun,),
            overdue=True,
        )
