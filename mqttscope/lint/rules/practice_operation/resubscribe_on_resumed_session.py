"""OPS218."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, crossing, examples, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V3_1_1, V5, Findings, Rule
from mqttscope.lint.shared_checks import count
from mqttscope.lint.topics import Seen
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties

_KEPT = Properties(session_expiry_interval=3600)


class ResubscribeOnResumedSession(Rule):
    """A client subscribes again although its session was resumed.

    The subscriptions are part of the session and still there.  Each one that is made again brings all its retained
    messages once more, unless Retain Handling keeps them away.  One connection does not show what the session held,
    so this is likely rather than certain, and reported for the first SUBSCRIBE soon after the CONNACK.

    Instead, look at Session Present and subscribe only when it is 0, or with Retain Handling 1.
    """

    code = "OPS218"
    severity = Severity.INFO
    looks_at = Subscribe
    sender = Direction.CLIENT_TO_SERVER
    settings = {
        # Seconds after the CONNACK in which a SUBSCRIBE is taken for what the client does after each connect.
        "seconds": 5,
    }
    Memory = Seen

    good = examples(
        lambda: [
            conversation("nothing is subscribed", *opened(clean_start=False, session_present=True, connect=_KEPT)),
            conversation(
                "the session is new",
                *opened(clean_start=False, connect=_KEPT),
                client(Subscribe(1, None, [Subscription("a")])),
                server(Suback(1, None, [0])),
            ),
            conversation(
                "Retain Handling keeps retained messages away",
                *opened(clean_start=False, session_present=True, connect=_KEPT),
                client(
                    Subscribe(1, None, [Subscription("a", retain_handling=1), Subscription("b", retain_handling=2)])
                ),
                server(Suback(1, None, [0, 0])),
            ),
            conversation(
                "something new, later",
                *opened(V3_1_1, clean_start=False, session_present=True),
                client(Subscribe(1, None, [Subscription("a")]), after=6),
                server(Suback(1, None, [0])),
            ),
            conversation(
                "the client could not know yet",
                *opened(V3_1_1, clean_start=False, session_present=True),
                crossing(client(Subscribe(1, None, [Subscription("a")]))),
                server(Suback(1, None, [0])),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "at once, reported once",
                *opened(clean_start=False, session_present=True, connect=_KEPT),
                client(Subscribe(1, None, [Subscription("a"), Subscription("b")])).marked(""),
                server(Suback(1, None, [0, 0])),
                client(Subscribe(2, None, [Subscription("c")])),
                server(Suback(2, None, [0])),
            ),
            conversation(
                "MQTT 3.1.1",
                *opened(V3_1_1, clean_start=False, session_present=True),
                client(Subscribe(1, None, [Subscription("a")])).marked(""),
                server(Suback(1, None, [0])),
            ),
        ]
    )

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """The client must have known of the session."""
        connack = at.history.connack_sent
        if at.connection.session_present is not True or connack is None or not at.knew(connack):
            return None
        if at.timestamp_ns - connack.timestamp_ns > self.set["seconds"] * 1_000_000_000:
            return None
        rows = [row for row in packet.subscriptions or () if at.version is not V5 or row.retain_handling == 0]
        if not rows or not at.memory(self).first(""):
            return None
        return self.report(
            "",
            f"{at.client_name!r} resubscribes {count(len(rows), 'filter')} although Session Present is 1",
            confidence=Confidence.LIKELY,
        )
