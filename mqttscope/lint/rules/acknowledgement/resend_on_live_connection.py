from mqttscope.lint.examples import examples
from mqttscope.lint.rules import V3_1, V5, Confidence, Findings, Needs, Related, Rule, RuleContext, Severity, may_be_3_1
from mqttscope.mqtt.packets import Publish, Pubrel
from mqttscope.session.inflight import RELEASED


class ResendOnLiveConnection(Rule):
    """A PUBLISH or PUBREL is resent on the connection that already carried it.

    TCP loses nothing while the connection is open, so the receiver already has the packet and has to handle it twice; a
    slow receiver gets slower.  MQTT 5.0 forbids resending except after a reconnect.  MQTT 3.1.1 neither requires nor
    forbids it, and in 3.1 it is the usual retry.

    Instead, wait for the acknowledgement; or close the connection, reconnect and resend.
    """

    code = "ACK206"
    severities = (Severity.ERROR, Severity.INFO)
    confidence = Confidence.LIKELY
    statements = {V5: {"MQTT-4.4.0-1": ""}}
    when = "dup"
    always = (Pubrel,)
    signs = {Pubrel: ("odd_answer",)}
    needs = Needs.WHOLE

    good = examples("""
        resent after a reconnect
            opened resume < present; > publish a dup qos=1 id=7; > pubrel 8; < puback 7; < pubcomp 8
        the retry of MQTT 3.1
            opened 3.1; > publish a qos=2 id=7; +20 > publish a dup qos=2 id=7; < pubrec 7 & pubrec 7
            > pubrel 7 & pubrel 7; +20 > pubrel 7 header_flags=0x0a; < pubcomp 7 & pubcomp 7 & pubcomp 7
        a PUBREL for each PUBREC
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < pubrec 7; > pubrel 7; < pubcomp 7 & pubcomp 7
    """)
    bad = examples("""
        PUBLISH after 20 seconds
            opened; > publish a qos=1 id=7; +20 > publish a dup qos=1 id=7 !dup; < puback 7 & puback 7
        a PUBLISH by the server that was already acknowledged
            opened; < publish a qos=1 id=7; > puback 7; < publish a dup qos=1 id=7 !dup; > puback 7
        PUBREL
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; +20 > pubrel 7 !; < pubcomp 7 & pubcomp 7
        info in MQTT 3.1.1
            opened 3.1.1; > publish a qos=2 id=7; +20 > publish a dup qos=2 id=7 !dup; < pubrec 7 & pubrec 7
    """)

    def check(self, packet: Publish | Pubrel, at: RuleContext) -> Findings:
        """Look for the first transmission on this connection."""
        if at.version is V3_1 or may_be_3_1(at):
            return None
        identifier = packet.packet_identifier
        severity = None if at.version is V5 else Severity.INFO
        after = f"MQTT {'5.0 allows' if at.version is V5 else '3.1.1 requires'} that only after a reconnect"
        if isinstance(packet, Pubrel):
            if identifier in at.party.owes_pubrel or identifier not in at.other.owes_pubcomp:
                return None
            if not at.party.in_step():
                return None
            text = f"PUBREL with identifier {identifier} is resent on a live connection; {after}"
            return self.report("", text, severity=severity)
        if identifier is None or not packet.qos:
            return None
        before = at.sender.running(identifier, "publish")
        if before is None:
            ended = at.party.ended.get(identifier)
            if ended is None or (ended.reason_code >= 0x80 and at.knew(ended.answer)):
                return None
            before = ended.exchange
        elif before.phase is RELEASED:
            return None
        if not at.party.repeats(packet, at.topic, before):
            return None
        seconds = (at.timestamp_ns - before.timestamp_ns) / 1e9
        text = (
            f"PUBLISH {at.topic!r} with identifier {identifier} is resent after {seconds:.3g} s "
            f"on a live connection; {after}"
        )
        return self.report("dup", text, severity=severity, related=(Related.to("the first transmission", before),))
