import zlib

from mqttscope.lint.broker_watch import doubt
from mqttscope.lint.retained_store import RetainedStore
from mqttscope.lint.rules import SECOND_NS, V3_1, V3_1_1, Findings, Related, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import DeliveryRule
from mqttscope.lint.rules.retained import asking_subscriptions
from mqttscope.mqtt.packets import Publish


class RetainFlagMissingOnInitial(DeliveryRule):
    """A retained message that answers a SUBSCRIBE has RETAIN 0.

    The flag marks the current state, as opposed to a new event; without it an old event is treated as new.  Reported if
    a message with the retained content arrives within ``window`` seconds of the SUBSCRIBE and at least ``grace``
    seconds after the content was stored.  The capture must not show a client that published it again.  An error while
    another connection stays open, which proves that the server did not restart (clients publish their state again after
    a restart); otherwise a warning.

    Instead, set RETAIN in every message that is sent because of a new subscription.
    """

    code = "RET411"
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    statements = {V3_1_1: {"MQTT-3.3.1-8": ""}}
    also = {V3_1: ("V31-PUBLISH-retain-on-subscribe",)}
    settings = {"grace": 5, "window": 2}
    models = (RetainedStore,)
    about = RetainedStore, "awaited"

    good = examples("""
        RETAIN 1
            opened 3.1.1; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain
        a live message with the same content
            opened 3.1.1; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; > publish a 21; @1 < publish a 21
        a live message from a client that has disconnected since
            opened 3.1.1; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; @2 opened client=c3; @2 > publish a 21; @2 > disconnect; @2 > fin; @1 < publish a 21
        a live message from an uncaptured client, which another subscriber receives too
            @2 opened 3.1.1 client=c3; +10 @2 > subscribe 1 a:0; @2 < suback 1 0; opened
            > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0
            @2 < publish a 21; @1 < publish a 21
        the message itself, delayed
            opened 3.1.1; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; +0.1 @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21
        the publisher has disconnected, and then another client with a will of the same content
            opened 3.1.1; > publish a 21 qos=1 retain id=1; < puback 1; > disconnect; > fin
            @2 opened client=c3 will=a will_payload=21; +10 @2 > reset; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21
        much later than the SUBSCRIBE
            opened 3.1.1; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; +20 @1 < publish a 21
        different content
            opened 3.1.1; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 22
    """)
    bad = examples("""
        RETAIN 0
            opened 3.1.1; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 !retain
        in 5.0, with QoS 1
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 qos=1 id=1 !retain
        the publisher has disconnected: only a warning
            opened 3.1.1; > publish a 21 qos=1 retain id=1; < puback 1; > disconnect; > fin; @1 opened client=c2
            +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the retained messages that the connection waits for."""
        topic = at.topic
        store = at.model(RetainedStore)
        waiting = store.waiting.get(at.key)
        expected = None if waiting is None or topic is None else waiting.get(topic)
        if topic is None or expected is None or packet.retain or packet.dup or packet.missing:
            return None
        stored = store.messages.get(topic)
        if stored is None or stored.packet != expected.kept_by or zlib.crc32(packet.payload) != stored.checksum:
            return None
        grace_ns, window_ns = (round(float(self.set[name]) * SECOND_NS) for name in ("grace", "window"))
        if at.timestamp_ns - expected.timestamp_ns > window_ns or expected.timestamp_ns < stored.accepted_ns + grace_ns:
            return None
        asked = asking_subscriptions(topic, at)
        witnessed = store.witnessed(stored.timestamp_ns)
        if asked is None or len(asked) > 1 or store.hides(topic):
            return None
        if store.waits_behind_a_hole(at) or (at.is_apart(stored.capture) and not witnessed):
            return None
        if store.heard_since(topic, stored.checksum, max(expected.timestamp_ns - grace_ns, stored.accepted_ns), at):
            return None
        return self.report(
            "retain",
            f"PUBLISH {topic!r} to {at.client_name!r} answers SUBSCRIBE {expected.topic_filter!r} with the retained "
            "message but has RETAIN 0",
            related=(Related.to("the SUBSCRIBE", expected), stored.related),
            **doubt(at, doubtful=store.is_torn(at) or not witnessed),
        )
