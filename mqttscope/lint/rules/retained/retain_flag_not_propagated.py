import zlib

from mqttscope.lint.broker_watch import doubt
from mqttscope.lint.retained_store import RetainedStore
from mqttscope.lint.rules import SECOND_NS, V5, Findings, Related, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import DeliveryRule, filters_of
from mqttscope.mqtt.packets import Publish


class RetainFlagNotPropagated(DeliveryRule):
    """A live message loses its RETAIN 1 on the way to a subscription with Retain As Published.

    Bridges and recorders need the flag to store or forward messages that the publisher meant to be retained; without it
    the other side of a bridge has no state for new subscribers.  Reported only if all matching subscriptions have the
    option, since the message may belong to any of them.  The same message must not have been published with RETAIN 0 as
    well.

    Instead, forward a message with the flag of its publication.
    """

    code = "RET409"
    severities = (Severity.ERROR, Severity.WARNING)
    versions = (V5,)
    statements = {V5: {"MQTT-3.3.1-13": ""}}
    settings = {"window": 5}
    models = (RetainedStore,)
    about = RetainedStore, "live"

    good = examples("""
        the original flag
            @1 opened client=c2; @1 > subscribe 1 a:0,retain_as_published; @1 < suback 1 0; opened
            > publish a 21 retain; @1 < publish a 21 retain
        no subscription has the option
            @1 opened client=c2; @1 > subscribe 1 a:0; @1 < suback 1 0; opened; > publish a 21 retain; @1 < publish a 21
        one of two subscriptions lacks the option
            @1 opened client=c2; @1 > subscribe 1 a:0,retain_as_published; @1 < suback 1 0; @1 > subscribe 2 +:0
            @1 < suback 2 0; opened; > publish a 21 retain; @1 < publish a 21
        a subscription without the option has just ended
            @1 opened client=c2; @1 > subscribe 1 a:0,retain_as_published; @1 < suback 1 0; @1 > subscribe 2 +:0
            @1 < suback 2 0; opened; @1 > unsubscribe 3 +; @1 < unsuback 3 0; > publish a 21 retain; @1 < publish a 21
        the same message was also published with RETAIN 0
            @1 opened client=c2; @1 > subscribe 1 a:0,retain_as_published; @1 < suback 1 0; opened; > publish a 21
            > publish a 21 retain; @1 < publish a 21
        by a client that has disconnected since
            @1 opened client=c2; @1 > subscribe 1 a:0,retain_as_published; @1 < suback 1 0; opened; @2 opened client=c3
            @2 > publish a 21; @2 > fin; > publish a 21 retain; @1 < publish a 21
        a will has the same content
            @1 opened client=c2; @1 > subscribe 1 a:0,retain_as_published; @1 < suback 1 0
            @2 opened client=c3 will=a will_payload=21; opened; > publish a 21 retain; @2 > reset; @1 < publish a 21
        different content
            @1 opened client=c2; @1 > subscribe 1 a:0,retain_as_published; @1 < suback 1 0; opened
            > publish a 21 retain; @1 < publish a 2
        the server announced Retain Available 0
            @1 opened client=c2; @1 > subscribe 1 a:0,retain_as_published; @1 < suback 1 0; opened < retain_available=0
            > publish a 21; @1 < publish a 21
    """)
    bad = examples("""
        RETAIN 0
            @1 opened client=c2; @1 > subscribe 1 a:0,retain_as_published; @1 < suback 1 0; opened
            > publish a 21 retain; @1 < publish a 21 !retain
        from a publisher that has disconnected since
            @1 opened client=c2; @1 > subscribe 1 a:0,retain_as_published; @1 < suback 1 0; opened
            > publish a 21 retain; > fin; @1 < publish a 21 !retain
        two subscriptions, both with the option
            @1 opened client=c2; @1 > subscribe 1 a:0,retain_as_published; @1 < suback 1 0
            @1 > subscribe 2 #:0,retain_as_published; @1 < suback 2 0; opened; > publish a 21 retain
            @1 < publish a 21 !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the last publication on the topic."""
        topic = at.topic
        store = at.model(RetainedStore)
        live = None if topic is None else store.live.get(topic)
        if topic is None or live is None or packet.retain or packet.dup or packet.missing:
            return None
        window_ns = self.nanoseconds("window")
        if at.timestamp_ns - live.timestamp_ns > window_ns or at.is_apart(live.capture):
            return None
        match = at.history.subscriptions.match(topic)
        if not match.known or not match.subscriptions or match.ended or match.replaces or topic[0] == "$":
            return None
        if not all(subscription.retain_as_published for subscription in match.subscriptions):
            return None
        if zlib.crc32(packet.payload) != live.checksum or store.waits_behind_a_hole(at):
            return None
        if store.published_since(topic, live, live.timestamp_ns - window_ns, at):
            return None
        waited = (at.timestamp_ns - live.timestamp_ns) / SECOND_NS
        return self.report(
            "retain",
            f"PUBLISH {topic!r} to {at.client_name!r} has RETAIN 0 although it was published with RETAIN 1 "
            f"{waited:,.3f} s earlier, and {filters_of(match.subscriptions)} has Retain As Published",
            related=(Related.to("the PUBLISH of the publisher", live),),
            **doubt(at, doubtful=store.is_torn(at)),
        )
