"""RET405."""

import zlib
from dataclasses import dataclass, field

from mqttscope.lint.broker_watch import MAX_TOPICS, SECOND_NS, doubt
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.retained_store import Judged, RetainedStore, Vain, WaitingRule
from mqttscope.lint.rule import ALL_VERSIONS, V3_1_1, V5, Findings
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.rules.retained import askers
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription, Will

FEWEST = 2
"""Clients that have to ask in vain before the message counts as not stored: one alone may not be allowed to read."""
MAX_NAMES = FEWEST + 1
"""Clients that asked in vain whose names are remembered of a topic."""


@dataclass(slots=True)
class Asked(Judged):
    """Who has asked in vain for what."""

    asked: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    """Client Identifiers by topic, with the time at which the message was published."""


def _sets(payload: bytes, *, after: float = 0.01, code: int | None = None) -> tuple[Step, Step]:
    packet = Publish(qos=1, topic_name="a", retain=True, payload=payload, packet_identifier=1)
    return client(packet, after=after), server(Puback(1, reason_code=code))


def _asks(identifier: int = 1, after: float = 10) -> tuple[Step, Step]:
    row = Subscription("a", 0)
    return client(Subscribe(identifier, subscriptions=[row]), after=after), server(Suback(identifier, reason_codes=[0]))


_OLD = server(Publish(topic_name="a", retain=True, payload=b"20"))
_NEW = server(Publish(topic_name="a", retain=True, payload=b"21"))
_PINGS = (client(Pingreq(), after=31), server(Pingresp()))
_READER = opened(client_identifier="c2")
_OTHER = opened(client_identifier="c3")


