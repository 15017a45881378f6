from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, examples, shown
from mqttscope.lint.session_model import SessionModel, doubted
from mqttscope.mqtt.packets import Publish
from mqttscope.session.inflight import SENT


class ResendPacketIdChanged(Rule):
    """A message is sent again after a reconnect with another packet identifier than before.

    The identifier is all that the two sides know a message by.  Under a new one the receiver takes it for another
    message, QoS 2 delivers it twice, and the old identifier waits forever.  Without DUP it could be a new message of
    equal content, and that is not reported; nor is it where the session is older than the capture.

    Instead, store the packet identifier with the message and use it again.
    """

    code = "ACK313"
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.HEURISTIC
    statements = {V3_1_1: {"MQTT-2.3.1-3": "client", "MQTT-2.3.1-4": "server"}}
    also = {V5: ("MQTT-4.4.0-1",), V3_1_1: ("MQTT-4.4.0-1",)}
    when = "dup"
    signs = ("carries",)
    needs = Needs.OPENING | Needs.WHOLE
    models = (SessionModel,)

    good = examples("""
        the same identifier
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a A dup qos=1 id=7; @1 < puback 7
        equal content twice
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7 & publish a A qos=1 id=8; > reset
            @1 opened resume session_expiry_interval=3600 < present
            @1 > publish a A dup qos=1 id=7 & publish a A dup qos=1 id=8; @1 < puback 7 & puback 8
        an unfinished message of before the capture may be alike
            opened resume session_expiry_interval=3600 < present; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a A dup qos=1 id=3; @1 < puback 3
        a new message of equal content
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a A qos=1 id=8; @1 < puback 8
    """)
    bad = examples("""
        the next identifier
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a A dup qos=1 id=8 !packet_identifier
            @1 < puback 8
        by the server, in MQTT 3.1.1
            opened 3.1.1 resume; < publish a B qos=1 id=7 & publish a A qos=1 id=8; > reset; @1 opened resume < present
            @1 < publish a B dup qos=1 id=1 !packet_identifier
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for the message under another identifier."""
        identifier = packet.packet_identifier
        if not at.history.carries or identifier is None or at.party.has_sent(identifier):
            return None
        model = at.model(SessionModel)
        rows = model.carried(at.direction, at)
        if not (model.born and model.whole and model.resumed) or identifier in rows:
            return None
        for one in rows.values():
            if not one.sure or one.answered or one.phase is not SENT or at.party.has_sent(one.packet_identifier):
                continue
            if one.is_message(packet, at.topic):
                return self.report(
                    "packet_identifier",
                    f"message on {shown(at.topic or '')} is sent again with packet identifier {identifier}, which was "
                    f"{one.packet_identifier} before",
                    related=(one.related,),
                    **doubted(apart=model.apart),
                )
        return None
