"""RET408."""

import zlib

from mqttscope.lint.broker_watch import doubt
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.retained_store import RetainedStore
from mqttscope.lint.rule import ALL_VERSIONS, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.rules.retained import askers
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription, Will

_SETS = (client(Publish(qos=1, topic_name="a", retain=True, payload=b"20", packet_identifier=1)), server(Puback(1)))
_SAYS = client(Publish(topic_name="a", payload=b"21"))
_GETS = server(Publish(topic_name="a", retain=True, payload=b"21"))


def _asks(identifier: int = 1, **options: int | bool) -> tuple[Step, Step]:
    row = Subscription("a", 0, **options)  # type: ignore[arg-type]
    return client(Subscribe(identifier, subscriptions=[row]), after=10), server(Suback(identifier, reason_codes=[0]))


_READER = (*opened(client_identifier="c2"), *_asks())


class UnretainedStored(Rule):
    """A message that was published with RETAIN 0 comes back as a retained message.

    Such a message is for those who are there; what a new subscriber gets is the last one with RETAIN 1.  A server that
    stores all of them hands out events as if they were a state, old commands among them.  It is reported where the
    capture shows what was stored before, and a newer message with RETAIN 0 that has the content that is sent.

    Instead, leave the retained message as it is when one with RETAIN 0 comes.
    """

    code = "RET408"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    versions = ALL_VERSIONS
    statements = {V5: {"MQTT-3.3.1-8": ""}, V3_1_1: {"MQTT-3.3.1-12": ""}}
    also = {V5: ("MQTT-3.1.2-14",), V3_1_1: ("MQTT-3.1.2-16",)}
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    when = "retain"
    needs = ALL_SUBSCRIPTIONS
    models = (RetainedStore,)

    good = examples(
        lambda: [
            conversation(
                "the older retained message is sent",
                *opened(),
                *_SETS,
                _SAYS,
                *on(1, *_READER, server(Publish(topic_name="a", retain=True, payload=b"20"))),
            ),
            conversation(
                "nobody knows what was stored: it may have been the same",
                *opened(),
                _SAYS,
                *on(1, *_READER, _GETS),
            ),
            conversation(
                "published with RETAIN 1 as well",
                *opened(),
                *_SETS,
                _SAYS,
                client(Publish(topic_name="a", retain=True, payload=b"21")),
                *on(1, *_READER, _GETS),
            ),
            conversation(
                "stored before the message with RETAIN 0",
                *opened(),
                *_SETS,
                *on(1, *_READER, _GETS),
                _SAYS,
                *on(2, *opened(client_identifier="c3"), *_asks(), _GETS),
            ),
            conversation(
                "a retained will has the same content",
                *on(2, *opened(client_identifier="c3", will=Will("a", b"21", 1, will_retain=True))),
                *opened(),
                *_SETS,
                _SAYS,
                *on(2, closes("client", "reset")),
                *on(1, *_READER, _GETS),
            ),
            conversation(
                "another one by somebody who was not captured",
                *opened(),
                *_SETS,
                _SAYS,
                *on(1, *_READER, server(Publish(topic_name="a", retain=True, payload=b"22"))),
            ),
            conversation(
                "Retain As Published",
                *opened(),
                *_SETS,
                _SAYS,
                *on(1, *opened(client_identifier="c2"), *_asks(1, retain_as_published=True), _GETS),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "stored over the older one",
                *opened(),
                *_SETS,
                _SAYS,
                *on(1, *_READER, _GETS.marked("retain")),
            ),
            conversation(
                "in 3.1.1, where the older one has been sent",
                *opened(V3_1_1),
                *_SETS,
                *on(1, *opened(V3_1_1, client_identifier="c2"), *_asks()),
                *on(1, server(Publish(topic_name="a", retain=True, payload=b"20"))),
                _SAYS,
                *on(1, *_asks(2), _GETS.marked("retain")),
            ),
            conversation(
                "stored although it was cleared: only a warning",
                *opened(V3_1_1),
                client(Publish(topic_name="a", retain=True)),
                _SAYS,
                *on(1, *opened(V3_1_1, client_identifier="c2"), *_asks(), _GETS.marked("retain")),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with what was stored, and with what was published since."""
        topic = at.topic
        store = at.model(RetainedStore)
        held = None if topic is None else store.held.get(topic)
        if topic is None or held is None or packet.dup or packet.missing or not packet.payload or topic[0] == "$":
            return None
        checksum = zlib.crc32(packet.payload)
        if checksum == held.checksum or at.is_apart(held.capture) or store.hides(topic):
            return None
        found = store.plain(topic, checksum, held.timestamp_ns, at)
        asked = askers(topic, at)
        if found is None or asked is None or store.stirred.get(topic, -1) >= held.timestamp_ns:
            return None
        name, plain = found
        if not any(one.asks_for_retained and one.timestamp_ns > plain.timestamp_ns for one in asked):
            return None  # a live one with the wrong flag
        if not store.witnessed(held.timestamp_ns) or store.waits_behind_a_hole(at):
            return None
        if store.has_will(topic, checksum, at):
            return None
        return self.report(
            "retain",
            f"retained message {topic!r} sent to {at.client_name!r} was published by {name!r} with RETAIN 0",
            related=(Related("the retained message before it", held.packet, held.frame, held.timestamp_ns),),
            **doubt(at, doubtful=store.is_torn(at) or not (held.proven or held.accepted)),
        )
