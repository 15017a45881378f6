import zlib

from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.finding import Scope
from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Needs, Related, Rule, Severity, examples
from mqttscope.lint.session_model import SessionModel, session_match
from mqttscope.mqtt import Direction, Publish


class DeliveryAfterUnsubscribe(Rule):
    """A client still gets new messages of a subscription that the server has ended.

    Messages that were under way or queued may follow an UNSUBACK, so they count only after ``grace`` seconds, and
    resent ones never.  A message that the client itself published after the UNSUBACK cannot have been queued before.

    Instead, add no message for a client once its UNSUBSCRIBE was handled.
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
        nothing comes any more
            opened; > subscribe 10 a:1; < suback 10 1; > unsubscribe 11 a; < unsuback 11 0
        queued before
            opened; > subscribe 10 a:1; < suback 10 1; > unsubscribe 11 a; < unsuback 11 0; +4.9 < publish a 21.5
        sent again, since it was not acknowledged
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
        """Only ended subscriptions match, and the grace time is over."""
        topic = at.topic
        if topic is None:
            return None
        found = session_match(topic, at)
        if found.subscriptions or not found.ended or found.extended or packet.dup or not found.known:
            return None
        if packet.packet_identifier is not None and at.sender.running(packet.packet_identifier, "publish"):
            return None
        last = max(found.ended, key=lambda one: one.ended_ns or 0)
        ended_ns = last.ended_ns or 0
        own = self._own(packet, ended_ns, at)
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

    def _own(self, packet: Publish, ended_ns: int, at: RuleContext) -> bool:
        """Whether the client published the same after the subscription had ended, and not before."""
        if packet.missing or len(packet.payload) < 4:
            return False
        checksum = zlib.crc32(packet.payload)
        times = [one.timestamp_ns for one in at.other.recent if one.topic == at.topic and one.checksum == checksum]
        return bool(times) and min(times) > ended_ns
