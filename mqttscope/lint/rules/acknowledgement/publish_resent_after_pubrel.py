from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Needs, Related, Rule, RuleContext, Severity, examples
from mqttscope.lint.session_model import SessionModel
from mqttscope.mqtt.packets import Publish
from mqttscope.session.inflight import RELEASED


class PublishResentAfterPubrel(Rule):
    """A QoS 2 PUBLISH is resent after its PUBREL.

    After the PUBREL the receiver may forget the packet identifier.  It then treats the resent PUBLISH as a new message,
    and delivers the message twice in spite of QoS 2.

    Instead, once PUBREL has been sent, resend only PUBREL until PUBCOMP arrives.
    """

    code = "ACK207"
    severity = Severity.ERROR
    statements = {V5: {"MQTT-4.3.3-6": ""}, V3_1_1: {"MQTT-4.3.3-1": ""}}
    when = "dup"
    needs = Needs.WHOLE
    models = (SessionModel,)

    good = examples("""
        PUBREL resent after a reconnect
            opened resume < present; > pubrel 7; < pubcomp 7
        PUBLISH resent before the PUBREL
            opened 3.1.1; > publish a qos=2 id=7; < pubrec 7; > publish a dup qos=2 id=7; < pubrec 7; > pubrel 7
            < pubcomp 7
        the PUBCOMP is not in the capture
            opened 3.1.1; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; lost < pubcomp 7; > publish a qos=2 id=7
            < pubrec 7
        another message with the identifier of a completed one
            opened 3.1.1 resume; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; > reset
            @1 opened 3.1.1 resume < present; @1 > publish a other qos=2 id=7; @1 < pubrec 7; @1 > pubrel 7
            @1 < pubcomp 7
    """)
    bad = examples("""
        before the PUBCOMP
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; +20 > publish a dup qos=2 id=7 !
        from the server, in MQTT 3.1.1
            opened 3.1.1; < publish a qos=2 id=7; > pubrec 7; < pubrel 7; +20 < publish a dup qos=2 id=7 !
        after a resent PUBREL from an earlier connection
            opened resume < present; > pubrel 7; > publish a dup qos=2 id=7 !
        the PUBREL was sent on the previous connection
            opened resume session_expiry_interval=3600; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a dup qos=2 id=7 !
        after a PUBCOMP on the previous connection: the server delivers it as a new message
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 2; opened 3.1.1 resume; +2 > publish a x qos=2 id=7
            < pubrec 7; > pubrel 7; @1 < publish a x qos=2 id=3; < pubcomp 7; @1 > pubrec 3; @1 < pubrel 3
            @1 > pubcomp 3; > reset; @2 opened 3.1.1 resume < present; @2 > publish a x dup qos=2 id=7 !; @2 < pubrec 7
            @2 > pubrel 7; @1 < publish a x qos=2 id=4; @2 < pubcomp 7; @1 > pubrec 4; @1 < pubrel 4; @1 > pubcomp 4
        the same by the server, in MQTT 3.1.1
            opened 3.1.1 resume; > subscribe 1 a:2; < suback 1 2; < publish a qos=2 id=7; > pubrec 7; < pubrel 7
            > reset; @1 opened resume < present; @1 < publish a dup qos=2 id=7 !
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for a PUBREL that waits for its PUBCOMP."""
        identifier = packet.packet_identifier
        if packet.qos != 2 or identifier is None or not at.party.in_step():
            return None
        running = at.sender.running(identifier, "publish")
        text = f"PUBLISH {at.topic!r} with identifier {identifier} is resent after its PUBREL"
        if running is None:
            model = at.model(SessionModel)
            before = model.carried(at.direction, at).get(identifier)
            if before is None and packet.dup:
                before = model.completed(at.direction, at).get(identifier)
            if before is not None and before.phase is RELEASED and before.sure and before.is_message(packet, at.topic):
                text += " on the previous connection"
                return self.report(
                    "", text, confidence=Confidence.LIKELY, related=(Related.to("the first PUBLISH", before),)
                )
            if identifier not in at.other.owes_pubcomp or at.party.has_sent(identifier):
                return None
            return self.report("", text, confidence=Confidence.LIKELY)
        if running.phase is not RELEASED or not at.party.repeats(packet, at.topic, running):
            return None
        return self.report("", text, related=(Related.to("the first PUBLISH", running),))
