"""RET411."""

import zlib

from mqttscope.lint.broker_watch import SECOND_NS, doubt
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.retained_store import RetainedStore
from mqttscope.lint.rule import ALL_VERSIONS, V3_1, V3_1_1, Findings, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.rules.retained import askers
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Disconnect, Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription

_SETS = (client(Publish(qos=1, topic_name="a", retain=True, payload=b"21", packet_identifier=1)), server(Puback(1)))
_AGAIN = client(Publish(topic_name="a", payload=b"21"))
_GETS = server(Publish(topic_name="a", payload=b"21"))


def _asks(identifier: int = 1, after: float = 10) -> tuple[Step, Step]:
    row = Subscription("a", 0)
    return client(Subscribe(identifier, subscriptions=[row]), after=after), server(Suback(identifier, reason_codes=[0]))


_READER = (*opened(V3_1_1, client_identifier="c2"), *_asks())


class RetainFlagMissingOnInitial(Rule):
    """A stored message that answers a SUBSCRIBE has RETAIN 0.

    The flag tells the subscriber that this is the state so far and not something that has just happened; without it
    an old event is taken for a new one.  Reported where the message has the content of the retained one, comes within
    ``window`` seconds of the SUBSCRIBE and well after it was stored (``grace`` seconds), and where the capture shows
    nobody who sent the same again.

    Instead, set RETAIN in every message that is sent because of a new subscription.
    """

    code = "RET411"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    versions = ALL_VERSIONS
    statements = {V3_1_1: {"MQTT-3.3.1-8": ""}}
    also = {V3_1: ("V31-PUBLISH-retain-on-subscribe",)}
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS
    settings = {"grace": 5, "window": 2}
    models = (RetainedStore,)
    about = RetainedStore, "awaited"

    good = examples(
        lambda: [
            conversation(
                "RETAIN 1",
                *opened(V3_1_1),
                *_SETS,
                *on(1, *_READER, server(Publish(topic_name="a", retain=True, payload=b"21"))),
            ),
            conversation(
                "a live one with the same content", *opened(V3_1_1), *_SETS, *on(1, *_READER), _AGAIN, *on(1, _GETS)
            ),
            conversation(
                "a live one of a client that has left since",
                *opened(V3_1_1),
                *_SETS,
                *on(1, *_READER),
                *on(2, *opened(V3_1_1, client_identifier="c3"), _AGAIN, client(Disconnect()), closes("client")),
                *on(1, _GETS),
            ),
            conversation(
                "a live one of somebody who was not captured, as another subscriber shows",
                *on(2, *opened(V3_1_1, client_identifier="c3"), *_asks()),
                *opened(V3_1_1),
                *_SETS,
                *on(1, *_READER),
                *on(2, _GETS),
                *on(1, _GETS),
            ),
            conversation(
                "the message itself, which was slow",
                *opened(V3_1_1),
                *_SETS,
                *on(1, *opened(V3_1_1, client_identifier="c2"), *_asks(after=0.1), _GETS),
            ),
            conversation(
                "much later than the SUBSCRIBE",
                *opened(V3_1_1),
                *_SETS,
                *on(1, *_READER, server(Publish(topic_name="a", payload=b"21"), after=20)),
            ),
            conversation(
                "another content",
                *opened(V3_1_1),
                *_SETS,
                *on(1, *_READER, server(Publish(topic_name="a", payload=b"22"))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation("RETAIN 0", *opened(V3_1_1), *_SETS, *on(1, *_READER, _GETS.marked("retain"))),
            conversation(
                "in 5.0, with QoS 1",
                *opened(),
                *_SETS,
                *on(1, *opened(client_identifier="c2"), *_asks()),
                *on(1, server(Publish(qos=1, topic_name="a", payload=b"21", packet_identifier=1)).marked("retain")),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with what the connection waits for."""
        topic = at.topic
        store = at.model(RetainedStore)
        waiting = store.waiting.get(at.key)
        one = None if waiting is None or topic is None else waiting.get(topic)
        if topic is None or one is None or packet.retain or packet.dup or packet.missing:
            return None
        kept = store.kept.get(topic)
        if kept is None or kept.packet != one.kept_by or zlib.crc32(packet.payload) != kept.checksum:
            return None
        grace_ns, window_ns = (round(float(self.set[name]) * SECOND_NS) for name in ("grace", "window"))
        if at.timestamp_ns - one.timestamp_ns > window_ns or one.timestamp_ns < kept.accepted_ns + grace_ns:
            return None
        asked = askers(topic, at)
        if asked is None or len(asked) > 1 or store.hides(topic) or not store.witnessed(kept.timestamp_ns):
            return None
        if store.waits_behind_a_hole(at):
            return None
        if store.heard_since(topic, kept.checksum, max(one.timestamp_ns - grace_ns, kept.accepted_ns), at):
            return None
        return self.report(
            "retain",
            f"PUBLISH {topic!r} to {at.client_name!r} answers SUBSCRIBE {one.topic_filter!r} with the retained message "
            "and has RETAIN 0",
            related=(Related("the SUBSCRIBE", one.packet, one.frame, one.timestamp_ns), kept.related),
            **doubt(at, doubtful=store.is_torn(at)),
        )
