import zlib
from dataclasses import dataclass, field

from mqttscope.lint.broker_watch import MAX_TOPICS, BrokerRule, Watch
from mqttscope.lint.rules import SECOND_NS, V3_1, V3_1_1, V5, Findings, Related, RuleContext, examples, forget_oldest
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.rules.retained import askers
from mqttscope.mqtt import Connack, Connect, ControlPacket, Puback, Pubcomp, Publish, Pubrec


@dataclass(slots=True)
class Held:
    """The last retained message of a topic that a client published."""

    checksum: int
    """CRC-32 of its payload."""
    client: str


@dataclass(slots=True)
class Cleared:
    """An empty message with RETAIN 1, and nothing retained since."""

    timestamp_ns: int
    packet: int
    frame: int
    capture: str
    before: Held | None
    """What it removed, where the capture has it."""
    client: str
    accepted_ns: int
    """When the server had accepted it: at once with QoS 0, else with its last acknowledgment; 0 before."""


@dataclass(slots=True)
class Store(Watch):
    """What clients published with RETAIN 1."""

    held: dict[str, Held] = field(default_factory=dict)
    cleared: dict[str, Cleared] = field(default_factory=dict)

    def accept(self, topic: str, now_ns: int) -> None:
        """The server has taken the empty message."""
        found = self.cleared.get(topic)
        if found is not None and not found.accepted_ns:
            found.accepted_ns = now_ns

    def forget(self) -> None:
        self.held.clear()
        self.cleared.clear()

    def forget_topic(self, topic: str) -> None:
        self.held.pop(topic, None)
        self.cleared.pop(topic, None)


class RetainedNotCleared(BrokerRule):
    """A subscriber gets a retained message that an empty one has removed before.

    An empty message with RETAIN 1 is how a client takes back what it had retained.  A server that still hands out the
    old message shows devices that are gone and commands that were withdrawn.  It is the old message, with the same
    payload, that is reported, and only to those who subscribed well after it was cleared (``grace`` seconds); that the
    retained message before it was captured, and that its own publisher cleared it, are what make the finding likely.

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
    Memory = Store

    good = examples("""
        nothing is sent
            opened; > publish a 21 retain; > publish a retain; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0
        set again
            opened; > publish a 21 retain; > publish a retain; > publish a 21 retain; @1 opened client=c2
            +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain
        set again by somebody who was not captured, to another value
            opened; > publish a 21 retain; > publish a retain; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 22 retain
        set again in bytes that were lost
            opened; > publish a 21 retain; > publish a retain; lost > publish a 21 retain; > pingreq; < pingresp
            +3 > pingreq; @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain
        the server refused to clear it
            opened; > publish a 21 retain; > publish a qos=1 retain id=1; < puback 1 code=0x87; @1 opened client=c2
            +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain
        not acknowledged yet
            opened; > publish a 21 retain; > publish a qos=1 retain id=1; @1 opened client=c2; +10 @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain
        subscribed before it was cleared
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; opened; > publish a 21 retain
            > publish a retain; @1 < publish a 21 & publish a
        sent at the moment when it was cleared
            opened; > publish a 21 retain; @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0
            > publish a retain; @1 < publish a 21 retain; @1 < publish a
        a will set it again
            opened will=a will_payload=21 will_retain; > publish a 21 retain; > publish a retain; > fin
            @1 opened client=c2; +10 @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain
        a live message, with RETAIN as published
            opened; > publish a 21 retain; > publish a retain; @1 opened client=c2
            +10 @1 > subscribe 1 a:0,retain_as_published; @1 < suback 1 0; @1 < publish a 21 retain
    """)
    bad = examples("""
        the old message is sent all the same
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
        """Follow what is retained and cleared, and compare what subscribers get."""
        store: Store = self.watch(packet, at)  # type: ignore[assignment]
        if isinstance(packet, Publish):
            if not at.from_client:
                return self._delivered(packet, store, at) if store.cleared else None
            self._published(packet, store, at)
        return None

    def _published(self, packet: Publish, store: Store, at: RuleContext) -> None:
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
            store.held[topic] = Held(zlib.crc32(packet.payload), name)
            forget_oldest(store.held, MAX_TOPICS)
            return
        event = at.event
        accepted_ns = 0 if packet.qos else event.timestamp_ns
        place = (event.timestamp_ns, at.number, event.frame, event.capture)
        store.cleared[topic] = Cleared(*place, held, name, accepted_ns)
        store.wait_for_answer(at, packet, topic)
        forget_oldest(store.cleared, MAX_TOPICS)

    def _delivered(self, packet: Publish, store: Store, at: RuleContext) -> Findings:
        topic = at.topic
        found = None if topic is None else store.cleared.get(topic)
        if topic is None or found is None or packet.dup or packet.missing or not packet.payload or topic[0] == "$":
            return None
        if found.before is not None and zlib.crc32(packet.payload) != found.before.checksum:
            store.forget_topic(topic)  # somebody out of sight has set it again
            return None
        asked = askers(topic, at)
        if asked is None:
            return None
        if not found.accepted_ns:
            return None
        after_ns = found.accepted_ns + self.nanoseconds("grace")
        if any(one.timestamp_ns < after_ns for one in asked):
            return None  # it may have been under way already
        if store.waits_behind_a_hole(at):
            return None
        own = found.before is not None and found.before.client == found.client
        doubtful = not own or at.is_apart(found.capture) or not store.witnessed(found.timestamp_ns)
        waited = (at.timestamp_ns - found.timestamp_ns) / SECOND_NS
        return self.report(
            "retain",
            f"retained message {topic!r} sent to {at.client_name!r} although {found.client!r} cleared it "
            f"{waited:,.0f} s before",
            related=(Related.to("the empty message", found),),
            **self.doubt(at, doubtful=doubtful),
        )
