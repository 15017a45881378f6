import zlib
from dataclasses import dataclass, field
from itertools import islice

from mqttscope.lint.broker_watch import doubt
from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Confidence, Findings, Needs, Report, Rule, Severity, examples
from mqttscope.lint.wills import DUE, MAX_SAME, StoredWill, Wills
from mqttscope.mqtt import Direction, Publish
from mqttscope.session.connection import Connection
from mqttscope.session.history import MAX_RECENT, History
from mqttscope.session.matching import FAILURE, ClientSubscription

MAX_LOOKED_AT = 256
"""Maximum number of open connections searched for subscribers of a will, oldest first."""
MAX_SUBSCRIBERS = 8
"""Maximum number of subscribers checked for one will."""
MAX_WAITING = 1_000
"""Maximum number of waiting subscribers per server."""
MAX_IN_FLIGHT = 10
"""Number of unacknowledged messages that may make a server hold back further ones."""
BEFORE_NS = 2 * SECOND_NS
"""Maximum time between the server noticing the end of a connection and the end in the capture."""


@dataclass(slots=True)
class AwaitedWill:
    """A will that a subscriber should receive."""

    key: ConnectionKey
    """The connection with the will."""
    topic_filter: str
    packet: int
    """Number of the SUBSCRIBE."""
    ended_ns: int
    due_ns: int


@dataclass(slots=True)
class AwaitedWills:
    """Wills that subscribers should receive."""

    wills: dict[ConnectionKey, dict[str, AwaitedWill]] = field(default_factory=dict)
    """Awaited wills by connection of the subscriber and topic."""


