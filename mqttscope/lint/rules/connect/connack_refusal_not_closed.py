from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.rules import C2S, S2C, V3_1_1, V5, Connection, Findings, Needs, Related, Rule, Severity, examples
from mqttscope.lint.waiting import has_arrived, has_closed
from mqttscope.mqtt.constants import PacketType, ProtocolVersion, reason_name
from mqttscope.mqtt.packets import Connack

REJECTED = 2
"""Return code of 3.1.1: identifier rejected."""
NAMED = {
    0x84: "MQTT-3.1.2-2",
    0x85: "MQTT-3.1.3-8",
    0x86: "MQTT-4.12.0-4",
    0x87: "MQTT-4.12.0-4",
    0x8C: "MQTT-4.12.0-1",
}
"""Reason codes of 5.0 with a specific statement that the server has to close."""


class ConnackRefusalNotClosed(Rule):
    """A server refuses a connection but leaves it open.

    The client may wait for the close, and each such connection occupies a slot.  Reported if neither side has closed
    (FIN, RST or a WebSocket Close frame) within ``timeout`` seconds after the refusing CONNACK, and only if TCP shows
    that the client got it.  If the client closes first, nothing is reported.

    Instead, close the connection right after the CONNACK.
    """

    code = "CON528"
    severity = Severity.ERROR
    statements = {
        V5: {
            "MQTT-3.1.2-2": "",
            "MQTT-3.1.3-8": "",
            "MQTT-3.1.4-2": "",
            "MQTT-3.2.2-7": "",
            "MQTT-4.12.0-1": "",
            "MQTT-4.12.0-4": "",
        },
        V3_1_1: {"MQTT-3.1.3-9": "", "MQTT-3.2.2-5": ""},
    }
    also = {
        V5: ("MQTT-3.1.2-1", "MQTT-3.2.2-12", "MQTT-3.2.2-13", "MQTT-4.13.2-1"),
        V3_1_1: ("MQTT-3.1.2-2", "MQTT-3.1.3-8"),
    }
    sender = S2C
    when = "reason_code"
    needs = Needs.WHOLE
    settings = {"timeout": 5}

    good = examples("""
        the server closes
            opened < code=0x86; < fin; @1 opened client=c2; +60 @1 > fin
        the server closes shortly after
            opened 3.1.1 < code=0x05; > ack; +4 < fin; @1 opened 5.0 client=c2; +60 @1 > fin
        the client closes first
            opened < code=0x86; +1 > fin; @1 opened client=c2; +60 @1 > fin
        the client never received it
            opened < code=0x86; @1 opened client=c2; +60 @1 > fin
        the capture ends before the timeout
            opened < code=0x86; > ack
        the capture lacks bytes of the server
            opened < code=0x86; lost < connack code=0x86; @1 opened client=c2; +60 @1 > fin
        accepted
            opened; > ack; @1 opened client=c2; +60 @1 > fin
    """)
    bad = examples("""
        neither side closes
            opened < code=0x86; > ack; @1 opened client=c2; +60 @1 > fin !
        the client gives up in the end, in MQTT 3.1.1
            opened 3.1.1 < code=0x05; > ack; +20 > fin !
        the server closes late, in MQTT 3.1
            opened 3.1 < code=0x04; > ack; +20 < fin !
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        if at.history.connack is None:
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Check whether a side has closed."""
        connack, sent = at.history.connack, at.history.connack_sent
        if connack is None or sent is None or not has_arrived(at.history.server, sent.position):
            return None
        if has_closed(at, C2S) or has_closed(at, S2C):
            return None
        code = connack.reason_code or 0
        waited = (at.timestamp_ns - sent.timestamp_ns) / SECOND_NS
        text = f"server did not close within {waited:.0f} s after CONNACK 0x{code:02x}"
        return self.report(
            "",
            f"{text} ({reason_name(PacketType.CONNACK, code, at.version)})",
            sender=S2C,
            related=(Related.to("the CONNACK", sent),),
            statements=self._broken(code, at.version),
            overdue=True,
        )

    @staticmethod
    def _broken(code: int, version: ProtocolVersion) -> tuple[str, ...]:
        """Statements that require the close, the most specific one first."""
        if version is V5:
            return tuple(dict.fromkeys((NAMED.get(code, "MQTT-3.1.4-2"), "MQTT-3.2.2-7")))
        if version is V3_1_1:
            return ("MQTT-3.1.3-9", "MQTT-3.2.2-5") if code == REJECTED else ("MQTT-3.2.2-5",)
        return ()
