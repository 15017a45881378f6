from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Needs, Related, Rule, RuleContext, Severity, examples
from mqttscope.lint.session_model import SessionModel
from mqttscope.mqtt.packets import Publish
from mqttscope.session.inflight import RELEASED


class PublishResentAfterPubrel(Rule):
    """A QoS 2 PUBLISH is sent again after its PUBREL.

    With the PUBREL the receiver may forget the packet identifier.  The repeated PUBLISH is then a new message to it,
    and QoS 2 has delivered twice.

    Instead, send only PUBREL again once it has been sent, until PUBCOMP comes.
    """

    code = "ACK207"
    severity = Severity.ERROR
    statements = {V5: {"MQTT-4.3.3-6": ""}, V3_1_1: {"MQTT-4.3.3-1": ""}}
    when = "dup"
    needs = Needs.WHOLE
    models = (SessionModel,)

    good = examples("""
        PUBREL again after a reconnect
            opened resume < present; > pubrel 7; < pubcomp 7
        PUBLISH again before the PUBREL
            opened 3.1.1; > publish a qos=2 id=7; < pubrec 7; > publish a dup qos=2 id=7; < pubrec 7; > pubrel 7
            < pubcomp 7
        the PUBCOMP is not in the capture
            opened 3.1.1; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; lost < pubcomp 7; > publish a qos=2 id=7
            < pubrec 7
    """)
    bad = examples("""
        before the PUBCOMP
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; +20 > publish a dup qos=2 id=7 !
        from the server, in MQTT 3.1.1
            opened 3.1.1; < publish a qos=2 id=7; > pubrec 7; < pubrel 7; +20 < publish a dup qos=2 id=7 !
        the PUBREL of an earlier connection first
            opened resume < present; > pubrel 7; > publish a dup qos=2 id=7 !
        the PUBREL was sent on the connection before
            opened resume session_expiry_interval=3600; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a dup qos=2 id=7 !
        by the server, in MQTT 3.1.1
            opened 3.1.1 resume; > subscribe 1 a:2; < suback 1 2; < publish a qos=2 id=7; > pubrec 7; < pubrel 7
            > reset; @1 opened resume < present; @1 < publish a dup qos=2 id=7 !
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for a PUBREL that waits for its PUBCOMP."""
        identifier = packet.packet_identifier
        if packet.qos != 2 or identifier is None or not at.party.in_step():
            return None
        running = at.sender.running(identifier, "publish")
        told = f"PUBLISH {at.topic!r} with identifier {identifier} is sent again after its PUBREL"
        if running is None:
            before = at.model(SessionModel).carried(at.direction, at).get(identifier)
            if before is not None and before.phase is RELEASED and before.sure and before.is_message(packet, at.topic):
                told += " on the connection before"
                return self.report(
                    "", told, confidence=Confidence.LIKELY, related=(Related.to("the first PUBLISH", before),)
                )
            if identifier not in at.other.owes_pubcomp or at.party.has_sent(identifier):
                return None
            return self.report("", told, confidence=Confidence.LIKELY)
        if running.phase is not RELEASED or not at.party.repeats(packet, at.topic, running):
            return None
        return self.report("", told, related=(Related.to("the first PUBLISH", running),))