class WillNotPublished(Rule):
    """A client disappears without a DISCONNECT and a subscriber does not receive its will.

    The will informs other clients that a client has died; without it they continue as if it were there.  The
    ``timeout`` runs from the captured end of the connection, or from the end of Will Delay or of the session.  After
    that the server must have sent another packet to the subscriber.  A server may silently enforce read and write
    permissions.  So it is an error only if the subscriber has received a message that the client itself published on
    its will topic; otherwise a warning.

    Instead, publish the will whenever a connection ends without a normal DISCONNECT.
    """

    code = "WIL404"
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.1.2-7": ""},
        V3_1_1: {"MQTT-3.1.2-8": ""},
        V3_1: {"V31-CONNECT-will-published": ""},
    }
    # A delayed will that becomes due because its session ends is not checked.
    also = {V5: ("MQTT-3.1.2-8", "MQTT-3.1.2-22", "V5-WILL-takeover"), V3_1_1: ("MQTT-3.1.2-24",)}
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE
    settings = {"timeout": 30}
    models = (Wills,)
    about = Wills, "topics"
    Memory = AwaitedWills

    good = examples("""
        published
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1; > publish dead/c1 here; @1 < publish dead/c1 here; > reset
            @1 < publish dead/c1 gone; +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq; @1 < pingresp
        published before the connection is closed
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1; > publish dead/c1 here; @1 < publish dead/c1 here
            @1 < publish dead/c1 gone; < fin; +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq; @1 < pingresp
        a normal DISCONNECT
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1; > publish dead/c1 here; @1 < publish dead/c1 here
            > disconnect; > reset; +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq; @1 < pingresp
        reconnected within Will Delay
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1 will.will_delay_interval=30 session_expiry_interval=300
            > publish dead/c1 here; @1 < publish dead/c1 here; > reset; @2 opened resume < present
            for 1..4: +20 @1 > pingreq; @1 < pingresp
        reconnected within Will Delay with a new session
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1 will.will_delay_interval=30 session_expiry_interval=300
            > publish dead/c1 here; @1 < publish dead/c1 here; > reset; @2 opened
            for 1..4: +20 @1 > pingreq; @1 < pingresp
        Will Delay is not over
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1 will.will_delay_interval=30 session_expiry_interval=300
            > publish dead/c1 here; @1 < publish dead/c1 here; > reset; +20 @1 > pingreq; @1 < pingresp
            +20 @1 > pingreq; @1 < pingresp
        perhaps a DISCONNECT in lost bytes
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1; > publish dead/c1 here; @1 < publish dead/c1 here
            lost > disconnect; > fin; +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq; @1 < pingresp
        the subscription is refused
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0x87
            opened will=dead/c1 will_payload=gone will_qos=1; > reset; +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq
            @1 < pingresp
        wildcard subscription of a client that may lack read permission
            @1 opened client=c2; @1 > subscribe 1 #:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone will_qos=1
            > reset; +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq; @1 < pingresp
        the server shuts down
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1; > publish dead/c1 here; @1 < publish dead/c1 here
            < disconnect code=0x8b; < fin; +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq; @1 < pingresp
        no sign that the server is still running
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1; > publish dead/c1 here; @1 < publish dead/c1 here; > reset
            +40 @1 > pingreq
        the subscriber disconnects
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1; > publish dead/c1 here; @1 < publish dead/c1 here; > reset
            +20 @1 > pingreq; @1 < pingresp; @1 > disconnect; +20 @1 > fin
        a will with an expiry interval
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.message_expiry_interval=1; > publish dead/c1 here
            @1 < publish dead/c1 here; > reset; +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq; @1 < pingresp
    """)
    bad = examples("""
        not published
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1; > publish dead/c1 here; @1 < publish dead/c1 here; > reset
            +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq !!
        in 3.1.1, for a client that the server disconnected
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 dead/+:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1; > publish dead/c1 here; @1 < publish dead/c1 here; < fin
            +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq !!
        after DISCONNECT 0x04
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1; > publish dead/c1 here; @1 < publish dead/c1 here
            > disconnect code=0x04; > fin; +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq !!
        after Will Delay
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1 will.will_delay_interval=30 session_expiry_interval=300
            > publish dead/c1 here; @1 < publish dead/c1 here; > reset; +20 @1 > pingreq; @1 < pingresp
            +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq !!
        the session ended before Will Delay
            @1 opened client=c2; @1 > subscribe 1 dead/c1:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1 will.will_delay_interval=30; > publish dead/c1 here
            @1 < publish dead/c1 here; > reset; +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq !!
        to a client without earlier messages on the topic: only a warning
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1; > reset; +20 @1 > pingreq; @1 < pingresp
            +20 @1 > pingreq !!
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Stop waiting for a will that arrives."""
        waiting = at.memory(self).wills.get(at.key)
        awaited = None if waiting is None or at.topic is None else waiting.get(at.topic)
        if waiting is not None and awaited is not None and at.topic is not None:
            will = at.model(Wills).of(awaited.key)
            if will is None or at.timestamp_ns >= awaited.due_ns - BEFORE_NS or _is_will(packet, will):
                del waiting[at.topic]
        return None

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Store the subscribers that should receive the will, if there is one."""
        memory: AwaitedWills = at.memory(self)
        memory.wills.pop(at.key, None)
        wills = at.model(Wills)
        will = wills.armed.get(at.key)
        if will is None or will.expires or wills.crowded or len(wills.topics.get(will.topic, ())) > MAX_SAME:
            return None
        phase, due_ns = wills.ending(will, connection, at)
        if phase != DUE or (will.retain and not connection.retain_available) or will.qos > connection.maximum_qos:
            return None
        ended_ns = connection.closed_ns or at.timestamp_ns
        since_ns = min(ended_ns, will.back_ns or ended_ns) - BEFORE_NS
        number = 0
        for key in islice(wills.witnesses, MAX_LOOKED_AT):
            history = at.history_of(key)
            subscription = None if history is None or key == at.key else _due_subscription(will, since_ns, history)
            if subscription is None or (key not in memory.wills and len(memory.wills) >= MAX_WAITING):
                continue
            waiting = memory.wills.setdefault(key, {})
            waiting[will.topic] = AwaitedWill(at.key, subscription.topic_filter, subscription.packet, ended_ns, due_ns)
            at.ask(self, due_ns + self.nanoseconds("timeout"), key)
            number += 1
            if number == MAX_SUBSCRIBERS:
                break
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Report wills that did not arrive in time."""
        memory: AwaitedWills = at.memory(self)
        waiting = memory.wills.get(at.key)
        if not waiting:
            return None
        reports = []
        for topic, awaited in list(waiting.items()):
            when_ns = awaited.due_ns + self.nanoseconds("timeout")
            if when_ns > at.timestamp_ns:
                at.ask(self, when_ns)
            elif (at.server.last_timestamp_ns or 0) < awaited.due_ns:
                at.ask(self, at.timestamp_ns)  # the server has sent nothing since: check at the next event
            else:
                del waiting[topic]
                report = self._judge(topic, awaited, at)
                if report is not None:
                    reports.append(report)
        if not waiting:
            del memory.wills[at.key]
        return reports

    def _judge(self, topic: str, awaited: AwaitedWill, at: RuleContext) -> Report | None:
        wills = at.model(Wills)
        will = wills.of(awaited.key)
        if will is None or will.phase != DUE or at.is_apart(will.capture) or at.key in will.copies:
            return None
        history = at.history
        table = history.subscriptions
        subscribed = table.find(awaited.topic_filter, awaited.packet)
        if subscribed is None or subscribed.ending_ns is not None or subscribed.ended_ns is not None:
            return None
        limit = at.client.maximum_packet_size
        if at.server.in_flight >= min(at.client.receive_maximum, MAX_IN_FLIGHT) or (limit or will.size) < will.size:
            return None
        if history.client.disconnect is not None or history.server.disconnect is not None:
            return None
        if wills.waits_behind_a_hole(at):
            return None
        reader = at.client_name in wills.readers.get(topic, ())
        if not reader and awaited.topic_filter[0] in "+#":
            return None
        how = ("MQTT-3.1.2-8", "V5-WILL-takeover") if will.back_ns else ("MQTT-3.1.2-8",)
        waited = (at.timestamp_ns - awaited.due_ns) / SECOND_NS
        return self.report(
            "",
            f"client {will.client!r} disappeared without a DISCONNECT but its will on {topic!r} has not reached "
            f"{at.client_name!r} within {waited:,.0f} s",
            statements=how if at.version is V5 else None,
            related=(will.connect,),
            sender=Direction.SERVER_TO_CLIENT,
            overdue=True,
            topic=topic,
            **doubt(at, doubtful=wills.is_torn(at) or not (reader and will.proven)),
        )


def _is_will(packet: Publish, will: StoredWill) -> bool:
    return zlib.crc32(packet.payload) == will.checksum


def _due_subscription(will: StoredWill, since_ns: int, history: History) -> ClientSubscription | None:
    """The subscription of an open connection that should receive a will that has not arrived yet."""
    table = history.subscriptions
    connect = history.connect
    if not table.may_match(will.topic):
        return None
    if connect is None or connect.client_identifier == will.client:
        return None
    if history.client.disconnect is not None or history.server.disconnect is not None:
        return None
    match = table.match(will.topic)
    if not match.known or match.ended or match.extended:
        return None
    recent = history.server.recent
    if len(recent) >= MAX_RECENT and recent[0].timestamp_ns > since_ns:
        return None
    for row in recent:
        later = row.timestamp_ns >= since_ns + BEFORE_NS
        if row.topic == will.topic and (later or (row.checksum == will.checksum and row.timestamp_ns >= since_ns)):
            return None
    for held in match.subscriptions:
        granted = held.granted is not None and held.granted < FAILURE and held.ending_ns is None
        if granted and not held.is_shared and held.granted_ns < since_ns + BEFORE_NS and not held.doubtful:
            return held
    return None
