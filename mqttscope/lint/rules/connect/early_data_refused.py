from mqttscope.lint.rules import Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt.constants import Direction, PacketType, reason_name
from mqttscope.mqtt.packets import Connack

_NOT_LOST = (PacketType.CONNECT, PacketType.AUTH, PacketType.DISCONNECT)


class EarlyDataRefused(Rule):
    """Packets sent before the CONNACK are lost because the server refused the connection.

    A client may send packets right after its CONNECT.  If the CONNACK refuses, the server discards them, and a client
    library that counts them as sent loses messages silently.

    Instead, wait for the CONNACK before sending, or resend everything after a refusal.
    """

    code = "CON225"
    severity = Severity.INFO
    when = "reason_code"
    sender = Direction.SERVER_TO_CLIENT

    good = examples("""
        accepted
            > connect & publish a; < connack
        nothing sent early
            opened; > publish a
        refused, but nothing lost
            opened < code=0x87; < fin
        AUTH carries no application data
            > connect authentication_method=A; < auth code=0x18 authentication_method=A
            > auth code=0x18 authentication_method=A; < connack code=0x87; < fin
    """)
    bad = examples("""
        one message
            > connect & publish a qos=1 id=1; < connack code=0x87 !reason_code; < fin
        several packets in 3.1.1
            > connect 3.1.1 & subscribe 1 a:0; > publish a & publish b; < connack code=0x05 !reason_code; < fin
        in 3.1
            > connect 3.1 & pingreq; < connack code=0x04 !reason_code; < fin
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Count the packets sent before a refusal."""
        code = packet.reason_code
        if not code or not at.history.early or at.history.connack is not None:
            return None
        rows = [(kind, at.other.counts[kind]) for kind in PacketType if kind not in _NOT_LOST and at.other.counts[kind]]
        if not rows:
            return None
        total = sum(count for _, count in rows)
        listed = ", ".join(f"{count} {kind.name}" for kind, count in rows)
        sent = "1 packet" if total == 1 else f"{total} packets"
        return self.report(
            "reason_code",
            f"{sent} ({listed}) sent before CONNACK lost to refusal 0x{code:02x} "
            f"({reason_name(PacketType.CONNACK, code, at.version)})",
            sender=Direction.CLIENT_TO_SERVER,
        )
