from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Related, Rule, RuleContext, Severity, examples
from mqttscope.mqtt.constants import PacketType, reason_name
from mqttscope.mqtt.packets import Pubrel


class PubrelAfterNegativePubrec(Rule):
    """A PUBREL follows a PUBREC that refused the message.

    A reason code of 0x80 or more ends the exchange and frees the packet identifier.  The receiver has discarded the
    exchange, and answers 0x92 (Packet Identifier not found) or closes the connection.

    Instead, treat the refusal as the end of the exchange, and report to the application that delivery failed.
    """

    code = "ACK208"
    severity = Severity.ERROR
    versions = (V5,)
    also = {V5: ("MQTT-4.3.3-4",)}
    signs = ("odd_answer",)
    needs = Needs.WHOLE

    good = examples("""
        the refusal ends the exchange
            opened; > publish a qos=2 id=7; < pubrec 7 code=0x97
        0x10 is not a refusal
            opened; > publish a qos=2 id=7; < pubrec 7 code=0x10; > pubrel 7; < pubcomp 7
    """)
    bad = examples("""
        PUBREL after 0x97
            opened; > publish a qos=2 id=7; < pubrec 7 code=0x97; > pubrel 7 !
        by the server, perhaps before the refusal arrived
            opened; < publish a qos=2 id=7; > pubrec 7 code=0x83; crossing < pubrel 7 !
    """)

    def check(self, packet: Pubrel, at: RuleContext) -> Findings:
        """Check how the exchange of this identifier ended."""
        identifier = packet.packet_identifier
        ended = at.party.ended.get(identifier)
        if ended is None or ended.by != PacketType.PUBREC or identifier in at.sender.exchanges:
            return None
        if identifier in at.party.owes_pubrel or identifier in at.party.shared or not at.party.in_step():
            return None
        answer, code = ended.answer, ended.reason_code
        return self.report(
            "",
            f"PUBREL with identifier {identifier} follows PUBREC 0x{code:02x} "
            f"({reason_name(PacketType.PUBREC, code, V5)}), which ended the exchange",
            confidence=None if at.knew(answer) else Confidence.LIKELY,
            related=(Related.to("the PUBREC", answer),),
            statements=("MQTT-4.3.3-4",),
        )
