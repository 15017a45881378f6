import zlib
from dataclasses import dataclass, field

from mqttscope.lint.broker_watch import MAX_TOPICS, doubt
from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.retained_store import JudgingProgress, MissingMessage, RetainedStore, WaitingRule
from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Related, Report, Severity, examples, forget_oldest
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.rules.retained import asking_subscriptions
from mqttscope.mqtt import Direction, Publish, Subscribe

FEWEST = 2
"""Number of clients without an answer that prove a loss: a single one may lack read permission."""


@dataclass(slots=True)
class UnservedReaders(JudgingProgress):
    """Clients that did not receive an expected retained message."""

    asked: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    """Publication time of the message and Client Identifiers, by topic."""


class RetainedNotStored(WaitingRule):
    """A message that was published with RETAIN 1 and accepted is not sent to later subscribers.

    A server that accepts but does not store such a message leaves new subscribers with an old state, or without any
    state; some do this silently at a size or rate limit.  There are two kinds of proof.  A client subscribes at least
    ``grace`` seconds after the message was accepted, and receives the previous message of the same publisher.  Or two
    clients subscribe and receive nothing within ``timeout`` seconds, and no client has ever received the message as
    retained.  An error if the server has explicitly accepted the message, or has stored other messages of the
    publisher; otherwise a warning.

    Instead, store the message before you acknowledge it, or refuse it with 0x97.
    """

    code = "RET405"
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    statements = {V5: {"MQTT-3.3.1-5": ""}, V3_1_1: {"MQTT-3.3.1-5": ""}}
    looks_at = (Publish, Subscribe)
    when = {Publish: "retain"}
    needs = ALL_SUBSCRIPTIONS
    settings = {"grace": 5, "timeout": 30}
    Memory = UnservedReaders

    good = examples("""
        the new message is sent
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21 qos=1 retain id=1; < puback 1
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain
            @2 opened client=c3; +10 @2 > subscribe 1 a:0; @2 < suback 1 0; @2 < publish a 21 retain; +31 @2 > pingreq
            @2 < pingresp
        the old message was in flight when the new one arrived
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
        set back by an uncaptured client, which another subscriber receives too
            @2 opened client=c3; +10 @2 > subscribe 1 a:0; @2 < suback 1 0; opened; > publish a 20 qos=1 retain id=1
            < puback 1; > publish a 21 qos=1 retain id=1; < puback 1; @2 < publish a 21; @2 < publish a 20
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain
        set back by the will of a client
            @2 opened client=c3 will=a will_payload=20 will_qos=1 will_retain; opened; > publish a 20 qos=1 retain id=1
            < puback 1; > publish a 21 qos=1 retain id=1; < puback 1; @2 > reset; @1 opened client=c2
            +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain
        sent before
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21 qos=1 retain id=1; < puback 1
            @2 opened client=c3; +10 @2 > subscribe 1 a:0; @2 < suback 1 0; @2 < publish a 21 retain
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain
        a single client, which may lack read permission
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; +31 @1 > pingreq; @1 < pingresp; +10 @1 > subscribe 2 a:0; @1 < suback 2 0
            +31 @1 > pingreq; @1 < pingresp
        no connection stays open: the server may have restarted
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21 qos=1 retain id=1; < puback 1; > fin
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain
    """)
    bad = examples("""
        a later subscriber receives the previous message
            opened; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21 qos=1 retain id=1; < puback 1
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain !payload
        in 3.1.1
            opened 3.1.1; > publish a 20 qos=1 retain id=1; < puback 1; > publish a 21 qos=1 retain id=1; < puback 1
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 20 retain !payload
        two clients receive nothing
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; +31 @1 > pingreq; @1 < pingresp; @2 opened client=c3; +10 @2 > subscribe 1 a:0
            @2 < suback 1 0; +31 @2 > pingreq !!
    """)

    def check(self, packet: Publish | Subscribe, at: RuleContext) -> Findings:
        """Check whether a subscriber receives a replaced message."""
        if isinstance(packet, Subscribe):
            return super().check(packet, at)
        topic = at.topic
        store = at.model(RetainedStore)
        stored = None if topic is None or at.from_client else store.messages.get(topic)
        if topic is None or stored is None or stored.before is None or packet.dup or packet.missing or stored.proven:
            return None
        if zlib.crc32(packet.payload) != stored.before or not stored.accepted_ns or at.is_apart(stored.capture):
            return None
        if store.hides(topic) or not store.witnessed(stored.timestamp_ns) or stored.until_ns <= at.timestamp_ns:
            return None
        asked = asking_subscriptions(topic, at)
        after_ns = stored.accepted_ns + self.nanoseconds("grace")
        if asked is None or any(subscription.timestamp_ns < after_ns for subscription in asked):
            return None
        if store.waits_behind_a_hole(at) or store.heard_since(topic, stored.before, stored.timestamp_ns, at):
            return None
        waited = (at.timestamp_ns - stored.timestamp_ns) / SECOND_NS
        return self.report(
            "payload",
            f"retained message {topic!r} sent to {at.client_name!r} is older than the message that {stored.client!r} "
            f"published {waited:,.0f} s ago and the server accepted",
            related=(Related.to("the newer message", stored),),
            **doubt(at, doubtful=store.is_torn(at)),
        )

    def judge(self, vain: MissingMessage, store: RetainedStore, at: RuleContext) -> Report | None:
        """Check whether no client has received the message."""
        retained, name = vain.message, at.client_name
        asked: dict[str, tuple[int, tuple[str, ...]]] = at.memory(self).asked
        since_ns, names = asked.pop(vain.topic, (0, ()))
        if since_ns != retained.timestamp_ns:
            names = ()
        known = name in names
        names = names if known else (*names, name)[: FEWEST + 1]
        asked[vain.topic] = retained.timestamp_ns, names
        forget_oldest(asked, MAX_TOPICS)
        if known or retained.proven or retained.readers or len(names) != FEWEST:
            return None
        return self.report(
            "",
            f"retained message published on {vain.topic!r} by {retained.client!r}: {FEWEST} later subscribers have "
            "received nothing",
            related=vain.related,
            sender=Direction.SERVER_TO_CLIENT,
            overdue=True,
            topic=vain.topic,
            **doubt(at, doubtful=store.is_torn(at) or not (vain.reader and retained.granted)),
        )
