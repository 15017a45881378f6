import zlib
from dataclasses import dataclass, field

from mqttscope.lint.broker_watch import MAX_TOPICS, BrokerRule, BrokerWatch
from mqttscope.lint.rules import SECOND_NS, V5, Findings, Needs, Related, RuleContext, examples, forget_oldest
from mqttscope.lint.rules.delivery import waited_until_ns
from mqttscope.mqtt import Connack, Connect, ControlPacket, Publish
from mqttscope.mqtt.properties import MESSAGE_EXPIRY_INTERVAL

MAX_PAYLOADS = 4
"""Maximum number of messages kept for each topic, newest first."""
MAX_TIMES = 4
"""Maximum number of publications of one message; a message published more often is not checked."""


@dataclass(slots=True)
class ExpiringPublication:
    """A message with a Message Expiry Interval that was published once."""

    timestamp_ns: int
    expiry: int
    packet: int
    frame: int
    capture: str


@dataclass(slots=True)
class ExpiringPublications(BrokerWatch):
    """Messages of a server that expire, by topic, then by payload (CRC-32, length)."""

    published: dict[str, dict[tuple[int, int], list[ExpiringPublication]]] = field(default_factory=dict)

    def forget(self) -> None:
        self.published.clear()

    def forget_topic(self, topic: str) -> None:
        self.published.pop(topic, None)


