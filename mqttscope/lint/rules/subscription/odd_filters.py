"""SUB101, SUB102, SUB105 to SUB109: invalid topic filters and options in SUBSCRIBE or UNSUBSCRIBE."""

from collections.abc import Iterator
from typing import ClassVar

from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Report, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.lint.rules.subscription import options_span
from mqttscope.mqtt import ControlPacket, Direction, Subscribe, Subscription, Unsubscribe
from mqttscope.mqtt.topics import parse_shared, topic_filter_problem


class FilterRule(Rule):
    """A rule about the filters of a SUBSCRIBE or UNSUBSCRIBE."""

    severity = Severity.ERROR
    looks_at: ClassVar[type[ControlPacket] | tuple[type[ControlPacket], ...]] = Subscribe
    signs = ("odd_filter",)
    sender = Direction.CLIENT_TO_SERVER


class EmptyListRule(FilterRule):
    """A rule about packets without a topic filter."""

    reason_code = 0x82

    def check(self, packet: Subscribe | Unsubscribe, at: RuleContext) -> Findings:
        """Report an empty list, unless the packet was cut off."""
        filters = packet.subscriptions if isinstance(packet, Subscribe) else packet.topic_filters
        if filters is None or filters:
            return None
        name = packet_name(packet)
        return self.report("", f"{name} with packet identifier {packet.packet_identifier} has no topic filter")


class OptionRule(FilterRule):
    """A rule about a subscription option of 5.0."""

    reason_code = 0x82
    versions = (V5,)
    field: ClassVar[str]
    words: ClassVar[str]

    def check(self, packet: Subscribe, at: RuleContext) -> Iterator[Report]:
        """Check the options byte of each filter."""
        for index, row in enumerate(packet.subscriptions or ()):
            if self.is_odd(row):
                yield self.report(
                    f"subscriptions[{index}].{self.field}",
                    f"SUBSCRIBE {row.topic_filter!r} has {self.words}",
                    span=options_span(packet, index, at),
                )

    def is_odd(self, row: Subscription) -> bool:
        raise NotImplementedError


def topic_filters(packet: Subscribe | Unsubscribe) -> list[tuple[str, str]]:
    """Field and text of each topic filter."""
    if isinstance(packet, Subscribe):
        rows = enumerate(packet.subscriptions or ())
        return [(f"subscriptions[{index}].topic_filter", row.topic_filter) for index, row in rows]
    return [(f"topic_filters[{index}]", name) for index, name in enumerate(packet.topic_filters or ())]


class SubscribeEmpty(EmptyListRule):
    """A client sends a SUBSCRIBE without a Topic Filter.

    The server cannot grant anything, and a SUBACK would have no codes; servers close the connection.  The usual cause
    is an empty list of topics.

    Instead, do not send a SUBSCRIBE without a topic.
    """

    code = "SUB101"
    statements = {
        V5: {"MQTT-3.8.3-2": ""},
        V3_1_1: {"MQTT-3.8.3-3": ""},
        V3_1: {"V31-SUBSCRIBE-at-least-one": ""},
    }

    good = examples("""
        one Topic Filter
            opened; > subscribe 10 a/b:1; < suback 10 1
    """)
    bad = examples("""
        nothing after the properties
            opened; > subscribe 10 !
        nothing after the identifier in 3.1.1
            opened 3.1.1; > subscribe 10 !
        nothing after the identifier in 3.1
            opened 3.1; > subscribe 10 !
    """)


class UnsubscribeEmpty(EmptyListRule):
    """A client sends an UNSUBSCRIBE without a Topic Filter.

    It ends no subscription, and servers close the connection because of it.

    Instead, include at least one Topic Filter, or do not send an UNSUBSCRIBE.
    """

    code = "SUB102"
    statements = {V5: {"MQTT-3.10.3-2": ""}, V3_1_1: {"MQTT-3.10.3-2": ""}}
    also = {V3_1: ("V31-UNSUBACK-answer",)}
    looks_at = Unsubscribe

    good = examples("""
        one Topic Filter
            opened; > unsubscribe 10 a/b; < unsuback 10 0x11
    """)
    bad = examples("""
        nothing after the properties
            opened; > unsubscribe 10 !
        nothing after the identifier in 3.1.1
            opened 3.1.1; > unsubscribe 10 !
        nothing after the identifier in 3.1
            opened 3.1; > unsubscribe 10 !
    """)


