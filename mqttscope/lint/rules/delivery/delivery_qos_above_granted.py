from mqttscope.lint.finding import Scope
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, filters_of
from mqttscope.lint.session_model import SessionModel, session_match
from mqttscope.mqtt import Direction, Publish


class DeliveryQosAboveGranted(Rule):
    """A client receives a message with a higher QoS than the server granted for its subscription.

    The granted QoS is the highest that the client has to support.  A client that subscribed with QoS 0 may be unable to
    acknowledge, and then the message blocks the server's send window.  With several matching subscriptions the highest
    QoS applies; while a subscription is being replaced or ended, the old QoS still applies.  In MQTT 3.1 retained
    messages keep the QoS of their publication.

    Instead, send with the lower of the published and the granted QoS.
    """

    code = "DLV202"
    scope = Scope.SESSION
    severity = Severity.ERROR
    statements = {V5: {"MQTT-3.8.4-8": "", "MQTT-4.8.2-3": ""}, V3_1_1: {"MQTT-3.8.4-6": ""}}
    also = {V5: ("MQTT-3.9.3-1",)}
    sender = Direction.SERVER_TO_CLIENT
    when = "qos"
    signs = ("above_granted",)
    needs = ALL_SUBSCRIPTIONS
    models = (SessionModel,)

    good = examples("""
        as granted
            opened; > subscribe 10 a:1; < suback 10 1; < publish a qos=1 id=1; > puback 1
        the highest of several applies
            opened; > subscribe 10 a:0 #:1; < suback 10 0 1; < publish a qos=1 id=1; > puback 1
        sent before the SUBACK
            opened 3.1.1; > subscribe 10 a:1; < publish a qos=1 id=1 & suback 10 0; > puback 1
        the subscription is being replaced
            opened; > subscribe 10 a:1; < suback 10 1; > subscribe 11 a:0; < publish a qos=1 id=1; > puback 1
            < suback 11 0
        queued for a subscription that has ended
            opened; > subscribe 10 a:0 #:1; < suback 10 0 1; > unsubscribe 11 #; < unsuback 11 0; < publish a qos=1 id=1
            > puback 1
        a retained message in 3.1
            opened 3.1; > subscribe 10 a:0; < suback 10 0; < publish a x qos=1 retain id=1; > puback 1
        an older session may have another subscription
            opened 3.1.1 resume < present; > subscribe 10 a:0; < suback 10 0; < publish a qos=1 id=1; > puback 1
        granted on the previous connection, and the session continues
            opened resume session_expiry_interval=3600; > subscribe 1 a:1; < suback 1 1; > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present; @1 > subscribe 1 #:0; @1 < suback 1 0
            @1 < publish a qos=1 id=1
    """)
    bad = examples("""
        QoS 1 but only 0 was granted
            opened; > subscribe 10 a:0; < suback 10 0; < publish a qos=1 id=1 !qos; > puback 1
        granted lower than requested, in 3.1.1
            opened 3.1.1; > subscribe 10 a:2; < suback 10 1; < publish a qos=2 id=1 !qos; > pubrec 1
        a Shared Subscription
            opened; > subscribe 10 $share/g/a:0; < suback 10 0; < publish a qos=1 id=1 !qos; > puback 1
        in 3.1
            opened 3.1; > subscribe 10 a:0; < suback 10 0; < publish a qos=1 id=1 !qos; > puback 1
        granted less on the previous connection, and the session continues
            opened 3.1.1 resume; > subscribe 1 a:0; < suback 1 0; > disconnect; > fin
            @1 opened resume < present; @1 < publish a qos=1 id=1 !qos
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the highest granted QoS of all matching subscriptions."""
        topic = at.topic
        if topic is None:
            return None
        match = session_match(topic, at)
        if packet.qos <= match.highest_qos or not match.subscriptions or not match.known:
            return None
        if packet.qos > 2 or (packet.retain and at.version is V3_1):
            return None
        broken: tuple[str, ...] | None = None
        if at.version is V5:
            shared = any(subscription.is_shared for subscription in match.subscriptions)
            broken = ("MQTT-3.8.4-8", "MQTT-4.8.2-3") if shared else ("MQTT-3.8.4-8",)
        first = match.subscriptions[0]
        return self.report(
            "qos",
            f"PUBLISH {topic!r} to {at.client_name!r} has QoS {packet.qos}, but at most "
            f"{match.highest_qos} was granted ({filters_of(match.subscriptions)})",
            statements=broken,
            related=(Related.to("the SUBSCRIBE", first),),
        )
