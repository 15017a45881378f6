"""RET406."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from mqttscope.lint.broker_watch import MAX_TOPICS, SECOND_NS, BrokerRule, Watch
from mqttscope.lint.context import ConnectionKey, RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, lost, make_connect, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.rule import ALL_VERSIONS, V3_1_1, V5, Findings, Needs
from mqttscope.mqtt.constants import Direction, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import (
    Connack,
    Connect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
)
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.topics import compile_filter
from mqttscope.session.connection import Connection
from mqttscope.session.history import NEVER_NS
from mqttscope.session.matching import FAILURE, Subscribed
from mqttscope.session.subscriptions import FLOOD_PAUSE_NS

MAX_FLOOD = 100
"""Retained messages on one connection from which on a server may have had too many to send all."""
MAX_IN_FLIGHT = 10
"""Messages that wait for an answer of the client; a server that limits them holds back what comes next."""
MAX_WAITING = 1_000
"""Connections of a server for which retained messages are expected."""
MAX_EXPECTED = 32
"""Retained messages that one connection is expected to get; more of them may be too many for a server's queue."""
MAX_SCANNED = 1_000
"""Topics that a wildcard is compared with, newest first."""
MAX_READERS = 8
"""Clients of a topic that are remembered as having got its retained message."""
_OVERHEAD = 64
"""Bytes of a PUBLISH beside topic, payload and what it was published with: more than a server adds."""


@dataclass(slots=True)
class Kept:
    """A retained message that a client published with QoS 1 or 2 and nobody has changed since."""

    timestamp_ns: int
    packet: int
    frame: int
    capture: str
    checksum: int
    size: int
    until_ns: int
    """When it expires."""
    granted: bool
    """Whether an acknowledgment says that it was accepted, which is so in 5.0 alone."""
    acknowledged: bool = False
    """Whether there was one."""
    proven: bool = False
    """Whether the server has sent it to somebody as a retained message."""
    readers: tuple[str, ...] = ()
    """Client Identifiers of those who got it."""


@dataclass(slots=True)
class Expected:
    """A retained message that a SUBSCRIBE asks for."""

    topic_filter: str
    packet: int
    frame: int
    timestamp_ns: int
    kept_by: int
    """Number of the PUBLISH that it comes from."""


@dataclass(slots=True)
class RetainedStore(Watch):
    """The retained messages that a server must have, as far as a capture can know them, and who waits for which.

    Only what a server may not drop counts: messages of QoS 1 and 2.  A topic whose message may have been changed out of
    sight is forgotten (`broker_watch`), as is the one published to longest ago where there are too many.
    """

    kept: dict[str, Kept] = field(default_factory=dict)
    waiting: dict[ConnectionKey, dict[str, Expected]] = field(default_factory=dict)

    def forget(self) -> None:
        """Nothing is certain any more."""
        self.kept.clear()
        self.waiting.clear()

    def forget_topic(self, topic: str) -> None:
        """Nothing is certain of this topic."""
        self.kept.pop(topic, None)

    def accept(self, topic: str, now_ns: int) -> None:
        """The server has the message."""
        kept = self.kept.get(topic)
        if kept is not None:
            kept.acknowledged = True

    def publish(self, packet: Publish, at: RuleContext) -> None:
        """Take a message that a client published with RETAIN 1."""
        topic, connection = at.topic, at.connection
        if topic is None:
            self.forget()  # an alias that is not known: it may be any topic
            return
        self.kept.pop(topic, None)
        if not packet.payload or packet.missing or not 0 < packet.qos < 3 or topic[0] == "$" or self.hides(topic):
            return
        if not connection.retain_available:
            return
        event = at.event
        expiry = None if packet.properties is None else packet.properties.message_expiry_interval
        self.kept[topic] = Kept(
            event.timestamp_ns,
            at.number,
            event.frame,
            event.capture,
            zlib.crc32(packet.payload),
            len(packet.raw) + len(topic),
            NEVER_NS if expiry is None else event.timestamp_ns + expiry * SECOND_NS,
            at.version is ProtocolVersion.V5,
        )
        self.wait_for_answer(at, packet, topic)
        if len(self.kept) > MAX_TOPICS:
            del self.kept[next(iter(self.kept))]

    def deliver(self, packet: Publish, topic: str, at: RuleContext) -> None:
        """Take a message with RETAIN 1 that the server sent: nobody waits for it any more, and it does have it."""
        waiting = self.waiting.get(at.key)
        if waiting is not None and waiting.pop(topic, None) is not None and not waiting:
            del self.waiting[at.key]
        kept = self.kept.get(topic)
        if kept is None or packet.missing or zlib.crc32(packet.payload) != kept.checksum:
            return
        kept.proven = kept.proven or not at.history.subscriptions.match(topic).retain_as_published
        name = at.client_name
        if name not in kept.readers:
            kept.readers = (*kept.readers, name)[-MAX_READERS:]

    def matching(self, topic_filter: str, until_ns: int, at: RuleContext) -> Iterator[tuple[str, Kept]]:
        """Messages that match, of this capture, that do not expire before and are not too long for the client."""
        if "+" in topic_filter or "#" in topic_filter:
            matches = compile_filter(topic_filter)
            names = [name for name in islice(reversed(self.kept), MAX_SCANNED) if matches(name)]
        else:
            names = [topic_filter] if topic_filter in self.kept else []
        limit = at.client.maximum_packet_size
        for name in names[: MAX_EXPECTED + 1]:
            kept = self.kept[name]
            fits = limit is None or kept.size + _OVERHEAD <= limit
            if fits and kept.acknowledged and kept.until_ns > until_ns and kept.capture == at.event.capture:
                yield name, kept