class RetainHandlingInvalid(OptionRule):
    """A SUBSCRIBE has Retain Handling 3, which has no meaning.

    It is a protocol error.  Servers that do not check it may or may not send retained messages.

    Instead, use 0 (send retained messages), 1 (only for a new subscription) or 2 (do not send them).
    """

    code = "SUB105"
    field, words = "retain_handling", "Retain Handling 3"
    statements = {V5: {"V5-SUBSCRIBE-retain-handling-3": ""}}

    good = examples("""
        Retain Handling 2, the highest
            opened; > subscribe 10 a/b:1,retain_handling=2; < suback 10 1
    """)
    bad = examples("""
        both bits
            opened; > raw 82 09 000a00 0003 "a/b" 31 !subscriptions[0].retain_handling
    """)

    def is_odd(self, row: Subscription) -> bool:
        """Bits 5 and 4 of the options."""
        return row.retain_handling == 3


class NoLocalOnShared(OptionRule):
    """A SUBSCRIBE requests No Local on a Shared Subscription.

    Each message on a Shared Subscription goes to one member, perhaps to its publisher.  With No Local it would then
    reach no member at all.  The specification defines this as a protocol error.

    Instead, omit No Local for filters that begin with ``$share/``.
    """

    code = "SUB106"
    field, words = "no_local", "No Local although it is shared"
    statements = {V5: {"MQTT-3.8.3-4": ""}}

    good = examples("""
        each without the other
            opened; > subscribe 10 $share/g/a:1 a:1,no_local; < suback 10 1 1
        a filter with a similar prefix
            opened; > subscribe 10 $shared/g/a:1,no_local; < suback 10 1
    """)
    bad = examples("""
        No Local and $share
            opened; > raw 82 10 000a00 000a "$share/g/a" 05 !subscriptions[0].no_local
    """)

    def is_odd(self, row: Subscription) -> bool:
        """Whether No Local is set for a shared filter."""
        return row.no_local and row.topic_filter.startswith("$share/")


_WHY = {
    "hash_not_alone": "'#' must be alone in its level",
    "hash_not_last": "'#' must be the last level",
    "plus_not_alone": "'+' must be alone in its level",
}
_HASH = {V5: "MQTT-4.7.1-1", V3_1_1: "MQTT-4.7.1-2", V3_1: "V31-FILTER-wildcards"}
_PLUS = {V5: "MQTT-4.7.1-2", V3_1_1: "MQTT-4.7.1-3", V3_1: "V31-FILTER-wildcards"}


class TopicFilterInvalid(FilterRule):
    """A Topic Filter has a wildcard in an invalid position.

    ``#`` matches the rest of a topic, so it must be the last level and alone in it; ``+`` matches one whole level.
    Servers answer with a failure code or close the connection, depending on the implementation.

    Instead, use wildcards as whole levels: ``a/b/#``, ``a/+/c``.
    """

    code = "SUB107"
    statements = {
        V5: {"MQTT-4.7.1-1": "", "MQTT-4.7.1-2": ""},
        V3_1_1: {"MQTT-4.7.1-2": "", "MQTT-4.7.1-3": ""},
        V3_1: {"V31-FILTER-wildcards": ""},
    }
    looks_at = (Subscribe, Unsubscribe)

    good = examples("""
        wildcards as whole levels
            opened; > subscribe 10 #:1 +:1 a/b/#:1 /+:1 +/+/c:1 $share/g/+/#:1; < suback 10 1 1 1 1 1 1
            > unsubscribe 11 a/b/#; < unsuback 11 0
    """)
    bad = examples("""
        '#' after other characters
            opened; > raw 82 0a 000a00 0004 "a/b#" 01 !subscriptions[0].topic_filter
        '#' before other levels, '+' next to characters
            opened 3.1.1; > subscribe 10 a/#/b:0 a/b+:0 !subscriptions[0].topic_filter !subscriptions[1].topic_filter
        in UNSUBSCRIBE, in 3.1
            opened 3.1; > unsubscribe 10 ok a+ !topic_filters[1]
        in the filter of a Shared Subscription
            opened; > subscribe 10 $share/g/a#:0 !subscriptions[0].topic_filter
    """)

    def check(self, packet: Subscribe | Unsubscribe, at: RuleContext) -> Iterator[Report]:
        """Check each filter, in 5.0 without ``$share/name/``."""
        for field, name in topic_filters(packet):
            share = parse_shared(name) if at.version is V5 else None
            why = topic_filter_problem(name if share is None else share[1], shared=False)
            if why not in _WHY or (share is None and at.version is V5 and name.startswith("$share/")):
                continue
            statement = (_PLUS if why == "plus_not_alone" else _HASH)[at.version]
            message = f"{packet_name(packet)} with topic filter {name!r}: {_WHY[why]}"
            yield self.report(field, message, statements=(statement,))


