from collections.abc import Iterator

from mqttscope.lint.rules import Report, Rule, RuleContext, Severity, examples
from mqttscope.lint.topics import plain
from mqttscope.mqtt import Direction, Subscribe

_EVERYTHING = ("#", "+/#", "+")


class SubscribeAll(Rule):
    """A client subscribes to everything.

    It receives every message of all other clients, including future ones, and the server has to send each message once
    more.  Debugging tools do this on purpose; suppress their findings by Client Identifier.

    Instead, subscribe only to the topics that you need.
    """

    code = "TOP106"
    severity = Severity.WARNING
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        one line of one plant
            opened; > subscribe 10 plant1/line4/#:1; < suback 10 1
        a wildcard followed by a name, and the server's own topics
            opened; > subscribe 10 +/state:0 $SYS/#:0; < suback 10 0 0
    """)
    bad = examples("""
        all topics
            opened; > subscribe 10 #:1 !subscriptions[0].topic_filter; < suback 10 1
        other spellings
            opened 3.1.1; > subscribe 1 a:0 +/#:0 +:0 !subscriptions[1].topic_filter !subscriptions[2].topic_filter
            < suback 1 0 0 0
        all topics, shared
            opened; > subscribe 1 $share/x/#:0 !subscriptions[0].topic_filter; < suback 1 0
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Iterator[Report]:
        """Check each filter of the packet."""
        for index, row in enumerate(packet.subscriptions or ()):
            if plain(row.topic_filter) in _EVERYTHING:
                extent = "every topic of one level" if plain(row.topic_filter) == "+" else "everything"
                text = f"SUBSCRIBE {row.topic_filter!r} matches {extent}"
                yield self.report(f"subscriptions[{index}].topic_filter", text)
