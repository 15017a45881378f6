"""DLV207."""

import zlib

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.rules.delivery import SECOND_NS
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from mqttscope.mqtt.parts import Subscription

_SUBSCRIBED = (client(Subscribe(10, subscriptions=[Subscription("a", 1)])), server(Suback(10, reason_codes=[1])))
_ENDED = (client(Unsubscribe(11, topic_filters=["a"])), server(Unsuback(11, reason_codes=[0])))
_MESSAGE = Publish(topic_name="a", payload=b"21.5")


class DeliveryAfterUnsubscribe(Rule):
    """A client still gets new messages of a subscription that the server has ended.

    Messages that were under way or queued may follow an UNSUBACK, so they count only after ``grace`` seconds, and
    resent ones never.  A message that the client itself published after the UNSUBACK cannot have been queued before.

    Instead, add no message for a client once its UNSUBSCRIBE was handled.
    """

    code = "DLV207"
    severity = Severity.ERROR
    confidence = Confidence.HEURISTIC
    statements = {V5: {"MQTT-3.10.4-2": ""}, V3_1_1: {"MQTT-3.10.4-1": "", "MQTT-3.10.4-2": ""}}
    also = {V5: ("MQTT-3.10.4-1",)}
    looks_at = Publish
    signs = ("unmatched",)
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.SESSION_BIRTH | Needs.WHOLE_RECEIVER
    settings = {"grace": 5}

    good = examples(
        lambda: [
            conversation("nothing comes any more", *opened(), *_SUBSCRIBED, *_ENDED),
            conversation("queued before", *opened(), *_SUBSCRIBED, *_ENDED, server(_MESSAGE, after=4.9)),
            conversation(
                "sent again, since it was not acknowledged",
                *opened(V3_1_1),
                *_SUBSCRIBED,
                server(Publish(qos=1, topic_name="a", packet_identifier=1)),
                client(Unsubscribe(11, topic_filters=["a"])),
                server(Unsuback(11)),
                server(Publish(qos=1, dup=True, topic_name="a", packet_identifier=1), after=20),
                client(Puback(1)),
            ),
            conversation(
                "another filter matches as well",
                *opened(),
                client(Subscribe(10, subscriptions=[Subscription("a", 1), Subscription("+", 1)])),
                server(Suback(10, reason_codes=[1, 1])),
                *_ENDED,
                server(_MESSAGE, after=9),
            ),
            conversation(
                "subscribed again",
                *opened(),
                *_SUBSCRIBED,
                *_ENDED,
                *_SUBSCRIBED,
                server(_MESSAGE, after=9),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a new message after 10 s",
                *opened(),
                *_SUBSCRIBED,
                *_ENDED,
                server(_MESSAGE, after=10).marked("topic_name"),
            ),
            conversation(
                "published by the client after the UNSUBACK",
                *opened(),
                *_SUBSCRIBED,
                *_ENDED,
                client(_MESSAGE),
                server(_MESSAGE).marked("topic_name"),
            ),
            conversation(
                "in 3.1.1",
                *opened(V3_1_1),
                *_SUBSCRIBED,
                client(Unsubscribe(11, topic_filters=["a"])),
                server(Unsuback(11)),
                server(_MESSAGE, after=6).marked("topic_name"),
            ),
            conversation(
                "in 3.1",
                *opened(V3_1),
                *_SUBSCRIBED,
                client(Unsubscribe(11, topic_filters=["a"])),
                server(Unsuback(11)),
                server(_MESSAGE, after=6).marked("topic_name"),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Only ended subscriptions match, and the grace time is over."""
        topic = at.topic
        if topic is None:
            return None
        table = at.history.subscriptions
        found = table.found.get(topic) or table.match(topic)
        if found.subscriptions or not found.ended or found.extended or packet.dup or not found.known:
            return None
        if packet.packet_identifier is not None and at.sender.running(packet.packet_identifier, "publish"):
            return None
        last = max(found.ended, key=lambda one: one.ended_ns or 0)
        ended_ns = last.ended_ns or 0
        own = self._own(packet, ended_ns, at)
        since = at.timestamp_ns - ended_ns
        if not own and since <= float(self.set["grace"]) * SECOND_NS:
            return None
        why = ", and the client published it after that" if own else ""
        return self.report(
            "topic_name",
            f"PUBLISH {topic!r} to {at.client_name!r} {since / SECOND_NS:.1f} s after the UNSUBACK for "
            f"{last.topic_filter!r}{why}",
            confidence=Confidence.LIKELY if own else None,
            related=(Related("the SUBSCRIBE", last.packet, last.frame, last.timestamp_ns),),
        )

    def _own(self, packet: Publish, ended_ns: int, at: RuleContext) -> bool:
        """Whether the client published the same after the subscription had ended, and not before."""
        if packet.missing or len(packet.payload) < 4:
            return False
        checksum = zlib.crc32(packet.payload)
        times = [one.timestamp_ns for one in at.other.recent if one.topic == at.topic and one.checksum == checksum]
        return bool(times) and min(times) > ended_ns
