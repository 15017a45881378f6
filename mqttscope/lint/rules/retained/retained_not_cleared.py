import zlib
from dataclasses import dataclass, field

from mqttscope.lint.broker_watch import MAX_TOPICS, BrokerRule, BrokerWatch
from mqttscope.lint.rules import SECOND_NS, V3_1, V3_1_1, V5, Findings, Related, RuleContext, examples, forget_oldest
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.rules.retained import asking_subscriptions
from mqttscope.mqtt import Connack, Connect, ControlPacket, Puback, Pubcomp, Publish, Pubrec


@dataclass(slots=True)
class RetainedPublication:
    """The last retained message that a client published on a topic."""

    checksum: int
    """CRC-32 of its payload."""
    client: str


@dataclass(slots=True)
class ClearedTopic:
    """An empty message with RETAIN 1, without a retained message after it."""

    timestamp_ns: int
    packet: int
    frame: int
    capture: str
    before: RetainedPublication | None
    """The message that it removed, if captured."""
    client: str
    accepted_ns: int
    """Time when the server accepted it: at once with QoS 0, otherwise with the last acknowledgement; 0 before."""


@dataclass(slots=True)
class RetainedTopics(BrokerWatch):
    """Messages that clients published with RETAIN 1."""

    held: dict[str, RetainedPublication] = field(default_factory=dict)
    cleared: dict[str, ClearedTopic] = field(default_factory=dict)

    def accept(self, topic: str, now_ns: int) -> None:
        """Note that the server accepted the empty message."""
        cleared = self.cleared.get(topic)
        if cleared is not None and not cleared.accepted_ns:
            cleared.accepted_ns = now_ns

    def forget(self) -> None:
        self.held.clear()
        self.cleared.clear()

    def forget_topic(self, topic: str) -> None:
        self.held.pop(topic, None)
        self.cleared.pop(topic, None)