class TopicFilterEmpty(FilterRule):
    """A SUBSCRIBE or UNSUBSCRIBE has an empty Topic Filter.

    It cannot match any topic.  The usual cause is an unset configuration value.

    Instead, use at least one character; ``#`` is the filter for everything.
    """

    code = "SUB108"
    also = {V5: ("MQTT-4.7.3-1",), V3_1_1: ("MQTT-4.7.3-1",)}
    looks_at = (Subscribe, Unsubscribe)

    good = examples("""
        one character, and empty levels
            opened; > subscribe 10 a:1 /:1; < suback 10 1 1; > unsubscribe 11 /; < unsuback 11 0
    """)
    bad = examples("""
        length 0 in SUBSCRIBE
            opened; > raw 82 06 000a00000001 !subscriptions[0].topic_filter
        length 0 in UNSUBSCRIBE
            opened 3.1.1; > unsubscribe 10 a - !topic_filters[1]
        in 3.1
            opened 3.1; > subscribe 10 -:0 !subscriptions[0].topic_filter
    """)

    def check(self, packet: Subscribe | Unsubscribe, at: RuleContext) -> Iterator[Report]:
        for field, name in topic_filters(packet):
            if name == "":
                yield self.report(field, f"{packet_name(packet)} with an empty topic filter")


_SHARES = {
    "share_name_missing": ("the ShareName is missing", ("MQTT-4.8.2-1",)),
    "share_name_invalid": ("the ShareName has a wildcard", ("MQTT-4.8.2-2",)),
    "share_filter_missing": ("no topic filter follows the ShareName", ("MQTT-4.8.2-2",)),
}


class SharedFilterInvalid(FilterRule):
    """A filter that begins with $share has no valid ShareName or no Topic Filter after it.

    A Shared Subscription is ``$share/ShareName/filter``: the ShareName has at least one character and no ``+`` or
    ``#``, and a Topic Filter follows.  Other forms match nothing.  ``$shared/...`` and ``$SHARE/...`` are ordinary
    filters, and before 5.0 ``$share`` is an extension of some servers.

    Instead, write all three parts, for example ``$share/workers/jobs/#``.
    """

    code = "SUB109"
    versions = (V5,)
    statements = {V5: {"MQTT-4.8.2-1": "", "MQTT-4.8.2-2": ""}}

    good = examples("""
        name and filter
            opened; > raw 82 12 000a00 000c "$share/g/a/b" 01; < suback 10 1
        filters with a similar prefix
            opened; > subscribe 10 $shared/g:0 $SHARE/g:0; < suback 10 0 0
        an ordinary filter before 5.0
            opened 3.1.1; > subscribe 10 $share/g:0; < suback 10 0
        a filter that consists of one empty level
            opened; > subscribe 10 $share/g//:0; < suback 10 0
    """)
    bad = examples("""
        no filter
            opened; > raw 82 0e 000a00 0008 "$share/g" 01 !subscriptions[0].topic_filter
        no name, a wildcard in the name, an empty filter, neither name nor filter
            opened
            > subscribe 10 $share//a:0 $share/g+/a:0 $share/g/:0 $share:0 !subscriptions[0].topic_filter
                !subscriptions[1].topic_filter !subscriptions[2].topic_filter !subscriptions[3].topic_filter
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Iterator[Report]:
        """Check each filter that begins with ``$share``."""
        for field, name in topic_filters(packet):
            problem = topic_filter_problem(name) if name[:6] == "$share" else None
            if problem in _SHARES:
                why, broken = _SHARES[problem]
                yield self.report(field, f"SUBSCRIBE with shared filter {name!r}: {why}", statements=broken)
