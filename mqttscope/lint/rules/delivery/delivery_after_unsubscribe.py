import zlib

from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.finding import Scope
from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Needs, Related, Rule, Severity, examples
from mqttscope.lint.session_model import SessionModel, session_match
from mqttscope.mqtt import Direction, Publish


class DeliveryAfterUnsubscribe(Rule):
    """A client still receives new messages for a subscription that it has ended.

    Messages that were in flight or queued may arrive after an UNSUBACK, so messages are reported only after ``grace``
    seconds, and resent messages never.  A message that the client itself published after the UNSUBACK cannot have been
    queued earlier.

    Instead, queue no further messages once an UNSUBSCRIBE has been processed.
    """

    code = "DLV207"
    scope = Scope.SESSION
    severity = Severity.ERROR
    confidence = Confidence.HEURISTIC
    statements = {V5: {"MQTT-3.10.4-2": ""}, V3_1_1: {"MQTT-3.10.4-1": "", "MQTT-3.10.4-2": ""}}
    also = {V5: ("MQTT-3.10.4-1",)}
    signs = ("unmatched",)
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.SESSION_BIRTH | Needs.WHOLE_RECEIVER
    settings = {"grace": 5}
    models = (SessionModel,)

    good = examples("""
        no more messages
            opened; > subscribe 10 a:1; < suback 10 1; > unsubscribe 11 a; < unsuback 11 0
        queued earlier
            opened; > subscribe 10 a:1; < suback 10 1; > unsubscribe 11 a; < unsuback 11 0; +4.9 < publish a 21.5
        resent because it was not acknowledged
            opened 3.1.1; > subscribe 10 a:1; < suback 10 1; < publish a qos=1 id=1; > unsubscribe 11 a; < unsuback 11
            +20 < publish a dup qos=1 id=1; > puback 1
        another filter matches as well
            opened; > subscribe 10 a:1 +:1; < suback 10 1 1; > unsubscribe 11 a; < unsuback 11 0; +9 < publish a 21.5
        subscribed again
            opened; > subscribe 10 a:1; < suback 10 1; > unsubscribe 11 a; < unsuback 11 0; > subscribe 10 a:1
            < suback 10 1; +9 < publish a 21.5
    """)
    bad = examples("""
        a new message after 10 s
            opened; > subscribe 10 a:1; < suback 10 1; > unsubscribe 11 a; < unsuback 11 0
            +10 < publish a 21.5 !topic_name
        published by the client after the UNSUBACK
            opened; > subscribe 10 a:1; < suback 10 1; > unsubscribe 11 a; < unsuback 11 0; > publish a 21.5
            < publish a 21.5 !topic_name
        in 3.1.1
            opened 3.1.1; > subscribe 10 a:1; < suback 10 1; > unsubscribe 11 a; < unsuback 11
            +6 < publish a 21.5 !topic_name
        in 3.1
            opened 3.1; > subscribe 10 a:1; < suback 10 1; > unsubscribe 11 a; < unsuback 11
            +6 < publish a 21.5 !topic_name
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Report if only ended subscriptions match and the grace time is over."""
        topic = at.topic
        if topic is None:
            return None
        match = session_match(topic, at)
        if match.subscriptions or not match.ended or match.extended or packet.dup or not match.known:
            return None
        if packet.packet_identifier is not None and at.sender.running(packet.packet_identifier, "publish"):
            return None
        last = max(match.ended, key=lambda subscription: subscription.ended_ns or 0)
        ended_ns = last.ended_ns or 0
        own = self._is_published_later(packet, ended_ns, at)
        since = at.timestamp_ns - ended_ns
        if not own and since <= self.nanoseconds("grace"):
            return None
        why = ", and the client published it after that" if own else ""
        return self.report(
            "topic_name",
            f"PUBLISH {topic!r} to {at.client_name!r} {since / SECOND_NS:.1f} s after the UNSUBACK for "
            f"{last.topic_filter!r}{why}",
            confidence=Confidence.LIKELY if own else None,
            related=(Related.to("the SUBSCRIBE", last),),
        )

    def _is_published_later(self, packet: Publish, ended_ns: int, at: RuleContext) -> bool:
        """Whether the client published this message after the subscription ended, and not before."""
        if packet.missing or len(packet.payload) < 4:
            return False
        checksum = zlib.crc32(packet.payload)
        times = [sent.timestamp_ns for sent in at.other.recent if sent.topic == at.topic and sent.checksum == checksum]
        return bool(times) and min(times) > ended_ns
