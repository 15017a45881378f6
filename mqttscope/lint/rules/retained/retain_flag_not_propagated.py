"""RET409."""

import zlib

from mqttscope.lint.broker_watch import SECOND_NS, doubt
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.retained_store import RetainedStore
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, filters_of
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connack, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties

_SAYS = client(Publish(topic_name="a", retain=True, payload=b"21"))
_GETS = server(Publish(topic_name="a", payload=b"21"))


def _asks(identifier: int = 1, name: str = "a", *, as_published: bool = True) -> tuple[Step, Step]:
    row = Subscription(name, 0, retain_as_published=as_published)
    return client(Subscribe(identifier, subscriptions=[row])), server(Suback(identifier, reason_codes=[0]))


_READER = on(1, *opened(client_identifier="c2"), *_asks())


class RetainFlagNotPropagated(Rule):
    """A live message loses its RETAIN 1 on the way to a subscription with Retain As Published.

    Bridges and recorders ask for the flag so that they can keep or pass on what the publisher meant to be retained;
    without it the other side of a bridge has no state to give to new subscribers.  All subscriptions that match have
    to ask for it, since each may be the one that the message is for; and nobody may have published the same with
    RETAIN 0.

    Instead, forward a message with the flag that it was published with.
    """

    code = "RET409"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    versions = (V5,)
    statements = {V5: {"MQTT-3.3.1-13": ""}}
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS
    settings = {"window": 5}
    models = (RetainedStore,)
    about = RetainedStore, "live"

    good = examples(
        lambda: [
            conversation(
                "as it was published",
                *_READER,
                *opened(),
                _SAYS,
                *on(1, server(Publish(topic_name="a", retain=True, payload=b"21"))),
            ),
            conversation(
                "nobody asks for the flag",
                *on(1, *opened(client_identifier="c2"), *_asks(as_published=False)),
                *opened(),
                _SAYS,
                *on(1, _GETS),
            ),
            conversation(
                "one of two subscriptions does not ask for it",
                *_READER,
                *on(1, *_asks(2, "+", as_published=False)),
                *opened(),
                _SAYS,
                *on(1, _GETS),
            ),
            conversation(
                "a subscription that has just ended did not ask for it",
                *_READER,
                *on(1, *_asks(2, "+", as_published=False)),
                *opened(),
                *on(1, client(Unsubscribe(3, topic_filters=["+"])), server(Unsuback(3, reason_codes=[0]))),
                _SAYS,
                *on(1, _GETS),
            ),
            conversation(
                "the same was published with RETAIN 0",
                *_READER,
                *opened(),
                client(Publish(topic_name="a", payload=b"21")),
                _SAYS,
                *on(1, _GETS),
            ),
            conversation(
                "by a client that has left since",
                *_READER,
                *opened(),
                *on(
                    2, *opened(client_identifier="c3"), client(Publish(topic_name="a", payload=b"21")), closes("client")
                ),
                _SAYS,
                *on(1, _GETS),
            ),
            conversation(
                "a will has the same content",
                *_READER,
                *on(2, *opened(client_identifier="c3", will=Will("a", b"21"))),
                *opened(),
                _SAYS,
                *on(2, closes("client", "reset")),
                *on(1, _GETS),
            ),
            conversation(
                "another content", *_READER, *opened(), _SAYS, *on(1, server(Publish(topic_name="a", payload=b"2")))
            ),
            conversation(
                "the server announced that it retains nothing",
                *_READER,
                *opened(connack=Properties(retain_available=0))[:1],
                server(Connack(properties=Properties(retain_available=0))),
                client(Publish(topic_name="a", payload=b"21")),
                *on(1, _GETS),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation("RETAIN 0", *_READER, *opened(), _SAYS, *on(1, _GETS.marked("retain"))),
            conversation(
                "of a publisher that has left since",
                *_READER,
                *opened(),
                _SAYS,
                closes("client"),
                *on(1, _GETS.marked("retain")),
            ),
            conversation(
                "of two subscriptions that both ask for it",
                *_READER,
                *on(1, *_asks(2, "#")),
                *opened(),
                _SAYS,
                *on(1, _GETS.marked("retain")),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with what was published last of the topic."""
        topic = at.topic
        store = at.model(RetainedStore)
        live = None if topic is None else store.live.get(topic)
        if topic is None or live is None or packet.retain or packet.dup or packet.missing:
            return None
        window_ns = round(float(self.set["window"]) * SECOND_NS)
        if at.timestamp_ns - live.timestamp_ns > window_ns or at.is_apart(live.capture):
            return None
        match = at.history.subscriptions.match(topic)
        if not match.known or not match.subscriptions or match.ended or match.replaces or topic[0] == "$":
            return None
        if not all(one.retain_as_published for one in match.subscriptions):
            return None
        if zlib.crc32(packet.payload) != live.checksum or store.waits_behind_a_hole(at):
            return None
        if store.published_since(topic, live, live.timestamp_ns - window_ns, at):
            return None
        waited = (at.timestamp_ns - live.timestamp_ns) / SECOND_NS
        return self.report(
            "retain",
            f"PUBLISH {topic!r} to {at.client_name!r} has RETAIN 0 although it was published with RETAIN 1 "
            f"{waited:,.3f} s before, and {filters_of(match.subscriptions)} has Retain As Published",
            related=(Related("the PUBLISH of the publisher", live.packet, live.frame, live.timestamp_ns),),
            **doubt(at, doubtful=store.is_torn(at)),
        )