class RetainedNotStored(WaitingRule):
    """A message that was published with RETAIN 1 and accepted is not what later subscribers get.

    A server that takes such a message and does not store it leaves new subscribers with the state before, or with
    none; servers do so silently where a limit of size or of rate is reached.  What proves it is a subscriber who asks
    well after the server had the message (``grace`` seconds) and gets the one before, by the same publisher; or two
    clients who ask in vain (``timeout`` seconds) for what nobody has ever got as a retained message.  It is an error
    where the server has accepted the message in so many words, or has stored others of its publisher; else a warning.

    Instead, store the message before it is acknowledged, or refuse it with 0x97.
    """

    code = "RET405"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    versions = ALL_VERSIONS
    statements = {V5: {"MQTT-3.3.1-5": ""}, V3_1_1: {"MQTT-3.3.1-5": ""}}
    looks_at = (Publish, Subscribe)
    when = {Publish: "retain"}
    needs = ALL_SUBSCRIPTIONS
    settings = {"grace": 5, "timeout": 30}
    models = (RetainedStore,)
    Memory = Asked

    good = examples(
        lambda: [
            conversation(
                "the new message is sent",
                *opened(),
                *_sets(b"20"),
                *_sets(b"21"),
                *on(1, *_READER, *_asks(), _NEW),
                *on(2, *_OTHER, *_asks(), _NEW, *_PINGS),
            ),
            conversation(
                "the old message was under way when the new one came",
                *on(1, *_READER),
                *opened(),
                *_sets(b"20"),
                *_sets(b"21"),
                *on(1, *_asks(after=1), _OLD),
            ),
            conversation(
                "refused",
                *opened(),
                *_sets(b"20"),
                *_sets(b"21", code=0x97),
                *on(1, *_READER, *_asks(), _OLD),
            ),
            conversation(
                "not acknowledged yet",
                *opened(),
                *_sets(b"20"),
                _sets(b"21")[0],
                *on(1, *_READER, *_asks(), _OLD),
            ),
            conversation(
                "QoS 0, which a server may drop",
                *opened(),
                *_sets(b"20"),
                client(Publish(topic_name="a", retain=True, payload=b"21")),
                *on(1, *_READER, *_asks(), _OLD),
            ),
            conversation(
                "set back by another client in between",
                *opened(),
                *_sets(b"20"),
                *_sets(b"21"),
                *on(2, *_OTHER, *_sets(b"20")),
                *on(1, *_READER, *_asks(), _OLD),
            ),
            conversation(
                "set back by somebody who was not captured, as a subscriber shows",
                *on(2, *_OTHER, *_asks()),
                *opened(),
                *_sets(b"20"),
                *_sets(b"21"),
                *on(2, server(Publish(topic_name="a", payload=b"21")), server(Publish(topic_name="a", payload=b"20"))),
                *on(1, *_READER, *_asks(), _OLD),
            ),
            conversation(
                "the will of a client has set it back",
                *on(2, *opened(client_identifier="c3", will=Will("a", b"20", 1, will_retain=True))),
                *opened(),
                *_sets(b"20"),
                *_sets(b"21"),
                *on(2, closes("client", "reset")),
                *on(1, *_READER, *_asks(), _OLD),
            ),
            conversation(
                "it has been sent before",
                *opened(),
                *_sets(b"20"),
                *_sets(b"21"),
                *on(2, *_OTHER, *_asks(), _NEW),
                *on(1, *_READER, *_asks(), _OLD),
            ),
            conversation(
                "one client alone may not be allowed to read it",
                *opened(),
                *_sets(b"21"),
                *on(1, *_READER, *_asks(), *_PINGS, *_asks(2), *_PINGS),
            ),
            conversation(
                "nobody was there all the time: the server may have been restarted",
                *opened(),
                *_sets(b"20"),
                *_sets(b"21"),
                closes("client"),
                *on(1, *_READER, *_asks(), _OLD),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a later subscriber gets the message before",
                *opened(),
                *_sets(b"20"),
                *_sets(b"21"),
                *on(1, *_READER, *_asks(), _OLD.marked("payload")),
            ),
            conversation(
                "in 3.1.1",
                *opened(V3_1_1),
                *_sets(b"20"),
                *_sets(b"21"),
                *on(1, *opened(V3_1_1, client_identifier="c2"), *_asks(), _OLD.marked("payload")),
            ),
            conversation(
                "two clients get nothing",
                *opened(),
                *_sets(b"21"),
                *on(1, *_READER, *_asks(), *_PINGS),
                *on(2, *_OTHER, *_asks(), client(Pingreq(), after=31).marked("", at=None)),
            ),
        ]
    )

    def check(self, packet: Publish | Subscribe, at: RuleContext) -> Findings:
        """Look whether a subscriber gets what was replaced."""
        if isinstance(packet, Subscribe):
            self.await_answer(at)
            return None
        topic = at.topic
        store = at.model(RetainedStore)
        kept = None if topic is None or at.from_client else store.kept.get(topic)
        if topic is None or kept is None or kept.before is None or packet.dup or packet.missing or kept.proven:
            return None
        if zlib.crc32(packet.payload) != kept.before or not kept.accepted_ns or at.is_apart(kept.capture):
            return None
        if store.hides(topic) or not store.witnessed(kept.timestamp_ns) or kept.until_ns <= at.timestamp_ns:
            return None
        asked = askers(topic, at)
        after_ns = kept.accepted_ns + round(float(self.set["grace"]) * SECOND_NS)
        if asked is None or any(one.timestamp_ns < after_ns for one in asked):
            return None
        if store.waits_behind_a_hole(at) or store.heard_since(topic, kept.before, kept.timestamp_ns, at):
            return None
        waited = (at.timestamp_ns - kept.timestamp_ns) / SECOND_NS
        return self.report(
            "payload",
            f"retained message {topic!r} sent to {at.client_name!r} is the one before that which {kept.client!r} "
            f"published {waited:,.0f} s ago and the server has accepted",
            related=(Related("the newer message", kept.packet, kept.frame, kept.timestamp_ns),),
            **doubt(at, doubtful=store.is_torn(at)),
        )

    def judge(self, vain: Vain, store: RetainedStore, at: RuleContext) -> Report | None:
        """Look whether nobody has got the message."""
        kept, name = vain.kept, at.client_name
        asked: dict[str, tuple[int, tuple[str, ...]]] = at.memory(self).asked
        since_ns, names = asked.pop(vain.topic, (0, ()))
        if since_ns != kept.timestamp_ns:
            names = ()
        known = name in names
        names = names if known else (*names, name)[:MAX_NAMES]
        asked[vain.topic] = kept.timestamp_ns, names
        if len(asked) > MAX_TOPICS:
            del asked[next(iter(asked))]
        if known or kept.proven or kept.readers or len(names) != FEWEST:
            return None
        return self.report(
            "",
            f"retained message published on {vain.topic!r} by {kept.client!r}: {FEWEST} clients that subscribed later "
            "have got nothing",
            related=vain.related,
            sender=Direction.SERVER_TO_CLIENT,
            overdue=True,
            topic=vain.topic,
            **doubt(at, doubtful=store.is_torn(at) or not (vain.reader and kept.granted)),
        )
