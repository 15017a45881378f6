"""WIL405 to WIL407: wills that should not have been published."""

from typing import ClassVar

from mqttscope.lint.broker_watch import doubt
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.rules import SECOND_NS, V3_1, V3_1_1, V5, ConnectionKey, Findings, RuleContext, examples
from mqttscope.lint.rules.delivery import DeliveryRule
from mqttscope.lint.rules.will import was_connected, will_of
from mqttscope.lint.wills import DROPPED, DUE, TAKEN_BACK, StoredWill, Wills
from mqttscope.mqtt.packets import Publish
from mqttscope.session.matching import Match

CLOSE_NS = 2 * SECOND_NS
"""Minimum remaining Will Delay at the reconnect: the server may see another order than the capture."""
LATE_NS = 60 * SECOND_NS
"""Maximum time after the end of Will Delay for a message to count as the will."""


class PublishedWillRule(DeliveryRule):
    """A rule about a message that can only be a certain will."""

    severities: ClassVar[tuple[Severity, ...]] = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    models = (Wills,)
    about = Wills, "topics"

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Check a message that must be a will."""
        stored = will_of(packet, at)
        if stored is None:
            return None
        key, will, match = stored
        words = self.describe(key, will, match, packet, at)
        if words is None:
            return None
        return self.report(
            "payload",
            f"will of {will.client!r} published to {at.client_name!r} {words}",
            related=self.related(will),
            **doubt(at, doubtful=at.model(Wills).is_torn(at)),
        )

    def describe(
        self, key: ConnectionKey, will: StoredWill, match: Match, packet: Publish, at: RuleContext
    ) -> str | None:
        """The problem with the publication, or ``None``."""
        raise NotImplementedError

    def related(self, will: StoredWill) -> tuple[Related, ...]:
        return (will.connect,)


class WillPublishedAfterNormalDisconnect(PublishedWillRule):
    """A server publishes the will of a client that disconnected normally.

    With DISCONNECT a client reports that all is well and cancels its will.  A server that publishes it anyway reports a
    failure that did not happen.  Some clients publish a goodbye message with the content of their will; so this is
    reported only if no client published the same message and no other will has the same content.  DISCONNECT 0x04
    requests the will, and after a reset, even one after FIN, the server may not have read the DISCONNECT.

    Instead, drop the will when a normal DISCONNECT arrives.
    """

    code = "WIL405"
    statements = {V5: {"MQTT-3.14.4-3": ""}, V3_1_1: {"MQTT-3.14.4-3": ""}}
    also = {
        V5: ("MQTT-3.1.2-8", "MQTT-3.1.2-10"),
        V3_1_1: ("MQTT-3.1.2-10",),
        V3_1: ("V31-CONNECT-will-published",),
    }
    settings = {"window": 60}

    good = examples("""
        not published
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > fin
        DISCONNECT 0x04
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect code=0x04; > fin; @1 < publish dead/c1 gone
        the client publishes the same message before it disconnects
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > publish dead/c1 gone; > disconnect; > fin; @1 < publish dead/c1 gone
        the client may have published it in lost bytes
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            lost > publish dead/c1 gone; > disconnect; > fin; @1 < publish dead/c1 gone
        a reset: the server may not have read the DISCONNECT
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > reset; @1 < publish dead/c1 gone
        FIN, and a reset while the server still sends: it may not have read the DISCONNECT either
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > fin-reset; @1 < publish dead/c1 gone
        another client has the same will
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            @2 opened client=c3 will=dead/c1 will_payload=gone; > disconnect; > fin; @1 < publish dead/c1 gone
        the will of the previous connection
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > reset; @2 opened will=dead/c1 will_payload=gone; @2 > disconnect; @2 > fin; @1 < publish dead/c1 gone
        the subscriber connected later: it may be an old message of its session
            opened will=dead/c1 will_payload=gone; > disconnect; > fin; @1 opened client=c2; @1 > subscribe 1 dead/#:0
            @1 < suback 1 0; @1 < publish dead/c1 gone
        different content
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > fin; @1 < publish dead/c1 bye
        a retained message
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > fin; @1 < publish dead/c1 gone retain
    """)
    bad = examples("""
        published after DISCONNECT
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > fin; @1 < publish dead/c1 gone !payload
        in 3.1.1, before the connection is closed
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; @1 < publish dead/c1 gone !payload
    """)

    def describe(
        self, key: ConnectionKey, will: StoredWill, match: Match, packet: Publish, at: RuleContext
    ) -> str | None:
        """Whether the will was dropped recently."""
        phase, left_ns = at.model(Wills).phase_of(key, will, at)
        since_ns = at.timestamp_ns - left_ns
        if phase != DROPPED or not 0 <= since_ns <= self.nanoseconds("window") or not was_connected(left_ns, at):
            return None
        return f"although it sent DISCONNECT {since_ns / SECOND_NS:,.3f} s earlier"


class WillPublishedDespiteReconnect(PublishedWillRule):
    """A server publishes a delayed will too early, or although its client has returned in time.

    Will Delay prevents false alarms after a short network failure: a client that resumes its session within the
    interval was never gone.  The will is due when the delay is over or the session ends, whichever comes first.
    Reported only for the old will; if the client starts a new session (Clean Start 1), the end of the old session may
    make its will due.

    Instead, drop the delayed will when the client resumes its session.
    """

    code = "WIL406"
    severities = (Severity.ERROR, Severity.WARNING)
    versions = (V5,)
    statements = {V5: {"MQTT-3.1.3-9": ""}}
    also = {V5: ("MQTT-3.1.2-8",)}

    good = examples("""
        reconnected in time
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing; @2 opened resume session_expiry_interval=300 < present
        reconnected with a new session
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing; @2 opened session_expiry_interval=300; @1 < publish dead/c1 gone
        published when Will Delay is nearly over, and when it is over
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +29 @1 < publish dead/c1 gone
        reconnected too late
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +31 @2 > nothing; @2 opened resume session_expiry_interval=300 < present; @1 < publish dead/c1 gone
        reconnected at the last moment
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +29 @2 > nothing; @2 opened resume session_expiry_interval=300 < present; @1 < publish dead/c1 gone
        disconnected again, with the same will
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing; @2 opened resume will=dead/c1 will_payload=gone session_expiry_interval=300 < present
            @2 > reset; @1 < publish dead/c1 gone
        another client publishes the same message
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing; @2 opened resume session_expiry_interval=300 < present; @2 > publish dead/c1 gone
            @1 < publish dead/c1 gone
    """)
    bad = examples("""
        published after the reconnect
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing; @2 opened resume session_expiry_interval=300 < present; @1 < publish dead/c1 gone !payload
        published after Will Delay, though the client has reconnected
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing
            @2 opened resume will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300 <
                present
            +25 @1 > nothing; @1 < publish dead/c1 gone !payload
        published before Will Delay is over
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +27 @1 < publish dead/c1 gone !payload
        published before the session ends, which is before the end of Will Delay
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=600 session_expiry_interval=30; > reset
            +27 @1 < publish dead/c1 gone !payload
    """)

    def describe(
        self, key: ConnectionKey, will: StoredWill, match: Match, packet: Publish, at: RuleContext
    ) -> str | None:
        """Whether the will is not due yet, or was recently cancelled by a reconnect."""
        phase, left_ns = at.model(Wills).phase_of(key, will, at)
        if phase == DUE and will.due_ns - at.timestamp_ns > CLOSE_NS and was_connected(left_ns, at):
            early = (will.due_ns - at.timestamp_ns) / SECOND_NS
            return f"{early:,.1f} s too early: Will Delay is {will.delay_s} s, and the session had not ended"
        if will.phase != TAKEN_BACK or not will.back_ns <= at.timestamp_ns <= will.due_ns + LATE_NS:
            return None
        if will.due_ns - will.back_ns < CLOSE_NS or not was_connected(will.ended_ns, at):
            return None
        apart = max(0, will.back_ns - will.ended_ns) / SECOND_NS
        return f"although the client reconnected {apart:,.1f} s later, within Will Delay {will.delay_s} s"

    def related(self, will: StoredWill) -> tuple[Related, ...]:
        """The CONNECT with the will, and the packet that shows the reconnect."""
        return (will.connect,) if will.back is None else (will.connect, will.back)


class WillPublishedTwice(PublishedWillRule):
    """A subscriber receives the will of a client twice although the client's connection ended once.

    A will is dropped once it is published.  A server that keeps it publishes it again when it detects the end of the
    connection a second time.  A subscriber with one matching subscription should receive one copy.  Messages resent
    with DUP, clients with the same will, and publishers of the same content are excluded.

    Instead, drop the will when you publish it.
    """

    code = "WIL407"
    confidence = Confidence.HEURISTIC
    statements = {V5: {"MQTT-3.1.2-10": ""}, V3_1_1: {"MQTT-3.1.2-10": ""}}
    settings = {"window": 60}

    good = examples("""
        published once
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone
        two subscriptions
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; @1 > subscribe 2 +/c1:1; @1 < suback 2 1
            opened will=dead/c1 will_payload=gone; > reset; @1 < publish dead/c1 gone; @1 < publish dead/c1 gone
        two clients with one will
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            @2 opened client=c3 will=dead/c1 will_payload=gone; > reset; @2 > reset; @1 < publish dead/c1 gone
            @1 < publish dead/c1 gone
        two ends of a connection
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone; @2 opened will=dead/c1 will_payload=gone; @2 > reset
            @1 < publish dead/c1 gone
        taken over twice: each will is published before the end of its connection is seen
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            @2 > connect client=c1 will=dead/c1 will_payload=gone; @1 < publish dead/c1 gone; < disconnect code=0x8e
            < fin; > fin; @2 < connack; @3 > connect client=c1; @1 < publish dead/c1 gone; @2 < disconnect code=0x8e
            @2 < fin; @2 > fin; @3 < connack
        the next connection of the client is silent: the server may have ended it
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone; @2 opened keep_alive=10 will=dead/c1 will_payload=gone
            +20 @1 < publish dead/c1 gone
        another client publishes the same message
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone; +1 @1 > publish dead/c1 gone; @1 < publish dead/c1 gone
        resent with DUP
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1
            opened will=dead/c1 will_payload=gone will_qos=1; > reset; @1 < publish dead/c1 gone qos=1 id=7
            +20 @1 < publish dead/c1 gone dup qos=1 id=7; @1 > puback 7
        a SUBSCRIBE asks for the retained will
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1
            opened will=dead/c1 will_payload=gone will_retain; > reset; @1 < publish dead/c1 gone
            @1 > subscribe 2 dead/#:1; @1 < suback 2 1; @1 < publish dead/c1 gone retain
    """)
    bad = examples("""
        published twice
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone; @1 < publish dead/c1 gone !payload
        published at the end of the connection and again later, in 3.1.1
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone; +40 @1 > nothing; @1 < publish dead/c1 gone !payload
    """)

    def describe(
        self, key: ConnectionKey, will: StoredWill, match: Match, packet: Publish, at: RuleContext
    ) -> str | None:
        """Report all copies after the first."""
        copies = will.copies.get(at.key, 0)
        if not copies or packet.retain or len(match.subscriptions) > 1 or match.ended or match.replaces:
            return None
        phase, ended_ns = at.model(Wills).phase_of(key, will, at)
        since_ns = at.timestamp_ns - ended_ns
        if phase != DUE or since_ns > self.nanoseconds("window") or not was_connected(ended_ns, at):
            return None
        return f"{copies + 1} times for one closed connection"
