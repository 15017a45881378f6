import zlib

from mqttscope.lint.broker_watch import doubt
from mqttscope.lint.retained_store import RetainedStore
from mqttscope.lint.rules import V3_1_1, V5, Findings, Related, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import DeliveryRule
from mqttscope.lint.rules.retained import asking_subscriptions
from mqttscope.mqtt.packets import Publish


class UnretainedStored(DeliveryRule):
    """A message that was published with RETAIN 0 is sent as a retained message.

    Such a message is for current subscribers; a new subscriber should receive the last one with RETAIN 1.  A server
    that stores all messages delivers events, including old commands, as if they were a state.  Reported if the capture
    shows the stored message, and a newer message with RETAIN 0 that has the delivered content.

    Instead, leave the retained message unchanged when a message with RETAIN 0 arrives.
    """

    code = "RET408"
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    statements = {V5: {"MQTT-3.3.1-8": ""}, V3_1_1: {"MQTT-3.3.1-12": ""}}
    also = {V5: ("MQTT-3.1.2-14",), V3_1_1: ("MQTT-3.1.2-16",)}
    when = "retain"
    models = (RetainedStore,)

    good = examples("""
        the older retained message is sent
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21; @1 opened client=c2
            +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain
        the stored message is unknown and may have equal content
            opened; > publish a 21; @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0
            @1 < publish a 21 retain
        also published with RETAIN 1
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21; > publish a 21 retain
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain
        stored before the message with RETAIN 0
            opened; > publish a 20 qos=1 retain id=1; < puback 1; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; > publish a 21; @2 opened client=c3; +10 @2 > subscribe 1 a:0
            @2 < suback 1 0; @2 < publish a 21 retain
        a retained will has the same content
            @2 opened client=c3 will=a will_payload=21 will_qos=1 will_retain; opened; > publish a 20 qos=1 retain id=1
            < puback 1; > publish a 21; @2 > reset; @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0
            @1 < publish a 21 retain
        another message from an uncaptured client
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21; @1 opened client=c2
            +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 22 retain
        Retain As Published
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21; @1 opened client=c2
            +10 @1 > subscribe 1 a:0,retain_as_published; @1 < suback 1 0; @1 < publish a 21 retain
    """)
    bad = examples("""
        the newer message replaced the stored one
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21; @1 opened client=c2
            +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain !retain
        in 3.1.1, after the older one was sent
            opened 3.1.1; > publish a 20 qos=1 retain id=1; < puback 1; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 20 retain; > publish a 21; +10 @1 > subscribe 2 a:0; @1 < suback 2 0
            @1 < publish a 21 retain !retain
        stored although the topic was cleared: only a warning
            opened 3.1.1; > publish a retain; > publish a 21; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the stored message and later publications."""
        topic = at.topic
        store = at.model(RetainedStore)
        held = None if topic is None else store.held.get(topic)
        if topic is None or held is None or packet.dup or packet.missing or not packet.payload or topic[0] == "$":
            return None
        checksum = zlib.crc32(packet.payload)
        if checksum == held.checksum or at.is_apart(held.capture) or store.hides(topic):
            return None
        publication = store.plain(topic, checksum, held.timestamp_ns, at)
        asked = asking_subscriptions(topic, at)
        if publication is None or asked is None or store.stirred.get(topic, -1) >= held.timestamp_ns:
            return None
        name, plain = publication
        if not any(row.asks_for_retained and row.timestamp_ns > plain.timestamp_ns for row in asked):
            return None  # a live message with the wrong flag
        if not store.witnessed(held.timestamp_ns) or store.waits_behind_a_hole(at):
            return None
        if store.has_will(topic, checksum, at):
            return None
        return self.report(
            "retain",
            f"retained message {topic!r} sent to {at.client_name!r} was published by {name!r} with RETAIN 0",
            related=(Related.to("the retained message before it", held),),
            **doubt(at, doubtful=store.is_torn(at) or not (held.proven or held.accepted)),
        )
