from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.lint.session_model import SessionModel, doubted
from mqttscope.mqtt.packets import Publish
from mqttscope.session.inflight import SENT


class ResendOrder(Rule):
    """Messages are resent after a reconnect in a different order from the first time.

    Order matters to a receiver of state changes: a switch that was turned on and off again ends up on.  Senders that
    sort by packet identifier resend in the wrong order once identifiers start again at 1.  For a server only messages
    with the same topic and QoS are compared, since MQTT does not order others.

    Instead, store unacknowledged messages in the order of their first transmission, and resend them in that order.
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
        in the old order, though the identifiers are not ascending
            opened resume session_expiry_interval=3600; > publish a 9 qos=1 id=9 & publish a 1 qos=1 id=1; > reset
            @1 opened resume session_expiry_interval=3600 < present
            @1 > publish a 9 dup qos=1 id=9 & publish a 1 dup qos=1 id=1; @1 < puback 9 & puback 1
        on the third connection, in the order of the first
            opened resume session_expiry_interval=3600; > publish a 1 qos=1 id=1 & publish a 2 qos=1 id=2; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a 1 dup qos=1 id=1; @1 > reset
            @2 opened resume session_expiry_interval=3600 < present
            @2 > publish a 1 dup qos=1 id=1 & publish a 2 dup qos=1 id=2; @2 < puback 1 & puback 2
        other topics of a server
            opened resume session_expiry_interval=3600; > subscribe 1 #:1; < suback 1 1
            < publish a 1 qos=1 id=1 & publish b 2 qos=1 id=2; > reset
            @1 opened resume session_expiry_interval=3600 < present
            @1 < publish b 2 dup qos=1 id=2 & publish a 1 dup qos=1 id=1
        a QoS 2 message that was answered with PUBREC is past its PUBLISH
            opened resume session_expiry_interval=3600; > publish a 1 qos=1 id=1 & publish a 2 qos=2 id=2; < pubrec 2
            > reset; @1 opened resume session_expiry_interval=3600 < present; @1 > publish a 1 dup qos=1 id=1
            @1 < puback 1
    """)
    bad = examples("""
        the second message is resent first
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
        """Look for a message first sent later that has already been resent."""
        identifier = packet.packet_identifier
        if not at.history.carries or identifier is None or at.party.has_sent(identifier):
            return None
        model = at.model(SessionModel)
        rows = model.carried(at.direction, at)
        exchange = rows.get(identifier)
        if exchange is None or not exchange.sure or not exchange.is_message(packet, at.topic):
            return None
        for later in rows.values():
            if later.order <= exchange.order or not later.sure or later.phase is not SENT:
                continue
            if not at.from_client and (later.topic, later.qos) != (exchange.topic, exchange.qos):
                continue
            if at.party.has_sent(later.packet_identifier):
                return self.report(
                    "packet_identifier",
                    f"PUBLISH id {later.packet_identifier} was resent before id {identifier}, which had been first "
                    "sent first",
                    related=(exchange.related, later.related),
                    **doubted(apart=model.apart),
                )
        return None
