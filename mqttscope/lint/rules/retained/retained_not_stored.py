import zlib
from dataclasses import dataclass, field

from mqttscope.lint.broker_watch import MAX_TOPICS, doubt
from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.retained_store import Judged, RetainedStore, Vain, WaitingRule
from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Related, Report, Severity, examples, forget_oldest
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.rules.retained import askers
from mqttscope.mqtt import Direction, Publish, Subscribe

FEWEST = 2
"""Clients that have to ask in vain before the message counts as not stored: one alone may not be allowed to read."""


@dataclass(slots=True)
class Asked(Judged):
    """Who has asked in vain for what."""

    asked: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    """Client Identifiers by topic, with the time at which the message was published."""


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
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    statements = {V5: {"MQTT-3.3.1-5": ""}, V3_1_1: {"MQTT-3.3.1-5": ""}}
    looks_at = (Publish, Subscribe)
    when = {Publish: "retain"}
    needs = ALL_SUBSCRIPTIONS
    settings = {"grace": 5, "timeout": 30}
    Memory = Asked

    good = examples("""
        the new message is sent
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21 qos=1 retain id=1; < puback 1
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain
            @2 opened client=c3; +10 @2 > subscribe 1 a:0; @2 < suback 1 0; @2 < publish a 21 retain; +31 @2 > pingreq
            @2 < pingresp
        the old message was under way when the new one came
            @1 opened client=c2; opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21 qos=1 retain id=1
            < puback 1; +1 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain
        refused
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21 qos=1 retain id=1; < puback 1 code=0x97
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain
        not acknowledged yet
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21 qos=1 retain id=1; @1 opened client=c2
            +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain
        QoS 0, which a server may drop
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21 retain; @1 opened client=c2
            +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain
        set back by another client in between
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21 qos=1 retain id=1; < puback 1
            @2 opened client=c3; @2 > publish a 20 qos=1 retain id=1; @2 < puback 1; @1 opened client=c2
            +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain
        set back by somebody who was not captured, as a subscriber shows
            @2 opened client=c3; +10 @2 > subscribe 1 a:0; @2 < suback 1 0; opened; > publish a 20 qos=1 retain id=1
            < puback 1; > publish a 21 qos=1 retain id=1; < puback 1; @2 < publish a 21; @2 < publish a 20
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain
        the will of a client has set it back
            @2 opened client=c3 will=a will_payload=20 will_qos=1 will_retain; opened; > publish a 20 qos=1 retain id=1
            < puback 1; > publish a 21 qos=1 retain id=1; < puback 1; @2 > reset; @1 opened client=c2
            +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain
        it has been sent before
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21 qos=1 retain id=1; < puback 1
            @2 opened client=c3; +10 @2 > subscribe 1 a:0; @2 < suback 1 0; @2 < publish a 21 retain
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain
        one client alone may not be allowed to read it
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; +31 @1 > pingreq; @1 < pingresp; +10 @1 > subscribe 2 a:0; @1 < suback 2 0
            +31 @1 > pingreq; @1 < pingresp
        nobody was there all the time: the server may have been restarted
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21 qos=1 retain id=1; < puback 1; > fin
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain
    """)
    bad = examples("""
        a later subscriber gets the message before
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21 qos=1 retain id=1; < puback 1
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain !payload
        in 3.1.1
            opened 3.1.1; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21 qos=1 retain id=1; < puback 1
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain !payload
        two clients get nothing
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; +31 @1 > pingreq; @1 < pingresp; @2 opened client=c3; +10 @2 > subscribe 1 a:0
            @2 < suback 1 0; +31 @2 > pingreq !!
    """)

    def check(self, packet: Publish | Subscribe, at: RuleContext) -> Findings:
        """Look whether a subscriber gets what was replaced."""
        if isinstance(packet, Subscribe):
            return super().check(packet, at)
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
        after_ns = kept.accepted_ns + self.nanoseconds("grace")
        if asked is None or any(one.timestamp_ns < after_ns for one in asked):
            return None
        if store.waits_behind_a_hole(at) or store.heard_since(topic, kept.before, kept.timestamp_ns, at):
            return None
        waited = (at.timestamp_ns - kept.timestamp_ns) / SECOND_NS
        return self.report(
            "payload",
            f"retained message {topic!r} sent to {at.client_name!r} is the one before that which {kept.client!r} "
            f"published {waited:,.0f} s ago and the server has accepted",
            related=(Related.to("the newer message", kept),),
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
        names = names if known else (*names, name)[: FEWEST + 1]
        asked[vain.topic] = kept.timestamp_ns, names
        forget_oldest(asked, MAX_TOPICS)
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
