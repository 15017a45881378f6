from mqttscope.lint.finding import Scope
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, filters_of
from mqttscope.lint.session_model import SessionModel, session_match
from mqttscope.mqtt import Direction, Publish


class DeliveryQosAboveGranted(Rule):
    """A client gets a message with a higher QoS than the server granted its subscription.

    The granted QoS is the most that the client has to handle.  A client that subscribed with QoS 0 may have no way to
    acknowledge, and then the message blocks the server's window.  With several matching subscriptions the highest
    counts; while a subscription is replaced or ended, the old QoS still does.  In MQTT 3.1 retained messages keep the
    QoS they were published with.

    Instead, send with the lower one of the published and the granted QoS.
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
        the highest of several counts
            opened; > subscribe 10 a:0 #:1; < suback 10 0 1; < publish a qos=1 id=1; > puback 1
        sent before the SUBACK
            opened 3.1.1; > subscribe 10 a:1; < publish a qos=1 id=1 & suback 10 0; > puback 1
        the subscription is being replaced
            opened; > subscribe 10 a:1; < suback 10 1; > subscribe 11 a:0; < publish a qos=1 id=1; > puback 1
            < suback 11 0
        queued for a subscription that is over
            opened; > subscribe 10 a:0 #:1; < suback 10 0 1; > unsubscribe 11 #; < unsuback 11 0; < publish a qos=1 id=1
            > puback 1
        a retained message in 3.1
            opened 3.1; > subscribe 10 a:0; < suback 10 0; < publish a x qos=1 retain id=1; > puback 1
        a session from before may have another subscription
            opened 3.1.1 resume < present; > subscribe 10 a:0; < suback 10 0; < publish a qos=1 id=1; > puback 1
        granted on the connection before, whose session continues
            opened resume session_expiry_interval=3600; > subscribe 1 a:1; < suback 1 1; > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present; @1 > subscribe 1 #:0; @1 < suback 1 0
            @1 < publish a qos=1 id=1
    """)
    bad = examples("""
        QoS 1 where 0 was granted
            opened; > subscribe 10 a:0; < suback 10 0; < publish a qos=1 id=1 !qos; > puback 1
        granted lower than requested, in 3.1.1
            opened 3.1.1; > subscribe 10 a:2; < suback 10 1; < publish a qos=2 id=1 !qos; > pubrec 1
        a Shared Subscription
            opened; > subscribe 10 $share/g/a:0; < suback 10 0; < publish a qos=1 id=1 !qos; > puback 1
        in 3.1
            opened 3.1; > subscribe 10 a:0; < suback 10 0; < publish a qos=1 id=1 !qos; > puback 1
        granted less on the connection before, whose session continues
            opened 3.1.1 resume; > subscribe 1 a:0; < suback 1 0; > disconnect; > fin
            @1 opened resume < present; @1 < publish a qos=1 id=1 !qos
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the highest QoS of all that the topic belongs to."""
        topic = at.topic
        if topic is None:
            return None
        found = session_match(topic, at)
        if packet.qos <= found.highest_qos or not found.subscriptions or not found.known:
            return None
        if packet.qos > 2 or (packet.retain and at.version is V3_1):
            return None
        broken: tuple[str, ...] | None = None
        if at.version is V5:
            shared = any(one.is_shared for one in found.subscriptions)
            broken = ("MQTT-3.8.4-8", "MQTT-4.8.2-3") if shared else ("MQTT-3.8.4-8",)
        first = found.subscriptions[0]
        return self.report(
            "qos",
            f"PUBLISH {topic!r} to {at.client_name!r} has QoS {packet.qos}, granted was at most "
            f"{found.highest_qos} ({filters_of(found.subscriptions)})",
            statements=broken,
            related=(Related.to("the SUBSCRIBE", first),),
        )