_SETS = (client(Publish(qos=1, topic_name="a", retain=True, payload=b"21", packet_identifier=1)), server(Puback(1)))
_GETS = server(Publish(topic_name="a", retain=True, payload=b"21"))
_PINGS = (client(Pingreq()), server(Pingresp()))


def _asks(identifier: int = 1, name: str = "a", **options: int | bool) -> tuple[Step, Step]:
    row = Subscription(name, 0, **options)  # type: ignore[arg-type]
    return client(Subscribe(identifier, subscriptions=[row])), server(Suback(identifier, reason_codes=[0]))


_WAITS = client(Pingreq(), after=31)
_OVERDUE = _WAITS.marked("", at=None)


class RetainedNotSent(BrokerRule):
    """A subscriber does not get a retained message that matches its new subscription.

    New subscribers learn the state of a topic from its retained message; without it they know nothing until the next
    change.  Only messages of QoS 1 and 2 are expected, since a server may drop others at any time; and only while a
    connection that is open all the time proves that the server did not restart.  A server may filter silently what a
    client is not allowed to read or to write, so it is an error only where the same client has got messages of the
    topic, and where the server has accepted the message in so many words or has sent it to others; else a warning.

    Instead, send the retained messages that match with every SUBSCRIBE that asks for them.
    """

    code = "RET406"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    versions = ALL_VERSIONS
    statements = {V5: {"MQTT-3.3.1-9": "", "MQTT-3.8.4-4": ""}, V3_1_1: {"MQTT-3.3.1-6": ""}}
    also = {
        V5: ("MQTT-3.1.2-15", "MQTT-3.3.1-8", "MQTT-3.3.1-10"),
        V3_1_1: ("MQTT-3.1.2-17", "MQTT-3.3.1-12", "MQTT-3.8.4-3"),
    }
    looks_at = (Publish, Subscribe, Puback, Pubrec, Pubcomp, Connect, Connack)
    when = {Publish: "retain", Pubrec: "reason_code"}
    needs = Needs.OPENING | Needs.WHOLE
    settings = {"timeout": 30}
    Memory = RetainedStore

    good = [
        conversation("it is sent", *opened(), *_SETS, *on(1, *opened(client_identifier="c2"), *_asks(), _GETS, _WAITS)),
        conversation(
            "it is sent before the SUBACK",
            *opened(),
            *_SETS,
            *on(1, *opened(client_identifier="c2"), _asks()[0], _GETS, _asks()[1], _WAITS),
        ),
        conversation(
            "Retain Handling 2, a subscription that existed, and a shared one",
            *opened(),
            *_SETS,
            *on(1, *opened(client_identifier="c2"), *_asks(), _GETS, *_asks(2, retain_handling=1)),
            *on(2, *opened(client_identifier="c3"), *_asks(1, retain_handling=2), *_asks(2, "$share/g/a")),
            *on(2, _WAITS),
            *on(1, _WAITS),
        ),
        conversation(
            "QoS 0, which a server may drop",
            *opened(),
            client(Publish(topic_name="a", retain=True, payload=b"21")),
            *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
        ),
        conversation(
            "cleared before",
            *opened(),
            *_SETS,
            client(Publish(topic_name="a", retain=True)),
            *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
        ),
        conversation(
            "cleared meanwhile",
            *opened(),
            *_SETS,
            *on(1, *opened(client_identifier="c2"), *_asks()),
            client(Publish(topic_name="a", retain=True)),
            *on(1, _WAITS),
        ),
        conversation(
            "expired",
            *opened(),
            client(
                Publish(False, 1, True, "a", 1, Properties(message_expiry_interval=20), b"21"),
            ),
            server(Puback(1)),
            client(Pingreq(), after=15),
            server(Pingresp()),
            *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
        ),
        conversation(
            "refused by the server",
            *opened(),
            _SETS[0],
            server(Puback(1, reason_code=0x97)),
            *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
        ),
        conversation(
            "the subscription is refused",
            *opened(),
            *_SETS,
            *on(1, *opened(client_identifier="c2"), _asks()[0], server(Suback(1, reason_codes=[0x87])), _WAITS),
        ),
        conversation(
            "nobody was there all the time: the server may have been restarted",
            *opened(),
            *_SETS,
            closes("client"),
            *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
        ),
        conversation(
            "a wildcard of a client that may not be allowed to read everything",
            *opened(),
            *_SETS,
            *on(1, *opened(client_identifier="c2"), *_asks(1, "#"), _WAITS),
        ),
        conversation(
            "an empty will may have removed it",
            *on(2, *opened(client_identifier="c3")),
            *opened(will=Will("a", b"", 1, will_retain=True)),
            *_SETS,
            closes("client", "reset"),
            *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
        ),
        conversation(
            "the server has not acknowledged it",
            *opened(),
            _SETS[0],
            *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
        ),
        conversation(
            "a message of a client whose bytes are lost",
            *opened(),
            *_SETS,
            lost(client(Publish(topic_name="a", retain=True))),
            *_PINGS,
            client(Pingreq(), after=3),
            server(Pingresp()),
            *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
        ),
        conversation(
            "larger than the client takes",
            *opened(),
            *_SETS,
            *on(1, *opened(client_identifier="c2", connect=Properties(maximum_packet_size=20)), *_asks(), _WAITS),
        ),
        conversation(
            "the connection ends too early",
            *opened(),
            *_SETS,
            *on(1, *opened(client_identifier="c2"), *_asks(), closes("client")),
            _WAITS,
        ),
    ]
    bad = [
        conversation(
            "asked for again in vain",
            *opened(),
            *_SETS,
            *on(1, *opened(client_identifier="c2"), *_asks(), _GETS, *_asks(2), _OVERDUE),
        ),
        conversation(
            "in vain after a reconnect, of a wildcard",
            *opened(V3_1_1),
            *_SETS,
            *on(1, *opened(V3_1_1, client_identifier="c2"), *_asks(1, "+"), _GETS, closes("client")),
            *on(2, client(make_connect(V3_1_1, client_identifier="c2")), server(Connack()), *_asks(1, "+"), _OVERDUE),
        ),
        conversation(
            "judged at the end of the connection",
            *opened(),
            *_SETS,
            *on(1, *opened(client_identifier="c2"), *_asks(), _GETS, *_asks(2)),
            *on(1, closes("client", after=40).marked("")),
        ),
        conversation(
            "by a client that has got nothing of the topic yet: only a warning",
            *opened(),
            *_SETS,
            *on(1, *opened(client_identifier="c2"), *_asks(), _OVERDUE),
        ),
        conversation(
            "a shorter time-out",
            *opened(),
            *_SETS,
            *on(1, *opened(client_identifier="c2"), *_asks(), client(Pingreq(), after=6).marked("", at=None)),
            settings={"timeout": 5},
        ),
    ]

    def minds(self, will: Will) -> bool:
        """Only a will that clears leaves no retained message."""
        return will.will_retain and not will.will_payload

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Follow what is retained, who asks for it and who gets it."""
        store: RetainedStore = self.watch(packet, at)  # type: ignore[assignment]
        if isinstance(packet, Publish):
            if at.from_client:
                store.publish(packet, at)
            elif at.topic is None:
                store.waiting.pop(at.key, None)
            else:
                store.deliver(packet, at.topic, at)
        elif isinstance(packet, Subscribe) and store.kept:
            self._asked(packet, store, at)
        return None

    def _asked(self, packet: Subscribe, store: RetainedStore, at: RuleContext) -> None:
        """Note what a SUBSCRIBE should bring; its subscriptions are not in the table yet."""
        now = at.timestamp_ns
        until_ns = now + self._patience_ns + 2 * SECOND_NS
        waiting = store.waiting.get(at.key, {})
        for row in packet.subscriptions or ():
            if row.no_local or not self._asks_for_retained(row, at):
                continue
            for topic, kept in store.matching(row.topic_filter, until_ns, at):
                event = at.event
                waiting[topic] = Expected(row.topic_filter, at.number, event.frame, now, kept.packet)
        if not waiting or len(waiting) > MAX_EXPECTED:
            store.waiting.pop(at.key, None)
            return
        if at.key in store.waiting or len(store.waiting) < MAX_WAITING:
            store.waiting[at.key] = waiting
            at.ask(self, now + self._patience_ns)

    @property
    def _patience_ns(self) -> int:
        return round(float(self.set["timeout"]) * SECOND_NS)

    def _asks_for_retained(self, row: Subscription, at: RuleContext) -> bool:
        if row.topic_filter.startswith("$") or not at.connection.retain_available:
            return False  # Shared Subscriptions, and what servers before 5.0 take for such
        if at.version is not V5 or row.retain_handling == 0:
            return True
        table, resumed = at.history.subscriptions, at.connection.session_present is not False
        return row.retain_handling == 1 and not resumed and row.topic_filter not in table.live

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge what has not come in time."""
        store: RetainedStore = at.memory(self)
        waiting = store.waiting.get(at.key)
        if waiting is None:
            return None
        told = []
        for topic, one in list(waiting.items()):
            due_ns = one.timestamp_ns + self._patience_ns
            if due_ns > at.timestamp_ns:
                at.ask(self, due_ns)
                continue
            del waiting[topic]
            found = self._judge(topic, one, store, at)
            if found is not None:
                told.append(found)
        if not waiting:
            del store.waiting[at.key]
        return told

    def _judge(self, topic: str, one: Expected, store: RetainedStore, at: RuleContext) -> Report | None:
        kept = store.kept.get(topic)
        if kept is None or store.hides(topic) or not store.witnessed(kept.timestamp_ns):
            return None
        # Where packets are counted by connection, those of two connections may have the same number.
        if kept.packet != one.kept_by or kept.timestamp_ns > one.timestamp_ns:
            return None
        history = at.history
        table = history.subscriptions
        subscribed = table.named(one.topic_filter, one.packet)
        if subscribed is None or not self._in_force(subscribed) or not table.complete:
            return None
        limit = min(at.client.receive_maximum, MAX_IN_FLIGHT)
        flooded = table.flood_ns is not None and at.timestamp_ns - table.flood_ns <= FLOOD_PAUSE_NS
        if at.server.in_flight >= limit or len(table.retained) > MAX_FLOOD or flooded:
            return None
        recent = [row for row in history.server.recent if row.topic == topic]
        if any(row.timestamp_ns >= one.timestamp_ns for row in recent):
            return None  # without RETAIN, or a later one
        reader = bool(recent) or topic in table.retained or at.client_name in kept.readers
        if not reader and one.topic_filter != topic:
            return None
        if history.client.disconnect is not None or history.server.disconnect is not None:
            return None
        if store.waits_behind_a_hole(at):
            return None
        doubtful = not (reader and (kept.proven or kept.granted))
        before = "MQTT-3.8.4-4" if subscribed.existed else "MQTT-3.3.1-9"
        if subscribed.retain_handling == 1:
            before = "MQTT-3.3.1-10"
        waited = (at.timestamp_ns - one.timestamp_ns) / SECOND_NS
        return self.report(
            "",
            f"SUBSCRIBE {one.topic_filter!r} of {at.client_name!r}: retained message on {topic!r} was not sent within "
            f"{waited:,.0f} s",
            statements=(before,) if at.version is V5 else None,
            related=(
                Related("the SUBSCRIBE", one.packet, one.frame, one.timestamp_ns),
                Related("the retained message", kept.packet, kept.frame, kept.timestamp_ns),
            ),
            sender=Direction.SERVER_TO_CLIENT,
            overdue=True,
            topic=topic,
            **self.doubt(at, doubtful=doubtful),
        )

    @staticmethod
    def _in_force(one: Subscribed) -> bool:
        return one.granted is not None and one.granted < FAILURE and one.ending_ns is None and one.ended_ns is None

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """What was due by now has been judged; nothing else is expected here."""
        super().check_close(connection, at)
        store: RetainedStore = at.memory(self)
        store.waiting.pop(at.key, None)
        return None
