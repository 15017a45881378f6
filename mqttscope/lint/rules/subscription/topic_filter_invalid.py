"""SUB107."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Subscribe, Unsubscribe
from mqttscope.mqtt.topics import parse_shared, topic_filter_problem

_WHY = {
    "hash_not_alone": "'#' must be alone in its level",
    "hash_not_last": "'#' must be the last level",
    "plus_not_alone": "'+' must be alone in its level",
}
_HASH = {V5: "MQTT-4.7.1-1", V3_1_1: "MQTT-4.7.1-2", V3_1: "V31-FILTER-wildcards"}
_PLUS = {V5: "MQTT-4.7.1-2", V3_1_1: "MQTT-4.7.1-3", V3_1: "V31-FILTER-wildcards"}


class TopicFilterInvalid(Rule):
    """A Topic Filter has a wildcard where none may stand.

    ``#`` stands for the rest of a topic, so it has to be the last level and alone in it; ``+`` stands for one whole
    level.  Servers answer with a failure code or close the connection, and which of them is not the same everywhere.

    Instead, put wildcards in levels of their own: ``a/b/#``, ``a/+/c``.
    """

    code = "SUB107"
    severity = Severity.ERROR
    statements = {
        V5: {"MQTT-4.7.1-1": "", "MQTT-4.7.1-2": ""},
        V3_1_1: {"MQTT-4.7.1-2": "", "MQTT-4.7.1-3": ""},
        V3_1: {"V31-FILTER-wildcards": ""},
    }
    looks_at = (Subscribe, Unsubscribe)
    signs = ("odd_filter",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        wildcards in levels of their own
            opened; > subscribe 10 #:1 +:1 a/b/#:1 /+:1 +/+/c:1 $share/g/+/#:1; < suback 10 1 1 1 1 1 1
            > unsubscribe 11 a/b/#; < unsuback 11 0
    """)
    bad = examples("""
        '#' after other characters
            opened; > raw 82 0a 000a00 0004 "a/b#" 01 !subscriptions[0].topic_filter
        '#' before other levels, '+' beside characters
            opened 3.1.1; > subscribe 10 a/#/b:0 a/b+:0 !subscriptions[0].topic_filter !subscriptions[1].topic_filter
        in UNSUBSCRIBE and 3.1
            opened 3.1; > unsubscribe 10 ok a+ !topic_filters[1]
        in the filter of a share
            opened; > subscribe 10 $share/g/a#:0 !subscriptions[0].topic_filter
    """)

    def check(self, packet: Subscribe | Unsubscribe, at: RuleContext) -> Iterator[Report]:
        """Each filter, without ``$share/name/`` in 5.0."""
        if isinstance(packet, Subscribe):
            rows = [
                (f"subscriptions[{index}].topic_filter", row.topic_filter)
                for index, row in enumerate(packet.subscriptions or ())
            ]
        else:
            rows = [(f"topic_filters[{index}]", name) for index, name in enumerate(packet.topic_filters or ())]
        for field, name in rows:
            share = parse_shared(name) if at.version is V5 else None
            why = topic_filter_problem(name if share is None else share[1], shared=False)
            if why not in _WHY or (share is None and at.version is V5 and name.startswith("$share/")):
                continue
            kind = "SUBSCRIBE" if isinstance(packet, Subscribe) else "UNSUBSCRIBE"
            statement = (_PLUS if why == "plus_not_alone" else _HASH)[at.version]
            yield self.report(field, f"{kind} with topic filter {name!r}: {_WHY[why]}", statements=(statement,))
