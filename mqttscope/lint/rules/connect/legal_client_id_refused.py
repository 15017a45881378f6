from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.connect.client_id_length import MAX_LENGTH, is_plain
from mqttscope.mqtt.constants import Direction, PacketType, reason_name
from mqttscope.mqtt.packets import Connack

_REJECTED = {V5: 0x85, V3_1_1: 0x02}


class LegalClientIdRefused(Rule):
    """A server refuses a Client Identifier that every server has to allow.

    Identifiers of 1 to 23 letters and digits work everywhere, and clients rely on that.  Some servers use the same code
    for a policy that restricts who may use an identifier, so the finding is at most likely.

    Instead, accept such identifiers, and refuse a client that is not allowed with 0x87 (0x05 before 5.0).
    """

    code = "CON216"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    versions = (V3_1_1, V5)
    statements = {V5: {"MQTT-3.1.3-5": ""}, V3_1_1: {"MQTT-3.1.3-5": ""}}
    when = "reason_code"
    sender = Direction.SERVER_TO_CLIENT

    good = examples("""
        accepted
            opened client=sensor42
        refused for another reason
            opened client=sensor42 < code=0x87; < fin
        24 bytes
            opened client=aaaaaaaaaaaaaaaaaaaaaaaa < code=0x85; < fin
        another character in 3.1.1
            opened 3.1.1 client=sensor-42 < code=2; < fin
        an empty one
            opened client=- < code=0x85; < fin
    """)
    bad = examples("""
        a plain name
            opened client=sensor42 < code=0x85 !reason_code
        23 bytes in 3.1.1
            opened 3.1.1 client=aaaaaaaaaaaaaaaaaaaaaaa < code=2 !reason_code
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Compare with the CONNECT."""
        code, connect, sent = packet.reason_code, at.history.connect, at.history.connect_sent
        if code != _REJECTED[at.version] or connect is None or sent is None or at.history.connect_malformed is not None:
            return None
        identifier = connect.client_identifier
        if not 1 <= len(identifier) <= MAX_LENGTH or not is_plain(identifier):
            return None
        name = reason_name(PacketType.CONNACK, code, at.version)
        return self.report(
            "reason_code",
            f"Client Identifier {identifier!r}, which every server has to allow, is refused with 0x{code:02x} ({name})",
            related=(Related.to("the CONNECT", sent),),
        )