class RetainedNotCleared(BrokerRule):
    """A subscriber receives a retained message that an empty message has removed.

    A client removes a retained message with an empty message with RETAIN 1.  A server that still sends the old message
    shows devices that are gone and commands that were withdrawn.  Reported if the message has the old payload, and only
    for clients that subscribed at least ``grace`` seconds after it was cleared.  The finding is likely if the removed
    message was captured and its own publisher cleared it.

    Instead, remove the retained message as soon as the empty one is accepted.
    """

    code = "RET407"
    statements = {
        V5: {"MQTT-3.3.1-6": ""},
        V3_1_1: {"MQTT-3.3.1-7": "", "MQTT-3.3.1-10": ""},
        V3_1: {"V31-PUBLISH-retained-clear": ""},
    }
    looks_at = (Publish, Puback, Pubrec, Pubcomp, Connect, Connack)
    when = {Publish: "retain", Pubrec: "reason_code"}
    needs = ALL_SUBSCRIPTIONS
    settings = {"grace": 5}
    Memory = RetainedTopics

    good = examples("""
        no message
            opened; > publish a 21 retain; > publish a retain; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0
        published again
            opened; > publish a 21 retain; > publish a retain; > publish a 21 retain; @1 opened client=c2
            +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain
        published again with another value by an uncaptured client
            opened; > publish a 21 retain; > publish a retain; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 22 retain
        perhaps published again in lost bytes
            opened; > publish a 21 retain; > publish a retain; lost > publish a 21 retain; > pingreq; < pingresp
            +3 > pingreq; @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain
        the server refused to clear it
            opened; > publish a 21 retain; > publish a qos=1 retain id=1; < puback 1 code=0x87; @1 opened client=c2
            +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain
        the empty message is not acknowledged yet
            opened; > publish a 21 retain; > publish a qos=1 retain id=1; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain
        subscribed before it was cleared
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; opened; > publish a 21 retain
            > publish a retain; @1 < publish a 21 & publish a
        sent at the moment of clearing
            opened; > publish a 21 retain; @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0
            > publish a retain; @1 < publish a 21 retain; @1 < publish a
        published again as a will
            opened will=a will_payload=21 will_retain; > publish a 21 retain; > publish a retain; > fin
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain
        a live message with Retain As Published
            opened; > publish a 21 retain; > publish a retain; @1 opened client=c2
            +10 @1 > subscribe 1 a:0,retain_as_published; @1 < suback 1 0; @1 < publish a 21 retain
    """)
    bad = examples("""
        the old message is sent
            opened; > publish a 21 retain; > publish a retain; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain !retain
        in 3.1.1, acknowledged
            opened 3.1.1; > publish a 21 retain; > publish a qos=1 retain id=1; < puback 1; @1 opened client=c2
            +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain !retain
        cleared with QoS 2
            opened; > publish a 21 retain; > publish a qos=2 retain id=1; < pubrec 1; > pubrel 1; < pubcomp 1
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain !retain
        a message from before the capture: only a warning
            opened; > publish a retain; @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0
            @1 < publish a 21 retain !retain
        cleared by another client: only a warning
            opened; > publish a 21 retain; @1 opened client=c2; @1 > publish a retain; @2 opened client=c3
            +10 @2 > subscribe 1 a:0; @2 < suback 1 0; @2 < publish a 21 retain !retain
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Track retained and cleared messages, and compare deliveries with them."""
        store: RetainedTopics = self.watch(packet, at)  # type: ignore[assignment]
        if isinstance(packet, Publish):
            if not at.from_client:
                return self._delivered(packet, store, at) if store.cleared else None
            self._published(packet, store, at)
        return None

    def _published(self, packet: Publish, store: RetainedTopics, at: RuleContext) -> None:
        topic = at.topic
        if topic is None:
            store.forget()
            return
        name = at.client_name
        held = store.held.pop(topic, None)
        store.cleared.pop(topic, None)
        if store.hides(topic) or packet.missing or not at.connection.retain_available:
            return
        if packet.payload:
            store.held[topic] = RetainedPublication(zlib.crc32(packet.payload), name)
            forget_oldest(store.held, MAX_TOPICS)
            return
        event = at.event
        accepted_ns = 0 if packet.qos else event.timestamp_ns
        place = (event.timestamp_ns, at.number, event.frame, event.capture)
        store.cleared[topic] = ClearedTopic(*place, held, name, accepted_ns)
        store.wait_for_answer(at, packet, topic)
        forget_oldest(store.cleared, MAX_TOPICS)

    def _delivered(self, packet: Publish, store: RetainedTopics, at: RuleContext) -> Findings:
        topic = at.topic
        cleared = None if topic is None else store.cleared.get(topic)
        if topic is None or cleared is None or packet.dup or packet.missing or not packet.payload or topic[0] == "$":
            return None
        if cleared.before is not None and zlib.crc32(packet.payload) != cleared.before.checksum:
            store.forget_topic(topic)  # an uncaptured client has published another message
            return None
        asked = asking_subscriptions(topic, at)
        if asked is None:
            return None
        if not cleared.accepted_ns:
            return None
        after_ns = cleared.accepted_ns + self.nanoseconds("grace")
        if any(subscription.timestamp_ns < after_ns for subscription in asked):
            return None  # it may already have been in flight
        if store.waits_behind_a_hole(at):
            return None
        own = cleared.before is not None and cleared.before.client == cleared.client
        doubtful = not own or at.is_apart(cleared.capture) or not store.witnessed(cleared.timestamp_ns)
        waited = (at.timestamp_ns - cleared.timestamp_ns) / SECOND_NS
        return self.report(
            "retain",
            f"retained message {topic!r} sent to {at.client_name!r} although {cleared.client!r} cleared it "
            f"{waited:,.0f} s earlier",
            related=(Related.to("the empty message", cleared),),
            **self.doubt(at, doubtful=doubtful),
        )
