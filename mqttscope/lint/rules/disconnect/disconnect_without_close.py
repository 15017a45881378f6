from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.rules import C2S, S2C, V3_1_1, V5, Connection, Findings, Needs, Related, Rule, Severity, examples
from mqttscope.lint.waiting import has_arrived, has_closed, side_name
from mqttscope.mqtt.constants import PacketType, reason_name
from mqttscope.mqtt.packets import Disconnect


class DisconnectWithoutClose(Rule):
    """A side sends DISCONNECT and leaves the connection open.

    The other side keeps its resources for the connection, and may wait for the close.  Reported if neither side has
    closed (FIN, RST or a WebSocket Close frame) within ``timeout`` seconds, and only if TCP shows that the DISCONNECT
    arrived.

    Instead, close the connection right after DISCONNECT.
    """

    code = "DIS503"
    severity = Severity.ERROR
    statements = {
        V5: {"MQTT-3.14.4-2": "", "MQTT-4.13.2-1": "server"},
        V3_1_1: {"MQTT-3.14.4-1": "client"},
    }
    also = {V5: ("MQTT-4.12.1-2",)}
    needs = Needs.WHOLE
    settings = {"timeout": 5}

    good = examples("""
        closed
            opened; > disconnect; > fin; @1 opened client=c2; +20 @1 > fin
        closed shortly after
            opened; < disconnect code=0x8b; > ack; +4 < fin; @1 opened client=c2; +20 @1 > fin
        the other side closes first
            opened 3.1.1; > disconnect; +1 < fin; @1 opened 5.0 client=c2; +20 @1 > fin
        the DISCONNECT never arrived
            opened; > disconnect; @1 opened client=c2; +20 @1 > fin
        the capture ends before the timeout
            opened; > disconnect; < ack
        the other side acknowledged more bytes than the capture contains
            opened; < disconnect code=0x8b; lost < disconnect code=0x8b; @1 opened client=c2; +20 @1 > fin
    """)
    bad = examples("""
        by the server
            opened; < disconnect code=0x82; > ack; @1 opened client=c2; +20 @1 > fin !
        by the client, until the server closes, in 3.1.1
            opened 3.1.1; > disconnect; < ack; +10 < fin !
        a shorter timeout
            settings timeout=2; opened; > disconnect; < ack; +4 > fin !
    """)

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        if at.from_client or at.version is V5:
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Check whether a side has closed."""
        if has_closed(at, C2S) or has_closed(at, S2C):
            return None
        left = [
            (sent.timestamp_ns, sent.packet, direction, sent)
            for direction in (C2S, S2C)
            if (sent := at.history.party(direction).disconnect) is not None
        ]
        if not left:
            return None
        _, _, direction, sent = min(left, key=lambda row: row[:2])
        if not has_arrived(at.history.party(direction), sent.position):
            return None
        reason = ""
        if at.version is V5:
            reason = f" 0x{sent.reason_code:02x} ({reason_name(PacketType.DISCONNECT, sent.reason_code, V5)})"
        waited = (at.timestamp_ns - sent.timestamp_ns) / SECOND_NS
        return self.report(
            "",
            f"{side_name(direction)} sent DISCONNECT{reason} but left the connection open for {waited:.0f} s",
            sender=direction,
            related=(Related.to("the DISCONNECT", sent),),
            overdue=True,
        )
