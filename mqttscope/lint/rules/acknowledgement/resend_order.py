from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.lint.session_model import SessionModel, doubted
from mqttscope.mqtt.packets import Publish
from mqttscope.session.inflight import SENT


class ResendOrder(Rule):
    """Messages that are sent again after a reconnect come in another order than the first time.

    Order is what a receiver of unacknowledged messages has left: a switch that was turned on and off again ends up
    on.  Senders that sort by packet identifier get it wrong as soon as the identifiers begin again at 1.  Of a server
    only messages with the same topic and QoS are compared, since others have no order.

    Instead, keep unacknowledged messages in the order in which they were sent first, and send them again in it.
    """

    code = "ACK312"
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-4.6.0-1": "client", "MQTT-4.6.0-5": "server"},
        V3_1_1: {"MQTT-4.6.0-1": "client", "MQTT-4.6.0-6": "server"},
    }
    when = "dup"
    signs = ("carries",)
    needs = Needs.OPENING | Needs.WHOLE_SENDER
    models = (SessionModel,)

    good = examples("""
        in the old order, though their identifiers are not
            opened resume session_expiry_interval=3600; > publish a 9 qos=1 id=9 & publish a 1 qos=1 id=1; > reset
            @1 opened resume session_expiry_interval=3600 < present
            @1 > publish a 9 dup qos=1 id=9 & publish a 1 dup qos=1 id=1; @1 < puback 9 & puback 1
        in the order of the first connection, on the third
            opened resume session_expiry_interval=3600; > publish a 1 qos=1 id=1 & publish a 2 qos=1 id=2; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a 1 dup qos=1 id=1; @1 > reset
            @2 opened resume session_expiry_interval=3600 < present
            @2 > publish a 1 dup qos=1 id=1 & publish a 2 dup qos=1 id=2; @2 < puback 1 & puback 2
        other topics of a server
            opened resume session_expiry_interval=3600; > subscribe 1 #:1; < suback 1 1
            < publish a 1 qos=1 id=1 & publish b 2 qos=1 id=2; > reset
            @1 opened resume session_expiry_interval=3600 < present
            @1 < publish b 2 dup qos=1 id=2 & publish a 1 dup qos=1 id=1
        QoS 2 that PUBREC had answered is over with its PUBLISH
            opened resume session_expiry_interval=3600; > publish a 1 qos=1 id=1 & publish a 2 qos=2 id=2; < pubrec 2
            > reset; @1 opened resume session_expiry_interval=3600 < present; @1 > publish a 1 dup qos=1 id=1
            @1 < puback 1
    """)
    bad = examples("""
        the second message first
            opened resume session_expiry_interval=3600; > publish a 1 qos=1 id=1 & publish a 2 qos=1 id=2; > reset
            @1 opened resume session_expiry_interval=3600 < present
            @1 > publish a 2 dup qos=1 id=2 & publish a 1 dup qos=1 id=1 !packet_identifier
        sorted by identifier, by the server, in MQTT 3.1.1
            opened 3.1.1 resume; > subscribe 1 #:1; < suback 1 1
            < publish a 65535 qos=1 id=65535 & publish a 1 qos=1 id=1; > reset; @1 opened resume < present
            @1 < publish a 1 dup qos=1 id=1; @1 > puback 1; @1 < publish a 65535 dup qos=1 id=65535 !packet_identifier
        in MQTT 3.1
            opened 3.1 resume; > publish a 1 qos=1 id=1 & publish a 2 qos=1 id=2; > reset; @1 opened resume
            @1 > publish a 2 dup qos=1 id=2 & publish a 1 dup qos=1 id=1 !packet_identifier
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for a message that was sent later at first and has been sent again already."""
        identifier = packet.packet_identifier
        if not at.history.carries or identifier is None or at.party.has_sent(identifier):
            return None
        model = at.model(SessionModel)
        rows = model.carried(at.direction, at)
        one = rows.get(identifier)
        if one is None or not one.sure or not one.is_message(packet, at.topic):
            return None
        for later in rows.values():
            if later.order <= one.order or not later.sure or later.phase is not SENT:
                continue
            if not at.from_client and (later.topic, later.qos) != (one.topic, one.qos):
                continue
            if at.party.has_sent(later.packet_identifier):
                return self.report(
                    "packet_identifier",
                    f"PUBLISH id {later.packet_identifier} was sent again before id {identifier}, which had been sent "
                    "first",
                    related=(one.related, later.related),
                    **doubted(apart=model.apart),
                )
        return None
