from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, examples, shown
from mqttscope.lint.session_model import SessionModel, doubted
from mqttscope.mqtt.packets import Publish
from mqttscope.session.inflight import SENT


class ResendPacketIdChanged(Rule):
    """A message is resent after a reconnect with a different packet identifier.

    Both sides identify a message by its packet identifier alone.  With a new identifier the receiver treats the resent
    message as another message, QoS 2 delivers it twice, and the old identifier is never freed.  A PUBLISH without DUP
    may be a new message with equal content, so it is not reported; nor are sessions that are older than the capture.

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
        two messages with equal content
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7 & publish a A qos=1 id=8; > reset
            @1 opened resume session_expiry_interval=3600 < present
            @1 > publish a A dup qos=1 id=7 & publish a A dup qos=1 id=8; @1 < puback 7 & puback 8
        an unfinished message from before the capture may have equal content
            opened resume session_expiry_interval=3600 < present; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a A dup qos=1 id=3; @1 < puback 3
        a new message with equal content
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
        """Look for the same message with another identifier."""
        identifier = packet.packet_identifier
        if not at.history.carries or identifier is None or at.party.has_sent(identifier):
            return None
        model = at.model(SessionModel)
        rows = model.carried(at.direction, at)
        if not (model.born and model.whole and model.resumed) or identifier in rows:
            return None
        for row in rows.values():
            if not row.sure or row.answered or row.phase is not SENT or at.party.has_sent(row.packet_identifier):
                continue
            if row.is_message(packet, at.topic):
                return self.report(
                    "packet_identifier",
                    f"message on {shown(at.topic or '')} is resent with packet identifier {identifier}; its identifier "
                    f"was {row.packet_identifier} before",
                    related=(row.related,),
                    **doubted(apart=model.apart),
                )
        return None