class MessageExpiryNotDecremented(BrokerRule):
    """A message that waited in the server is delivered with its original Message Expiry Interval.

    The interval is the remaining lifetime of a message.  If servers do not subtract the time that it waited, it lives
    longer with every hop.  The time counts until the subscriber connected, or subscribed if the message is retained:
    after that the message may have waited in the network.  An error if the interval is unchanged.  An interval that was
    reduced too little, has grown or is missing may belong to another message with the same payload, and is a warning.

    Instead, send the received interval minus the seconds that the message has waited.
    """

    code = "DLV416"
    versions = (V5,)
    also = {V5: ("MQTT-3.3.2-6",)}
    looks_at = (Publish, Connect, Connack)
    when = {Publish: "expires_or_retained"}
    needs = Needs.OPENING | Needs.WHOLE_SENDER
    settings = {"tolerance": 2}
    Memory = ExpiringPublications

    good = examples("""
        waited for a client that was offline
            @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; @1 > disconnect
            @1 > fin; opened; > publish a 21 qos=1 id=1 message_expiry_interval=100; < puback 1
            +60 @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21 qos=1 id=1 message_expiry_interval=40
        retained, and then replaced by a new retained message
            opened; > publish a 21 qos=1 retain id=1 message_expiry_interval=100; < puback 1; +50 > pingreq; < pingresp
            > publish a 21 qos=1 retain id=1 message_expiry_interval=100; < puback 1; @1 opened client=c2
            @1 > subscribe 1 a:1; @1 < suback 1 1; @1 < publish a 21 qos=1 retain id=1 message_expiry_interval=100
        delivered at once, and shorter than published
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            > publish a 21 qos=1 id=1 message_expiry_interval=100; < puback 1
            @1 < publish a 21 qos=1 id=1 message_expiry_interval=100; @1 > puback 1
            > publish a 21 qos=1 id=1 message_expiry_interval=1000; < puback 1
            @1 < publish a 21 qos=1 id=1 message_expiry_interval=60
        resent with the same bytes
            @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; @1 > disconnect
            @1 > fin; opened; > publish a 21 qos=1 id=1 message_expiry_interval=100; < puback 1
            +60 @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21 dup qos=1 id=1 message_expiry_interval=100
        perhaps published again in lost bytes
            @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; @1 > disconnect
            @1 > fin; opened; > publish a 21 qos=1 id=1 message_expiry_interval=100; < puback 1; +50 > pingreq
            < pingresp; lost > publish a 21 qos=1 id=1 message_expiry_interval=100; > pingreq; < pingresp; +3 > pingreq
            < pingresp; +60 @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21 qos=1 id=1 message_expiry_interval=100
        possibly delayed in the network
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            > publish a 21 qos=1 id=1 message_expiry_interval=100; < puback 1
            +30 @1 < publish a 21 qos=1 id=1 message_expiry_interval=100
    """)
    bad = examples("""
        unchanged after one minute
            @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; @1 > disconnect
            @1 > fin; opened; > publish a 21 qos=1 id=1 message_expiry_interval=100; < puback 1
            +60 @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21 qos=1 id=1 message_expiry_interval=100 !properties.message_expiry_interval
        a retained message
            opened; > publish a 21 qos=1 retain id=1 message_expiry_interval=100; < puback 1; +50 > pingreq; < pingresp
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1
            @1 < publish a 21 qos=1 retain id=1 message_expiry_interval=100 !properties.message_expiry_interval
        reduced too little, and missing: only warnings
            opened; > publish a 21 qos=1 retain id=1 message_expiry_interval=100; < puback 1; +50 > pingreq; < pingresp
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1
            @1 < publish a 21 qos=1 retain id=1 message_expiry_interval=80 !properties.message_expiry_interval
            @2 opened client=c3; @2 > subscribe 1 a:1; @2 < suback 1 1; @2 < publish a 21 qos=1 retain id=1 !properties
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Store messages published with an interval, and compare deliveries with them."""
        memory: ExpiringPublications = self.watch(packet, at)  # type: ignore[assignment]
        if isinstance(packet, Publish):
            if not at.from_client:
                return self._delivered(packet, memory, at) if memory.published else None
            self._published(packet, memory, at)
        return None

    def _published(self, packet: Publish, memory: ExpiringPublications, at: RuleContext) -> None:
        topic = at.topic
        block = packet.properties
        expiry = None if block is None else block.first(MESSAGE_EXPIRY_INTERVAL)
        if topic is None:
            memory.forget()
        elif expiry is None or packet.missing or packet.qos == 2 or memory.hides(topic):
            # The same message may be delivered without an interval; with QoS 2 it may wait for the publisher's PUBREL.
            memory.forget_topic(topic)
        else:
            messages = memory.published.pop(topic, {})
            memory.published[topic] = messages
            times = messages.setdefault((zlib.crc32(packet.payload), len(packet.payload)), [])
            event = at.event
            if len(times) <= MAX_TIMES:
                times.append(ExpiringPublication(event.timestamp_ns, expiry, at.number, event.frame, event.capture))
            forget_oldest(messages, MAX_PAYLOADS)
            forget_oldest(memory.published, MAX_TOPICS)

    def _delivered(self, packet: Publish, memory: ExpiringPublications, at: RuleContext) -> Findings:
        topic = at.topic
        messages = None if topic is None else memory.published.get(topic)
        if messages is None or packet.dup or packet.missing:
            return None
        times = messages.get((zlib.crc32(packet.payload), len(packet.payload)))
        if times is None or len(times) > MAX_TIMES:
            return None
        since_ns = waited_until_ns(packet, topic or "", at)
        if since_ns is None:
            return None
        got = None if packet.properties is None else packet.properties.message_expiry_interval
        if got is None and not packet.retain:
            return None
        tolerance = float(self.set["tolerance"])
        lefts = [publication.expiry - max(0, since_ns - publication.timestamp_ns) / SECOND_NS for publication in times]
        if got is not None and got <= max(lefts) + tolerance:
            return None
        best = times[lefts.index(max(lefts))]
        waited = (since_ns - best.timestamp_ns) / SECOND_NS
        if waited <= tolerance or memory.waits_behind_a_hole(at):
            return None  # it did not wait, so it is more likely another message
        text = f"message on {topic!r} waited {waited:,.0f} s but its Message Expiry Interval "
        text += "is missing" if got is None else f"is {'still ' if got == best.expiry else ''}{got:,}"
        return self.report(
            "properties" if got is None else "properties.message_expiry_interval",
            f"{text} (published with {best.expiry:,})",
            related=(Related.to("the message as published", best),),
            **self.doubt(at, doubtful=got != best.expiry or at.is_apart(best.capture)),
        )
