import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.rules import V5, Connection, Findings, Needs, Rule, RuleContext, examples, properties_lost
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, filters_of
from mqttscope.mqtt import Direction, Publish
from mqttscope.session.matching import Match, Subscribed

MAX_WAITING = 256
"""Maximum number of messages of a connection whose other copies are waited for, and of kinds for which none came."""


@dataclass(slots=True)
class Copies:
    """The copies of one message so far."""

    topic: str
    packet: int
    frame: int
    timestamp_ns: int
    missing: tuple[int, ...]
    """Identifiers that no copy has carried; none once all have come."""
    filters: str
    times: int = 1


@dataclass(slots=True)
class Waiting:
    """Messages of which copies came or may still be to come, and what never came."""

    copies: dict[str, Copies] = field(default_factory=dict)
    """By topic and content."""
    never: dict[str, Copies] = field(default_factory=dict)
    """By the filters whose identifiers never came."""
    is_full: bool = False
    """Whether a message was left out: what looks like a new message may be its other copy from then on."""


class SubscriptionIdMissing(Rule):
    """A message lacks the Subscription Identifier of a subscription that it matches.

    Clients choose the handler of a message by that number, and without it the handler is not called.  A single copy
    carries the identifiers of all matching subscriptions; where a server sends a copy for each subscription, each has
    its own.  So a message without any identifier is reported at once if every matching subscription has one, and one
    that carries only some of them at the end of the connection, if no other copy brought the rest.

    Instead, send all identifiers with a single copy, or each copy with its own.
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
    Memory = Waiting

    good = examples("""
        the identifier of its subscription
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0
            < publish a/b 21.5 subscription_identifier=7
        all identifiers in one copy
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0
            +9 < publish a/b 21.5 subscription_identifier=8 subscription_identifier=7
        a copy for each subscription
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0
            +9 < publish a/b 21.5 subscription_identifier=7 & publish a/b 21.5 subscription_identifier=8
            < publish a/b 22 subscription_identifier=8 & publish a/b 22 subscription_identifier=7; +9 > fin
        one subscription has none, and its copy comes too
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0; > subscribe 11 #:0; < suback 11 0
            +9 < publish a/b 21.5 properties & publish a/b 21.5 subscription_identifier=7; +9 > fin
        subscribed again without an identifier
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0; > subscribe 11 a/+:0; < suback 11 0
            < publish a/b 21.5 properties
        sent before it got its identifier
            opened; > subscribe 10 a/+:0; < suback 10 0; > subscribe 11 a/+:0 subscription_identifier=7
            < publish a/b 21.5 properties & suback 11 0
        a message sent again that had none the first time
            opened resume < present; > subscribe 11 a/b:1 subscription_identifier=7; < suback 11 1
            +9 < publish a/b dup qos=1 id=1; > puback 1
        a retained message of one of two subscriptions
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0
            < publish a/b x retain subscription_identifier=8; +9 > fin
    """)
    bad = examples("""
        no identifier at all
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0
            < publish a/b 21.5 properties !properties
        two subscriptions with identifiers, and none comes
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0; < publish a/b 21.5 properties !properties
        one copy with one of two identifiers
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0
            > subscribe 11 #:0 subscription_identifier=8; < suback 11 0; +9 < publish a/b 21.5 subscription_identifier=7
            < publish a/b 22 subscription_identifier=7; +9 > fin !
        one copy without the identifier that one of two has
            opened; > subscribe 10 a/+:0 subscription_identifier=7; < suback 10 0; > subscribe 11 #:0; < suback 11 0
            +9 < publish a/b 21.5 properties; +9 > fin !
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Without any identifier at once, with some of them when no other copy can come."""
        topic = at.topic
        if topic is None or (at.connection.session_present and not at.connection.clean_start):
            return None  # the session may have brought other subscriptions
        table = at.history.subscriptions
        found = table.found.get(topic) or table.match(topic)
        if not found.identifiers or packet.dup or not found.known:
            return None
        if properties_lost(packet, at):
            return None
        carried = () if packet.properties is None else packet.properties.subscription_identifier
        if not carried and found.all_identified:
            if self._was_without(found, at):
                return None
            return self.report(
                "properties",
                f"PUBLISH {topic!r} to {at.client_name!r} lacks the Subscription Identifier of "
                f"{filters_of(found.subscriptions)} ({', '.join(map(str, found.identifiers))})",
                statements=("MQTT-3.3.4-3",),
            )
        if len(found.subscriptions) > 1 and not packet.missing:
            self._wait(packet, carried, found, at)
        return None

    def _was_without(self, found: Match, at: RuleContext) -> bool:
        """Whether the message may belong to a subscription that had no identifier, or was queued for one."""
        grace = self.nanoseconds("grace")
        for one in found.subscriptions:
            before = one.replaced
            if before is None or before.subscription_identifier is not None:
                continue
            if one.granted is None or at.timestamp_ns - one.granted_ns <= grace:
                return True
        return any(
            one.subscription_identifier is None and at.timestamp_ns - (one.ended_ns or 0) <= grace
            for one in found.ended
        )

    def _wait(self, packet: Publish, carried: list[int] | tuple[()], found: Match, at: RuleContext) -> None:
        shared = any(one.is_shared for one in found.subscriptions)
        if found.all_identified and not shared and all(number in carried for number in found.identifiers):
            return  # all of them at once, so no other copy is needed
        due = [
            one for one in found.subscriptions if self._is_due(one, at) and one.subscription_identifier not in carried
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
                _never_came(memory, first)
        if memory.is_full:
            return
        if packet.retain:
            due = []  # one that a SUBSCRIBE asked for belongs to that alone
        missing = tuple(one.subscription_identifier for one in due if one.subscription_identifier is not None)
        event = at.event
        memory.copies[key] = Copies(at.topic or "", at.number, event.frame, at.timestamp_ns, missing, filters_of(due))

    def _is_due(self, one: Subscribed, at: RuleContext) -> bool:
        """Whether the subscription has long been in force, and gets every message that matches."""
        if one.subscription_identifier is None or one.granted is None or one.is_shared or one.no_local:
            return False
        return one.ending_ns is None and at.timestamp_ns - one.granted_ns > self.nanoseconds("grace")

    def check_close(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Messages of which no other copy came."""
        if self.code not in at.history.memories:
            return
        memory = at.memory(self)
        for key, copies in list(memory.copies.items()):
            if at.timestamp_ns - copies.timestamp_ns > self.nanoseconds("grace"):
                _never_came(memory, key)
        for filters, copies in memory.never.items():
            least = "at least " if memory.is_full else ""
            more = f", as do {least}{copies.times - 1} more messages" if copies.times > 1 else ""
            yield self.report(
                "",
                f"PUBLISH {copies.topic!r} to {at.client_name!r} lacks the Subscription Identifier of {filters} "
                f"({', '.join(map(str, copies.missing))}), and no other copy brings it{more}",
                sender=Direction.SERVER_TO_CLIENT,
                related=(Related.to("the first such PUBLISH", copies),),
            )


def _never_came(memory: Waiting, key: str) -> None:
    copies = memory.copies.pop(key)
    if not copies.missing:
        return
    before = memory.never.get(copies.filters)
    if before is not None:
        before.times += 1
    elif len(memory.never) < MAX_WAITING:
        memory.never[copies.filters] = copies
