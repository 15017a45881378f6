from mqttscope.lint.examples import examples
from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Related, Rule, RuleContext, Severity, packet_name
from mqttscope.mqtt.packets import Pubcomp, Pubrel
from mqttscope.session.inflight import RECEIVED, RELEASED


class StateLostMidConnection(Rule):
    """A side reports an unknown packet identifier although its exchange is active on this connection.

    0x92 (Packet Identifier not found) is meant for recovery, when the two sides have different states after a
    reconnect.  On an unbroken connection it means that one side has lost the state of a message in flight, and QoS 2 no
    longer holds for this message.

    Instead, keep the state of every exchange until its last packet, whatever happens to other clients of the server.
    """

    code = "SES202"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    versions = (V5,)
    statements = {V5: {"MQTT-4.1.0-1": ""}}
    when = "reason_code"
    needs = Needs.WHOLE

    good = examples("""
        all identifiers known
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7 code=0
        recovery after a reconnect
            opened resume < present; > pubrel 7; < pubcomp 7 code=0x92
        the answer to a surplus PUBREC
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7 & pubrec 7; > pubrel 7 code=0x92
            < pubcomp 7 code=0x92
    """)
    bad = examples("""
        PUBCOMP
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7 code=0x92 !reason_code
        PUBREL, by the server
            opened; < publish a qos=2 id=7; > pubrec 7; < pubrel 7 code=0x92 !reason_code; > pubcomp 7
    """)

    def check(self, packet: Pubrel | Pubcomp, at: RuleContext) -> Findings:
        """Look for the earlier packets of the exchange on this connection."""
        if packet.reason_code != 0x92:
            return None
        identifier = packet.packet_identifier
        answers = isinstance(packet, Pubcomp)
        running = (at.receiver if answers else at.sender).running(identifier, "publish")
        if running is None or running.phase is not (RELEASED if answers else RECEIVED):
            return None
        if not at.party.in_step():
            return None
        who = "client" if at.from_client else "server"
        return self.report(
            "reason_code",
            f"{who} answers {packet_name(packet)} 0x92 (Packet Identifier not found) for identifier {identifier}, "
            "but the exchange began on this connection",
            related=(Related.to("the PUBLISH", running),),
        )
