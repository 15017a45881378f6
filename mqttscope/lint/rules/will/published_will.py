"""WIL405 to WIL407: wills that no subscriber should have got."""

from typing import ClassVar

from mqttscope.lint.broker_watch import doubt
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.rules import SECOND_NS, V3_1, V3_1_1, V5, ConnectionKey, Findings, RuleContext, examples
from mqttscope.lint.rules.delivery import DeliveryRule
from mqttscope.lint.rules.will import was_there, will_in
from mqttscope.lint.wills import DROPPED, DUE, TAKEN_BACK, StoredWill, Wills
from mqttscope.mqtt.packets import Publish
from mqttscope.session.matching import Match

CLOSE_NS = 2 * SECOND_NS
"""How much of Will Delay has to be left when the client is back: who was first need not be as the capture has it."""
LATE_NS = 60 * SECOND_NS
"""How long after the end of Will Delay a message is taken for the will."""


class PublishedWillRule(DeliveryRule):
    """A message that can be nothing else than a certain will."""

    severities: ClassVar[tuple[Severity, ...]] = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    models = (Wills,)
    about = Wills, "topics"

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for the will that the message is."""
        stored = will_in(packet, at)
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
        """What is wrong with the message; ``None`` if nothing is."""
        raise NotImplementedError

    def related(self, will: StoredWill) -> tuple[Related, ...]:
        return (will.connect,)


class WillPublishedAfterNormalDisconnect(PublishedWillRule):
    """A server publishes the will of a client that has left with a normal DISCONNECT.

    With DISCONNECT a client says that all is well and that its will is not wanted.  A server that publishes it all the
    same reports a death that was none.  Clients that say goodbye in the words of their will publish that themselves;
    so nobody may have published the same, and no other will may have the same content.  DISCONNECT 0x04 asks for the
    will, and after a reset, also one after FIN, nobody knows whether the server has read the DISCONNECT.

    Instead, drop the will when a normal DISCONNECT comes.
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
        nothing is published
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > fin
        DISCONNECT 0x04
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect code=0x04; > fin; @1 < publish dead/c1 gone
        the client itself says the same before it leaves
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > publish dead/c1 gone; > disconnect; > fin; @1 < publish dead/c1 gone
        a message in bytes that were lost
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            lost > publish dead/c1 gone; > disconnect; > fin; @1 < publish dead/c1 gone
        a reset: the server may not have read the DISCONNECT
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > reset; @1 < publish dead/c1 gone
        FIN, and a reset when the server still sends: it may not have read the DISCONNECT either
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > fin-reset; @1 < publish dead/c1 gone
        another client has the same will
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            @2 opened client=c3 will=dead/c1 will_payload=gone; > disconnect; > fin; @1 < publish dead/c1 gone
        the will of the connection before
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > reset; @2 opened will=dead/c1 will_payload=gone; @2 > disconnect; @2 > fin; @1 < publish dead/c1 gone
        the subscriber came later: it may be an old message of its session
            opened will=dead/c1 will_payload=gone; > disconnect; > fin; @1 opened client=c2; @1 > subscribe 1 dead/#:0
            @1 < suback 1 0; @1 < publish dead/c1 gone
        another content
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > fin; @1 < publish dead/c1 bye
        a stored message
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
        """Whether the will was dropped, not long ago."""
        phase, left_ns = at.model(Wills).phase_of(key, will, at)
        since_ns = at.timestamp_ns - left_ns
        if phase != DROPPED or not 0 <= since_ns <= self.nanoseconds("window") or not was_there(left_ns, at):
            return None
        return f"although it left with DISCONNECT {since_ns / SECOND_NS:,.3f} s before"


