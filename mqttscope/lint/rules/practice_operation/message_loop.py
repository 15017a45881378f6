from dataclasses import dataclass, field
from zlib import crc32

from mqttscope.lint.rules import Confidence, Findings, Rule, RuleContext, Severity, examples, forget_oldest, shown
from mqttscope.lint.shared_checks import duration
from mqttscope.mqtt import Publish

MAX_MESSAGES = 256
"""Different messages that are followed on a connection; the oldest is forgotten first."""


@dataclass(slots=True)
class Loop:
    """A message that passes a connection in both directions by turns."""

    from_client: bool
    """Whether it came from the client the last time."""
    began_ns: int
    last_ns: int
    rounds: int = 0
    """How often the client sent it and was sent it after that."""


@dataclass(slots=True)
class Loops:
    """Messages by topic and checksum of the payload."""

    messages: dict[tuple[str, int], Loop] = field(default_factory=dict)

    def feed(self, topic: str, payload: bytes, now_ns: int, pause_ns: int, *, from_client: bool) -> Loop:
        """Count a round if a message comes from the other side within a pause of the time before."""
        key = topic, crc32(payload)
        loop = self.messages.get(key)
        if loop is None or loop.from_client is from_client or now_ns - loop.last_ns > pause_ns:
            loop = self.messages[key] = Loop(from_client, now_ns, now_ns)
            forget_oldest(self.messages, MAX_MESSAGES)
            return loop
        loop.from_client, loop.last_ns = from_client, now_ns
        loop.rounds += not from_client
        return loop


class MessageLoop(Rule):
    """A message comes back to the client that forwarded it, again and again.

    The client is a bridge, or has No Local: the server does not send it what it has published itself.  So the message
    comes over another way, as when two bridges join the same brokers, or each of two brokers has a bridge to the other
    one.  It circulates as fast as the brokers forward it, and every subscriber gets each copy.

    Instead, forward each topic in one direction only, or give the topics of each side a prefix of their own.
    """

    code = "OPS230"
    severity = Severity.WARNING
    confidence = Confidence.HEURISTIC
    settings = {
        # How often a message goes to and fro, the fewest times that are reported.
        "rounds": 20,
        # Seconds in which it has to come back each time.
        "seconds": 1,
    }
    Memory = Loops

    good = examples("""
        a client that is sent what it publishes itself
            settings rounds=2; opened 3.1.1
            for 1..9: > publish a x; < publish a x
        a bridge that forwards the same message in one direction
            settings rounds=2; opened 3.1.1 protocol_level=0x84; > subscribe 1 #:0; < suback 1 0
            for 1..9: > publish a x
        other messages come back
            settings rounds=2; opened 3.1.1 protocol_level=0x84; > subscribe 1 #:0; < suback 1 0
            for 1..9: > publish a {n}; < publish a other
        both sides publish it at times
            settings rounds=2; opened 3.1.1 protocol_level=0x84; > subscribe 1 #:0; < suback 1 0
            for 1..9: +2 > publish a on; +2 < publish a on
    """)
    bad = examples("""
        a bridge, reported once
            settings rounds=2; opened 3.1.1 protocol_level=0x84; > subscribe 1 #:0; < suback 1 0
            > publish a x; < publish a x; > publish a x; < publish a x !; > publish a x; < publish a x
        a client with No Local
            settings rounds=2; opened; > subscribe 1 #:0,no_local; < suback 1 0
            < publish a x; > publish a x; < publish a x; > publish a x; < publish a x !
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Follow what the server does not send back by itself."""
        topic, connect = at.topic, at.history.connect
        if topic is None or packet.dup or connect is None:
            return None
        if not connect.bridge and not any(one.no_local for one in at.history.subscriptions.matching(topic)):
            return None
        loops: Loops = at.memory(self)
        pause_ns = int(self.set["seconds"] * 1_000_000_000)
        loop = loops.feed(topic, packet.payload, at.timestamp_ns, pause_ns, from_client=at.from_client)
        if at.from_client or loop.rounds != self.set["rounds"]:
            return None
        return self.report(
            "",
            f"one message on {shown(topic)} came back to {at.client_name!r} {loop.rounds:,} times in"
            f" {duration(at.timestamp_ns - loop.began_ns)}: most probably it circulates between brokers",
        )
