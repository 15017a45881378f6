from dataclasses import dataclass, field
from zlib import crc32

from mqttscope.lint.rules import Confidence, Findings, Rule, RuleContext, Severity, examples, forget_oldest, shown
from mqttscope.lint.shared_checks import duration
from mqttscope.mqtt import Publish

MAX_MESSAGES = 256
"""Maximum number of different messages tracked per connection; the oldest is dropped first."""


@dataclass(slots=True)
class Loop:
    """A message that crosses a connection alternately in both directions."""

    from_client: bool
    """Whether the client was the last sender."""
    began_ns: int
    last_ns: int
    rounds: int = 0
    """Number of times that the client sent it and then received it again."""


@dataclass(slots=True)
class Loops:
    """Messages by topic and checksum of the payload."""

    messages: dict[tuple[str, int], Loop] = field(default_factory=dict)

    def feed(self, topic: str, payload: bytes, now_ns: int, pause_ns: int, *, from_client: bool) -> Loop:
        """Count a round if the message now comes from the other side, within the pause."""
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
    """A message returns to the client that forwarded it, again and again.

    The client is a bridge or uses No Local, so the server does not return the client's own messages.  The message must
    come another way: for example, two bridges connect the same brokers, or two brokers each have a bridge to the
    other.  It circulates as fast as the brokers forward it, and every subscriber receives each copy.

    Instead, forward each topic in one direction only, or give the topics of each side their own prefix.
    """

    code = "OPS230"
    severity = Severity.WARNING
    confidence = Confidence.HEURISTIC
    settings = {
        # Minimum number of rounds of one message.
        "rounds": 20,
        # Maximum time for each return, in seconds.
        "seconds": 1,
    }
    Memory = Loops

    good = examples("""
        a client without No Local that receives its own messages
            settings rounds=2; opened 3.1.1
            for 1..9: > publish a x; < publish a x
        a bridge that forwards the same message in one direction
            settings rounds=2; opened 3.1.1 protocol_level=0x84; > subscribe 1 #:0; < suback 1 0
            for 1..9: > publish a x
        other messages return
            settings rounds=2; opened 3.1.1 protocol_level=0x84; > subscribe 1 #:0; < suback 1 0
            for 1..9: > publish a {n}; < publish a other
        both sides publish it now and then
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
        """Track messages that the server does not return by itself."""
        topic, connect = at.topic, at.history.connect
        if topic is None or packet.dup or connect is None:
            return None
        if not connect.bridge and not any(row.no_local for row in at.history.subscriptions.matching(topic)):
            return None
        loops: Loops = at.memory(self)
        pause_ns = int(self.set["seconds"] * 1_000_000_000)
        loop = loops.feed(topic, packet.payload, at.timestamp_ns, pause_ns, from_client=at.from_client)
        if at.from_client or loop.rounds != self.set["rounds"]:
            return None
        return self.report(
            "",
            f"one message on {shown(topic)} returned to {at.client_name!r} {loop.rounds:,} times in"
            f" {duration(at.timestamp_ns - loop.began_ns)}: most probably it circulates between brokers",
        )