class WillPublishedDespiteReconnect(PublishedWillRule):
    """A server publishes a delayed will before its time, or although its client has come back in time.

    Will Delay is there so that a short loss of the network is no alarm: a client that takes its session up again
    within the interval was never gone.  The will is due when the delay is over or the session ends, whichever comes
    first, and not before.  It is the old will that is reported; where the client comes with a new session
    (Clean Start 1), the end of the old one may make its will due.

    Instead, forget the delayed will when the client takes up its session.
    """

    code = "WIL406"
    severities = (Severity.ERROR, Severity.WARNING)
    versions = (V5,)
    statements = {V5: {"MQTT-3.1.3-9": ""}}
    also = {V5: ("MQTT-3.1.2-8",)}

    good = examples("""
        back in time
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing; @2 opened resume session_expiry_interval=300 < present
        back with a new session
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing; @2 opened session_expiry_interval=300; @1 < publish dead/c1 gone
        published when Will Delay is nearly over, and when it is
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +29 @1 < publish dead/c1 gone
        back too late
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +31 @2 > nothing; @2 opened resume session_expiry_interval=300 < present; @1 < publish dead/c1 gone
        back at the last moment
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +29 @2 > nothing; @2 opened resume session_expiry_interval=300 < present; @1 < publish dead/c1 gone
        gone again, with the same will
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing; @2 opened resume will=dead/c1 will_payload=gone session_expiry_interval=300 < present
            @2 > reset; @1 < publish dead/c1 gone
        somebody says the same
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing; @2 opened resume session_expiry_interval=300 < present; @2 > publish dead/c1 gone
            @1 < publish dead/c1 gone
    """)
    bad = examples("""
        published when the client is back
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing; @2 opened resume session_expiry_interval=300 < present; @1 < publish dead/c1 gone !payload
        published when Will Delay is over, though the client has it again
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
        published before the session ends, which comes before the end of Will Delay
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=600 session_expiry_interval=30; > reset
            +27 @1 < publish dead/c1 gone !payload
    """)

    def describe(
        self, key: ConnectionKey, will: StoredWill, match: Match, packet: Publish, at: RuleContext
    ) -> str | None:
        """Whether the will is not due yet, or was taken back, not long ago."""
        phase, left_ns = at.model(Wills).phase_of(key, will, at)
        if phase == DUE and will.due_ns - at.timestamp_ns > CLOSE_NS and was_there(left_ns, at):
            early = (will.due_ns - at.timestamp_ns) / SECOND_NS
            return f"{early:,.1f} s too early: Will Delay is {will.delay_s} s, and the session had not ended"
        if will.phase != TAKEN_BACK or not will.back_ns <= at.timestamp_ns <= will.due_ns + LATE_NS:
            return None
        if will.due_ns - will.back_ns < CLOSE_NS or not was_there(will.ended_ns, at):
            return None
        apart = max(0, will.back_ns - will.ended_ns) / SECOND_NS
        return f"although it was back {apart:,.1f} s later, within Will Delay {will.delay_s} s"

    def related(self, will: StoredWill) -> tuple[Related, ...]:
        """The packet with the will, and the one that shows that the client is back."""
        return (will.connect,) if will.back is None else (will.connect, will.back)


class WillPublishedTwice(PublishedWillRule):
    """A subscriber gets the will of one client twice for one end of its connection.

    A will is dropped once it is published; a server that keeps it publishes it again when it notices the end of the
    connection in a second way.  A subscriber with one matching subscription gets one copy.  Messages that are sent
    again with DUP, clients that share a will, and publishers of the same content are left out.

    Instead, drop the will as it is published.
    """

    code = "WIL407"
    confidence = Confidence.HEURISTIC
    statements = {V5: {"MQTT-3.1.2-10": ""}, V3_1_1: {"MQTT-3.1.2-10": ""}}
    settings = {"window": 60}

    good = examples("""
        once
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone
        two subscriptions
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; @1 > subscribe 2 +/c1:1; @1 < suback 2 1
            opened will=dead/c1 will_payload=gone; > reset; @1 < publish dead/c1 gone; @1 < publish dead/c1 gone
        two clients with one will
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            @2 opened client=c3 will=dead/c1 will_payload=gone; > reset; @2 > reset; @1 < publish dead/c1 gone
            @1 < publish dead/c1 gone
        gone twice
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone; @2 opened will=dead/c1 will_payload=gone; @2 > reset
            @1 < publish dead/c1 gone
        somebody says the same
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone; +1 @1 > publish dead/c1 gone; @1 < publish dead/c1 gone
        sent again
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1
            opened will=dead/c1 will_payload=gone will_qos=1; > reset; @1 < publish dead/c1 gone qos=1 id=7
            +20 @1 < publish dead/c1 gone dup qos=1 id=7; @1 > puback 7
        asked for the stored one
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1
            opened will=dead/c1 will_payload=gone will_retain; > reset; @1 < publish dead/c1 gone
            @1 > subscribe 2 dead/#:1; @1 < suback 2 1; @1 < publish dead/c1 gone retain
    """)
    bad = examples("""
        twice
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone; @1 < publish dead/c1 gone !payload
        once when the client is gone and once a while later, in 3.1.1
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone; +40 @1 > nothing; @1 < publish dead/c1 gone !payload
    """)

    def describe(
        self, key: ConnectionKey, will: StoredWill, match: Match, packet: Publish, at: RuleContext
    ) -> str | None:
        """Count the copies."""
        copies = will.copies.get(at.key, 0)
        if not copies or packet.retain or len(match.subscriptions) > 1 or match.ended or match.replaces:
            return None
        phase, ended_ns = at.model(Wills).phase_of(key, will, at)
        since_ns = at.timestamp_ns - ended_ns
        if phase != DUE or since_ns > self.nanoseconds("window") or not was_there(ended_ns, at):
            return None
        return f"{copies + 1} times for one closed connection"
