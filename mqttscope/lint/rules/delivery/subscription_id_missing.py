import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.rules import V5, Connection, Findings, Needs, Rule, RuleContext, examples, properties_lost
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, filters_of
from mqttscope.mqtt import Direction, Publish
from mqttscope.session.matching import ClientSubscription, Match

MAX_WAITING = 256
"""Maximum number of messages per connection that wait for other copies, and of reports about missing copies."""


@dataclass(slots=True)
class MessageCopies:
    """The copies of one message that have been received."""

    topic: str
    packet: int
    frame: int
    timestamp_ns: int
    missing: tuple[int, ...]
    """Identifiers that have not appeared on any copy; empty once all have arrived."""
    filters: str
    times: int = 1


@dataclass(slots=True)
class PendingCopies:
    """Messages that wait for other copies, and messages with missing copies."""

    copies: dict[str, MessageCopies] = field(default_factory=dict)
    """Messages that wait, by topic and content."""
    never: dict[str, MessageCopies] = field(default_factory=dict)
    """Messages with missing copies, by the filters of the missing identifiers."""
    is_full: bool = False
    """Whether a message was dropped: from then on another copy of it may look like a new message."""


class SubscriptionIdMissing(Rule):
    """A message lacks the Subscription Identifier of a subscription that it matches.

    Clients use this number to select the handler of a message, and without it the handler is not called.  A single copy
    carries the identifiers of all matching subscriptions; if a server sends one copy for each subscription, each has
    its own.  A message without any identifier is reported at once if every matching subscription has one.  A message
    with only some of them is reported at the end of the connection if no other copy had the rest.

    Instead, put all identifiers on a single copy, or send each copy with its own.
    """

    code = "DLV203"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    versions = (V5,)
    statements = {V5: {"MQTT-3.3.4-3": "", "MQTT-3.3.4-4": "", "MQTT-3.3.4-5": ""}}
    signs = ("identified",)
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS | Needs.WHOLE_SENDER
    settings = {"grace": 5}
    Memory = PendingCopies

    good = examples("""
        the identifier of its subscription
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0
            < publish a/b 21.5 subscription_identifier=7
        all identifiers in one copy
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0
            +9 < publish a/b 21.5 subscription_identifier=8 subscription_identifier=7
        one copy for each subscription
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0
            +9 < publish a/b 21.5 subscription_identifier=7 & publish a/b 21.5 subscription_identifier=8
            < publish a/b 22 subscription_identifier=8 & publish a/b 22 subscription_identifier=7; +9 > fin
        one subscription without an identifier, and its copy arrives too
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0; > subscribe 11 #:0; < suback 11 0
            +9 < publish a/b 21.5 properties & publish a/b 21.5 subscription_identifier=7; +9 > fin
        subscribed again without an identifier
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0; > subscribe 11 a/+:0; < suback 11 0
            < publish a/b 21.5 properties
        sent before the subscription had its identifier
            opened; > subscribe 10 a/+:0; < suback 10 0; > subscribe 11 a/+:0 subscription_identifier=7
            < publish a/b 21.5 properties & suback 11 0
        a resent message without an identifier, as the first time
            opened resume < present; > subscribe 11 a/b:1 subscription_identifier=7; < suback 11 1
            +9 < publish a/b dup qos=1 id=1; > puback 1
        a retained message for one of two subscriptions
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0
            < publish a/b x retain subscription_identifier=8; +9 > fin
    """)
    bad = examples("""
        no identifier
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0
            < publish a/b 21.5 properties !properties
        two subscriptions with identifiers, but no identifier
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0; < publish a/b 21.5 properties !properties
        one copy with one of two identifiers
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0; +9 < publish a/b 21.5 subscription_identifier=7
            < publish a/b 22 subscription_identifier=7; +9 > fin !
        one copy, without the identifier of one of two subscriptions
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0; > subscribe 11 #:0; < suback 11 0
            +9 < publish a/b 21.5 properties; +9 > fin !
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Report a message without identifiers at once, otherwise when no other copy can arrive."""
        topic = at.topic
        if topic is None or (at.connection.session_present and not at.connection.clean_start):
            return None  # the session may include other subscriptions
        table = at.history.subscriptions
        match = table.matches.get(topic) or table.match(topic)
        if not match.identifiers or packet.dup or not match.known:
            return None
        if properties_lost(packet, at):
            return None
        carried = () if packet.properties is None else packet.properties.subscription_identifier
        if not carried and match.all_identified:
            if self._may_lack_identifier(match, at):
                return None
            return self.report(
                "properties",
                f"PUBLISH {topic!r} to {at.client_name!r} lacks the Subscription Identifier of "
                f"{filters_of(match.subscriptions)} ({', '.join(map(str, match.identifiers))})",
                statements=("MQTT-3.3.4-3",),
            )
        if len(match.subscriptions) > 1 and not packet.missing:
            self._await_copies(packet, carried, match, at)
        return None

    def _may_lack_identifier(self, match: Match, at: RuleContext) -> bool:
        """Whether the message may belong to, or was queued for, a subscription without an identifier."""
        grace = self.nanoseconds("grace")
        for subscription in match.subscriptions:
            before = subscription.replaced
            if before is None or before.subscription_identifier is not None:
                continue
            if subscription.granted is None or at.timestamp_ns - subscription.granted_ns <= grace:
                return True
        return any(
            row.subscription_identifier is None and at.timestamp_ns - (row.ended_ns or 0) <= grace
            for row in match.ended
        )

    def _await_copies(self, packet: Publish, carried: list[int] | tuple[()], match: Match, at: RuleContext) -> None:
        shared = any(subscription.is_shared for subscription in match.subscriptions)
        if match.all_identified and not shared and all(number in carried for number in match.identifiers):
            return  # all identifiers are on this copy, so no other copy is needed
        due = [
            row for row in match.subscriptions if self._is_due(row, at) and row.subscription_identifier not in carried
        ]
        memory = at.memory(self)
        key = f"{at.topic}\0{zlib.crc32(packet.payload)}\0{len(packet.payload)}"
        copies = memory.copies.get(key)
        if copies is not None:
            copies.missing = tuple(number for number in copies.missing if number not in carried)
            return
        if len(memory.copies) >= MAX_WAITING and not memory.is_full:
            first, oldest = next(iter(memory.copies.items()))
            is_recent = at.timestamp_ns - oldest.timestamp_ns <= self.nanoseconds("grace")
            memory.is_full = is_recent and bool(oldest.missing)
            if not memory.is_full:
                _stop_waiting(memory, first)
        if memory.is_full:
            return
        if packet.retain:
            due = []  # a retained message may have been sent for one subscription only
        missing = tuple(row.subscription_identifier for row in due if row.subscription_identifier is not None)
        event = at.event
        memory.copies[key] = MessageCopies(
            at.topic or "", at.number, event.frame, at.timestamp_ns, missing, filters_of(due)
        )

    def _is_due(self, row: ClientSubscription, at: RuleContext) -> bool:
        """Whether the subscription receives every matching message, and has been active long enough."""
        if row.subscription_identifier is None or row.granted is None or row.is_shared or row.no_local:
            return False
        return row.ending_ns is None and at.timestamp_ns - row.granted_ns > self.nanoseconds("grace")

    def check_close(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Report messages with missing copies."""
        if self.code not in at.history.memories:
            return
        memory = at.memory(self)
        for key, copies in list(memory.copies.items()):
            if at.timestamp_ns - copies.timestamp_ns > self.nanoseconds("grace"):
                _stop_waiting(memory, key)
        for filters, copies in memory.never.items():
            least = "at least " if memory.is_full else ""
            more = f", as do {least}{copies.times - 1} more messages" if copies.times > 1 else ""
            yield self.report(
                "",
                f"PUBLISH {copies.topic!r} to {at.client_name!r} lacks the Subscription Identifier of {filters} "
                f"({', '.join(map(str, copies.missing))}), and no other copy has it{more}",
                sender=Direction.SERVER_TO_CLIENT,
                related=(Related.to("the first such PUBLISH", copies),),
            )


def _stop_waiting(memory: PendingCopies, key: str) -> None:
    copies = memory.copies.pop(key)
    if not copies.missing:
        return
    before = memory.never.get(copies.filters)
    if before is not None:
        before.times += 1
    elif len(memory.never) < MAX_WAITING:
        memory.never[copies.filters] = copies
