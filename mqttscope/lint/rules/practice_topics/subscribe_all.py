from collections.abc import Iterator

from mqttscope.lint.rules import Report, Rule, RuleContext, Severity, examples
from mqttscope.lint.topics import plain
from mqttscope.mqtt import Direction, Subscribe

_EVERYTHING = ("#", "+/#", "+")


class SubscribeAll(Rule):
    """A client subscribes to everything.

    It gets every message of every other client, also those that will be added next year, and the server has to send
    each message once more.  Debugging tools do so on purpose; silence them by their Client Identifier.

    Instead, subscribe to the topics that are needed.
    """

    code = "TOP106"
    severity = Severity.WARNING
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        one line of one plant
            opened; > subscribe 10 plant1/line4/#:1; < suback 10 1
        a wildcard with a name after it, and the server's own topics
            opened; > subscribe 10 +/state:0 $SYS/#:0; < suback 10 0 0
    """)
    bad = examples("""
        all topics
            opened; > subscribe 10 #:1 !subscriptions[0].topic_filter; < suback 10 1
        other ways to write it
            opened 3.1.1; > subscribe 1 a:0 +/#:0 +:0 !subscriptions[1].topic_filter !subscriptions[2].topic_filter
            < suback 1 0 0 0
        all topics, shared
            opened; > subscribe 1 $share/x/#:0 !subscriptions[0].topic_filter; < suback 1 0
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Iterator[Report]:
        """Each filter of the packet."""
        for index, row in enumerate(packet.subscriptions or ()):
            if plain(row.topic_filter) in _EVERYTHING:
                how = "every topic of one level" if plain(row.topic_filter) == "+" else "everything"
                yield self.report(f"subscriptions[{index}].topic_filter", f"SUBSCRIBE {row.topic_filter!r} takes {how}")
